//! `install` as an init container runs it: any user, a read-only root with nothing in it, no capabilities. Needs root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use gridcast_proto::v1::{ConfigureRequest, Host};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Cluster, PROGRAM, outcome, run, text};

/// A container of sorts: the root holds the binary and its libraries only (a release is static and needs none), is
/// read-only, and belongs to nobody; `/gridcast` is an emptyDir, `/etc/hosts` a file that kubelet mounted.
const CONTAINER: &str = r#"
set -e
root=$1; shift
mount -t tmpfs tmpfs "$root"
mkdir "$root/gridcast" "$root/proc" "$root/etc" "$root/usr" "$root/image"
for link in lib lib64 bin sbin; do test -L "/$link" && cp -P "/$link" "$root/$link"; done
touch "$root/etc/hosts" "$root/image/starter"
mount --rbind /usr "$root/usr"
mount --bind "$STARTER" "$root/image/starter"
mount -t proc proc "$root/proc"
mount --bind "$EMPTY" "$root/gridcast"
mount --bind "$HOSTS" "$root/etc/hosts"
mount -o remount,ro,bind "$root"
exec chroot "$root" /usr/bin/setpriv --reuid 12345 --regid 12345 --clear-groups --no-new-privs \
    --inh-caps=-all --bounding-set=-all /image/starter "$@"
"#;

fn container(root: &Path, hosts: &Path, empty: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        CONTAINER,
        "sh",
    ]);
    command.arg(root).args(arguments);
    command.env("STARTER", PROGRAM).env("EMPTY", empty).env("HOSTS", hosts);
    command
}

/// PID 1 of a namespace, ended with this value: its parent's death does not tell it, since it has changed its user.
struct Init(Pid);

impl Init {
    fn of(unshare: u32) -> Self {
        let children = format!("/proc/{unshare}/task/{unshare}/children");
        Self(Pid::from_raw(fs::read_to_string(children).unwrap().trim().parse().unwrap()))
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

#[tokio::test]
async fn any_user_on_a_read_only_root_installs_and_any_other_serves() {
    let mut cluster = Cluster::empty(1);
    let path = |name: &str| cluster.path(name);
    let [root, empty, kubelet] = ["root", "empty", "kubelet"].map(path);
    fs::create_dir(&root).unwrap();
    fs::create_dir(&empty).unwrap();
    fs::set_permissions(&empty, PermissionsExt::from_mode(0o777)).unwrap();
    fs::write(&kubelet, "127.0.0.1\tlocalhost\n10.0.0.1\tring-node-0.ring.default.svc ring-node-0\n")
        .unwrap();
    let arguments = ["install", "--to", "/gridcast/bin"];
    for attempt in 1..=2 {
        let output = container(&root, &kubelet, &empty, &arguments).output().unwrap();
        assert_eq!(outcome(&output), (Some(0), String::new(), String::new()), "attempt {attempt}");
    }
    let stat = |name: &str| {
        let metadata = fs::metadata(empty.join(name)).unwrap();
        (metadata.uid(), metadata.permissions().mode() & 0o7777)
    };
    assert_eq!(stat("bin/gridcast-starter"), (12345, 0o755));
    assert_eq!([stat("run"), stat("tmp")], [(12345, 0o1777); 2]);
    assert_eq!([stat("hosts"), stat("machinefile")], [(12345, 0o666); 2]);
    assert_eq!(fs::read(empty.join("hosts")).unwrap(), fs::read(&kubelet).unwrap());
    assert!(fs::read(empty.join("bin/gridcast-starter")).unwrap() == fs::read(PROGRAM).unwrap());

    // The node itself: another user, the file of hosts mounted by itself, PID 1.
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        fs::set_permissions(cluster.keys(1).join(name), PermissionsExt::from_mode(0o644)).unwrap();
    }
    let (listen, keys) = (cluster.address(1).to_string(), cluster.keys(1));
    let script = format!(
        "mount --bind {0}/hosts /etc/hosts && mount --bind {0} /mnt && exec setpriv --reuid 54321 \
         --regid 54321 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all /mnt/bin/gridcast-starter \
         serve --name h1 --listen {listen} --keys {1} --socket /mnt/run/ranks.sock --machinefile /mnt/machinefile",
        empty.display(),
        keys.display(),
    );
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
    ]);
    command.arg(script).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Where the support waits for the socket.
    std::os::unix::fs::symlink(empty.join("run/ranks.sock"), cluster.socket(1)).unwrap();
    cluster.start(1, &mut command);
    let _init = Init::of(cluster.pid(1));
    let hosts = vec![Host { name: "ring-node-0".into(), address: "10.0.0.1".into() }];
    let request = ConfigureRequest { hosts, machinefile: "ring-node-0 slots=1 max_slots=1\n".into() };
    cluster.client(1).await.configure(request).await.unwrap();
    let brought =
        run(cluster.client(1).await, "id -u; tail -n 2 /etc/hosts; echo x >/mnt/tmp/file; ls -A /mnt/run")
            .await;
    let seen = text(&brought.stdout);
    assert!(
        seen.starts_with("54321\n10.0.0.1\tring-node-0\n") && seen.ends_with("\nranks.sock\n"),
        "{brought:?}"
    );
    assert_eq!(text(&fs::read(empty.join("machinefile")).unwrap()), "ring-node-0 slots=1 max_slots=1\n");
}

#[test]
fn a_directory_that_may_not_be_written_is_named() {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let [inside, empty, hosts] = ["root", "empty", "hosts"].map(|name| root.path().join(name));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&empty).unwrap();
    fs::set_permissions(&empty, PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(&hosts, "").unwrap();
    let output = container(&inside, &hosts, &empty, &["install", "--to", "/gridcast/bin"]).output().unwrap();
    let (code, _, err) = outcome(&output);
    assert_eq!(code, Some(1));
    assert!(err.contains("DirectoryFailed: cannot make /gridcast/run") && err.contains("denied"), "{err}");
}
