//! `gridcast-operator`: the Kubernetes operator.

use std::process::ExitCode;

use clap::Parser as _;
use gridcast_operator::{args::Args, run};

fn main() -> ExitCode {
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("gridcast-operator: a second TLS provider was installed");
        return ExitCode::FAILURE;
    }
    match run::command(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gridcast-operator: {error:#}");
            ExitCode::FAILURE
        }
    }
}
