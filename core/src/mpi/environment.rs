//! The environment in which `mpirun` finds the cluster without options.

use std::collections::BTreeMap;

use super::{Implementation, hydra};

/// A network interface for MPI: a name (`eth0`) or a subnet (`10.42.0.0/16`).
///
/// Open MPI passes it to a shell on the other nodes, so it holds nothing that a shell reads as anything but text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface(pub(super) String);

impl Interface {
    /// None where it is no interface name or subnet.
    pub fn new(interface: &str) -> Option<Self> {
        let fits = (1..=64).contains(&interface.len())
            && interface.starts_with(|c: char| c.is_ascii_alphanumeric())
            && interface.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-:/@".contains(&b));
        fits.then(|| Self(interface.to_owned()))
    }
}

/// What the launcher's environment depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each by its own name")]
pub struct Launcher {
    /// Whose variables they are.
    pub implementation: Implementation,
    /// The starter's path on every node.
    pub starter: String,
    /// The machinefile's path on the launcher.
    pub machinefile: String,
    /// The interface to pin, where one is known.
    pub interface: Option<Interface>,
    /// Ranks of several nodes share cores (the local run): waiting ranks yield, and none is bound to a core. Each node
    /// believes that it has the machine to itself, so Open MPI would bind the first rank of every node to the same core.
    pub shared_cores: bool,
    /// More ranks than slots are allowed.
    pub allow_oversubscribe: bool,
    /// Ranks of one node may read each other's memory (`process_vm_readv`). Where a container forbids it, Open MPI must
    /// be told, or it floods the output with "Read -1".
    pub single_copy: bool,
    /// There is no network but TCP: components for others are not even asked, which saves their search at each start.
    pub tcp_only: bool,
}

impl Default for Launcher {
    fn default() -> Self {
        Self {
            implementation: Implementation::OpenMpi,
            starter: super::STARTER.to_owned(),
            machinefile: super::MACHINEFILE.to_owned(),
            interface: None,
            shared_cores: false,
            allow_oversubscribe: false,
            single_copy: true,
            tcp_only: false,
        }
    }
}

/// The variables with which `mpirun -np 4 PROGRAM` uses the machinefile, the starter and the interface without options.
pub fn launcher_environment(launcher: &Launcher) -> BTreeMap<String, String> {
    let variables = match launcher.implementation {
        Implementation::OpenMpi => open_mpi(launcher),
        Implementation::Mpich => hydra::environment(launcher),
    };
    variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Variables for Open MPI 4 (ORTE: `OMPI_MCA_*`) and 5 (PRRTE: `PRTE_MCA_*`) at once; each ignores the other's.
///
/// Every name was checked against Open MPI 4.1.4 and 5.0.11.
fn open_mpi(launcher: &Launcher) -> Vec<(&'static str, String)> {
    let agent = format!("{} exec", launcher.starter);
    let mapping = if launcher.allow_oversubscribe { "slot:OVERSUBSCRIBE" } else { "slot" };
    let mut variables = vec![
        // Sessions are named after the host: in a directory that several runs share, two of the same manifest meet, and
        // what a killed one leaves stays.
        ("OMPI_MCA_orte_tmpdir_base", super::TEMPORARY),
        ("PRTE_MCA_prte_tmpdir_base", super::TEMPORARY),
        // Nodes of a cluster of its own: root there is not root of anything else.
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
        ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_plm_rsh_agent", &agent),
        ("PRTE_MCA_plm_ssh_agent", &agent),
        ("OMPI_MCA_orte_default_hostfile", &launcher.machinefile),
        ("PRTE_MCA_prte_default_hostfile", &launcher.machinefile),
        ("OMPI_MCA_orte_keep_fqdn_hostnames", "1"),
        ("PRTE_MCA_prte_keep_fqdn_hostnames", "1"),
        // The default depends on the number of ranks and the machine's shape; by slot is what the machinefile says.
        ("OMPI_MCA_rmaps_base_mapping_policy", mapping),
        ("PRTE_MCA_rmaps_default_mapping_policy", mapping),
    ];
    if let Some(Interface(interface)) = &launcher.interface {
        variables.extend([
            ("OMPI_MCA_btl_tcp_if_include", interface.as_str()),
            ("OMPI_MCA_oob_tcp_if_include", interface),
            ("PRTE_MCA_prte_if_include", interface),
        ]);
    }
    if launcher.shared_cores {
        variables.extend([
            ("OMPI_MCA_mpi_yield_when_idle", "1"),
            ("OMPI_MCA_hwloc_base_binding_policy", "none"),
            ("PRTE_MCA_hwloc_default_binding_policy", "none"),
        ]);
    }
    if !launcher.single_copy {
        variables.extend([
            ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
            ("OMPI_MCA_smsc", "^cma,knem,xpmem"),
        ]);
    }
    if launcher.tcp_only {
        variables.extend([
            ("OMPI_MCA_pml", "ob1"),
            // Named by what is left out: the shared-memory component has another name in each version.
            ("OMPI_MCA_btl", "^openib,ofi,uct,usnic"),
            ("OMPI_MCA_osc", "^ucx"),
        ]);
    }
    variables.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_generations_find_starter_and_machinefile() {
        let environment = launcher_environment(&Launcher::default());
        for (four, five) in [
            ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"),
            ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"),
            ("OMPI_MCA_rmaps_base_mapping_policy", "PRTE_MCA_rmaps_default_mapping_policy"),
        ] {
            assert!(environment[four] == environment[five], "{four} and {five} differ");
        }
        assert_eq!(environment["OMPI_MCA_plm_rsh_agent"], "/gridcast/bin/gridcast-starter exec");
        assert_eq!(environment["OMPI_MCA_orte_default_hostfile"], "/gridcast/machinefile");
    }

    #[test]
    fn what_is_not_asked_for_is_not_set() {
        let environment = launcher_environment(&Launcher::default());
        assert!(environment.keys().all(|key| !key.contains("if_include") && !key.contains("yield")));
        assert!(environment.values().all(|value| !value.contains("OVERSUBSCRIBE")));
    }

    #[test]
    fn the_lab_pins_its_interface_and_yields() {
        let launcher = Launcher {
            interface: Interface::new("eth0"),
            shared_cores: true,
            allow_oversubscribe: true,
            single_copy: false,
            tcp_only: true,
            ..Launcher::default()
        };
        let environment = launcher_environment(&launcher);
        assert_eq!(environment["OMPI_MCA_btl_tcp_if_include"], "eth0");
        assert_eq!(environment["PRTE_MCA_prte_if_include"], "eth0");
        assert_eq!(environment["OMPI_MCA_mpi_yield_when_idle"], "1");
        assert_eq!(environment["PRTE_MCA_rmaps_default_mapping_policy"], "slot:OVERSUBSCRIBE");
        assert_eq!(environment["OMPI_MCA_btl_vader_single_copy_mechanism"], "none");
        // Some implementations of exec break on long variables; ours do not grow with the cluster.
        assert!(environment.values().all(|value| value.len() < 4096));
    }

    #[test]
    fn an_interface_is_plain_text_for_a_shell() {
        for good in ["eth0", "10.42.0.0/16", "fd00::/64", "bond0.100", "veth@if3"] {
            assert!(Interface::new(good).is_some(), "{good}");
        }
        for bad in ["", "eth0;id", "a b", "$(id)", "a\nb", "'", "-x", &"e".repeat(65)] {
            assert!(Interface::new(bad).is_none(), "{bad}");
        }
    }
}
