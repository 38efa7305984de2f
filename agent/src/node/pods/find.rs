//! Which process belongs to a pod, and in which network namespace is it?
//!
//! The kubelet puts each pod's processes below a control group named after the pod's UID, whatever runtime starts them.
//! /proc shows that to whoever sees the host's processes, so nothing has to be asked of the runtime, which may be
//! restarting just now.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// UIDs are of 36 characters, those of static pods of 32.
const MAX_UID_BYTES: usize = 64;

/// A process of a pod that lives and shows its network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// In the /proc that was searched.
    pub(crate) pid: u32,
    /// As the kernel names it, `net:[4026531840]`.
    pub(crate) namespace: PathBuf,
}

/// Whether `uid` can be one at all: it becomes part of paths.
pub(crate) fn is_uid(uid: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=MAX_UID_BYTES).contains(&uid.len()) && uid.bytes().all(plain)
}

/// The pod's oldest process, which is that of its sandbox where the runtime has one: later ones may have made namespaces
/// of their own. None where there is no process of this pod, an error where there is one that may not be looked at.
pub(crate) fn find(proc: &Path, uid: &str) -> io::Result<Option<Found>> {
    let mut oldest: Option<(u64, Found)> = None;
    let mut hidden = None;
    for entry in fs::read_dir(proc)? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Processes come and go meanwhile.
        let found = match look_at(proc, pid, uid) {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(error) => {
                hidden = Some(error);
                continue;
            }
        };
        let age = (started(proc, pid), pid);
        if oldest.as_ref().is_none_or(|(time, known)| age < (*time, known.pid)) {
            oldest = Some((age.0, found));
        }
    }
    match (oldest, hidden) {
        (None, Some(error)) => Err(error),
        (oldest, _) => Ok(oldest.map(|(_, found)| found)),
    }
}

/// The process `pid`, if it is one of the pod's. Fails only where it is and may not be looked at.
pub(crate) fn look_at(proc: &Path, pid: u32, uid: &str) -> io::Result<Option<Found>> {
    let Ok(groups) = fs::read_to_string(proc.join(pid.to_string()).join("cgroup")) else { return Ok(None) };
    if !is_in_pod(&groups, uid) {
        return Ok(None);
    }
    match fs::read_link(namespace_path(proc, pid)) {
        Ok(namespace) => Ok(Some(Found { pid, namespace })),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(io::Error::new(
            error.kind(),
            format!("process {pid} may not be looked at: the agent needs the capability SYS_PTRACE"),
        )),
        // A zombie has none.
        Err(_) => Ok(None),
    }
}

/// Where the network namespace of a process can be opened.
pub(crate) fn namespace_path(proc: &Path, pid: u32) -> PathBuf {
    proc.join(pid.to_string()).join("ns/net")
}

/// Whether control groups as in /proc/PID/cgroup lie in the pod's: `pod<uid>` with the cgroupfs driver, and with
/// systemd's `kubepods-…-pod<uid>.slice`, where `_` stands for each `-` of the UID.
fn is_in_pod(groups: &str, uid: &str) -> bool {
    let slice = format!("pod{}.slice", uid.replace('-', "_"));
    let is_pod = |part: &str| {
        let before = part.strip_suffix(&slice);
        part.strip_prefix("pod") == Some(uid)
            || before.is_some_and(|before| before.is_empty() || before.ends_with('-'))
    };
    groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(|path| path.split('/').any(is_pod))
}

/// Clock ticks after boot; the largest number where it cannot be told.
fn started(proc: &Path, pid: u32) -> u64 {
    let stat = fs::read_to_string(proc.join(pid.to_string()).join("stat")).unwrap_or_default();
    // The program's name, in parentheses, may hold anything; field 22 is the 20th after it.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().nth(19).and_then(|field| field.parse().ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const UID: &str = "0d3f7c1e-8a5b-4b6c-9d2e-1f2a3b4c5d6e";

    #[test]
    fn control_groups_of_every_driver_tell_the_pod() {
        for groups in [
            "0::/kubepods/burstable/pod0d3f7c1e-8a5b-4b6c-9d2e-1f2a3b4c5d6e/5e9c\n",
            "12:cpu,cpuacct:/\n11:memory:/kubepods/pod0d3f7c1e-8a5b-4b6c-9d2e-1f2a3b4c5d6e/5e9c\n0::/x\n",
            "0::/kubepods.slice/kubepods-besteffort.slice/\
             kubepods-besteffort-pod0d3f7c1e_8a5b_4b6c_9d2e_1f2a3b4c5d6e.slice/cri-containerd-5e9c.scope\n",
            "0::/kubepods.slice/kubepods-pod0d3f7c1e_8a5b_4b6c_9d2e_1f2a3b4c5d6e.slice/crio-5e9c.scope\n",
            "0::/../../pod0d3f7c1e-8a5b-4b6c-9d2e-1f2a3b4c5d6e/5e9c\n",
            "0::/lab/node-1/kubepods/burstable/pod0d3f7c1e-8a5b-4b6c-9d2e-1f2a3b4c5d6e/a:b\n",
        ] {
            assert!(is_in_pod(groups, UID), "{groups}");
            assert!(!is_in_pod(groups, "0d3f7c1e"), "a beginning of it");
            assert!(!is_in_pod(groups, "8a5b-4b6c-9d2e-1f2a3b4c5d6e"), "an end of it");
        }
        for groups in [
            "",
            "0::/\n",
            "0::/system.slice/pod.slice\n",
            "0::/user/xpod0d3f7c1e-8a5b-4b6c-9d2e-1f2a3b4c5d6e\n",
        ] {
            assert!(!is_in_pod(groups, UID), "{groups}");
        }
    }

    #[test]
    fn uids_that_could_leave_a_directory_are_none() {
        assert!(is_uid(UID) && is_uid("a1f0c5d2e3b4a5968778695a4b3c2d1e"));
        for wrong in ["", "..", "a/b", "a_b", "a b", &"a".repeat(65)] {
            assert!(!is_uid(wrong), "{wrong}");
        }
    }

    #[test]
    fn the_oldest_process_speaks_for_the_pod() {
        let proc = tempfile::tempdir().unwrap();
        let process = |pid: u32, group: &str, start: u64, namespace: Option<&str>| {
            let path = proc.path().join(pid.to_string());
            fs::create_dir_all(path.join("ns")).unwrap();
            fs::write(path.join("cgroup"), format!("0::/kubepods/{group}\n")).unwrap();
            fs::write(path.join("stat"), format!("{pid} (a) b) S {}{start} 0\n", "1 ".repeat(18))).unwrap();
            if let Some(namespace) = namespace {
                symlink(namespace, path.join("ns/net")).unwrap();
            }
        };
        process(7, &format!("pod{UID}/c2"), 900, Some("net:[2]"));
        process(9, &format!("pod{UID}/c1"), 100, Some("net:[1]"));
        process(3, &format!("pod{UID}/c0"), 50, None);
        process(2, "podother/c0", 1, Some("net:[9]"));
        fs::create_dir(proc.path().join("self")).unwrap();
        let found = find(proc.path(), UID).unwrap();
        assert_eq!(found, Some(Found { pid: 9, namespace: "net:[1]".into() }), "a zombie shows no namespace");
        assert_eq!(find(proc.path(), "nobody").unwrap(), None);
        assert_eq!(look_at(proc.path(), 2, UID).unwrap(), None);
    }
}
