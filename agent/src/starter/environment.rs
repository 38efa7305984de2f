//! Which variables cross from one node to another, and which does a command get on top?
//!
//! ssh passes none, and users of MPI in containers trip over it again and again (`orted: command not found`, a
//! lost `LD_LIBRARY_PATH`). Here everything crosses except what is true of the sending process or host only.

use std::collections::HashMap;
use std::ffi::OsString;

use super::{ENV_LAUNCH, ENV_NODE, ENV_SOCKET};

/// True of the host or the shell session that they are set in.
const OF_THE_HOST: &[&str] = &[
    "HOST",
    "HOSTNAME",
    "OLDPWD",
    "PWD",
    "SHLVL",
    "SSH_AUTH_SOCK",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "_",
    ENV_NODE,
    ENV_SOCKET,
];

/// Say *which* process of an MPI job the sender is (as seen in daemons and ranks of Open MPI 4.1). A daemon started from within another must not take itself for it.
const OF_THE_PROCESS: &[&str] = &[
    "OMPI_COMM_WORLD_",
    "OMPI_MCA_ess",
    "OMPI_MCA_orte_app_num",
    "OMPI_MCA_orte_ess_",
    "OMPI_MCA_orte_hnp_uri",
    "OMPI_MCA_orte_jobfam_session_dir",
    "OMPI_MCA_orte_local_daemon_uri",
    "OMPI_MCA_orte_parent_uri",
    "OMPI_MCA_orte_top_session_dir",
    "OMPI_MCA_initial_wdir",
    "OMPI_APP_CTX_NUM_PROCS",
    "OMPI_FIRST_RANKS",
    "PMIX_",
    "PMI_",
    "PRTE_MCA_ess",
];

/// Tunables that share a prefix with the above and do cross.
const TUNABLES: &[&str] = &["PMIX_MCA_"];

/// Whether a variable is forwarded by the remote shell.
pub fn crosses(name: &str) -> bool {
    if TUNABLES.iter().any(|prefix| name.starts_with(prefix)) {
        return true;
    }
    !OF_THE_HOST.contains(&name) && !OF_THE_PROCESS.iter().any(|prefix| name.starts_with(prefix))
}

/// What of the caller's environment is forwarded. Variables that are not UTF-8 stay behind: the protocol carries
/// text, and a program that depends on such a variable across hosts is not known.
pub fn forwarded(variables: impl IntoIterator<Item = (OsString, OsString)>) -> HashMap<String, String> {
    variables
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| crosses(name))
        .collect()
}

/// The environment of a command: the starter's own if inherited, what the caller gave, and what the starter alone
/// knows. An empty `launch` leaves the caller's `GRIDCAST_LAUNCH` in place.
pub fn composed(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    given: impl IntoIterator<Item = (String, String)>,
    launch: &str,
    node: &str,
    socket: &str,
) -> HashMap<OsString, OsString> {
    let mut environment: HashMap<OsString, OsString> = inherited.into_iter().collect();
    environment.extend(given.into_iter().map(|(name, value)| (name.into(), value.into())));
    if !launch.is_empty() {
        environment.insert(ENV_LAUNCH.into(), launch.into());
    }
    environment.insert(ENV_NODE.into(), node.into());
    environment.insert(ENV_SOCKET.into(), socket.into());
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_cross_and_identities_stay() {
        for name in
            ["PATH", "LD_LIBRARY_PATH", "OMPI_MCA_btl", "PMIX_MCA_gds", "OMP_NUM_THREADS", "GRIDCAST_LAUNCH"]
        {
            assert!(crosses(name), "{name}");
        }
        for name in
            ["HOSTNAME", "PWD", "GRIDCAST_NODE", "GRIDCAST_SOCKET", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"]
        {
            assert!(!crosses(name), "{name}");
        }
    }

    #[test]
    fn the_caller_overrides_what_is_inherited_but_not_where_it_runs() {
        let inherited = [("A", "starter"), ("B", "starter")].map(|(name, value)| (name.into(), value.into()));
        let given = [("B", "caller"), (ENV_NODE, "elsewhere"), (ENV_LAUNCH, "outer")];
        let given: HashMap<_, _> = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let environment = composed(inherited, given.clone(), "", "node-1", "/s");
        let get = |name: &str| environment[&OsString::from(name)].to_str().unwrap();
        assert_eq!([get("A"), get("B")], ["starter", "caller"]);
        assert_eq!([get(ENV_NODE), get(ENV_LAUNCH), get(ENV_SOCKET)], ["node-1", "outer", "/s"]);
        let inner = composed([], given, "inner", "node-1", "/s");
        assert_eq!(inner[&OsString::from(ENV_LAUNCH)], "inner");
    }
}
