use gridcast_crds::{
    manifest,
    virtual_cluster::{EnvironmentVariable, Implementation, Run},
};
use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, PodSpec};
use proptest::prelude::*;

use super::{template::check, *};

/// A cluster from its manifest, as the API server would have it.
fn cluster(spec: &str) -> VirtualCluster {
    let indented = spec.replace('\n', "\n  ");
    let text = format!(
        "apiVersion: gridcast.io/v1alpha1\nkind: VirtualCluster\nmetadata: {{name: ring, namespace: lab, uid: 6f1e}}\n\
         spec:\n{indented}"
    );
    let documents = manifest::parse(&text).unwrap();
    match &documents[0].resource {
        manifest::Resource::VirtualCluster(cluster) => {
            let mut cluster = (**cluster).clone();
            cluster.metadata.uid = Some("6f1e".into());
            cluster
        }
        other => panic!("{other:?}"),
    }
}

fn image() -> AgentImage {
    AgentImage {
        image: "registry.example/agent:1".into(),
        pull_policy: None,
        pull_secrets: vec!["registry".into()],
        assigned_users: false,
    }
}

fn with<T>(cluster: &VirtualCluster, make: impl FnOnce(&Blueprint<'_>) -> T) -> T {
    let image = image();
    let keys = crate::virtual_cluster::key_generation(cluster);
    make(&Blueprint { cluster, image: &image, operator_namespace: "gridcast-system", keys })
}

/// The pod of the first member.
fn first_pod(cluster: &VirtualCluster) -> Pod {
    with(cluster, |blueprint| blueprint.pod(&places(cluster).next().unwrap()).unwrap())
}

const MINIMAL: &str = "
groups:
- name: node
  replicas: 2
  pod: {spec: {containers: [{name: node, image: registry.example/sl-openmpi:9}]}}
run: {processes: 2, command: [ring]}
";

const RICH: &str = "
groups:
- name: node
  replicas: 2
  slots: 4
  pod:
    metadata:
      labels: {team: astro, app.kubernetes.io/name: mine}
      annotations: {note: kept, sidecar.istio.io/inject: 'true'}
    spec:
      serviceAccountName: astro
      nodeSelector: {disk: fast}
      tolerations: [{key: hpc, operator: Exists}]
      hostAliases: [{ip: 10.0.0.9, hostnames: [licence]}]
      initContainers: [{name: warm-up, image: busybox}]
      containers:
      - name: node
        image: registry.example/sl-openmpi:9
        workingDir: /work
        env: [{name: OMPI_MCA_btl, value: 'tcp,self'}]
        resources:
          requests: {cpu: '2', memory: 1Gi}
          limits: {cpu: '2', memory: 1Gi, rdma/hca: '1'}
        readinessProbe: {exec: {command: ['true']}}
        volumeMounts: [{name: scratch, mountPath: /scratch}]
      - name: monitor
        image: registry.example/monitor:1
        args: [--port, '9100']
      volumes: [{name: scratch, emptyDir: {}}]
- name: fat
  replicas: 1
  slots: 8
  pod: {spec: {containers: [{name: node, image: registry.example/sl-openmpi:9}]}}
network: {probe: {payloadBytes: 1000, count: 5, bandwidth: None}}
data:
- {name: ics, mountPath: /data/ics, source: {persistentVolumeClaim: {claimName: ics, path: sedov}}}
- {name: here, mountPath: /data/here, source: {node: {path: /srv/here}}, strategy: Chain}
run:
  processes: 16
  command: [ramses2d, sedov.nml]
  workingDirectory: /work
  environment: [{name: OMP_NUM_THREADS, value: '1'}, {name: PRICE, value: '5$(HOME)'}]
  collect:
  - {path: output_1, to: {persistentVolumeClaim: {claimName: results}}}
  - {path: output_2, to: {persistentVolumeClaim: {claimName: logs, path: two}}}
  - {path: output_3, to: {persistentVolumeClaim: {claimName: results}}}
";

const RESTRICTED: &str = "
groups:
- name: node
  replicas: 2
  pod:
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 4711, fsGroup: 4711, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: node
        image: registry.example/sl-openmpi:9
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
run: {processes: 2, command: [ring]}
";

#[test]
fn a_template_is_embedded_whole() {
    insta::assert_yaml_snapshot!(first_pod(&cluster(RICH)));
}

#[test]
fn a_small_template_becomes_a_node() {
    insta::assert_yaml_snapshot!(first_pod(&cluster(MINIMAL)));
}

#[test]
fn what_is_made_for_all() {
    let cluster = cluster(RICH);
    with(&cluster, |blueprint| {
        let keys = [("key.pem".to_owned(), "-----BEGIN".to_owned())].into();
        insta::assert_yaml_snapshot!("service", blueprint.service());
        insta::assert_yaml_snapshot!("keys", blueprint.keys_secret(keys));
        insta::assert_yaml_snapshot!("machinefile", blueprint.machinefile_config_map().unwrap());
        insta::assert_yaml_snapshot!("network_policy", blueprint.network_policy());
        insta::assert_yaml_snapshot!("disruption_budget", blueprint.disruption_budget());
        insta::assert_yaml_snapshot!("network_map", blueprint.network_map());
        insta::assert_yaml_snapshot!("broadcast", blueprint.broadcast(&cluster.spec.data[0], None));
        insta::assert_yaml_snapshot!("collect_pod", blueprint.collect_pods()[1]);
    });
}

#[test]
fn the_same_cluster_gives_the_same_bytes() {
    let (a, b) = (cluster(RICH), cluster(RICH));
    let bytes = |cluster: &VirtualCluster| serde_json::to_vec(&first_pod(cluster)).unwrap();
    assert_eq!(bytes(&a), bytes(&b));
}

#[test]
fn a_source_on_the_first_node_waits_for_its_place() {
    let cluster = cluster(RICH);
    with(&cluster, |blueprint| {
        assert_eq!(blueprint.broadcast(&cluster.spec.data[1], None), None);
        let broadcast = blueprint.broadcast(&cluster.spec.data[1], Some("worker-7")).unwrap();
        assert_eq!(broadcast.spec.source.node.unwrap().name.as_deref(), Some("worker-7"));
        assert_eq!(broadcast.metadata.finalizers, Some(vec!["gridcast.io/release".to_owned()]));
    });
}

#[test]
fn one_collect_pod_for_each_claim() {
    let claims: Vec<(String, String)> = with(&cluster(RICH), |blueprint| {
        let claim = |pod: &Pod| {
            let volumes = pod.spec.as_ref().unwrap().volumes.as_ref().unwrap();
            volumes[0].persistent_volume_claim.as_ref().unwrap().claim_name.clone()
        };
        blueprint.collect_pods().iter().map(|pod| (pod.metadata.name.clone().unwrap(), claim(pod))).collect()
    });
    let wanted = [("ring-0-collect", "results"), ("ring-1-collect", "logs")];
    assert_eq!(claims, wanted.map(|(name, claim)| (name.to_owned(), claim.to_owned())));
}

/// Whatever a group is called.
#[test]
fn no_member_has_the_name_of_another_pod_of_ours() {
    let mut cluster = cluster(RICH);
    for group in ["collect", "source", "0-collect", "ics-source"] {
        cluster.spec.groups[0].name = group.into();
        let members: Vec<String> = places(&cluster).map(|place| place.name).collect();
        let collect =
            with(&cluster, |blueprint| [0, 1].map(|index| blueprint.collect_pod_name(index)).to_vec());
        assert!(members.iter().all(|name| !collect.contains(name)), "{members:?} {collect:?}");
        let numbered = |name: &String| name.ends_with(|last: char| last.is_ascii_digit());
        assert!(members.iter().all(numbered) && !collect.iter().any(numbered), "{members:?} {collect:?}");
    }
}

#[test]
fn collect_pods_are_no_members() {
    with(&cluster(RICH), |blueprint| {
        let selector = blueprint.service().spec.unwrap().selector.unwrap();
        let labels = blueprint.collect_pods()[0].metadata.labels.clone().unwrap();
        assert!(selector.iter().any(|(key, value)| labels.get(key) != Some(value)));
        let policy = blueprint.network_policy().spec.unwrap().pod_selector.unwrap();
        assert!(policy.match_labels.unwrap().iter().all(|(key, value)| labels.get(key) == Some(value)));
    });
}

#[test]
fn where_members_must_not_share_a_machine() {
    let mut cluster = cluster(RICH);
    cluster.spec.scheduling = Some(gridcast_crds::virtual_cluster::Scheduling {
        allow_colocation: false,
        ..gridcast_crds::virtual_cluster::Scheduling::default()
    });
    let spec = first_pod(&cluster).spec.unwrap();
    assert_eq!(spec.topology_spread_constraints, None);
    let apart = spec.affinity.unwrap().pod_anti_affinity.unwrap();
    let term = &apart.required_during_scheduling_ignored_during_execution.unwrap()[0];
    assert_eq!(term.topology_key, "kubernetes.io/hostname");
    assert_eq!(term.label_selector.as_ref().unwrap().match_labels.as_ref().unwrap()[CLUSTER], "ring");
    // Then ranks have cores of their own.
    let env = spec.containers[0].env.as_ref().unwrap();
    assert!(env.iter().all(|variable| !variable.name.contains("yield")));
}

/// The rules of the `restricted` Pod Security Standard that a pod of ours could break.
fn is_restricted(spec: &PodSpec) -> Result<(), String> {
    let pod = spec.security_context.clone().unwrap_or_default();
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    for Container { name, security_context, .. } in containers {
        let own = security_context.clone().unwrap_or_default();
        let held = [
            ("allowPrivilegeEscalation", own.allow_privilege_escalation == Some(false)),
            (
                "drop",
                own.capabilities.and_then(|c| c.drop).is_some_and(|drop| drop.contains(&"ALL".to_owned())),
            ),
            ("runAsNonRoot", own.run_as_non_root.or(pod.run_as_non_root) == Some(true)),
            ("runAsUser", own.run_as_user.or(pod.run_as_user) != Some(0)),
            ("seccomp", own.seccomp_profile.or(pod.seccomp_profile.clone()).is_some()),
        ];
        if let Some((rule, _)) = held.iter().find(|(_, held)| !held) {
            return Err(format!("{name}: {rule}"));
        }
    }
    let allowed = |volume: &k8s_openapi::api::core::v1::Volume| {
        volume.empty_dir.is_some()
            || volume.secret.is_some()
            || volume.csi.is_some()
            || volume.config_map.is_some()
            || volume.persistent_volume_claim.is_some()
    };
    match spec.volumes.iter().flatten().find(|volume| !allowed(volume)) {
        Some(volume) => Err(format!("volume {}", volume.name)),
        None => Ok(()),
    }
}

#[test]
fn a_template_that_is_restricted_stays_so() {
    let cluster = cluster(RESTRICTED);
    let spec = first_pod(&cluster).spec.unwrap();
    assert_eq!(is_restricted(&spec), Ok(()));
    // Without a user of the pod's own ours still has one that is not root.
    let mut nobody = cluster.clone();
    nobody.spec.groups[0]
        .pod
        .as_mut()
        .unwrap()
        .spec
        .as_mut()
        .unwrap()
        .security_context
        .as_mut()
        .unwrap()
        .run_as_user = None;
    let spec = first_pod(&nobody).spec.unwrap();
    assert_eq!(is_restricted(&spec), Ok(()));
    assert_eq!(spec.init_containers.unwrap()[0].security_context.as_ref().unwrap().run_as_user, Some(65_532));
    assert!(is_restricted(&first_pod(&self::cluster(MINIMAL)).spec.unwrap()).is_err());
}

/// OpenShift, say: a user that is named would be refused.
#[test]
fn where_users_are_assigned_none_is_named() {
    let mut cluster = cluster(MINIMAL);
    cluster.spec.data = self::cluster(RICH).spec.data;
    let spec = cluster.spec.groups[0].pod.as_mut().unwrap().spec.as_mut().unwrap();
    spec.security_context =
        Some(PodSecurityContext { run_as_non_root: Some(true), ..PodSecurityContext::default() });
    for (assigned_users, user) in [(false, Some(65_532)), (true, None)] {
        let image = AgentImage { assigned_users, ..image() };
        let blueprint =
            Blueprint { cluster: &cluster, image: &image, operator_namespace: "gridcast-system", keys: 1 };
        let pod = blueprint.pod(&places(&cluster).next().unwrap()).unwrap().spec.unwrap();
        let install = pod.init_containers.unwrap()[0].security_context.clone().unwrap();
        assert_eq!(install.run_as_user, user);
        let reader = blueprint.broadcast(&cluster.spec.data[0], None).unwrap().spec.source_pod;
        let context = reader.and_then(|reader| reader.security_context);
        assert_eq!(context.and_then(|context| context.run_as_user), user);
    }
}

#[test]
fn who_reads_is_who_runs() {
    let mut cluster = cluster(RESTRICTED);
    cluster.spec.data = self::cluster(RICH).spec.data;
    with(&cluster, |blueprint| {
        let reader = blueprint.broadcast(&cluster.spec.data[0], None).unwrap().spec.source_pod.unwrap();
        let user = reader.security_context.unwrap();
        assert_eq!(
            (user.run_as_user, user.fs_group, user.run_as_non_root),
            (Some(4711), Some(4711), Some(true))
        );
    });
    // The node's own user is more than the pod's.
    let spec = cluster.spec.groups[0].pod.as_mut().unwrap().spec.as_mut().unwrap();
    spec.containers[0].security_context.as_mut().unwrap().run_as_user = Some(815);
    with(&cluster, |blueprint| {
        let reader = blueprint.broadcast(&cluster.spec.data[0], None).unwrap().spec.source_pod.unwrap();
        assert_eq!(reader.security_context.unwrap().run_as_user, Some(815));
    });
    // Where the image decides for the nodes, it does so for the reader.
    let cluster = self::cluster(&format!(
        "{MINIMAL}data: [{{name: ics, mountPath: /ics, source: {{persistentVolumeClaim: {{claimName: ics}}}}}}]"
    ));
    with(&cluster, |blueprint| {
        assert_eq!(blueprint.broadcast(&cluster.spec.data[0], None).unwrap().spec.source_pod, None);
    });
}

#[test]
fn shared_memory_is_half_of_the_limit_unless_the_template_has_its_own() {
    let shm = |cluster: &VirtualCluster| {
        let spec = first_pod(cluster).spec.unwrap();
        let mounts = spec.containers[0].volume_mounts.clone().unwrap();
        let at: Vec<_> =
            mounts.into_iter().filter(|mount| mount.mount_path.starts_with("/dev/shm")).collect();
        assert_eq!(at.len(), 1);
        spec.volumes.unwrap().into_iter().find(|volume| volume.name == at[0].name).unwrap().empty_dir.unwrap()
    };
    let rich = shm(&cluster(RICH));
    assert_eq!((rich.medium.as_deref(), rich.size_limit.unwrap().0.as_str()), (Some("Memory"), "536870912"));
    assert_eq!(shm(&cluster(MINIMAL)).size_limit, None);
    let mut own = cluster(RICH);
    let spec = own.spec.groups[0].pod.as_mut().unwrap().spec.as_mut().unwrap();
    spec.containers[0].volume_mounts.as_mut().unwrap()[0].mount_path = "/dev/shm/".into();
    assert_eq!(shm(&own).medium, None);
}

#[test]
fn what_contradicts_is_refused_by_its_field() {
    let told = |change: fn(&mut PodSpec)| {
        let mut cluster = cluster(RICH);
        change(cluster.spec.groups[0].pod.as_mut().unwrap().spec.as_mut().unwrap());
        let error = check(&cluster).unwrap_err();
        assert_eq!(with(&cluster, |b| b.pod(&places(&cluster).next().unwrap()).unwrap_err()), error);
        let text = error.to_string();
        format!("{} {}", error.reason(), text.split(": ").next().unwrap())
    };
    let path = "spec.groups[0].pod.spec.";
    for (wanted, change) in [
        ("Unsupported hostNetwork", (|s| s.host_network = Some(true)) as fn(&mut PodSpec)),
        ("Unsupported setHostnameAsFQDN", |s| s.set_hostname_as_fqdn = Some(true)),
        ("InvalidPodTemplate restartPolicy", |s| s.restart_policy = Some("Always".into())),
        ("InvalidPodTemplate hostname", |s| s.hostname = Some("x".into())),
        ("InvalidPodTemplate subdomain", |s| s.subdomain = Some("x".into())),
        ("InvalidPodTemplate containers", |s| s.containers.clear()),
        ("InvalidPodTemplate containers[0].command", |s| {
            s.containers[0].command = Some(vec!["sleep".into()]);
        }),
        ("InvalidPodTemplate containers[0].args", |s| s.containers[0].args = Some(vec!["1".into()])),
        ("InvalidPodTemplate containers[1].name", |s| s.containers[1].name = "gridcast-install".into()),
        ("InvalidPodTemplate initContainers[0].name", |s| {
            s.init_containers.as_mut().unwrap()[0].name = "gridcast".into();
        }),
        ("InvalidPodTemplate volumes[0].name", |s| {
            s.volumes.as_mut().unwrap()[0].name = "gridcast-keys".into();
        }),
        ("InvalidPodTemplate containers[0].volumeMounts[0].mountPath", |s| {
            s.containers[0].volume_mounts.as_mut().unwrap()[0].mount_path = "/gridcast/bin".into();
        }),
        ("InvalidPodTemplate containers[0].volumeMounts[0].mountPath", |s| {
            s.containers[0].volume_mounts.as_mut().unwrap()[0].mount_path = "/etc/hosts".into();
        }),
        ("InvalidPodTemplate containers[0].volumeMounts[0].mountPath", |s| {
            s.containers[0].volume_mounts.as_mut().unwrap()[0].mount_path = "/data/ics/".into();
        }),
        ("InvalidPodTemplate containers[0].volumeMounts[0].mountPath", |s| {
            s.containers[0].volume_mounts.as_mut().unwrap()[0].mount_path = "/data/ics/output".into();
        }),
    ] {
        let (reason, field) = wanted.split_once(' ').unwrap();
        assert_eq!(told(change), format!("{reason} {path}{field}"));
    }
}

#[test]
fn a_name_that_only_looks_reserved_is_fine() {
    let mut cluster = cluster(RICH);
    let spec = cluster.spec.groups[0].pod.as_mut().unwrap().spec.as_mut().unwrap();
    spec.volumes.as_mut().unwrap()[0].name = "gridcasting".into();
    spec.containers[0].volume_mounts.as_mut().unwrap()[0] = k8s_openapi::api::core::v1::VolumeMount {
        mount_path: "/gridcast2".into(),
        name: "gridcasting".into(),
        ..Default::default()
    };
    assert_eq!(check(&cluster), Ok(()));
}

#[test]
fn five_thousand_members_fit() {
    let mut cluster = cluster(MINIMAL);
    cluster.metadata.name = Some("n".repeat(48));
    let group = Group { replicas: 1000, slots: Some(1024), ..cluster.spec.groups[0].clone() };
    cluster.spec.groups = (0..5).map(|i| Group { name: format!("group{i}"), ..group.clone() }).collect();
    let map = with(&cluster, |blueprint| blueprint.machinefile_config_map().unwrap());
    let file = &map.data.as_ref().unwrap()["machinefile"];
    assert_eq!(file.lines().count(), 5000);
    assert!(serde_json::to_vec(&map).unwrap().len() < 512 << 10);
    let env = first_pod(&cluster).spec.unwrap().containers[0].env.clone().unwrap();
    assert!(env.iter().all(|variable| variable.value.as_ref().unwrap().len() < 4 << 10));
}

proptest! {
    /// Whatever the API server were to let through: a line is a member.
    #[test]
    fn no_text_adds_a_line_to_the_machinefile(
        name in "[a-z\\n# .=-]{1,20}|[\\PC\\n]{0,12}",
        group in "[a-z\\n# .=-]{1,20}|[\\PC\\n]{0,12}",
        replicas in 0_i32..4,
        slots in proptest::option::of(-2_i32..2000),
        mpich in any::<bool>(),
        oversubscribe in any::<bool>(),
        text in "[\\PC\\n#]{0,20}",
    ) {
        let mut cluster = VirtualCluster::new(&name, gridcast_crds::VirtualClusterSpec::default());
        cluster.spec.groups = vec![Group { name: group, replicas, slots, ..Group::default() }];
        let mpich = if mpich { Implementation::MPICH } else { Implementation::default() };
        cluster.spec.run = Some(Run {
            implementation: mpich,
            processes: 1,
            allow_oversubscribe: oversubscribe,
            command: vec![text.clone()],
            working_directory: Some(text.clone()),
            environment: vec![EnvironmentVariable { name: text.clone(), value: text }],
            ..Run::default()
        });
        if let Ok(file) = machinefile::machinefile(&cluster) {
            prop_assert_eq!(file.lines().count(), cluster.spec.nodes() as usize);
            for (line, place) in file.lines().zip(places(&cluster)) {
                let first = line.split([' ', ':']).next().unwrap();
                prop_assert_eq!(first, place.name.as_str());
                prop_assert!(!line.contains('#'));
            }
        }
    }
}
