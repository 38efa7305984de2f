//! What happens to a [`World`] that no plan does: kubelets, starters, agents and the other controllers.

use std::collections::BTreeSet;

use gridcast_crds::virtual_cluster::status::TunedSetting;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::world::World;
use crate::virtual_cluster::{Memory, members::Made, objects::places, observed::*, plan::Step};

impl World {
    /// The pods that are being made exist.
    pub(super) fn create(&mut self) {
        for (name, work) in &mut self.create {
            if !matches!(work, Work::Running(_)) {
                continue;
            }
            let Some(Step::Create { names, .. }) = self.steps.get(name) else { continue };
            for place in places(&self.cluster).filter(|place| names.contains(&place.name)) {
                self.made += 1;
                let pod = MemberPod {
                    uid: format!("pod-{}", self.made),
                    created: Some(self.now),
                    ..Default::default()
                };
                let made = Made::now(&self.cluster, place.group);
                let pod = MemberPod { keys: Some(made.keys), ..pod };
                self.pods.entry(place.name.clone()).or_insert((made, pod));
            }
            *work = Work::Done(Creation::default());
        }
    }

    pub(super) fn run_pod(&mut self, index: usize) {
        if let Some((_, pod)) = self.pods.values_mut().nth(index)
            && pod.phase == Phase::Pending
            && pod.deleting.is_none()
        {
            pod.phase = Phase::Running;
            pod.node = Some(format!("k{index}"));
            pod.address = Some(format!("10.0.0.{}", index + 1));
            pod.trouble = None;
        }
    }

    pub(super) fn fail_pod(&mut self, index: usize, reason: &str) {
        if let Some((name, (_, pod))) = self.pods.iter_mut().nth(index) {
            pod.phase = Phase::Failed;
            pod.trouble = Some(Trouble::new(reason, format!("{name}: {reason}")));
        }
    }

    pub(super) fn remove_pod(&mut self, index: usize) {
        let name = self.pods.keys().nth(index).cloned();
        name.map(|name| self.pods.remove(&name));
    }

    /// kubelet ends the pods that were deleted.
    pub(super) fn reap(&mut self) {
        self.pods.retain(|_, (_, pod)| pod.deleting.is_none());
    }

    pub(super) fn open_gate(&mut self) {
        for (name, work) in &mut self.gate {
            if let Some(Step::Gate { hosts, .. }) = self.steps.get(name) {
                let answering: BTreeSet<String> = hosts.iter().map(|host| host.name.clone()).collect();
                *work = Work::Done(Gate { answering, trouble: None });
            }
        }
    }

    pub(super) fn tune(&mut self, result: &Result<(), Trouble>) {
        for (name, work) in &mut self.tune {
            let Some(Step::Tune { hosts, .. }) = self.steps.get(name) else { continue };
            let settings = hosts.iter().map(|host| TunedSetting {
                host: host.name.clone(),
                key: "net.ipv4.tcp_rmem".into(),
                ..TunedSetting::default()
            });
            *work = match result {
                Ok(()) => Work::Done(Tuned { settings: settings.collect(), changed: 3 }),
                Err(trouble) => Work::Failed(trouble.clone()),
            };
        }
    }

    pub(super) fn release(&mut self) {
        if matches!(self.release, Some(Work::Running(_))) {
            let tcp = self.cluster.status.iter().flat_map(|status| &status.tcp);
            let restored = tcp.map(|setting| (setting.host.clone(), setting.key.clone())).collect();
            self.release = Some(Work::Done(Released { restored }));
        }
    }

    pub(super) fn rank(&mut self) {
        let now = self.now;
        for work in self.launch.values_mut() {
            if let Work::Running(launch) = work {
                launch.started = Some(now);
                launch.first_rank = Some(now);
                launch.log_tail = "hello\n".into();
            }
        }
    }

    pub(super) fn end_launch(&mut self, exit_code: i32, trouble: Option<&Trouble>, lost: &[&str]) {
        let now = self.now;
        for work in self.launch.values_mut() {
            if let Work::Running(launch) = work {
                let mut launch = launch.clone();
                launch.log_tail.push_str("bye\n");
                let lost = lost.iter().map(|name| (*name).to_owned()).collect();
                launch.end = Some(LaunchEnd {
                    at: Some(now),
                    exit_code,
                    trouble: trouble.cloned(),
                    lost,
                    placement: vec![],
                });
                *work = Work::Done(launch);
            }
        }
    }

    pub(super) fn lose_launch(&mut self) {
        for work in self.launch.values_mut() {
            if matches!(work, Work::Running(_)) {
                *work =
                    Work::Failed(Trouble::new("LauncherLost", "ring-node-0: its starter does not answer"));
            }
        }
    }

    /// Stops and collections that go on are done.
    pub(super) fn finish_simple(&mut self, kind: &str, result: &Result<(), Trouble>) {
        for (name, work) in &mut self.simple {
            if name.starts_with(kind) && matches!(work, Work::Running(())) {
                *work = match result {
                    Ok(()) => Work::Done(()),
                    Err(trouble) => Work::Failed(trouble.clone()),
                };
            }
        }
    }

    pub(super) fn say_map(&mut self, said: &[Condition]) {
        if let Some(map) = &mut self.map {
            map.status = Some(gridcast_crds::NetworkMapStatus {
                observed_generation: Some(1),
                conditions: said.to_vec(),
                ..Default::default()
            });
        }
    }

    pub(super) fn say_broadcasts(&mut self, said: &[Condition]) {
        for broadcast in &mut self.broadcasts {
            broadcast.status = Some(gridcast_crds::BroadcastStatus {
                observed_generation: Some(1),
                conditions: said.to_vec(),
                nodes_staged: Some(3),
                ..Default::default()
            });
        }
    }

    /// Another operator takes over.
    pub(super) fn restart_operator(&mut self) {
        self.steps.keys().cloned().collect::<Vec<_>>().iter().for_each(|name| self.cancel(name));
        self.over.clear();
        self.memory = Memory::default();
        self.last_write = None;
    }

    /// From nothing to a program that runs.
    pub(super) fn bring_up(&mut self) {
        self.settle();
        self.create();
        self.settle();
        (0..16).for_each(|index| self.run_pod(index));
        self.settle();
        self.open_gate();
        self.settle();
    }
}
