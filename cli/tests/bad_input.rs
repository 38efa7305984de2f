//! Is wrong input refused with exit code 2, in words that help, before anything is made?

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure here is a failed test")]

mod common;

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, symlink},
        net::UnixListener,
        process::CommandExt as _,
    },
    path::Path,
    process::Command,
};

use common::{Done, Place, Running};

/// Makes something at a path.
type Maker<'a> = &'a dyn Fn(&Path);

/// What is wrong with it is said by each case.
const GOOD: &str = "apiVersion: gridcast.io/v1alpha1
kind: VirtualCluster
metadata: {name: ring}
spec:
  groups:
  - {name: node, replicas: 2, slots: 2, pod: {spec: {containers: [{name: node, image: mpi}]}}}
  - {name: big, replicas: 1, pod: {spec: {containers: [{name: node, image: mpi}]}}}
  network: {probe: {policy: Never}}
  data:
  - {name: ics, mountPath: /data/ics, source: {node: {path: PLACE/ics}}}
  run: {processes: 5, command: [/bin/true]}
";

/// A place with the dataset of [`GOOD`].
fn place() -> Place {
    let place = Place::new();
    place.write("ics/a", "a");
    place
}

fn manifest(place: &Place, from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?}");
    GOOD.replacen(from, to, 1).replace("PLACE", place.path("").to_str().unwrap().trim_end_matches('/'))
}

fn end(command: Command) -> Done {
    Running::start(command).end()
}

/// Refused, with all these words, and nothing was made.
#[track_caller]
fn refused(place: &Place, what: &str, done: &Done, words: &[&str]) {
    assert_eq!(done.code(), 2, "{what}: {}", done.stderr);
    assert_eq!(done.out(), "", "{what}");
    for word in words {
        assert!(done.stderr.contains(word), "{what}: {word:?} is not in {:?}", done.stderr);
    }
    assert!(!done.stderr.contains("panicked"), "{what}: {}", done.stderr);
    let text = done.stderr.trim_end();
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{what}: {text:?}");
    for left in ["state", "report.json"] {
        assert!(!place.path(left).exists(), "{what}: {left} was made");
    }
    assert_eq!(place.processes(), [], "{what}");
}

/// As [`refused`], by `local run` with this manifest.
#[track_caller]
fn run_refused(place: &Place, manifest: &str, more: &[&str], words: &[&str]) {
    let what = format!("{more:?} {manifest}");
    refused(place, &what, &place.run(manifest, more), words);
}

/// `(text to replace, replacement, words of the message)`; the schema and the rules refuse these.
const AGAINST_THE_API: &[(&str, &str, &[&str])] = &[
    ("slots: 2", "slotz: 2", &["spec.groups[0].slotz", "unknown field", "known here"]),
    ("\nspec:", "\nspce: {}\nspec:", &["spce", "unknown field"]),
    ("command: [/bin/true]", "comand: [/bin/true]", &["spec.run.comand", "spec.run.command: is required"]),
    ("processes: 5", "processes: 6", &["spec.run.processes", "6 processes on 5 slots", "lower `processes`"]),
    ("processes: 5", "processes: 0", &["spec.run.processes", "at least 1"]),
    ("processes: 5", "processes: '5'", &["spec.run.processes", "must be an integer"]),
    ("name: big", "name: node", &["spec.groups[1]", "\"node\"", "spec.groups[0]"]),
    ("{name: ring}", "{name: ring.a}", &["metadata.name", "'.'", "Open MPI"]),
    ("{name: ring}", "{name: Ring}", &["metadata.name", "lower-case"]),
    ("{name: ring}", "{name: ring_1}", &["metadata.name", "lower-case"]),
    (
        "{name: ring}",
        "{name: rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr}",
        &["metadata.name", "48", "49"],
    ),
    ("{name: ring}", r#"{name: "ring\nroot"}"#, &["metadata.name", "lower-case"]),
    ("{name: ring}", "{name: 'ring#1'}", &["metadata.name", "lower-case"]),
    ("{name: ring}", "{}", &["metadata.name", "is required"]),
    ("name: big", "name: big.a", &["spec.groups[1].name", "must match"]),
    ("name: big", "name: Big", &["spec.groups[1].name", "must match"]),
    ("name: big", r#"name: "big\nx""#, &["spec.groups[1].name", "must match"]),
    ("name: big", "name: 'big#'", &["spec.groups[1].name", "must match"]),
    (
        "name: big",
        "name: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
        &["spec.groups[1].name"],
    ),
    ("v1alpha1", "v1", &["apiVersion", "must be gridcast.io/v1alpha1, but is gridcast.io/v1"]),
    ("kind: VirtualCluster", "kind: Cluster", &["kind", "VirtualCluster", "but is Cluster"]),
    ("mountPath: /data/ics", "mountPath: /etc", &["spec.data[0].mountPath", "must not hide"]),
    ("mountPath: /data/ics", "mountPath: /tmp", &["spec.data[0].mountPath", "must not hide"]),
    ("mountPath: /data/ics", "mountPath: /gridcast", &["spec.data[0].mountPath", "/gridcast"]),
    ("mountPath: /data/ics", "mountPath: data/ics", &["spec.data[0].mountPath", "must match"]),
    (
        "  run:",
        "  - {name: b, mountPath: /data/ics, source: {node: {path: /usr/share}}}\n  run:",
        &["spec.data", "different `mountPath`"],
    ),
    (
        "  run:",
        "  - {name: b, mountPath: /data/ics/b, source: {node: {path: /usr/share}}}\n  run:",
        &["spec.data", "below another"],
    ),
    ("source: {node: {path: PLACE/ics}}", "source: {}", &["spec.data[0].source", "exactly one of"]),
    ("path: PLACE/ics", "path: ics", &["spec.data[0].source.node.path", "must match"]),
    (
        "{policy: Never}",
        "{policy: Never, payloadBytes: 70000}",
        &["spec.network.probe.payloadBytes", "at most 65507"],
    ),
    ("\n  run:", "\n\trun:", &["tab"]),
    ("processes: 5,", "processes: 5, processes: 4,", &["processes"]),
    ("command: [/bin/true]}", "command: [/bin/true]", &["line"]),
];

#[test]
fn what_the_api_server_would_refuse() {
    let place = place();
    let names: Vec<String> =
        (0..AGAINST_THE_API.len()).map(|index| format!("case-{index:02}.yaml")).collect();
    let mut said = String::new();
    for (name, (from, to, words)) in names.iter().zip(AGAINST_THE_API) {
        place.write(name, manifest(&place, from, to));
        let done = end(place.gridcast(&["local", "run", "--state-dir", "state", "-f", name]));
        refused(&place, to, &done, words);
        assert!(done.stderr.contains(&format!("{name}:")), "the file and line of {to}: {}", done.stderr);
        said += done.stderr.strip_prefix("gridcast: ").unwrap();
    }
    let arguments: Vec<&str> = std::iter::once("validate").chain(names.iter().map(String::as_str)).collect();
    let checked = end(place.gridcast(&arguments));
    refused(&place, "validate", &checked, &[]);
    assert_eq!(checked.stderr, format!("gridcast: {said}"), "validate and run differ");
}

#[test]
fn files_that_are_no_manifest() {
    let place = place();
    let good = manifest(&place, "", "");
    let files: &[(&str, Vec<u8>, &[&str])] = &[
        ("empty.yaml", vec![], &["holds no object"]),
        ("comment.yaml", b"# nothing\n---\n".to_vec(), &["holds no object"]),
        ("text.yaml", b"hello\n".to_vec(), &["must be a mapping with `apiVersion`"]),
        ("list.yaml", b"- a\n".to_vec(), &["must be a mapping with `apiVersion`"]),
        ("open.yaml", b"a: [b\n".to_vec(), &["open.yaml:", "unclosed bracket"]),
        ("binary.yaml", b"\x7fELF\x02\x01\x01\x00\xff\xfe".to_vec(), &["binary.yaml:1", "no UTF-8 text"]),
        ("utf8.yaml", good.replace("ring", "r\u{fffd}").into_bytes(), &["metadata.name"]),
        ("broken.yaml", [good.as_bytes(), b"# caf\xe9\n"].concat(), &["broken.yaml:12", "no UTF-8 text"]),
        (
            "other.yaml",
            b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n".to_vec(),
            &["has no VirtualCluster"],
        ),
        ("two.yaml", format!("{good}---\n{good}").into_bytes(), &["several VirtualClusters", "its own file"]),
    ];
    let named = |name: &str| end(place.gridcast(&["local", "run", "--state-dir", "state", "-f", name]));
    for (name, bytes, words) in files {
        place.write(name, bytes);
        let done = named(name);
        refused(&place, name, &done, words);
        assert!(done.stderr.contains(name), "{}", done.stderr);
    }
    refused(
        &place,
        "missing",
        &named("missing.yaml"),
        &["missing.yaml", "No such file", "give the path of a manifest"],
    );
    refused(&place, "a directory", &named("ics"), &["ics", "Is a directory", "give the path of a manifest"]);
    refused(&place, "endless", &named("/dev/zero"), &["/dev/zero", "more than"]);
}

/// What a manifest may say to Kubernetes, but not here.
#[test]
fn what_a_local_run_cannot_do() {
    let place = place();
    let cases: &[(&str, &str, &[&str])] = &[
        ("spec:\n", "spec:\n  suspend: true\n", &["spec.suspend", "set it to false"]),
        (
            "  run:",
            "  acceptance: [{type: Stream, minTriadMBps: 1}]\n  run:",
            &["spec.acceptance", "remove it"],
        ),
        (
            "processes: 5",
            "processes: 5, implementation: IntelMPI",
            &["spec.run.implementation", "OpenMPI or MPICH"],
        ),
        ("processes: 5", "processes: 5, remoteShell: SSH", &["spec.run.remoteShell", "Starter"]),
        ("{node: {path: PLACE/ics}}", "{s3: {bucket: ics}}", &["spec.data[0].source.s3", "use `node`"]),
        ("{path: PLACE/ics}}", "{path: PLACE/ics}}, strategy: Best", &["strategy", "Best", "Stable"]),
        ("replicas: 2", "replicas: 200", &["spec.groups", "201 nodes", "200", "lower `replicas`"]),
        (
            "{policy: Never}",
            "{policy: Never}, require: {minBandwidthMbps: 5}",
            &["spec.network.require", "policy", "BeforeRun"],
        ),
        (
            "{policy: Never}",
            "{bandwidth: None}, require: {minBandwidthMbps: 5}",
            &["spec.network.require.minBandwidthMbps", "Pairs"],
        ),
        (
            "processes: 5",
            "processes: 5, workingDirectory: /no/such",
            &["spec.run.workingDirectory", "/no/such", "make it"],
        ),
        (
            "processes: 5",
            "processes: 5, workingDirectory: PLACE/ics/a",
            &["spec.run.workingDirectory", "is not a directory"],
        ),
        (
            "processes: 5",
            "processes: 5, workingDirectory: /data/ics/run",
            &["spec.run.workingDirectory", "dataset ics", "add it to the dataset"],
        ),
        ("mountPath: /data/ics", "mountPath: /usr/bin", &["spec.data[0].mountPath", "mpirun.openmpi"]),
        ("mountPath: /data/ics", "mountPath: PLACE/ics/a", &["spec.data[0].mountPath", "is a file"]),
        ("mountPath: /data/ics", "mountPath: PLACE/ics/a/b", &["spec.data[0].mountPath", "is a file"]),
        ("mountPath: /data/ics", "mountPath: PLACE/etc", &["spec.data[0].mountPath", "would hide /etc"]),
        ("mountPath: /data/ics", "mountPath: PLACE/gone/x", &["spec.data[0].mountPath", "leads nowhere"]),
    ];
    symlink("/etc", place.path("etc")).unwrap();
    symlink("no-such", place.path("gone")).unwrap();
    for (from, to, words) in cases {
        let to = to.replace("PLACE", place.path("").to_str().unwrap().trim_end_matches('/'));
        run_refused(&place, &manifest(&place, from, &to), &[], words);
    }
}

#[test]
fn sources_that_are_not_there() {
    let place = place();
    let source = |to: &str| manifest(&place, "{node: {path: PLACE/ics}}", to);
    let map = |name: &str| {
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{a: b}}\n")
    };
    let claim = source("{persistentVolumeClaim: {claimName: ics, path: deep}}");
    let cases: &[(String, &[&str], &[&str])] = &[
        (
            source("{node: {path: /no/such}}"),
            &[],
            &["spec.data[0].source: /no/such", "no such file", "give a path"],
        ),
        (
            claim.clone(),
            &[],
            &["spec.data[0].source.persistentVolumeClaim.claimName", "add --volume ics=DIR"],
        ),
        (claim.clone(), &["--volume", "isc=ics"], &["claimName", "add --volume ics=DIR"]),
        (claim, &["--volume", "ics=ics"], &["ics/deep", "no such file"]),
        (
            source("{configMap: {name: conf}}"),
            &[],
            &["source.configMap.name", "no ConfigMap conf", "further document"],
        ),
        (
            source("{configMap: {name: conf}}") + &map("config"),
            &[],
            &["source.configMap.name", "no ConfigMap conf"],
        ),
        (
            source("{configMap: {name: conf}}") + &map("conf") + &map("conf"),
            &[],
            &["source.configMap.name", "2 documents", "keep one"],
        ),
        (source("{secret: {secretName: keys}}"), &[], &["source.secret.secretName", "no Secret keys"]),
        (
            source("{http: {url: 'https://example.org/'}}"),
            &[],
            &["source.http.url", "name of a file", "one file"],
        ),
        (source("{http: {url: 'https://example.org/a/?f=b'}}"), &[], &["source.http.url", "name of a file"]),
        (source("{http: {url: 'ftp://example.org/a'}}"), &[], &["source.http.url", "must match"]),
        (source("{http: {url: 'http://[::1/a'}}"), &[], &["source.http.url", "https://HOST/PATH/FILE"]),
        (
            manifest(
                &place,
                "processes: 5",
                "processes: 5, collect: [{path: out, to: {persistentVolumeClaim: {claimName: results}}}]",
            ),
            &[],
            &["spec.run.collect[0].to.persistentVolumeClaim.claimName", "add --volume results=DIR"],
        ),
        (
            manifest(
                &place,
                "processes: 5",
                "processes: 5, collect: [{path: out, to: {persistentVolumeClaim: {claimName: results, path: a/b}}}]",
            ),
            &["--volume", "results=ics"],
            &["spec.run.collect[0].to.persistentVolumeClaim.path", "ics/a is not a directory"],
        ),
    ];
    for (manifest, more, words) in cases {
        run_refused(&place, manifest, more, words);
    }
}

#[test]
fn what_a_dataset_cannot_hold_is_named() {
    let place = place();
    let good = manifest(&place, "", "");
    let deep = place.path("ics/one/two");
    fs::create_dir_all(&deep).unwrap();
    let bad = deep.join("bad");
    let pipe = |path: &Path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRUSR).unwrap();
    let socket = |path: &Path| drop(UnixListener::bind(path).unwrap());
    let device = |path: &Path| {
        let (kind, mode) = (nix::sys::stat::SFlag::S_IFCHR, nix::sys::stat::Mode::S_IRUSR);
        nix::sys::stat::mknod(path, kind, mode, nix::sys::stat::makedev(1, 5)).unwrap();
    };
    let makers: [(&str, Maker<'_>); 3] = [("a FIFO", &pipe), ("a socket", &socket), ("a device", &device)];
    for (what, make) in makers {
        make(&bad);
        run_refused(&place, &good, &[], &["spec.data[0].source", "ics/one/two/bad", what, "remove it"]);
        fs::remove_file(&bad).unwrap();
        // As the source itself, behind a link.
        let alone = place.path("alone");
        make(&alone);
        symlink("alone", place.path("link")).unwrap();
        let text = manifest(&place, "PLACE/ics", "PLACE/link");
        run_refused(&place, &text, &[], &["spec.data[0].source", "/link", what]);
        fs::remove_file(alone).unwrap();
        fs::remove_file(place.path("link")).unwrap();
    }
    // A name that would end the line of the message.
    pipe(&deep.join(std::ffi::OsStr::from_bytes(b"bad\nname\x1b[2J")));
    run_refused(&place, &good, &[], &[r"bad\nname\u{1b}[2J", "a FIFO"]);
}

/// Root may open whatever its mode says, so only a read tells.
#[test]
fn a_file_that_cannot_be_read_is_named() {
    let place = place();
    let text = manifest(&place, "PLACE/ics", "/proc/self/mem");
    run_refused(
        &place,
        &text,
        &[],
        &["spec.data[0].source: /proc/self/mem", "cannot be read", "mend or remove it"],
    );
    place.write("manifest.yaml", manifest(&place, "", ""));
    place.write("ics/deep/bad", "");
    let mut command = place.gridcast(&[]);
    let program = command.get_program().to_owned();
    command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount --bind /proc/$$/mem ics/deep/bad && exec \"$@\"", "sh"]);
    command.arg(program).args(["local", "run", "-f", "manifest.yaml", "--state-dir", "state"]);
    command.current_dir(place.path(""));
    refused(&place, "nested", &end(command), &["spec.data[0].source", "ics/deep/bad", "cannot be read"]);
}

#[test]
fn topologies_that_do_not_fit() {
    let place = place();
    let good = manifest(&place, "", "");
    let hosts = "hosts: [ring-node-0, ring-node-1, ring-big-0]\n";
    let links = "links: [{a: ring-node-0, b: s, mbps: 100}, {a: ring-node-1, b: s, mbps: 100}, {a: ring-big-0, b: s, mbps: 100}]\n";
    let whole = format!("{hosts}switches: [s]\n{links}");
    let cases: &[(String, &[&str])] = &[
        (whole.replace("ring-node-1", "ring-node-7"), &["hosts: ring-node-7 is no node", "ring-node-1"]),
        (
            whole.replace(", ring-big-0]", "]").replace(", {a: ring-big-0, b: s, mbps: 100}", ""),
            &["hosts: node ring-big-0 is missing", "add it"],
        ),
        (
            whole.replace(", {a: ring-big-0, b: s, mbps: 100}", ""),
            &["`ring-big-0` cannot be reached", "add a link"],
        ),
        (whole.replace("mbps: 100}]", "mbps: -5}]"), &["links[2].mbps: -5", "outside"]),
        (whole.replace("mbps: 100}]", "mbps: 0}]"), &["links[2].mbps: 0", "outside"]),
        (whole.replace("mbps: 100}]", "mbps: .nan}]"), &["line 3", "links[2].mbps: NaN", "outside"]),
        (whole.replace("mbps: 100}]", "mbps: fast}]"), &["line 3", "links[2].mbps", "\"fast\""]),
        (
            whole.replace("mbps: 100}]", "mbps: 100, delay: 5}]"),
            &["links[2]", "unknown field `delay`", "delayMs"],
        ),
        (whole.replace("b: s, mbps: 100}]", "b: t, mbps: 100}]"), &["links[2].b", "`t`", "correct the name"]),
        (
            whole.replace("ring-big-0]", "{name: ring-big-0, sendmbps: 5}]"),
            &["hosts[2]", "`sendmbps`", "sendMbps"],
        ),
        (whole.replace("switches", "switch"), &["unknown field `switch`"]),
        (whole.replace("[s]", "[ring-node-0]"), &["switches[0]", "`ring-node-0`", "rename"]),
        (whole.replace("ring-big-0]", r#""a\nb"]"#), &["hosts[2]", r"a\nb"]),
        ("hosts: [".to_owned(), &["line 1", "unclosed bracket", "docs/topology.md"]),
        ("hello".to_owned(), &["expected a mapping with `hosts`"]),
        (String::new(), &["line 1: the file is empty"]),
    ];
    for (text, words) in cases {
        place.write("net.yaml", text);
        let done = place.run(&good, &["--topology", "net.yaml"]);
        refused(&place, text, &done, &[words, &["--topology net.yaml: "][..]].concat());
    }
    place.write("net.yaml", [b"hosts:\n- \xff".as_slice()].concat());
    run_refused(&place, &good, &["--topology", "net.yaml"], &["--topology net.yaml: line 2: no UTF-8"]);
    run_refused(
        &place,
        &good,
        &["--topology", "nope.yaml"],
        &["--topology nope.yaml", "No such file", "give the path"],
    );
    run_refused(
        &place,
        &good,
        &["--topology", "ics"],
        &["--topology ics", "Is a directory", "give the path"],
    );
}

#[test]
fn flags_that_cannot_be_followed() {
    let place = place();
    let good = manifest(&place, "", "");
    place.write("manifest.yaml", &good);
    symlink("no-such", place.path("gone")).unwrap();
    let cases: &[(&[&str], &[&str])] = &[
        (&["--volume", "ics"], &["--volume", "NAME=DIR"]),
        (&["--volume", "=ics"], &["--volume", "NAME=DIR"]),
        (&["--volume", "ics="], &["--volume", "NAME=DIR"]),
        (&["--volume", "v=ics", "--volume", "v=ics"], &["--volume v=ics", "twice"]),
        (&["--volume", "v=no/such"], &["--volume v=no/such", "give a directory"]),
        (&["--volume", "v=manifest.yaml"], &["--volume v=manifest.yaml", "not a directory"]),
        (&["--volume", "v=manifest.yaml/x"], &["--volume v=manifest.yaml/x", "give a directory"]),
        (&["--volume", "v=gone"], &["--volume v=gone", "leads nowhere"]),
        (
            &["--report", "no/such/report.json"],
            &["--report no/such/report.json", "no/such is not a directory"],
        ),
        (&["--report", "ics"], &["--report ics", "is a directory", "name of a file"]),
        (&["--report", "new/"], &["--report new/", "name of a file"]),
        (&["--report", "/dev/stdout"], &["--report /dev/stdout", "is a link or a device", "name of a file"]),
        (&["--report", "/dev/null"], &["--report /dev/null", "is a link or a device", "name of a file"]),
        (&["--report", "/proc/report.json"], &["--report /proc/report.json", "choose another directory"]),
        (&["--report", "-"], &["--report -", "standard output"]),
        (&["--state-dir", "manifest.yaml"], &["--state-dir manifest.yaml", "give a directory"]),
        (&["--state-dir", "manifest.yaml/x"], &["--state-dir manifest.yaml/x", "give a directory"]),
        (&["--state-dir", "ics/state"], &["--state-dir ics/state", "spec.data[0]", "choose another"]),
        (&["--toplogy", "x"], &["--toplogy", "--topology"]),
        (&["more"], &["more", "Usage"]),
    ];
    for verb in ["run", "up"] {
        for (flags, words) in cases {
            let mut arguments = vec!["local", verb, "-f", "manifest.yaml"];
            let given = |flag: &str| flags.contains(&flag);
            if !given("--state-dir") {
                arguments.extend(["--state-dir", "state"]);
            }
            let done = end(place.gridcast(&[&arguments, *flags].concat()));
            refused(&place, &format!("{verb} {flags:?}"), &done, words);
        }
    }
    refused(&place, "no -f", &end(place.gridcast(&["local", "run"])), &["--file <FILE>"]);
    assert!(!place.path("ics/state").exists());
    assert_eq!(fs::read_to_string(place.path("manifest.yaml")).unwrap(), good);
}

#[test]
fn who_is_not_root_is_told_the_whole_command() {
    let place = place();
    place.write("my manifest.yaml", manifest(&place, "", ""));
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path("gridcast");
    fs::copy(env!("CARGO_BIN_EXE_gridcast"), &program).unwrap();
    let nobody = |called: &str, arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.arg0(called).args(arguments).current_dir(place.path("")).uid(65534).gid(65534);
        end(command)
    };
    let program = program.to_str().unwrap();
    let arguments = ["local", "run", "-f", "my manifest.yaml", "--volume", "a=b", "--state-dir", "state"];
    let line = format!("sudo {program} local run -f 'my manifest.yaml' --volume a=b --state-dir state\n");
    for called in [program, "gridcast"] {
        refused(&place, called, &nobody(called, &arguments), &["needs root", &line]);
    }
    refused(&place, "relative", &nobody("./gridcast", &arguments), &["sudo ./gridcast local run"]);
    for verb in [&["up", "-f", "x"][..], &["exec", "n", "--", "true"], &["down"], &["clean"]] {
        let done = nobody("gridcast", &[&["local"], verb].concat());
        refused(&place, verb[0], &done, &["needs root", &format!("sudo {program} local {}", verb.join(" "))]);
    }
}

#[test]
fn a_machine_without_open_mpi() {
    let place = place();
    place.write("manifest.yaml", manifest(&place, "", ""));
    for path in ["", "/no/such:ics"] {
        let mut command = place.gridcast(&["local", "run", "-f", "manifest.yaml", "--state-dir", "state"]);
        command.env("PATH", path);
        refused(&place, path, &end(command), &["mpirun.openmpi", "openmpi-bin"]);
    }
}

#[test]
fn nodes_and_clusters_that_do_not_exist() {
    let place = Place::new();
    for (verb, more) in [("down", &[][..]), ("exec", &["n", "--", "true"])] {
        let done = place.on_state(verb, more);
        assert_eq!(done.code(), 2, "{}", done.stderr);
        assert!(
            done.stderr.contains("there is no cluster; make one with `gridcast local up"),
            "{}",
            done.stderr
        );
    }
    let text = common::manifest(&[("node", 2, 1)], "");
    let up = place.start_up(&text, &[]).end();
    assert_eq!(up.code(), 0, "{}", up.stderr);
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("exec", &["m-node-7", "--", "true"], &["\"m-node-7\"", "m-node-0 m-node-1"]),
        ("exec", &["--name", "other", "m-node-0", "--", "true"], &["--name other", "gridcast local ps"]),
        ("exec", &["m-node-0", "true"], &["Usage", "--"]),
        ("exec", &["m-node-0"], &["COMMAND"]),
        ("down", &["--name", "other"], &["--name other", "gridcast local ps"]),
        ("down", &["m"], &["Usage"]),
        ("up", &["-f", "manifest.yaml"], &["m", "gridcast local down"]),
    ];
    for (verb, more, words) in cases {
        let done = place.on_state(verb, more);
        assert_eq!(done.code(), 2, "{verb} {more:?}: {}", done.stderr);
        for word in *words {
            assert!(done.stderr.contains(word), "{verb} {more:?}: {word:?} is not in {}", done.stderr);
        }
    }
    let down = place.on_state("down", &[]);
    assert_eq!(down.code(), 0, "{}", down.stderr);
    place.nothing_left();
}

/// What looks like a mistake and is none.
#[test]
fn mount_paths_may_be_the_private_directories_or_the_source() {
    let place = place();
    symlink(".", place.path("ics/loop")).unwrap();
    let source = place.path("ics").to_str().unwrap().to_owned();
    let text = common::manifest(
        &[("node", 2, 1)],
        &format!(
            "data:\n- {{name: a, mountPath: /data, source: {{node: {{path: {source}}}}}}}\n\
             - {{name: b, mountPath: /scratch, source: {{configMap: {{name: b}}}}}}\n\
             - {{name: c, mountPath: {source}, source: {{node: {{path: {source}}}}}}}\n\
             run: {{processes: 2, workingDirectory: /data, command: [sh, -c, 'echo $(cat a /scratch/key {source}/loop/a; readlink loop; touch /scratch/x 2>/dev/null || echo no)']}}\n"
        ),
    ) + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {key: k}\n";
    let done = place.run(&text, &["--volume", "unused=ics"]);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    assert_eq!(done.lines(), ["aka. no"; 2]);
    for note in [
        "dataset a takes the place of the nodes' own /data",
        "--volume unused is not used",
        "image i is not used",
    ] {
        assert!(done.stderr.contains(note), "{note}: {}", done.stderr);
    }
    place.nothing_left();
}

#[test]
fn help_shows_what_users_may_type() {
    let place = Place::new();
    let help = |arguments: &[&str]| {
        let done = end(place.gridcast(arguments));
        assert_eq!(done.code(), 0, "{}", done.stderr);
        done.out()
    };
    let local = help(&["local", "--help"]);
    for verb in ["run", "up", "ps", "exec", "down", "clean"] {
        assert!(local.contains(&format!("\n  {verb} ")), "{local}");
    }
    assert!(!local.contains("\n  keep"), "{local}");
    let run = help(&["local", "run", "--help"]);
    for flag in ["--file", "--topology", "--state-dir", "--report", "--volume", "--keep", "--quiet"] {
        assert!(run.contains(flag), "{run}");
    }
}
