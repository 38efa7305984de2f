//! `gridcast`: the command line. Also installed as `kubectl-gridcast`.

mod args;
mod broadcast;
mod failure;
mod kubernetes;
mod local;
mod record;
mod report;
mod topology;
mod validate;
mod whole;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    // A node's first process and the fabric are this program again, and must not have threads yet.
    gridcast_lab::node::run_init_if_asked();
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("gridcast: a second TLS provider was installed");
        return ExitCode::from(1);
    }
    let outcome = match args::Cli::parse().command {
        args::Command::Local(command) => local::command(command),
        args::Command::Status(arguments) => kubernetes::status(&arguments),
        args::Command::Plan(arguments) => broadcast::plan(&arguments),
        args::Command::Simulate(arguments) => broadcast::simulate(&arguments),
        args::Command::Report(arguments) => report::command(&arguments).map(|()| ExitCode::SUCCESS),
        args::Command::Validate { files } => validate::command(&files)
            .map(|()| ExitCode::SUCCESS)
            .map_err(|errors| failure::Failure::input(errors.to_string().trim_end().to_owned())),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("gridcast: {failure}");
        ExitCode::from(failure.exit_code())
    })
}
