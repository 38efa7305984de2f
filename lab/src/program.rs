//! Which program is executed again, and what does it do then?

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, exit};
use std::sync::OnceLock;

use crate::{fabric, node};

/// The program that is executed for the hidden subcommands, where it is not the running one.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Executes `path` for the hidden subcommands instead of the running program. It must call
/// [`node::run_init_if_asked`] first in its `main`. Tests need this, for their own `main` is not theirs.
/// Only the first call counts.
pub fn use_program(path: impl Into<PathBuf>) {
    PROGRAM.get_or_init(|| path.into());
}

/// A command that runs the hidden subcommand `argument`.
///
/// By `/proc/self/exe`, not by path: a cluster that stays up for days must survive that its binary is replaced.
pub(crate) fn hidden(argument: &str) -> Command {
    let program = PROGRAM.get().map_or_else(|| PathBuf::from("/proc/self/exe"), Clone::clone);
    let mut command = Command::new(program);
    command.arg(argument);
    command
}

/// Runs a hidden subcommand if the arguments ask for one, and does not return then.
pub(crate) fn run_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    let Some(first) = arguments.next() else { return };
    let rest: Vec<OsString> = arguments.collect();
    match first.to_str() {
        Some(node::INIT_ARG) => exit(node::init::run()),
        Some(node::ENTER_ARG) => exit(node::enter::run(&rest)),
        Some(fabric::FABRIC_ARG) => exit(fabric::run_hidden(&rest)),
        _ => {}
    }
}
