//! How is the API server reached, and what is asked of it?

use std::{fmt, pin::Pin, time::Duration};

use futures::{Stream, StreamExt as _, stream};
use gridcast_crds::{Broadcast, NetworkMap, VirtualCluster};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Api, Client, Config,
    client::{Body, ClientBuilder, ConfigExt as _},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt as _, watcher},
};
use serde::de::DeserializeOwned;
use tower::{BoxError, ServiceBuilder};

use crate::{
    args::Place,
    failure::{Failure, chain},
};

use super::{
    names::Names,
    seen::{Object, Seen},
};

/// An API server answers within a second; a name that does not resolve, or a machine that is off, shows by then.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// All answers together.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Children are found by it.
const CLUSTER_LABEL: &str = "gridcast.io/cluster";

/// One VirtualCluster of one API server.
#[derive(Clone)]
pub(super) struct Cluster {
    client: Client,
    namespace: String,
    name: String,
    server: String,
}

/// What became known.
pub(super) enum Change {
    /// An object is there, is changed, or is gone.
    Seen(Object),
    /// The API server cannot be asked at the moment.
    Trouble(String),
}

/// Changes as they come.
pub(super) struct Changes(Pin<Box<dyn Stream<Item = Change> + Send>>);

impl Changes {
    /// The next one. It does not end: where the API server goes away it is asked again, less and less often.
    pub(super) async fn next(&mut self) -> Change {
        match self.0.next().await {
            Some(change) => change,
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} of {}", self.namespace, self.name, self.server)
    }
}

impl Cluster {
    /// Finds the API server by the kubeconfig or the service account; asks nothing yet.
    pub(super) async fn open(name: &str, place: &Place) -> Result<Self, Failure> {
        let config = config(place).await?;
        if let Some(proxy) = &config.proxy_url {
            let text = format!(
                "the kubeconfig names the proxy {proxy}, which is not supported; run `kubectl proxy` and give a \
                 kubeconfig whose server is http://127.0.0.1:8001"
            );
            return Err(Failure::failed("ApiUnreachable", text));
        }
        let namespace = place.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string();
        let client = client(config).map_err(|error| {
            Failure::failed("ApiUnreachable", format!("cannot use the kubeconfig: {}", chain(&error)))
        })?;
        Ok(Self { client, namespace, name: name.to_owned(), server })
    }

    /// The cluster and its children, as they are now.
    pub(super) async fn read(&self) -> Result<Seen, Failure> {
        let read = async {
            let cluster: VirtualCluster = match self.get(&self.name).await? {
                Some(cluster) => cluster,
                None => return Err(self.missing()),
            };
            let mut seen = Seen::new(cluster);
            if let Some(map) = self.get::<NetworkMap>(&seen.map_name()).await? {
                seen.take(Object::Map(Some(Box::new(map))));
            }
            for name in seen.broadcast_names() {
                if let Some(broadcast) = self.get::<Broadcast>(&name).await? {
                    seen.take(Object::Broadcast(name, Some(Box::new(broadcast))));
                }
            }
            Ok(seen)
        };
        tokio::time::timeout(READ_TIMEOUT, read).await.unwrap_or_else(|_| {
            let text = format!("no answer from {} within {} s", self.server, READ_TIMEOUT.as_secs());
            Err(Failure::failed("ApiUnreachable", text))
        })
    }

    /// What changes from now on, the present state first.
    pub(super) fn changes(&self) -> Changes {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let children = watcher::Config::default().labels(&format!("{CLUSTER_LABEL}={}", self.name));
        let clusters = self.watch::<VirtualCluster>(only.clone(), |_, object| Object::Cluster(object));
        let maps = self.watch::<NetworkMap>(only, |_, object| Object::Map(object));
        let broadcasts = self.watch::<Broadcast>(children, Object::Broadcast);
        Changes(stream::select_all([clusters, maps, broadcasts]).boxed())
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn get<K>(&self, name: &str) -> Result<Option<K>, Failure>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + fmt::Debug,
    {
        self.api::<K>().get_opt(name).await.map_err(|error| self.failed(&error))
    }

    fn watch<K>(
        &self,
        config: watcher::Config,
        object: fn(String, Option<Box<K>>) -> Object,
    ) -> Pin<Box<dyn Stream<Item = Change> + Send>>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + fmt::Debug
            + Send
            + 'static,
    {
        let this = self.clone();
        let events = watcher(self.api::<K>(), config).default_backoff();
        let changes = events.filter_map(move |event| {
            let change = match event {
                Ok(watcher::Event::Apply(k) | watcher::Event::InitApply(k)) => {
                    let name = k.meta().name.clone().unwrap_or_default();
                    Some(Change::Seen(object(name, Some(Box::new(k)))))
                }
                Ok(watcher::Event::Delete(k)) => {
                    Some(Change::Seen(object(k.meta().name.clone().unwrap_or_default(), None)))
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) => None,
                Err(error) => Some(Change::Trouble(format!(
                    "{} cannot be watched at the moment: {}",
                    this.server,
                    chain(&error)
                ))),
            };
            std::future::ready(change)
        });
        changes.boxed()
    }

    fn missing(&self) -> Failure {
        let text = format!(
            "there is no virtualcluster {} in namespace {}; see `kubectl get vcl -A`, or give -n NAMESPACE",
            self.name, self.namespace
        );
        Failure::failed("NotFound", text)
    }

    fn failed(&self, error: &kube::Error) -> Failure {
        match error {
            kube::Error::Api(status) if status.code == 404 => {
                let text = format!(
                    "{} does not know gridcast.io/v1alpha1; install gridcast there first, or choose another --context",
                    self.server
                );
                Failure::failed("NotInstalled", text)
            }
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
                Failure::failed("Forbidden", format!("{}: {}", self.server, status.message))
            }
            kube::Error::Api(status) => {
                Failure::failed("ApiFailed", format!("{}: {}", self.server, status.message))
            }
            error => {
                let text = format!("{} cannot be asked: {}", self.server, chain(error));
                Failure::failed("ApiUnreachable", text)
            }
        }
    }
}

async fn config(place: &Place) -> Result<Config, Failure> {
    let failed = |text: String| Failure::failed("ApiUnreachable", text);
    let options = KubeConfigOptions { context: place.context.clone(), ..KubeConfigOptions::default() };
    let read = match (&place.kubeconfig, &place.context) {
        (Some(file), _) => {
            let given = Kubeconfig::read_from(file)
                .map_err(|e| failed(format!("--kubeconfig {}: {}", file.display(), chain(&e))))?;
            Config::from_custom_kubeconfig(given, &options).await
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await,
        (None, None) => {
            return Config::infer().await.map_err(|e| {
                failed(format!(
                    "no Kubernetes is known here: {}; set KUBECONFIG or give --kubeconfig FILE",
                    chain(&e)
                ))
            });
        }
    };
    read.map_err(|e| failed(format!("the kubeconfig cannot be used: {}", chain(&e))))
}

/// As kube makes its client, but for how names are resolved.
fn client(config: Config) -> Result<Client, kube::Error> {
    let mut connector = HttpConnector::new_with_resolver(Names::default());
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http = HttpClient::builder(TokioExecutor::new()).build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}
