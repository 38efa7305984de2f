//! Shows a directory of a running node at another of its paths.

use std::{fs::File, io, path::Path, thread};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

/// Binds `source` over `target`, both paths in the node whose PID 1 is `pid` and both there already. What is below
/// `source` as mounts of its own is not taken along.
pub fn bind(pid: i32, source: &Path, target: &Path, read_only: bool) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{pid}/ns/mnt"))?;
    // A thread of its own, with a root and working directory of its own, or the kernel refuses to move it.
    thread::scope(|scope| {
        scope
            .spawn(|| {
                unshare(CloneFlags::CLONE_FS)?;
                setns(namespace, CloneFlags::CLONE_NEWNS)?;
                mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
                if read_only {
                    // A bind takes its flags from its source; only a second call changes them.
                    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
                    mount(None::<&str>, target, None::<&str>, flags, None::<&str>)?;
                }
                Ok(())
            })
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread in the node's mounts panicked")))
    })
}
