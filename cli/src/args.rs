//! The command line.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Where runs live unless the user says otherwise.
pub(crate) const STATE_DIR: &str = "/var/lib/gridcast";

/// Virtual clusters with built-in broadcast: measured, tuned, staged, running.
#[derive(Debug, Parser)]
#[command(name = "gridcast", version, max_term_width = 100, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Virtual clusters on this machine: nodes are network namespaces on an emulated network (needs root)
    #[command(subcommand)]
    Local(Local),
    /// Print the report of a run
    Report(Report),
    /// Check manifests as the API server would: schema and rules. Exit code 2 when one is refused
    Validate {
        /// Manifests (YAML, several documents allowed)
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The report, as `local run` wrote it
    pub(crate) file: PathBuf,
    /// Write one self-contained page here
    #[arg(long, value_name = "OUT.html")]
    pub(crate) html: Option<PathBuf>,
    /// What to print on standard output
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Table)]
    pub(crate) output: ReportOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportOutput {
    /// For people
    Table,
    /// The report itself
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Local {
    /// Make the cluster of a manifest, measure, tune, stage, run its program, report, and leave nothing
    Run(Run),
    /// Make the cluster, measure, tune, stage, and keep it between commands (`run` of the manifest is ignored)
    Up(Run),
    /// List the clusters that exist
    Ps(State),
    /// Run a command on a node, with your environment and the launcher's; returns the command's exit code
    Exec(Exec),
    /// End a cluster that `up` made
    Down {
        /// The cluster, a name or an id of `ps`; not needed when there is one
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        state: State,
    },
    /// Remove what runs that were killed left behind, and files that were kept; touches nothing that is alive
    Clean(State),
    /// Serves the life of a cluster between commands.
    #[command(hide = true)]
    Keep(Run),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct State {
    /// Where runs live, and all that nodes write
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Run {
    /// The manifest: one VirtualCluster, and the ConfigMaps and Secrets that it names
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The network (YAML or JSON), its hosts named as the nodes are. Default: one switch, 1 Gbit/s, 0.1 ms one way
    #[arg(long, value_name = "FILE")]
    pub(crate) topology: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: State,
    /// Where the report goes, and beside it the matrices as CSV. Default: STATE-DIR/reports/NAME-ID.json
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// The directory that stands for the PersistentVolumeClaim NAME, as a source or for results; may be repeated
    #[arg(long, value_name = "NAME=DIR", value_parser = volume)]
    pub(crate) volume: Vec<(String, PathBuf)>,
    /// Keep the nodes' files in the state directory after the end, until `clean`
    #[arg(long)]
    pub(crate) keep: bool,
    /// No progress, no table: warnings, errors and the program's output only
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The cluster, a name or an id of `ps`; not needed when there is one
    #[arg(long)]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) state: State,
    /// The node, as `ps` names it
    pub(crate) node: String,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
}

fn volume(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, dir)) if !name.is_empty() && !dir.is_empty() => Ok((name.to_owned(), PathBuf::from(dir))),
        _ => Err("write it as NAME=DIR, for instance --volume results=/home/me/results".to_owned()),
    }
}

/// The same command under `sudo`, for a shell. A program that was found by PATH is given by its path, since `sudo` looks in
/// other directories.
pub(crate) fn with_sudo(arguments: impl IntoIterator<Item = OsString>, program: Option<&Path>) -> String {
    let mut arguments = arguments.into_iter();
    let called = arguments.next().unwrap_or_else(|| "gridcast".into());
    let called = match program {
        Some(program) if !called.to_string_lossy().contains('/') => program.as_os_str().to_owned(),
        _ => called,
    };
    std::iter::once(called)
        .chain(arguments)
        .fold("sudo".to_owned(), |line, word| line + " " + &quoted(&word.to_string_lossy()))
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_for_root_is_complete() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let line = with_sudo(
            words(&["gridcast", "local", "exec", "n", "--", "sh", "-c", "echo it's $HOME", ""]),
            Some(Path::new("/opt/gridcast")),
        );
        assert_eq!(line, r"sudo /opt/gridcast local exec n -- sh -c 'echo it'\''s $HOME' ''");
        let line =
            with_sudo(words(&["target/gridcast", "local", "run", "-f", "a.yaml"]), Some(Path::new("/x")));
        assert_eq!(line, "sudo target/gridcast local run -f a.yaml");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
