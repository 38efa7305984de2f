//! MPICH's process manager, Hydra, in its own words: machinefile, command, variables, places of ranks.
//!
//! Everything here was observed with Hydra 4.0.2. It starts one proxy on each host by a remote shell, which must be one
//! program without arguments ([`super::REMOTE_SHELL`]), and tells the proxies where to connect back: with an interface
//! named, an address; else the launcher's host name.

use super::command::Launch;
use super::environment::{Interface, Launcher};
use super::machinefile::HostSlots;
use crate::report::PlacedRanks;

/// Makes Hydra's tags those of Open MPI, which [`super::TagFilter`] rewrites: `%r` is the rank.
const TAG_PATTERN: &str = "[1,%r]<stdout>:";

/// `mpiexec.mpich -f … -n N … gridcast-starter rank -- PROGRAM…`. Environment variables say the rest: the launcher has no
/// option that a variable of a user's profile could override.
pub(super) fn command(launch: &Launch) -> Vec<String> {
    let processes = launch.processes.to_string();
    let mut command = vec![launch.mpirun.as_str(), "-launcher", "ssh", "-launcher-exec", super::REMOTE_SHELL];
    command.extend(["-f", &launch.machinefile, "-n", &processes]);
    if launch.tag_output {
        command.extend(["-prepend-pattern", TAG_PATTERN]);
    }
    command.extend([launch.starter.as_str(), "rank", "--"]);
    command.extend(launch.program.iter().map(String::as_str));
    command.into_iter().map(str::to_owned).collect()
}

/// Variables for Hydra and for MPICH over UCX (Debian) or libfabric.
pub(super) fn environment(launcher: &Launcher) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("HYDRA_LAUNCHER", "ssh".to_owned()),
        ("HYDRA_LAUNCHER_EXEC", super::REMOTE_SHELL.to_owned()),
        ("HYDRA_HOST_FILE", launcher.machinefile.clone()),
    ];
    if let Some(Interface(interface)) = &launcher.interface {
        variables.push(("FI_TCP_IFACE", interface.clone()));
        // These take the name of an interface, not a subnet.
        if !interface.contains('/') {
            variables.push(("HYDRA_IFACE", interface.clone()));
            variables.push(("UCX_NET_DEVICES", interface.clone()));
        }
    }
    if launcher.shared_cores {
        // The default of 1000 polls is a time slice on a core that other ranks wait for.
        variables.push(("MPIR_CVAR_POLLS_BEFORE_YIELD", "1".to_owned()));
    }
    if launcher.tcp_only {
        let shared_memory = if launcher.single_copy { "sm" } else { "posix,sysv" };
        variables.push(("UCX_TLS", format!("tcp,{shared_memory},self")));
        variables.push(("FI_PROVIDER", "tcp".to_owned()));
    } else if !launcher.single_copy {
        variables.push(("UCX_TLS", "^cma,knem,xpmem".to_owned()));
    }
    variables
}

/// Where Hydra puts ranks: each host is filled in machinefile order; what is beyond all slots goes round again from the
/// first host, filling each again.
pub(super) fn placement(hosts: &[HostSlots], processes: u32) -> Vec<PlacedRanks> {
    let mut placed: Vec<PlacedRanks> =
        hosts.iter().map(|host| PlacedRanks { host: host.name.clone(), ranks: Vec::new() }).collect();
    let mut next = 0;
    while next < processes && hosts.iter().any(|host| host.slots > 0) {
        for (host, placed) in hosts.iter().zip(&mut placed) {
            let end = next.saturating_add(host.slots).min(processes);
            placed.ranks.extend(next..end);
            next = end;
        }
    }
    placed.retain(|placed| !placed.ranks.is_empty());
    placed
}

#[cfg(test)]
mod tests {
    use super::super::{Implementation, expected_placement, launch_command, launcher_environment};
    use super::*;

    fn hosts(slots: &[u32]) -> Vec<HostSlots> {
        let name = |index| format!("n{index}");
        slots.iter().enumerate().map(|(i, slots)| HostSlots { name: name(i), slots: *slots }).collect()
    }

    #[test]
    fn the_command_names_one_program_as_remote_shell() {
        let program = ["./ring", "-n", "--"].map(str::to_owned).to_vec();
        let launch = Launch { tag_output: true, ..Launch::new(Implementation::Mpich, 4, program.clone()) };
        let command = launch_command(&launch);
        let line = command.join(" ");
        assert_eq!(
            line,
            "mpiexec.mpich -launcher ssh -launcher-exec /gridcast/bin/gridcast-ssh -f /gridcast/machinefile -n 4 \
             -prepend-pattern [1,%r]<stdout>: /gridcast/bin/gridcast-starter rank -- ./ring -n --"
        );
        assert_eq!(command[command.len() - 3..], program);
    }

    #[test]
    fn variables_say_the_same_and_name_the_interface_where_it_has_a_name() {
        let launcher = Launcher {
            implementation: Implementation::Mpich,
            interface: Interface::new("eth0"),
            ..Launcher::default()
        };
        let environment = launcher_environment(&launcher);
        assert_eq!(environment["HYDRA_LAUNCHER_EXEC"], "/gridcast/bin/gridcast-ssh");
        assert_eq!(environment["HYDRA_HOST_FILE"], "/gridcast/machinefile");
        assert_eq!(environment["HYDRA_IFACE"], "eth0");
        assert!(environment.keys().all(|key| !key.contains("OMPI") && !key.contains("PRTE")));
        let subnet = Launcher { interface: Interface::new("10.0.0.0/8"), ..launcher };
        assert!(!launcher_environment(&subnet).contains_key("HYDRA_IFACE"));
    }

    /// What Hydra 4.0.2 did with slots 2, 1, 1 and 9 processes.
    #[test]
    fn ranks_beyond_all_slots_go_round_again() {
        let places: Vec<Vec<u32>> = placement(&hosts(&[2, 1, 1]), 9).into_iter().map(|p| p.ranks).collect();
        assert_eq!(places, [vec![0, 1, 4, 5, 8], vec![2, 6], vec![3, 7]]);
        let by_rank = Implementation::Mpich.hosts_by_rank(&hosts(&[1, 1]), 3);
        assert_eq!(by_rank, ["n0", "n1", "n0"]);
        assert!(placement(&[], 3).is_empty() && placement(&hosts(&[0]), 3).is_empty());
    }

    #[test]
    fn within_the_slots_both_place_alike() {
        for processes in 1..=6 {
            let hosts = hosts(&[3, 1, 2]);
            assert_eq!(placement(&hosts, processes), expected_placement(&hosts, processes));
        }
    }
}
