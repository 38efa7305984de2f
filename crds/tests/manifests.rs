//! What is accepted, and what is refused at which field with which words.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure here is a failed test")]

use gridcast_crds::{Resource, parse};
use proptest::prelude::*;

/// A manifest that uses every part of a VirtualCluster.
const WHOLE: &str = r"
apiVersion: gridcast.io/v1alpha1
kind: VirtualCluster
metadata: {name: sedov, labels: {team: astro}}
spec:
  suspend: false
  groups:
  - name: node
    replicas: 2
    slots: 1
    pod:
      metadata: {creationTimestamp: null, labels: {a: b}}
      spec:
        containers:
        - name: node
          image: registry.example/sl-openmpi:9
          resources: {limits: {cpu: 2, memory: 4Gi}}
  - name: big
    replicas: 1
    slots: 4
    virtualMachine: {spec: {domain: {devices: {}}}}
  network:
    probe: {policy: BeforeRun, payloadBytes: 50000, count: 10, intervalMilliseconds: 20, bandwidth: Pairs}
    require: {maxJitterMilliseconds: 5, minBandwidthMbps: 0.5, onViolation: Warn}
    tcp: {mode: Apply, profile: Auto, objective: TotalTime}
  data:
  - {name: ics, mountPath: /data/ics, source: {persistentVolumeClaim: {claimName: ics, path: sedov}}, strategy: Stable}
  - {name: local, mountPath: /data/local, source: {node: {path: /srv/a folder with spaces}}}
  - {name: conf, mountPath: /etc/ramses, source: {configMap: {name: conf}}}
  - {name: keys, mountPath: /data/keys, source: {secret: {secretName: keys}}}
  - {name: web, mountPath: /data/web, source: {http: {url: 'https://example.org/a.tar?x=1'}}}
  - {name: bucket, mountPath: /data/bucket, source: {s3: {bucket: weights, prefix: llama/, region: eu-west-3}}}
  acceptance:
  - {type: Stream, minTriadMBps: 8000}
  - {type: Storage, path: /scratch, sizeBytes: 2147483648, minWriteMBps: 60}
  - {type: PingPong, sizes: [1024, 1048576], minBandwidthMBps: 80}
  run:
    implementation: OpenMPI
    remoteShell: Starter
    processes: 6
    command: [sh, -c, 'ramses2d namelist/sedov2d.nml']
    workingDirectory: /work
    environment: [{name: OMP_NUM_THREADS, value: '1'}]
    collect: [{path: output_00002, to: {persistentVolumeClaim: {claimName: results}}}]
    tagOutput: true
  restart: {maxRestarts: 2, rules: [{exitCodes: [137], action: Restart}]}
  activeDeadlineSeconds: 86400
  ttlSecondsAfterFinished: 3600
  cleanup: Running
  scheduling: {gang: None, queueName: astro, timeoutSeconds: 600, allowColocation: true}
";

const SMALL: &str = r"
apiVersion: gridcast.io/v1alpha1
kind: VirtualCluster
metadata: {name: ring}
spec:
  groups:
  - {name: node, replicas: 4, pod: {spec: {containers: [{name: node, image: mpi}]}}}
  run: {processes: 4, command: [ring]}
";

const BROADCAST: &str = r"
apiVersion: gridcast.io/v1alpha1
kind: Broadcast
metadata: {name: weights}
spec:
  source: {http: {url: 'https://example.org/w'}}
  to: {nodes: [a, b]}
  path: models/llama
";

const MAP: &str = r"
apiVersion: gridcast.io/v1alpha1
kind: NetworkMap
metadata: {name: rack}
spec: {of: {nodeSelector: {rack: r1}}, intervalSeconds: 3600}
";

/// Field path and message of everything that is refused.
fn refusals(text: &str) -> Vec<(String, String)> {
    match parse(text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.0.into_iter().map(|error| (error.field_path, error.message)).collect(),
    }
}

#[test]
fn whole_manifests_are_accepted() {
    for text in [WHOLE, SMALL, BROADCAST, MAP] {
        assert_eq!(refusals(text), [], "{text}");
    }
}

#[test]
fn a_file_of_many_documents_keeps_their_order_and_lines() {
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {a.nml: 'x'}\n";
    let secret =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\ndata: {k: aGk=}\nstringData: {s: ho}\n";
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {anything: 1}\n";
    let text = format!(
        "---\n# nothing\n---\n{config}---\n{secret}---\n{service}---\n{BROADCAST}---\n{MAP}---\n{SMALL}"
    );
    let documents = parse(&text).unwrap();
    let kinds: Vec<&str> = documents
        .iter()
        .map(|document| match &document.resource {
            Resource::ConfigMap(_) => "ConfigMap",
            Resource::Secret(_) => "Secret",
            Resource::Other { kind, .. } => kind,
            Resource::Broadcast(_) => "Broadcast",
            Resource::NetworkMap(_) => "NetworkMap",
            Resource::VirtualCluster(_) => "VirtualCluster",
        })
        .collect();
    assert_eq!(kinds, ["ConfigMap", "Secret", "Service", "Broadcast", "NetworkMap", "VirtualCluster"]);
    assert_eq!(documents[0].line, 4);
    let Resource::Secret(secret) = &documents[1].resource else { panic!("a Secret") };
    let data = secret.data.as_ref().unwrap();
    assert_eq!((&*data["k"].0, &*data["s"].0), (&b"hi"[..], &b"ho"[..]));
}

/// `(manifest, text to replace, replacement, expected field path, expected part of the message)`
type Case = (&'static str, &'static str, &'static str, &'static str, &'static str);

const REFUSED: &[Case] = &[
    // Unknown fields, as strict field validation refuses them.
    (
        SMALL,
        "replicas: 4",
        "replicas: 4, slotz: 2",
        "spec.groups[0].slotz",
        "unknown field; known here: name",
    ),
    (SMALL, "  run:", "  nodes: 3\n  run:", "spec.nodes", "unknown field"),
    (SMALL, "\nspec:", "\nspce: {}\nspec:", "spce", "unknown field"),
    (SMALL, "{name: ring}", "{name: ring, label: {}}", "metadata.label", "unknown field"),
    (SMALL, "image: mpi", "imagee: mpi", "spec.groups[0].pod.spec.containers[0].imagee", "unknown field"),
    (SMALL, "command: [ring]", "command: [ring], tag: true", "spec.run.tag", "unknown field"),
    // Types, enums and bounds.
    (
        SMALL,
        "replicas: 4",
        "replicas: four",
        "spec.groups[0].replicas",
        "must be an integer, but is the string \"four\"",
    ),
    (
        SMALL,
        "replicas: 4",
        "replicas: 4.5",
        "spec.groups[0].replicas",
        "must be an integer, but is the number 4.5",
    ),
    (SMALL, "replicas: 4", "replicas: -1", "spec.groups[0].replicas", "must be at least 0, but is -1"),
    (SMALL, "replicas: 4", "replicas: 1001", "spec.groups[0].replicas", "must be at most 1000, but is 1001"),
    (SMALL, "replicas: 4", "replicas: 4, slots: 0", "spec.groups[0].slots", "must be at least 1, but is 0"),
    (SMALL, "replicas: 4,", "", "spec.groups[0].replicas", "is required"),
    (SMALL, "name: node, replicas", "replicas", "spec.groups[0].name", "is required"),
    (
        SMALL,
        "command: [ring]",
        "command: ring",
        "spec.run.command",
        "must be a list, but is the string \"ring\"",
    ),
    (SMALL, "command: [ring]", "command: []", "spec.run.command", "must have at least 1 items, but has 0"),
    (SMALL, "command: [ring]", "command: ['']", "spec.run.command", "must begin with the name of a program"),
    (
        SMALL,
        "command: [ring]",
        "command: [ring, 5]",
        "spec.run.command[1]",
        "must be a string, but is the number 5",
    ),
    (SMALL, "processes: 4", "processes: 0", "spec.run.processes", "must be at least 1, but is 0"),
    (SMALL, "processes: 4,", "", "spec.run.processes", "is required"),
    (
        WHOLE,
        "mode: Apply",
        "mode: On",
        "spec.network.tcp.mode",
        "must be one of \"Off\", \"DryRun\", \"Apply\", but is \"On\"",
    ),
    (WHOLE, "bandwidth: Pairs", "bandwidth: All", "spec.network.probe.bandwidth", "must be one of"),
    (
        WHOLE,
        "payloadBytes: 50000",
        "payloadBytes: 65508",
        "spec.network.probe.payloadBytes",
        "must be at most 65507, but is 65508",
    ),
    (
        WHOLE,
        "payloadBytes: 50000",
        "payloadBytes: 43",
        "spec.network.probe.payloadBytes",
        "must be at least 44",
    ),
    (
        WHOLE,
        "payloadBytes: 50000",
        "payloadBytes: [64, 50000]",
        "spec.network.probe.payloadBytes",
        "must be an integer",
    ),
    (WHOLE, "queueName: astro", "queueName: Astro", "spec.scheduling.queueName", "must match"),
    (WHOLE, "count: 10", "count: 100000", "spec.network.probe.count", "must be at most 1000"),
    (
        WHOLE,
        "maxJitterMilliseconds: 5, minBandwidthMbps: 0.5, ",
        "",
        "spec.network.require",
        "must have at least one of",
    ),
    (
        WHOLE,
        "strategy: Stable",
        "strategy: stable",
        "spec.data[0].strategy",
        "must be one of \"Stable\", \"Flat\"",
    ),
    (WHOLE, "cleanup: Running", "cleanup: true", "spec.cleanup", "must be a string, but is the boolean true"),
    (
        WHOLE,
        "activeDeadlineSeconds: 86400",
        "activeDeadlineSeconds: 0",
        "spec.activeDeadlineSeconds",
        "must be at least 1",
    ),
    (WHOLE, "exitCodes: [137]", "exitCodes: [0]", "spec.restart.rules[0].exitCodes[0]", "must be at least 1"),
    (
        WHOLE,
        "remoteShell: Starter",
        "remoteShell: RSH",
        "spec.run.remoteShell",
        "must be one of \"Starter\", \"SSH\"",
    ),
    // Names.
    (
        SMALL,
        "{name: ring}",
        "{name: ring.a}",
        "metadata.name",
        "a '.' is refused because Open MPI cuts host names there",
    ),
    (SMALL, "{name: ring}", "{name: Ring}", "metadata.name", "must be lower-case letters"),
    (SMALL, "{name: ring}", r#"{name: "ring\nroot ALL"}"#, "metadata.name", "must be lower-case letters"),
    (SMALL, "{name: ring}", r#"{name: "ring\n"}"#, "metadata.name", "must be lower-case letters"),
    (SMALL, "{name: ring}", "{name: 'ring#'}", "metadata.name", "must be lower-case letters"),
    (SMALL, "{name: ring}", "{name: 1ring}", "metadata.name", "must be lower-case letters"),
    (SMALL, "{name: ring}", "{}", "metadata.name", "is required"),
    (
        SMALL,
        "{name: ring}",
        "{name: rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr}",
        "metadata.name",
        "must be at most 48 characters, so that suffixes fit, but has 60",
    ),
    (SMALL, "name: node, r", "name: node.a, r", "spec.groups[0].name", "must match"),
    (SMALL, "name: node, r", r#"name: "node\nx", r"#, "spec.groups[0].name", "must match"),
    (SMALL, "name: node, r", "name: 'node#', r", "spec.groups[0].name", "must match"),
    // Rules over several fields.
    (
        SMALL,
        "processes: 4",
        "processes: 5",
        "spec.run.processes",
        "must not exceed the sum of replicas times slots: 5 processes on 4 slots",
    ),
    (WHOLE, "processes: 6", "processes: 7", "spec.run.processes", "7 processes on 6 slots"),
    (WHOLE, "name: big", "name: node", "spec.groups[1]", "has the name \"node\" of spec.groups[0]"),
    (WHOLE, "name: local", "name: ics", "spec.data[1]", "has the name \"ics\" of spec.data[0]"),
    (WHOLE, "/data/local", "/data/ics", "spec.data", "must have a different `mountPath` in each dataset"),
    (WHOLE, "/data/local", "/data/ics/below", "spec.data", "must not have one `mountPath` below another"),
    (
        SMALL,
        ", pod: {spec: {containers: [{name: node, image: mpi}]}}",
        "",
        "spec.groups[0]",
        "exactly one of `pod` and",
    ),
    (
        SMALL,
        "replicas: 4",
        "replicas: 4, virtualMachine: {spec: {}}",
        "spec.groups[0]",
        "exactly one of `pod` and",
    ),
    (
        SMALL,
        "pod: {spec",
        "pod: null, virtualMachine: null, x: {spec",
        "spec.groups[0]",
        "exactly one of `pod` and",
    ),
    (SMALL, "processes: 4", "processes: null", "spec.run.processes", "is required"),
    (SMALL, "[ring]", "[null]", "spec.run.command[0]", "must be a string, but is empty"),
    (
        WHOLE,
        "source: {configMap: {name: conf}}",
        "source: {}",
        "spec.data[2].source",
        "must have exactly one of `node`",
    ),
    (
        WHOLE,
        "source: {configMap: {name: conf}}",
        "source: {configMap: {name: conf}, secret: {secretName: a}}",
        "spec.data[2].source",
        "must have exactly one of `node`",
    ),
    (WHOLE, "{secretName: keys}", "{name: keys}", "spec.data[3].source.secret.secretName", "is required"),
    (SMALL, "replicas: 4", "replicas: 0", "spec.groups", "must have at least one replica"),
    (
        WHOLE,
        "{type: Stream, minTriadMBps: 8000}",
        "{type: Stream}",
        "spec.acceptance[0].minTriadMBps",
        "type 'Stream'",
    ),
    (WHOLE, "{type: Stream,", "{type: Stream, path: /a,", "spec.acceptance[0].path", "type 'Storage'"),
    // Paths.
    (WHOLE, "mountPath: /data/ics", "mountPath: data/ics", "spec.data[0].mountPath", "must match"),
    (
        WHOLE,
        "mountPath: /data/ics",
        "mountPath: /data/../ics",
        "spec.data[0].mountPath",
        "must not contain '.' or '..'",
    ),
    (WHOLE, "mountPath: /data/ics", r#"mountPath: "/data\n/ics""#, "spec.data[0].mountPath", "must match"),
    (WHOLE, "mountPath: /data/ics", "mountPath: '/data#ics'", "spec.data[0].mountPath", "must match"),
    (WHOLE, "mountPath: /data/ics", "mountPath: '/data:ics'", "spec.data[0].mountPath", "must match"),
    (
        WHOLE,
        "mountPath: /data/ics",
        "mountPath: /",
        "spec.data[0].mountPath",
        "must be at least 2 characters long",
    ),
    (
        WHOLE,
        "mountPath: /data/ics",
        "mountPath: /gridcast/bin",
        "spec.data[0].mountPath",
        "must not be in '/gridcast'",
    ),
    (WHOLE, "mountPath: /data/ics", "mountPath: /usr", "spec.data[0].mountPath", "must not hide a directory"),
    (
        WHOLE,
        "path: sedov",
        "path: ../sedov",
        "spec.data[0].source.persistentVolumeClaim.path",
        "must not contain '..'",
    ),
    (WHOLE, "/srv/a folder", "srv/a folder", "spec.data[1].source.node.path", "must match"),
    (WHOLE, "'https://example", "'ftp://example", "spec.data[4].source.http.url", "must match"),
    (WHOLE, "path: output_00002", "path: ../output", "spec.run.collect[0].path", "must not contain '..'"),
    (WHOLE, "workingDirectory: /work", "workingDirectory: work", "spec.run.workingDirectory", "must match"),
    (WHOLE, "name: OMP_NUM_THREADS", "name: 'A B'", "spec.run.environment[0].name", "must match"),
    (WHOLE, "value: '1'", r#"value: "1\nB=2""#, "spec.run.environment[0].value", "must match"),
    (
        WHOLE,
        "value: '1'",
        "value: 1",
        "spec.run.environment[0].value",
        "must be a string, but is the number 1",
    ),
    // Kinds and documents.
    (SMALL, "v1alpha1", "v1", "apiVersion", "must be gridcast.io/v1alpha1, but is gridcast.io/v1"),
    (
        SMALL,
        "kind: VirtualCluster",
        "kind: Cluster",
        "kind",
        "must be one of VirtualCluster, Broadcast, NetworkMap",
    ),
    (SMALL, "kind: VirtualCluster", "", "kind", "is required"),
    (
        BROADCAST,
        "to: {nodes: [a, b]}",
        "to: {nodes: [a, b], nodeSelector: {}}",
        "spec.to",
        "must have exactly one of `nodes`",
    ),
    (BROADCAST, "path: models/llama", "path: /models", "spec.path", "must match"),
    (BROADCAST, "path: models/llama", "maxTrees: 1000", "spec.maxTrees", "must be at most 256"),
    (MAP, "intervalSeconds: 3600", "intervalSeconds: 1", "spec.intervalSeconds", "must be at least 60"),
];

#[test]
fn what_the_api_server_would_refuse_is_refused_at_the_same_field() {
    let mut failures = Vec::new();
    for (base, from, to, path, message) in REFUSED {
        assert_eq!(base.matches(from).count(), 1, "{from:?} must occur once");
        let text = base.replace(from, to);
        let refused = refusals(&text);
        if !refused.iter().any(|(field, said)| field == path && said.contains(message)) {
            failures.push(format!("{from:?} -> {to:?}\n  expected {path}: {message}\n  got {refused:#?}"));
        }
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), REFUSED.len(), failures.join("\n"));
}

/// What the design's page on the API shows, with values where it has dots.
const SKETCH: &str = r#"
apiVersion: gridcast.io/v1alpha1
kind: VirtualCluster
metadata: {name: sedov}
spec:
  suspend: false
  groups:                          # 1..16, list-map by name; several groups make one machinefile
  - name: node
    replicas: 2
    slots: 1                       # machinefile: slots=1 max_slots=1
    pod: {spec: {containers: [{name: node, image: registry.example/sl-openmpi:9, resources: {limits: {cpu: "2", memory: 4Gi}}}]}}
  network:
    probe: {policy: BeforeRun, payloadBytes: 50000, count: 10, bandwidth: Pairs}
    require: {maxJitterMilliseconds: 5, minBandwidthMbps: 500, onViolation: Warn}
    tcp: {mode: Apply, profile: Auto, objective: TotalTime}
  data:
  - name: ics
    mountPath: /data/ics
    source: {persistentVolumeClaim: {claimName: ics, path: sedov}}
    strategy: Stable
  acceptance:
  - {type: Stream, minTriadMBps: 8000}
  - {type: Storage, path: /scratch, sizeBytes: 2147483648, minWriteMBps: 60}
  - {type: PingPong, sizes: [1024, 1048576], minBandwidthMBps: 80}
  run:
    implementation: OpenMPI
    remoteShell: Starter
    processes: 2
    command: [ramses2d, namelist/sedov2d.nml]
    workingDirectory: /work
    collect: [{path: output_00002, to: {persistentVolumeClaim: {claimName: results}}}]
  restart: {maxRestarts: 2, rules: [{exitCodes: [137], action: Restart}]}
  activeDeadlineSeconds: 86400
  ttlSecondsAfterFinished: 3600
  cleanup: Running
  scheduling: {gang: None, queueName: "", timeoutSeconds: 600, allowColocation: true}
"#;

#[test]
fn the_designs_manifest_is_accepted() {
    assert_eq!(refusals(SKETCH), []);
    let machine = "virtualMachine: {spec: {domain: {devices: {}}}}";
    let pod = SKETCH.lines().find(|line| line.trim_start().starts_with("pod:")).unwrap().trim();
    assert_eq!(refusals(&SKETCH.replace(pod, machine)), []);
}

#[test]
fn small_pings_are_sent_beside_those_that_are_asked_for() {
    let payloads = |bytes: &str| {
        let text = WHOLE.replace("payloadBytes: 50000", &format!("payloadBytes: {bytes}"));
        let Resource::VirtualCluster(cluster) = parse(&text).unwrap().remove(0).resource else {
            panic!("a cluster")
        };
        cluster.spec.probe().payloads()
    };
    assert_eq!(payloads("50000"), [64, 50_000]);
    assert_eq!(payloads("64"), [64]);
    assert_eq!(payloads("44"), [44, 64]);
}

#[test]
fn a_bare_off_is_a_mode_and_no_boolean() {
    for word in ["Off", "\"Off\""] {
        assert_eq!(refusals(&WHOLE.replace("mode: Apply", &format!("mode: {word}"))), []);
    }
}

#[test]
fn a_field_with_nothing_behind_it_is_absent() {
    for field in ["data:", "acceptance: ~", "network:", "cleanup: null", "suspend:"] {
        assert_eq!(refusals(&SMALL.replace("  run:", &format!("  {field}\n  run:"))), [], "{field}");
    }
    assert_eq!(
        refusals("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, creationTimestamp: null}\ndata:\n"),
        []
    );
}

#[test]
fn oversubscription_is_allowed_on_request() {
    let text = SMALL.replace("processes: 4", "processes: 40, allowOversubscribe: true");
    assert_eq!(refusals(&text), []);
}

#[test]
fn everything_is_refused_at_once_with_its_line() {
    let text = SMALL.replace("replicas: 4", "replicas: 4, slotz: 2").replace("processes: 4", "processes: 9");
    let text = format!("{text}---\n{}", BROADCAST.replace("nodes: [a, b]", "nodes: ['#']"));
    let errors = parse(&text).unwrap_err();
    let seen: Vec<_> = errors.0.iter().map(|e| (e.document, e.line, e.field_path.as_str())).collect();
    assert_eq!(
        seen,
        [
            (0, Some(7), "spec.groups[0].slotz"),
            (0, Some(8), "spec.run.processes"),
            (1, Some(16), "spec.to.nodes[0]"),
        ]
    );
    let said = errors.in_file(std::path::Path::new("ring.yaml")).to_string();
    assert!(said.starts_with("ring.yaml:7: spec.groups[0].slotz: unknown field"), "{said}");
    assert_eq!(said.lines().count(), 3);
}

#[test]
fn text_that_is_no_yaml_is_refused_with_its_line() {
    for (text, line) in [("a: [1\nb: 2\n", 2), ("a: 1\nb: 2\na: 3\n", 3)] {
        let errors = parse(text).unwrap_err();
        assert_eq!(errors.0.len(), 1);
        assert_eq!(errors.0[0].line, Some(line), "{errors}");
    }
}

#[test]
fn keys_of_config_maps_and_secrets_are_file_names() {
    for (text, path) in [
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {'../x': a}\n", "data.../x"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {'a/b': a}\n", "data.a/b"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {'..': a}\n", "stringData..."),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: '%'}\n", "data.a"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatta: {a: a}\n", "datta"),
    ] {
        let refused = refusals(text);
        assert_eq!(refused.len(), 1, "{text}: {refused:?}");
        assert_eq!(refused[0].0, path);
    }
    let big = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{a: {}}}\n",
        "x".repeat(1_048_577)
    );
    assert_eq!(refusals(&big)[0].0, "data");
}

#[test]
fn the_defaults_of_the_types_are_those_of_the_schema() {
    let documents = parse(SMALL).unwrap();
    let Resource::VirtualCluster(cluster) = &documents[0].resource else { panic!("a cluster") };
    let probe = cluster.spec.probe();
    assert_eq!((probe.payload_bytes, probe.count), (50_000, 10));
    assert_eq!((cluster.spec.nodes(), cluster.spec.slots()), (4, 4));
    let names: Vec<String> = cluster.node_names().map(|(name, _)| name).collect();
    assert_eq!(names, ["ring-node-0", "ring-node-1", "ring-node-2", "ring-node-3"]);
}

/// The whole example, as an object, with one string of a user put in one place.
fn with(place: usize, text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap();
    let (from, to) = [
        ("name: sedov,", format!("name: {quoted},")),
        ("name: node\n", format!("name: {quoted}\n")),
        ("mountPath: /data/ics", format!("mountPath: {quoted}")),
        ("name: OMP_NUM_THREADS", format!("name: {quoted}")),
        ("value: '1'", format!("value: {quoted}")),
        ("claimName: results", format!("claimName: {quoted}")),
        ("workingDirectory: /work", format!("workingDirectory: {quoted}")),
        ("queueName: astro", format!("queueName: {quoted}")),
        ("path: output_00002", format!("path: {quoted}")),
        ("name: ics,", format!("name: {quoted},")),
    ][place]
        .clone();
    assert!(WHOLE.contains(from));
    WHOLE.replacen(from, &to, 1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever of a user may come to stand in a machinefile, a hosts file or an ssh_config has no line break.
    #[test]
    fn no_accepted_text_can_add_a_line(
        place in 0usize..10,
        text in prop_oneof!["[a-z]{1,8}[\\n\\r\\x0b\\x0c\\u{85}\\u{2028}#:. a-z0-9/-]{0,8}", "/?[a-z.#\\n]{1,9}", "\\PC{0,6}\\s?\\PC{0,6}"],
    ) {
        if refusals(&with(place, &text)).is_empty() {
            prop_assert!(!text.contains(['\n', '\r', '\x0b', '\x0c', '\0']), "{place}: {text:?}");
            // Names become words of a machinefile and of hosts.
            if [0, 1, 2, 3, 5, 7, 9].contains(&place) {
                prop_assert!(!text.contains(['#', ' ', '\t', '\u{85}', '\u{2028}']), "{place}: {text:?}");
                // No queue is an empty name; every other name is one word.
                prop_assert_eq!(text.lines().count(), usize::from(place != 7 || !text.is_empty()));
            }
            if [0, 1].contains(&place) {
                prop_assert!(!text.contains('.'));
            }
        }
    }
}
