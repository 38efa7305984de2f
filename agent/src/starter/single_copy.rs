//! May the ranks of this node read each other's memory?
//!
//! MPI passes large messages inside a node by one copy (`process_vm_readv`). A container's seccomp profile or the
//! kernel's Yama module may forbid it; Open MPI then floods the output with "Read -1" and fails or crawls. It is found
//! out once, by trying, before anything else is started.

/// For Open MPI 4 (vader) and 5 (smsc). MPICH's transports find out for themselves.
const FORBIDDEN: &[(&str, &str)] =
    &[("OMPI_MCA_btl_vader_single_copy_mechanism", "none"), ("OMPI_MCA_smsc", "^cma,knem,xpmem")];

/// What a command's environment lacks on a node where single copy is forbidden; nothing where it is permitted.
pub fn variables() -> &'static [(&'static str, &'static str)] {
    if permitted() {
        return &[];
    }
    tracing::info!(
        "processes may not read each other's memory here: MPI is told to copy twice within the node"
    );
    FORBIDDEN
}

/// What the reader has to find.
static WORD: u64 = 0x6772_6964_6361_7374;

/// A child tries to read its parent, as one rank reads another that is not its child: Yama permits the reverse even where
/// it forbids this. As Open MPI does, the parent first lets itself be read.
///
/// Waits for the child, so that nobody else may be collecting children yet. Where there cannot be another process, MPI
/// has worse troubles; "permitted" then leaves it as it is.
#[allow(unsafe_code)]
fn permitted() -> bool {
    let target = std::process::id().cast_signed();
    // SAFETY: no pointers are passed. Fails where there is no Yama, and nothing is to be let.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    // SAFETY: the child calls only what is async-signal-safe: one system call and _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = i32::from(!reads(target));
        // SAFETY: ends this process without running anything of the parent's.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    let ended = loop {
        // SAFETY: `status` outlives the call.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if ended != -1 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            break ended;
        }
    };
    // SAFETY: as above; whoever may read us from now on is for the system to say.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, 0, 0, 0, 0) };
    child < 0 || ended != child || (libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0)
}

/// Whether [`WORD`] can be read from a process of the same program: after a fork it lies at the same place.
#[allow(unsafe_code)]
fn reads(process: i32) -> bool {
    let mut word = 0_u64;
    let size = size_of::<u64>();
    let here = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: size };
    let there = libc::iovec { iov_base: (&raw const WORD).cast_mut().cast(), iov_len: size };
    // SAFETY: `word` is ours and as long as said; the kernel checks the other side's address itself.
    let read = unsafe { libc::process_vm_readv(process, &raw const here, 1, &raw const there, 1, 0) };
    read == size.cast_signed() && word == WORD
}

#[cfg(test)]
mod tests {
    use gridcast_core::mpi::{Launcher, launcher_environment};

    use super::*;

    #[test]
    fn the_controller_would_say_the_same() {
        let environment = launcher_environment(&Launcher { single_copy: false, ..Launcher::default() });
        for (name, value) in FORBIDDEN {
            assert_eq!(environment.get(*name).map(String::as_str), Some(*value));
        }
    }
}
