//! How did a process end that is not our child?
//!
//! A pidfd names one process for as long as it is open, whatever happens to its number. It becomes readable when
//! the process ends. From Linux 6.15 on, `PIDFD_GET_INFO` with `PIDFD_INFO_EXIT` tells the wait status as well, once
//! the parent has collected it; older kernels tell only that it ended.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::children::Exit;

/// A handle on one process.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

/// What a handle tells at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Still there.
    Running,
    /// Gone, but its parent has not collected it yet: how it ended may be told later.
    Uncollected,
    /// Gone; how, where the kernel tells.
    Ended(Option<Exit>),
}

impl Pidfd {
    /// Opens a handle on a running process, by its PID in our namespace.
    #[allow(unsafe_code)]
    pub fn open(pid: i32) -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let descriptor = i32::try_from(result).map_err(io::Error::other)?;
        // SAFETY: the kernel has just returned this descriptor (close-on-exec), and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Asks without waiting.
    pub fn state(&self) -> State {
        let mut descriptors = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut descriptors, PollTimeout::ZERO) {
            Ok(0) | Err(_) => State::Running,
            Ok(_) => self.exit().map_or(State::Ended(None), |exit| {
                exit.map_or(State::Uncollected, |exit| State::Ended(Some(exit)))
            }),
        }
    }

    /// `Ok(None)` while the process is uncollected, an error where the kernel cannot tell.
    #[allow(unsafe_code)]
    fn exit(&self) -> io::Result<Option<Exit>> {
        // SAFETY: plain integers, for which all zeroes are a value.
        let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
        info.mask = u64::from(libc::PIDFD_INFO_EXIT);
        // SAFETY: the request number carries the size of this very structure, and the kernel writes no more than that.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        if info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0 {
            return Ok(Some(Exit::from_wait_status(info.exit_code)));
        }
        // A kernel before 6.15 answers for an uncollected process too, and clears the bit; it will never set it.
        if kernel_tells_exits() { Ok(None) } else { Err(io::ErrorKind::Unsupported.into()) }
    }
}

/// Linux 6.15 or later.
fn kernel_tells_exits() -> bool {
    let Ok(name) = nix::sys::utsname::uname() else { return false };
    let release = name.release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return false };
    (major, minor) >= (6, 15)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn ended(script: &str) -> (State, State, State) {
        let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let handle = Pidfd::open(child.id().cast_signed()).unwrap();
        let running = handle.state();
        drop(child.stdin.take());
        let mut descriptors = [PollFd::new(handle.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut descriptors, PollTimeout::NONE).unwrap();
        let zombie = handle.state();
        child.wait().unwrap();
        (running, zombie, handle.state())
    }

    #[test]
    fn the_end_of_a_process_is_told_with_code_and_signal() {
        for (script, exit) in [
            ("read x; exit 7", Exit { code: 7, signal: 0 }),
            ("read x; kill -BUS $$", Exit { code: 0, signal: libc::SIGBUS }),
        ] {
            let (running, zombie, collected) = ended(script);
            assert_eq!(running, State::Running, "{script}");
            if kernel_tells_exits() {
                assert_eq!((zombie, collected), (State::Uncollected, State::Ended(Some(exit))), "{script}");
            } else {
                assert_eq!(collected, State::Ended(None), "{script}");
            }
        }
    }

    #[test]
    fn a_process_that_is_not_there_has_no_handle() {
        assert!(Pidfd::open(i32::MAX - 1).is_err());
    }
}
