use proptest::prelude::*;

use super::*;

fn host(name: &str, rmem: &str, wmem: &str, control: &str) -> HostFacts {
    HostFacts {
        name: name.to_owned(),
        settings: [
            (RMEM, rmem),
            (WMEM, wmem),
            (MEM, "287898\t383866\t575796"),
            (CONGESTION_CONTROL, control),
            (SLOW_START_AFTER_IDLE, "1"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
        available_congestion_controls: ["reno", "bbr", "cubic"].map(str::to_owned).to_vec(),
        allowed_congestion_controls: Vec::new(),
        memory_bytes: 24 << 30,
        interface_mbps: None,
    }
}

fn rows(hosts: usize, value: f64) -> Rows {
    (0..hosts).map(|d| (0..hosts).map(|s| (d != s).then_some(value)).collect()).collect()
}

fn plan_with(hosts: &[HostFacts], rtt: f64, mbps: f64, loss: f64, profile: Profile) -> Vec<PlannedSetting> {
    let n = hosts.len();
    tune(&Inputs {
        hosts,
        rtt_milliseconds: &rows(n, rtt),
        bandwidth_mbps: &rows(n, mbps),
        loss_percent: &rows(n, loss),
        probes: 1000,
        sockets_per_peer: 1,
        profile,
        mode: Mode::Apply,
    })
}

fn setting<'a>(plan: &'a [PlannedSetting], host: &str, key: &str) -> &'a PlannedSetting {
    plan.iter().find(|setting| setting.host == host && setting.key == key).unwrap()
}

/// The demo: 250 Mbit/s at 0.3 ms, a machine with bbr and large buffers.
#[test]
fn a_site_gets_cubic_and_keeps_large_buffers() {
    let hosts = ["a", "b"].map(|n| host(n, "4096\t131072\t33554432", "4096\t16384\t4194304", "bbr"));
    let plan = plan_with(&hosts, 0.3, 250.0, 0.0, Profile::Auto);
    assert_eq!(plan.len(), 6, "rmem, wmem and congestion control of each host");
    let rmem = setting(&plan, "a", RMEM);
    assert!(!rmem.changes());
    assert_eq!(rmem.value, "4096 131072 33554432");
    assert_eq!(
        rmem.note,
        "receives at most 250 Mbit/s at 0.30 ms (b): 2 x 9.4 kB / 0.65 asks for 32 KiB; the maximum of 32 MiB suffices"
    );
    assert!(!setting(&plan, "b", WMEM).changes());
    let control = setting(&plan, "a", CONGESTION_CONTROL);
    assert_eq!((control.before.as_str(), control.value.as_str()), ("bbr", "cubic"));
    assert!(control.note.starts_with("same site"));
    assert_eq!(control.command(), "sysctl -w net.ipv4.tcp_congestion_control='cubic'");
}

/// The seed: 1 Gbit/s at 18.1 ms, default buffers; 8 MiB each.
#[test]
fn the_worked_example_of_the_study() {
    let mut hosts = ["a", "b"].map(|n| host(n, "4096 87380 174760", "4096 16384 131072", "cubic"));
    for host in &mut hosts {
        host.interface_mbps = Some(1000.0);
    }
    // 50 Mbit/s were measured: the window's own rate.
    let plan = plan_with(&hosts, 18.1, 50.0, 0.0, Profile::Auto);
    assert_eq!(setting(&plan, "a", RMEM).value, "4096 87380 8388608");
    assert_eq!(setting(&plan, "b", WMEM).value, "4096 16384 8388608");
    assert!(!setting(&plan, "a", CONGESTION_CONTROL).changes());
}

#[test]
fn a_rate_that_the_window_limits_is_said_to_be() {
    let hosts = ["a", "b"].map(|n| host(n, "4096 87380 174760", "4096 16384 4194304", "cubic"));
    let plan = plan_with(&hosts, 18.1, 50.0, 0.0, Profile::Auto);
    let rmem = setting(&plan, "a", RMEM);
    assert_eq!(rmem.value, "4096 87380 524288");
    assert!(rmem.note.contains("measure again"), "{}", rmem.note);
}

#[test]
fn memory_limits_many_sockets() {
    let hosts: Vec<_> = (0..65)
        .map(|i| host(&format!("n{i}"), "4096 131072 524288", "4096 16384 4194304", "cubic"))
        .collect();
    let rows64 = rows(65, 18.1);
    let plan = tune(&Inputs {
        hosts: &hosts,
        rtt_milliseconds: &rows64,
        bandwidth_mbps: &rows(65, 940.0),
        loss_percent: &rows(65, 0.0),
        probes: 10,
        sockets_per_peer: 7,
        profile: Profile::Auto,
        mode: Mode::DryRun,
    });
    let rmem = setting(&plan, "n0", RMEM);
    assert_eq!(rmem.value, "4096 131072 1048576");
    assert!(rmem.note.contains("limited by memory to 1 MiB"), "{}", rmem.note);
    // A maximum that is higher than that already is not lowered.
    assert_eq!(setting(&plan, "n0", WMEM).value, "4096 16384 4194304");
}

#[test]
fn loss_on_a_long_path_calls_for_bbr() {
    let hosts = ["a", "b"].map(|n| host(n, "4096 131072 33554432", "4096 16384 4194304", "cubic"));
    let bbr = plan_with(&hosts, 18.1, 400.0, 1.0, Profile::Auto);
    assert_eq!(setting(&bbr, "a", CONGESTION_CONTROL).value, "bbr");
    assert_eq!(
        setting(&bbr, "a", CONGESTION_CONTROL).note,
        "1.00 % of the probes to b are lost, which keeps a loss-based control at 8 of 400 Mbit/s: bbr"
    );
    // Two of a thousand probes are chance; a many-to-one program suffers from bbr; a short path does not need it.
    for (loss, rtt, profile) in
        [(0.2, 18.1, Profile::Auto), (1.0, 18.1, Profile::Synchronous), (1.0, 0.5, Profile::Auto)]
    {
        let plan = plan_with(&hosts, rtt, 400.0, loss, profile);
        assert_eq!(setting(&plan, "a", CONGESTION_CONTROL).value, "cubic");
    }
}

#[test]
fn only_what_the_kernel_lets_a_namespace_choose() {
    let mut facts = host("a", "4096 131072 33554432", "4096 16384 4194304", "bbr");
    facts.allowed_congestion_controls = ["reno", "bbr"].map(str::to_owned).to_vec();
    let plan = plan_with(&[facts.clone(), facts.clone()], 0.3, 250.0, 0.0, Profile::Auto);
    let control = setting(&plan, "a", CONGESTION_CONTROL);
    assert_eq!(control.value, "reno");
    assert!(control.note.contains("cubic is refused to network namespaces here"), "{}", control.note);
    facts.available_congestion_controls = vec!["bbr".to_owned()];
    let plan = plan_with(&[facts.clone(), facts], 0.3, 250.0, 0.0, Profile::Auto);
    let control = setting(&plan, "a", CONGESTION_CONTROL);
    assert_eq!(control.value, "bbr");
    assert!(control.note.ends_with("bbr stays"), "{}", control.note);
}

#[test]
fn the_profile_decides_on_slow_start_after_idle() {
    let hosts = ["a", "b"].map(|n| host(n, "4096 131072 33554432", "4096 16384 4194304", "cubic"));
    let value = |profile| {
        let plan = plan_with(&hosts, 18.0, 400.0, 0.0, profile);
        plan.into_iter().find(|s| s.key == SLOW_START_AFTER_IDLE).map(|s| s.value)
    };
    assert_eq!(value(Profile::Asynchronous).as_deref(), Some("0"));
    assert_eq!(value(Profile::Staggered).as_deref(), Some("0"));
    assert_eq!(value(Profile::Synchronous).as_deref(), Some("1"));
    assert_eq!(value(Profile::Auto), None);
}

#[test]
fn off_plans_nothing_and_what_was_not_measured_stays() {
    let hosts = [host("a", "4096 131072 33554432", "4096 16384 4194304", "bbr"), HostFacts::default()];
    let blank = vec![vec![None; 2]; 2];
    let mut inputs = Inputs {
        hosts: &hosts,
        rtt_milliseconds: &blank,
        bandwidth_mbps: &blank,
        loss_percent: &blank,
        probes: 0,
        sockets_per_peer: 0,
        profile: Profile::Auto,
        mode: Mode::Apply,
    };
    let plan = tune(&inputs);
    assert_eq!(plan.len(), 3);
    assert!(plan.iter().all(|s| !s.changes() && s.note.starts_with("left alone")));
    inputs.mode = Mode::Off;
    assert!(tune(&inputs).is_empty());
}

proptest! {
    #[test]
    fn nothing_is_ever_lowered_and_only_maxima_change(
        maximum in 1_u64..1 << 40, rtt in 0.001_f64..1000.0, mbps in 0.001_f64..400_000.0, loss in 0.0_f64..100.0,
        memory in 0_u64..1 << 42,
    ) {
        let mut hosts = ["a", "b"].map(|n| host(n, &format!("1 2 {maximum}"), &format!("3 4 {maximum}"), "bbr"));
        for host in &mut hosts { host.memory_bytes = memory; }
        for setting in plan_with(&hosts, rtt, mbps, loss, Profile::Bulk) {
            let fields: Vec<&str> = setting.value.split(' ').collect();
            if setting.key == RMEM || setting.key == WMEM {
                let value: u64 = fields[2].parse().unwrap();
                prop_assert!(fields[0] == "1" || fields[0] == "3");
                prop_assert!(value >= maximum);
                prop_assert!(value == maximum || (value.is_power_of_two() && value <= 64 << 20));
            }
            prop_assert!(!setting.note.is_empty());
        }
    }

    #[test]
    fn any_text_in_a_setting_is_survived(text in "\\PC{0,30}") {
        let hosts = ["a", "b"].map(|n| host(n, &text, &text, &text));
        for setting in plan_with(&hosts, 10.0, 100.0, 0.0, Profile::Auto) {
            prop_assert!(setting.key == CONGESTION_CONTROL || setting.before.split(' ').count() == 3 || !setting.changes());
        }
    }
}
