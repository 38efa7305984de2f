//! How are settings read and written?

use std::fs;
use std::io;
use std::path::PathBuf;

/// The kernel's settings; a trait so that refusals and clamping can be had in tests on any machine.
pub trait Kernel: std::fmt::Debug + Send {
    /// Current value of a dotted key.
    fn read(&self, key: &str) -> io::Result<String>;
    /// Writes the value.
    fn write(&self, key: &str, value: &str) -> io::Result<()>;
    /// Identity of the network namespace that `read` and `write` reach, and of the boot it belongs to.
    fn namespace(&self) -> io::Result<String>;
    /// Whether that namespace is the machine's own.
    fn is_machine(&self) -> bool;
}

/// /proc/sys, which shows each thread the settings of the thread's own network namespace.
#[derive(Debug)]
pub struct ProcSys(PathBuf);

impl ProcSys {
    /// Of the /proc that is mounted at `proc`. A container's own is mostly read-only.
    pub fn at(proc: impl Into<PathBuf>) -> Self {
        Self(proc.into())
    }

    /// Keys come from the allowlist, whose parts hold no dots of their own.
    fn path(&self, key: &str) -> PathBuf {
        self.0.join("sys").join(key.replace('.', "/"))
    }
}

impl Default for ProcSys {
    fn default() -> Self {
        Self::at("/proc")
    }
}

impl Kernel for ProcSys {
    fn read(&self, key: &str) -> io::Result<String> {
        fs::read_to_string(self.path(key))
    }

    fn write(&self, key: &str, value: &str) -> io::Result<()> {
        fs::write(self.path(key), value)
    }

    fn namespace(&self) -> io::Result<String> {
        let namespace = fs::read_link(self.0.join("thread-self/ns/net"))?;
        // Inode numbers of namespaces are given anew after a reboot.
        let boot = fs::read_to_string(self.path("kernel.random.boot_id")).unwrap_or_default();
        Ok(format!("{}@{}", namespace.display(), boot.trim()))
    }

    /// net.ipv4.tcp_mem counts the pages of the whole machine, and is there only in its first namespace.
    fn is_machine(&self) -> bool {
        self.path("net.ipv4.tcp_mem").exists()
    }
}
