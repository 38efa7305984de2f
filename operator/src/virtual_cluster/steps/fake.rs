//! Members and agents in this process, on loopback, with the keys of a real authority.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use gridcast_control::{Remote, StepFailure};
use gridcast_proto::v1::{
    self as wire,
    agent_server::{Agent, AgentServer},
    broadcasts_server::{Broadcasts, BroadcastsServer},
    starter_server::{Starter, StarterServer},
};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Certificate, Identity, Server, ServerTlsConfig},
};

use super::reach;
use crate::authority::{Authority, ClusterAuthority, Root};

/// The authority of the cluster with this UID.
pub(super) fn authority(uid: &str) -> ClusterAuthority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    let authority = AUTHORITY.get_or_init(|| {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Authority::new(Root::from_bytes([7; 32])).unwrap()
    });
    authority.cluster(uid, 1).unwrap()
}

/// What a member is asked and what it answers.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub configured: Vec<wire::ConfigureRequest>,
    /// Answers to checks, the last one for ever.
    pub problems: VecDeque<Vec<wire::CheckProblem>>,
    pub checked: Vec<wire::CheckRequest>,
    /// Launches that were started here.
    pub started: Vec<String>,
    pub launches: Vec<wire::LaunchRequest>,
    pub stopped: Vec<wire::StopLaunchRequest>,
    pub ranks: Vec<wire::ObservedRank>,
    pub settings: BTreeMap<String, String>,
    /// What was there before a setting was written.
    pub journal: BTreeMap<String, String>,
    pub collected: Vec<wire::CollectRequest>,
    /// Fails so many calls before it does what is asked.
    pub refusals: u32,
}

/// A member, as others reach it. Dropped, it is gone.
pub(super) struct Member {
    pub remote: Remote,
    pub script: Arc<Mutex<Script>>,
    pub events: watch::Sender<Vec<wire::launch_event::Event>>,
    server: JoinHandle<()>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Member {
    /// A member that serves with the keys of the cluster `uid`.
    pub(super) async fn start(name: &str, uid: &str) -> Self {
        let listener = TcpListener::bind((address(), 0)).await.unwrap();
        Self::serve(name, uid, uid, listener)
    }

    /// One that shows the keys of another cluster.
    pub(super) async fn foreign(name: &str, uid: &str) -> Self {
        let listener = TcpListener::bind((address(), 0)).await.unwrap();
        Self::serve(name, uid, "another", listener)
    }

    /// The remote of a member that is started only after some time, at the same address.
    pub(super) async fn late(name: &str, uid: &str, wait: Duration) -> (Remote, JoinHandle<Self>) {
        let listener = TcpListener::bind((address(), 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        drop(listener);
        let (name, uid) = (name.to_owned(), uid.to_owned());
        let remote = remote(&name, &uid, at);
        let task = tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            Self::serve(&name, &uid, &uid, TcpListener::bind(at).await.unwrap())
        });
        (remote, task)
    }

    fn serve(name: &str, uid: &str, keys_of: &str, listener: TcpListener) -> Self {
        let at = listener.local_addr().unwrap();
        let keys = authority(keys_of).member_keys().unwrap();
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(&keys["cert.pem"], &keys["key.pem"]))
            .client_ca_root(Certificate::from_pem(&keys["ca.pem"]));
        let script = Arc::new(Mutex::new(Script::default()));
        let events = watch::Sender::new(Vec::new());
        let fake = Fake { name: name.to_owned(), script: script.clone(), events: events.clone() };
        let router = Server::builder()
            .tls_config(tls)
            .unwrap()
            .add_service(StarterServer::new(fake.clone()))
            .add_service(BroadcastsServer::new(fake.clone()))
            .add_service(AgentServer::new(fake));
        let server = tokio::spawn(async move {
            let _ = router.serve_with_incoming(TcpListenerStream::new(listener)).await;
        });
        Self { remote: remote(name, uid, at), script, events, server }
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    /// What happens to the launch next.
    pub(super) fn happens(&self, event: wire::launch_event::Event) {
        self.events.send_modify(|events| events.push(event));
    }
}

fn remote(name: &str, uid: &str, at: SocketAddr) -> Remote {
    reach::member(&authority(uid), name, &at.ip().to_string(), at.port()).unwrap()
}

/// Each member has its own: ports that were free a moment ago are not taken by another.
fn address() -> std::net::Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(2);
    [127, 0, 3, NEXT.fetch_add(1, Ordering::Relaxed)].into()
}

/// As the reports of a step.
pub(super) fn collected<T: Clone>() -> (Arc<Mutex<Vec<T>>>, impl Fn(T)) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    (seen.clone(), move |report| seen.lock().unwrap().push(report))
}

/// Until it is so; a test that waits for ever fails.
pub(super) async fn until(what: &str, so: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not happen");
}

pub(super) fn reason<T>(result: Result<T, StepFailure>) -> String {
    result.err().map_or_else(|| "none".to_owned(), |failure| failure.reason)
}

#[derive(Clone)]
struct Fake {
    name: String,
    script: Arc<Mutex<Script>>,
    events: watch::Sender<Vec<wire::launch_event::Event>>,
}

impl Fake {
    fn script(&self) -> Result<MutexGuard<'_, Script>, Status> {
        let mut script = self.script.lock().unwrap();
        if script.refusals > 0 {
            script.refusals -= 1;
            return Err(Status::unavailable("not yet"));
        }
        Ok(script)
    }
}

type Reply<T> = Result<Response<T>, Status>;
type Events<T> = ReceiverStream<Result<T, Status>>;

fn unasked<T>() -> Reply<T> {
    Err(Status::unimplemented("no step asks for this"))
}

#[tonic::async_trait]
impl Starter for Fake {
    type ExecStream = Events<wire::ExecReply>;
    type LaunchStream = Events<wire::LaunchEvent>;

    async fn exec(&self, _: Request<Streaming<wire::ExecRequest>>) -> Reply<Self::ExecStream> {
        unasked()
    }

    async fn ranks(&self, _: Request<wire::RanksRequest>) -> Reply<wire::RanksReply> {
        Ok(Response::new(wire::RanksReply { ranks: self.script()?.ranks.clone() }))
    }

    async fn configure(&self, request: Request<wire::ConfigureRequest>) -> Reply<wire::ConfigureReply> {
        self.script()?.configured.push(request.into_inner());
        Ok(Response::new(wire::ConfigureReply { node: self.name.clone(), version: "0".into() }))
    }

    async fn check(&self, request: Request<wire::CheckRequest>) -> Reply<wire::CheckReply> {
        let mut script = self.script()?;
        script.checked.push(request.into_inner());
        let problems = match script.problems.len() {
            0 => Vec::new(),
            1 => script.problems[0].clone(),
            _ => script.problems.pop_front().unwrap(),
        };
        let problems_total = problems.len() as u32;
        Ok(Response::new(wire::CheckReply { problems, problems_total }))
    }

    async fn launch(&self, request: Request<wire::LaunchRequest>) -> Reply<Self::LaunchStream> {
        let request = request.into_inner();
        {
            let mut script = self.script()?;
            script.launches.push(request.clone());
            if !script.started.contains(&request.id) {
                if request.attach_only {
                    return Err(Status::not_found(format!("launch {} is not known here", request.id)));
                }
                script.started.push(request.id.clone());
            }
        }
        let (send, receive) = tokio::sync::mpsc::channel(16);
        let mut events = self.events.subscribe();
        tokio::spawn(async move {
            let mut sent = 0;
            loop {
                let new = events.borrow_and_update()[sent..].to_vec();
                sent += new.len();
                for event in new {
                    let last = matches!(
                        event,
                        wire::launch_event::Event::Ended(_) | wire::launch_event::Event::Failed(_)
                    );
                    if send.send(Ok(wire::LaunchEvent { event: Some(event) })).await.is_err() || last {
                        return;
                    }
                }
                if events.changed().await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receive)))
    }

    async fn stop_launch(&self, request: Request<wire::StopLaunchRequest>) -> Reply<wire::StopLaunchReply> {
        self.script()?.stopped.push(request.into_inner());
        Ok(Response::new(wire::StopLaunchReply { was_running: true }))
    }
}

#[tonic::async_trait]
impl Broadcasts for Fake {
    type StartStream = Events<wire::BroadcastEvent>;

    async fn start(&self, _: Request<wire::StartBroadcastRequest>) -> Reply<Self::StartStream> {
        unasked()
    }

    async fn inspect(&self, _: Request<wire::InspectRequest>) -> Reply<wire::Opened> {
        unasked()
    }

    async fn collect(&self, request: Request<wire::CollectRequest>) -> Reply<wire::CollectReply> {
        let request = request.into_inner();
        let mut script = self.script()?;
        script.collected.push(request.clone());
        if request.path.ends_with("missing") {
            return Err(Status::not_found("no member has it"));
        }
        Ok(Response::new(wire::CollectReply { files: 1, ..wire::CollectReply::default() }))
    }
}

#[tonic::async_trait]
impl Agent for Fake {
    type WatchStream = Events<wire::WatchEvent>;

    async fn describe(&self, _: Request<wire::DescribeRequest>) -> Reply<wire::DescribeReply> {
        let script = self.script()?;
        Ok(Response::new(wire::DescribeReply {
            name: self.name.clone(),
            settings: script.settings.clone().into_iter().collect(),
            available_congestion_controls: vec!["cubic".into(), "reno".into()],
            allowed_congestion_controls: vec!["cubic".into(), "reno".into()],
            memory_bytes: 8 << 30,
            ..wire::DescribeReply::default()
        }))
    }

    async fn watch(&self, _: Request<wire::WatchRequest>) -> Reply<Self::WatchStream> {
        unasked()
    }

    async fn probe_latency(&self, _: Request<wire::ProbeLatencyRequest>) -> Reply<wire::ProbeLatencyReply> {
        unasked()
    }

    async fn probe_bandwidth(
        &self,
        _: Request<wire::ProbeBandwidthRequest>,
    ) -> Reply<wire::ProbeBandwidthReply> {
        unasked()
    }

    async fn apply_settings(
        &self,
        request: Request<wire::ApplySettingsRequest>,
    ) -> Reply<wire::ApplySettingsReply> {
        let request = request.into_inner();
        let mut script = self.script()?;
        let settings = request
            .settings
            .into_iter()
            .map(|wanted| {
                let before = script.settings.get(&wanted.key).cloned().unwrap_or_default();
                if !request.dry_run {
                    script.journal.entry(wanted.key.clone()).or_insert_with(|| before.clone());
                    script.settings.insert(wanted.key.clone(), wanted.value.clone());
                }
                wire::AppliedSetting { key: wanted.key, before, applied: wanted.value, error: String::new() }
            })
            .collect();
        Ok(Response::new(wire::ApplySettingsReply { settings }))
    }

    async fn restore_settings(
        &self,
        _: Request<wire::RestoreSettingsRequest>,
    ) -> Reply<wire::RestoreSettingsReply> {
        let mut script = self.script()?;
        let before = std::mem::take(&mut script.journal);
        script.settings.extend(before);
        let settings = script.settings.iter().map(|(key, value)| wire::RestoredSetting {
            key: key.clone(),
            restored: true,
            now: value.clone(),
        });
        Ok(Response::new(wire::RestoreSettingsReply { settings: settings.collect() }))
    }
}
