//! Settings reach the node's own namespace, and only that, and go back.

use gridcast_proto::v1::{
    AppliedSetting, ApplySettingsRequest, RestoreSettingsRequest, RestoredSetting, Setting,
};

use crate::nodes::Pair;

const RMEM: &str = "net.ipv4.tcp_rmem";
const IDLE: &str = "net.ipv4.tcp_slow_start_after_idle";
const CC: &str = "net.ipv4.tcp_congestion_control";

fn apply(pair: &Pair, owner: &str, dry_run: bool, settings: &[(&str, &str)]) -> Vec<AppliedSetting> {
    let setting =
        |(key, value): &(&str, &str)| Setting { key: (*key).to_owned(), value: (*value).to_owned() };
    let settings = settings.iter().map(setting).collect();
    let ask = ApplySettingsRequest { owner: owner.to_owned(), settings, dry_run, pod: String::new() };
    pair.control(async |mut agent| agent.apply_settings(ask).await.unwrap().into_inner().settings)
}

fn restore(pair: &Pair, owner: &str) -> Vec<RestoredSetting> {
    let ask = RestoreSettingsRequest { owner: owner.to_owned(), pod: String::new() };
    pair.control(async |mut agent| agent.restore_settings(ask).await.unwrap().into_inner().settings)
}

fn value(pair: &Pair, node: usize, key: &str) -> String {
    let path = format!("/proc/sys/{}", key.replace('.', "/"));
    let text = pair.namespaces[node].run(&["cat", &path]);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn settings_are_written_here_only_and_survive_a_killed_agent_until_they_are_restored() {
    let mut pair = Pair::new();
    let before = value(&pair, 0, RMEM);
    let applied = apply(&pair, "run", false, &[(RMEM, "4096 131072 7654321"), (IDLE, "0")]);
    assert!(applied.iter().all(|setting| setting.error.is_empty()), "{applied:?}");
    assert_eq!(
        (applied[0].before.as_str(), applied[0].applied.as_str()),
        (before.as_str(), "4096 131072 7654321")
    );
    assert_eq!(value(&pair, 0, RMEM), "4096 131072 7654321");
    assert_eq!(value(&pair, 1, RMEM), before, "the other node");
    let machine = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap();
    assert!(!machine.contains("7654321"), "the machine itself");

    pair.agents.remove(0).kill();
    pair.agents.insert(0, pair.agent(0));
    assert_eq!(value(&pair, 0, IDLE), "0", "an agent that ends restores nothing");
    let restored = restore(&pair, "run");
    assert!(restored.len() == 2 && restored.iter().all(|setting| setting.restored), "{restored:?}");
    assert_eq!((value(&pair, 0, RMEM), value(&pair, 0, IDLE)), (before, "1".to_owned()));
}

#[test]
fn a_dry_run_writes_nothing_and_a_foreign_key_is_refused() {
    let pair = Pair::new();
    let before = value(&pair, 0, RMEM);
    let applied = apply(&pair, "run", true, &[(RMEM, "4096 131072 7654321"), ("kernel.panic", "1")]);
    assert_eq!(applied[0].applied, "4096 131072 7654321");
    assert!(applied[1].error.starts_with("NotAllowed: kernel.panic"), "{applied:?}");
    assert_eq!(value(&pair, 0, RMEM), before);
}

#[test]
fn a_second_run_is_told_who_was_first() {
    let pair = Pair::new();
    apply(&pair, "first", false, &[(IDLE, "0")]);
    let applied = apply(&pair, "second", false, &[(IDLE, "1")]);
    assert!(applied[0].error.starts_with("Conflict: net.ipv4.tcp_slow_start_after_idle is held by first"));
}

#[test]
fn a_congestion_control_that_the_kernel_refuses_is_reported_with_its_reason() {
    let pair = Pair::new();
    let before = value(&pair, 0, CC);
    let applied = apply(&pair, "run", false, &[(CC, "nosuch")]);
    assert!(applied[0].error.starts_with("Refused: "), "{applied:?}");
    assert!(applied[0].error.contains("no such congestion control (available: "), "{applied:?}");

    // Where the machine has one that namespaces may not use, as a kernel with bbr by default and cubic not allowed.
    let words = |key| value(&pair, 0, key).split(' ').map(str::to_owned).collect::<Vec<_>>();
    let allowed = words("net.ipv4.tcp_allowed_congestion_control");
    let available = words("net.ipv4.tcp_available_congestion_control");
    if let Some(forbidden) = available.iter().find(|name| !allowed.contains(name)) {
        let applied = apply(&pair, "run", false, &[(CC, forbidden)]);
        assert!(applied[0].error.contains("only what the machine allows"), "{applied:?}");
    }
    assert_eq!(value(&pair, 0, CC), before);
    assert_eq!(restore(&pair, "run"), []);
}
