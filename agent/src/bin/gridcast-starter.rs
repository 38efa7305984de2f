//! `gridcast-starter`: PID 1 of a node, its remote shell, the front of every rank, and how it all gets there. See [`gridcast_agent::starter`].

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gridcast_agent::starter::{
    DEFAULT_HOSTS, DEFAULT_KEYS, DEFAULT_MACHINEFILE, DEFAULT_SOCKET, ENV_HOSTS, ENV_KEYS, ENV_LISTEN,
    ENV_MACHINEFILE, ENV_NODE, ENV_SOCKET, STARTER_PORT, install, rank, remote, serve,
};
use tracing_subscriber::EnvFilter;

/// Starts what runs inside the nodes of a gridcast cluster.
#[derive(Parser)]
#[command(name = "gridcast-starter", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Copy this program into a directory that a node's containers share, and make what any user of the node writes to:
    /// for an init container.
    Install {
        /// Where to put the program.
        #[arg(long)]
        to: PathBuf,
        /// Where to make run, tmp, machinefile, and hosts from this container's own.
        #[arg(long, default_value = "/gridcast")]
        gridcast: PathBuf,
    },
    /// Be PID 1 of a node: start what members of the cluster ask for, reap orphans, keep the list of ranks.
    Serve {
        /// The node's name, as in the machinefile and in its certificate.
        #[arg(long, env = ENV_NODE)]
        name: String,
        /// Where members reach it; [::] is every address of both families.
        #[arg(long, env = ENV_LISTEN, default_value_t = SocketAddr::from(([0_u16; 8], STARTER_PORT)))]
        listen: SocketAddr,
        /// Directory of ca.pem, cert.pem, key.pem, and perhaps domain.
        #[arg(long, env = ENV_KEYS, default_value = DEFAULT_KEYS)]
        keys: PathBuf,
        /// Unix socket that ranks report to.
        #[arg(long, env = ENV_SOCKET, default_value = DEFAULT_SOCKET)]
        socket: PathBuf,
        /// Hosts file to write the cluster's members to, in place.
        #[arg(long, env = ENV_HOSTS, default_value = DEFAULT_HOSTS)]
        hosts: PathBuf,
        /// Machinefile to write, in place.
        #[arg(long, env = ENV_MACHINEFILE, default_value = DEFAULT_MACHINEFILE)]
        machinefile: PathBuf,
        /// End, and with it the node, when standard input ends: its owner has died.
        #[arg(long)]
        exit_on_eof: bool,
    },
    /// Run a command on another node, as `ssh [options] HOST COMMAND…` would: for mpirun's remote-shell agent.
    ///
    /// Reads GRIDCAST_KEYS (directory), GRIDCAST_HOSTS (file) and GRIDCAST_STARTER_PORT.
    #[command(disable_help_flag = true)]
    Exec {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Report this MPI rank to the node's starter, then become the program.
    Rank {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let code = called_as_remote_shell().map_or_else(|| run(Arguments::parse().command), run_exec);
    // Not by return: the thread that reads standard input may never come back.
    std::process::exit(code.into());
}

/// The arguments of `exec`, where this program was called by the name that launchers know which take one program without
/// arguments as their remote shell.
fn called_as_remote_shell() -> Option<Vec<OsString>> {
    let mut arguments = std::env::args_os();
    let called = PathBuf::from(arguments.next()?);
    let name = std::path::Path::new(gridcast_core::mpi::REMOTE_SHELL).file_name();
    (called.file_name() == name).then(|| arguments.collect())
}

fn run(command: Command) -> u8 {
    match command {
        Command::Install { to, gridcast } => run_install(&install::Options { to, gridcast }),
        Command::Serve { name, listen, keys, socket, hosts, machinefile, exit_on_eof } => {
            run_serve(serve::Options { name, listen, keys, socket, hosts, machinefile, exit_on_eof })
        }
        Command::Exec { arguments } => run_exec(arguments),
        Command::Rank { command } => rank::run(&command),
    }
}

fn run_install(options: &install::Options) -> u8 {
    match install::run(options) {
        Ok(()) => 0,
        Err(error) => {
            let text = gridcast_core::failure::chain(&error);
            eprintln!("gridcast-starter install: {}: {text}", error.reason());
            1
        }
    }
}

fn run_serve(options: serve::Options) -> u8 {
    let filter = EnvFilter::try_from_env("GRIDCAST_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr).init();
    let name = options.name.clone();
    with_runtime(async {
        match serve::serve(options).await {
            Ok(()) => 0,
            Err(error) => {
                let text = gridcast_core::failure::chain(&error);
                eprintln!("gridcast-starter serve: {name}: {}: {text}", error.reason());
                1
            }
        }
    })
}

fn run_exec(arguments: Vec<OsString>) -> u8 {
    let arguments: Result<Vec<String>, OsString> = arguments.into_iter().map(OsString::into_string).collect();
    match arguments {
        Ok(arguments) => {
            let code = with_runtime(async move { remote::run(&arguments).await });
            // Here and not at the end of every command: a starter's output may be one that nobody takes.
            let _ = std::io::stdout().flush();
            code
        }
        Err(argument) => {
            let argument = argument.display();
            eprintln!("gridcast-starter exec: `{argument}` is not UTF-8: rename the file that it names");
            255
        }
    }
}

/// One thread: streams and timers are all there is.
fn with_runtime(work: impl Future<Output = u8>) -> u8 {
    // One provider for the whole process; that it is already there can only mean the same one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(work);
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            eprintln!("gridcast-starter: no runtime: {error}");
            255
        }
    }
}
