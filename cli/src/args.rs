//! The command line.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Args, Parser, Subcommand, ValueEnum};

mod broadcast;

pub(crate) use broadcast::{
    Broadcast, Plan, PlanOutput, Relay, Simulate, SimulateOutput, Strategies, Strategy,
};

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
    /// Show how a VirtualCluster of Kubernetes is doing: timeline, network, staging, placement
    ///
    /// Exit codes: 0, 1 where the cluster does not exist or the API server cannot be reached, 2 for wrong arguments.
    Status(Status),
    /// Plan a broadcast on a network: the trees, and what each host receives against what it could receive alone
    ///
    /// Exit codes: 0 a plan, 1 none (each host that cannot be reached is named), 2 for wrong input.
    Plan(Plan),
    /// Carry a plan out in simulated time, chunk by chunk, with faults if you like: when each host has everything
    ///
    /// Exit codes: 0 every host that survives has everything, 1 one has not (it is named, with the reason) or there is no
    /// plan, 2 for wrong input.
    Simulate(Simulate),
    /// Print the report of a local run, or of a VirtualCluster of Kubernetes
    Report(Report),
    /// Check manifests as the API server would: schema and rules. Exit code 2 when one is refused
    Validate {
        /// Manifests (YAML, several documents allowed)
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

/// Which Kubernetes, and which part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct Place {
    /// Namespace of the cluster. Default: that of the kubeconfig's context, else `default`
    #[arg(short, long, value_name = "NS")]
    pub(crate) namespace: Option<String>,
    /// Context of the kubeconfig. Default: its current one
    #[arg(long)]
    pub(crate) context: Option<String>,
    /// The kubeconfig. Default: $KUBECONFIG, ~/.kube/config, or the service account of the pod that this runs in
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The VirtualCluster
    #[arg(value_parser = cluster)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Show it again whenever something changes, until Ctrl-C or the cluster is deleted
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// What to print on standard output. With --watch JSON is one document per line
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Table)]
    pub(crate) output: ReportOutput,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// A report that `local run` wrote, or a VirtualCluster
    ///
    /// What ends in .json, holds a / or names an existing file is a file; everything else is a cluster's name. vcl/NAME
    /// is always a cluster, ./NAME always a file.
    #[arg(value_name = "FILE|NAME")]
    pub(crate) what: String,
    #[command(flatten)]
    pub(crate) place: Place,
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
    /// Make published figures again, on networks that are only computed (needs no root)
    #[command(subcommand)]
    Experiment(Experiment),
    /// Serves the life of a cluster between commands.
    #[command(hide = true)]
    Keep(Run),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Experiment {
    /// All strategies on the eight distributions of bandwidth that Takahashi et al. simulated (CCGrid 2008)
    BroadcastSim(BroadcastSim),
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct BroadcastSim {
    /// Destinations among the 231 hosts
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=230))]
    pub(crate) destinations: u16,
    /// Networks for each distribution
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) draws: u16,
    /// What bandwidths, sources and destinations are drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// What to print on standard output
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Table)]
    pub(crate) output: ReportOutput,
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

/// The name of a VirtualCluster, with or without its kind in front.
fn cluster(text: &str) -> Result<String, String> {
    let name = CLUSTER_PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
    let fits = (1..=48).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if fits {
        Ok(name.to_owned())
    } else {
        Err("is no name of a VirtualCluster: up to 48 lower-case letters, digits and '-', beginning with a letter"
            .to_owned())
    }
}

/// How `kubectl` would write that a VirtualCluster is meant.
const CLUSTER_PREFIXES: [&str; 3] = ["vcl/", "virtualcluster/", "virtualclusters/"];

/// What `gridcast report` is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A report that a local run wrote.
    File(PathBuf),
    /// A VirtualCluster, by name.
    Cluster(String),
}

impl Report {
    /// A file or a cluster; or why it cannot be told.
    pub(crate) fn subject(&self) -> Result<Subject, String> {
        let what = &self.what;
        let prefixed = CLUSTER_PREFIXES.iter().any(|prefix| what.starts_with(prefix));
        let path = Path::new(what);
        let exists = path.exists() && !path.is_dir();
        let named_as_file =
            what.contains('/') || path.extension().is_some_and(|extension| extension == "json");
        let of_kubernetes = self.place != Place::default();
        match (prefixed, exists) {
            (true, true) => Err(format!(
                "{what} is a file here and also names a cluster; write ./{what} for the file, or call this from \
                 another directory"
            )),
            (false, true) if of_kubernetes && !what.contains('/') => Err(format!(
                "{what} is a file here, while --namespace, --context or --kubeconfig speak of a cluster; write \
                 ./{what} for the file and leave those out, or vcl/{what} for the cluster"
            )),
            (false, found) if found || named_as_file => {
                if of_kubernetes {
                    return Err(format!(
                        "{what} is a file; --namespace, --context and --kubeconfig belong to a cluster, leave them out"
                    ));
                }
                Ok(Subject::File(path.to_owned()))
            }
            _ => match cluster(what) {
                Ok(name) => Ok(Subject::Cluster(name)),
                Err(why) => Err(format!("{what} is no file that exists, and {why}")),
            },
        }
    }
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

    fn report(what: &str, place: Place) -> Report {
        Report { what: what.to_owned(), place, html: None, output: ReportOutput::Table }
    }

    #[test]
    fn a_report_is_of_a_file_or_of_a_cluster() {
        let subject = |what: &str| report(what, Place::default()).subject();
        let cluster = |name: &str| Ok(Subject::Cluster(name.to_owned()));
        let file = |name: &str| Ok(Subject::File(name.into()));
        assert_eq!(subject("ring"), cluster("ring"));
        assert_eq!(subject("vcl/ring"), cluster("ring"));
        assert_eq!(subject("virtualcluster/ring"), cluster("ring"));
        // `src` is a directory of this crate.
        assert_eq!(subject("src"), cluster("src"));
        assert_eq!(subject("gone.json"), file("gone.json"));
        assert_eq!(subject("./ring"), file("./ring"));
        assert_eq!(subject("Cargo.toml"), file("Cargo.toml"));
        for (what, told) in
            [("Ring", "no file that exists"), ("ring.jsn", "no name of a VirtualCluster"), ("", "no")]
        {
            let error = subject(what).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn what_could_be_either_is_refused_with_both_ways_out() {
        let place = || Place { namespace: Some("hpc".into()), ..Place::default() };
        let error = report("Cargo.toml", place()).subject().unwrap_err();
        assert!(error.contains("./Cargo.toml") && error.contains("vcl/Cargo.toml"), "{error}");
        for what in ["gone.json", "./ring"] {
            let error = report(what, place()).subject().unwrap_err();
            assert!(error.contains("leave them out"), "{error}");
        }
        assert_eq!(report("ring", place()).subject(), Ok(Subject::Cluster("ring".into())));
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
