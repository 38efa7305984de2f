//! Virtual clusters on this machine.
//!
//! ```text
//! intake      what does the manifest ask for, and is it possible here? Nothing is made before this is answered
//! provision   nodes (namespaces), fabric, agents; ready when all answer
//! cluster     what was provisioned, while it lives
//! measure, tune, stage, launch, collect     one step a file
//! session     goes through the steps by core's lifecycle, and undoes everything
//! clusters    the commands on clusters that exist
//! experiment  published figures, made again
//! ```

mod cluster;
mod clusters;
mod collect;
mod exec;
mod experiment;
mod intake;
mod interrupts;
mod keeper;
mod keys;
mod launch;
mod measure;
mod origin;
mod progress;
mod provision;
mod remote;
mod session;
mod stage;
mod state;
mod tune;

use std::process::ExitCode;

use crate::{args, failure::Failure};

/// Runs one of the `local` commands.
pub(crate) fn command(command: args::Local) -> Result<ExitCode, Failure> {
    match command {
        args::Local::Run(arguments) => runtime()?.block_on(session::run(arguments)),
        args::Local::Up(_) => keeper::up(),
        args::Local::Keep(arguments) => runtime()?.block_on(session::keep(arguments)),
        args::Local::Exec(arguments) => {
            let runtime = runtime()?;
            let outcome = runtime.block_on(clusters::exec(arguments));
            // A thread that waits for standard input does not end by itself.
            runtime.shutdown_background();
            outcome
        }
        args::Local::Ps(state) => clusters::ps(&state).map(|()| ExitCode::SUCCESS),
        args::Local::Down { name, state } => {
            clusters::down(name.as_deref(), &state).map(|()| ExitCode::SUCCESS)
        }
        args::Local::Experiment(experiment) => experiment::command(&experiment).map(|()| ExitCode::SUCCESS),
        args::Local::Clean(state) => clusters::clean(&state).map(|()| ExitCode::SUCCESS),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| Failure::failed("RuntimeFailed", format!("cannot start: {e}")))
}

/// Refuses to go on as anybody but root, with the command to use.
fn needs_root(command: &str) -> Result<(), Failure> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let again = args::with_sudo(std::env::args_os(), std::env::current_exe().ok().as_deref());
    Err(Failure::input(format!(
        "`{command}` makes or enters network namespaces and needs root; use: {again}"
    )))
}
