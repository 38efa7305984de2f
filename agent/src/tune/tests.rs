use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use super::*;

const RMEM: &str = "net.ipv4.tcp_rmem";
const WMEM: &str = "net.ipv4.tcp_wmem";
const CC: &str = "net.ipv4.tcp_congestion_control";
const IDLE: &str = "net.ipv4.tcp_slow_start_after_idle";
const DEFAULT_RMEM: &str = "4096 131072 33554432";
const WIDE: &str = "4096 131072 67108864";

/// A kernel whose values outlive the tuner, as the real one's do.
#[derive(Debug, Clone)]
struct Fake {
    values: Arc<Mutex<BTreeMap<String, String>>>,
    refuse: BTreeMap<String, i32>,
    clamp: BTreeMap<String, String>,
    namespace: String,
    machine: bool,
    /// When set, each write must find an open entry for its key in this journal.
    journal: Option<PathBuf>,
}

impl Fake {
    fn new() -> Self {
        let values = [
            (RMEM, "4096\t131072\t33554432\n"),
            (WMEM, "4096\t16384\t4194304\n"),
            (CC, "bbr\n"),
            (IDLE, "1\n"),
            ("net.ipv4.tcp_available_congestion_control", "reno bbr cubic\n"),
            ("net.ipv4.tcp_allowed_congestion_control", "reno bbr\n"),
        ];
        Self {
            values: Arc::new(Mutex::new(values.map(|(key, value)| (key.into(), value.into())).into())),
            refuse: BTreeMap::new(),
            clamp: BTreeMap::new(),
            namespace: "net:[7]@boot".to_owned(),
            machine: false,
            journal: None,
        }
    }

    fn value(&self, key: &str) -> String {
        normalize(&self.values.lock().unwrap()[key])
    }

    fn set(&self, key: &str, value: &str) {
        self.values.lock().unwrap().insert(key.to_owned(), value.to_owned());
    }
}

impl Kernel for Fake {
    fn read(&self, key: &str) -> io::Result<String> {
        self.values
            .lock()
            .unwrap()
            .get(key)
            .cloned()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }

    fn write(&self, key: &str, value: &str) -> io::Result<()> {
        if let Some(path) = &self.journal {
            let text = std::fs::read_to_string(path.join("settings.journal")).unwrap();
            assert!(text.contains(&format!(r#""key":"{key}""#)), "written before it was noted: {text}");
        }
        if let Some(errno) = self.refuse.get(key) {
            return Err(io::Error::from_raw_os_error(*errno));
        }
        self.set(key, self.clamp.get(key).map_or(value, String::as_str));
        Ok(())
    }

    fn namespace(&self) -> io::Result<String> {
        Ok(self.namespace.clone())
    }

    fn is_machine(&self) -> bool {
        self.machine
    }
}

struct Node {
    kernel: Fake,
    directory: Rc<tempfile::TempDir>,
    tuner: RefCell<Option<Tuner<Fake>>>,
}

impl Node {
    fn new(kernel: Fake) -> Self {
        let node =
            Self { kernel, directory: Rc::new(tempfile::tempdir().unwrap()), tuner: RefCell::new(None) };
        node.restart();
        node
    }

    /// As `kill -9` and a successor would.
    fn restart(&self) {
        self.tuner.replace(None);
        let kernel = Fake { journal: Some(self.directory.path().to_owned()), ..self.kernel.clone() };
        self.tuner.replace(Some(Tuner::with_kernel(kernel, self.directory.path()).unwrap()));
    }

    fn apply(&self, owner: &str, settings: &[(&str, &str)]) -> Vec<Applied> {
        let settings: Vec<_> =
            settings.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        self.tuner.borrow_mut().as_mut().unwrap().apply(owner, &settings, false).unwrap()
    }

    fn restore(&self, owner: &str) -> Vec<Restored> {
        self.tuner.borrow_mut().as_mut().unwrap().restore(owner).unwrap()
    }

    fn open(&self) -> usize {
        self.tuner.borrow().as_ref().unwrap().entries().len()
    }
}

fn restored(key: &str, now: &str) -> Restored {
    Restored { key: key.to_owned(), restored: true, now: now.to_owned() }
}

fn left(key: &str, now: &str) -> Restored {
    Restored { key: key.to_owned(), restored: false, now: now.to_owned() }
}

#[test]
fn what_was_applied_is_put_back_in_reverse_order() {
    let node = Node::new(Fake::new());
    let applied = node.apply("run", &[(RMEM, WIDE), (IDLE, "0")]);
    assert!(applied.iter().all(|setting| setting.error.is_none()), "{applied:?}");
    assert_eq!((applied[0].before.as_str(), applied[0].applied.as_str()), (DEFAULT_RMEM, WIDE));
    assert_eq!((node.kernel.value(RMEM).as_str(), node.kernel.value(IDLE).as_str()), (WIDE, "0"));
    assert_eq!(node.restore("run"), [restored(IDLE, "1"), restored(RMEM, DEFAULT_RMEM)]);
    assert_eq!(node.kernel.value(RMEM), DEFAULT_RMEM);
    assert_eq!(node.restore("run"), []);
}

#[test]
fn a_successor_restores_what_a_killed_agent_applied() {
    let node = Node::new(Fake::new());
    node.apply("run", &[(RMEM, WIDE)]);
    node.restart();
    assert_eq!(node.restore("run"), [restored(RMEM, DEFAULT_RMEM)]);
}

#[test]
fn a_crash_between_note_and_write_is_undone_as_well() {
    let node = Node::new(Fake::new());
    node.apply("run", &[(IDLE, "0"), (RMEM, WIDE)]);
    node.apply("run", &[(RMEM, "4096 131072 134217728")]);
    // As if the second change of rmem and the change of idle had been noted only.
    node.kernel.set(RMEM, WIDE);
    node.kernel.set(IDLE, "1");
    node.restart();
    assert_eq!(node.restore("run"), [restored(RMEM, DEFAULT_RMEM), restored(IDLE, "1")]);
}

#[test]
fn a_value_that_someone_changed_since_is_left_alone() {
    let node = Node::new(Fake::new());
    node.apply("run", &[(RMEM, WIDE), (IDLE, "0")]);
    node.kernel.set(RMEM, "4096 131072 1000000");
    let again = node.apply("run", &[(RMEM, WIDE)]);
    assert_eq!(again[0].error.as_ref().unwrap().reason(), "ChangedSince");
    assert_eq!(node.restore("run"), [restored(IDLE, "1"), left(RMEM, "4096 131072 1000000")]);
    assert_eq!(node.kernel.value(RMEM), "4096 131072 1000000");
    assert_eq!(node.open(), 0);
}

#[test]
fn a_second_owner_with_another_value_is_refused_with_the_first_ones_name() {
    let node = Node::new(Fake::new());
    node.apply("first", &[(RMEM, WIDE)]);
    let second = node.apply("second", &[(RMEM, "4096 131072 1048576"), (IDLE, "0")]);
    let error = second[0].error.as_ref().unwrap();
    assert_eq!(error.reason(), "Conflict");
    assert!(error.to_string().contains("held by first at `4096 131072 67108864`"), "{error}");
    assert_eq!(second[0].applied, WIDE);
    assert!(second[1].error.is_none(), "the others are applied");
    assert_eq!(node.restore("second"), [restored(IDLE, "1")]);
    assert_eq!(node.restore("first"), [restored(RMEM, DEFAULT_RMEM)]);
}

#[test]
fn owners_that_agree_share_and_the_last_restores() {
    let node = Node::new(Fake::new());
    node.apply("first", &[(RMEM, WIDE)]);
    assert!(node.apply("second", &[(RMEM, WIDE)])[0].error.is_none());
    assert_eq!(node.restore("first"), [left(RMEM, WIDE)]);
    node.restart();
    assert_eq!(node.restore("second"), [restored(RMEM, DEFAULT_RMEM)]);
}

#[test]
fn a_value_that_is_there_already_is_held_but_not_written() {
    let mut kernel = Fake::new();
    kernel.refuse.insert(RMEM.to_owned(), libc::EPERM);
    let node = Node::new(kernel);
    assert!(node.apply("first", &[(RMEM, DEFAULT_RMEM)])[0].error.is_none());
    assert_eq!(node.apply("second", &[(RMEM, WIDE)])[0].error.as_ref().unwrap().reason(), "Conflict");
    assert_eq!(node.restore("first"), [restored(RMEM, DEFAULT_RMEM)]);
}

#[test]
fn a_refused_value_says_why_and_holds_nothing() {
    let mut kernel = Fake::new();
    kernel.refuse.insert(CC.to_owned(), libc::EPERM);
    kernel.refuse.insert(WMEM.to_owned(), libc::EINVAL);
    let node = Node::new(kernel);
    let applied = node.apply("run", &[(CC, "cubic"), (WMEM, "4096 16384 8388608")]);
    let error = applied[0].error.as_ref().unwrap();
    assert_eq!(error.reason(), "Refused");
    assert!(error.to_string().contains("only what the machine allows (reno bbr)"), "{error}");
    assert_eq!(applied[0].applied, "bbr");
    assert!(applied[1].error.as_ref().unwrap().to_string().contains("out of this kernel's range"));
    assert_eq!(node.open(), 0);
}

#[test]
fn a_clamped_value_is_reported_and_still_put_back() {
    let mut kernel = Fake::new();
    kernel.clamp.insert(RMEM.to_owned(), "4096 131072 50000000".to_owned());
    let mut node = Node::new(kernel);
    let applied = node.apply("run", &[(RMEM, WIDE)]);
    assert_eq!(applied[0].error.as_ref().unwrap().reason(), "Clamped");
    assert_eq!(applied[0].applied, "4096 131072 50000000");
    node.kernel.clamp.clear();
    node.restart();
    assert_eq!(node.restore("run"), [restored(RMEM, DEFAULT_RMEM)]);
}

#[test]
fn a_restore_that_the_kernel_refuses_can_be_tried_again() {
    let mut node = Node::new(Fake::new());
    node.apply("run", &[(RMEM, WIDE)]);
    node.kernel.refuse.insert(RMEM.to_owned(), libc::EROFS);
    node.restart();
    assert_eq!(node.restore("run"), [left(RMEM, WIDE)]);
    node.kernel.refuse.clear();
    node.restart();
    assert_eq!(node.restore("run"), [restored(RMEM, DEFAULT_RMEM)]);
}

#[test]
fn a_dry_run_says_what_would_be_written_and_writes_nothing() {
    let mut kernel = Fake::new();
    kernel.machine = true;
    kernel.refuse.insert(RMEM.to_owned(), libc::EPERM);
    let node = Node::new(kernel);
    let settings =
        [(RMEM.to_owned(), "4096\t131072\t67108864".to_owned()), ("kernel.panic".into(), "1".into())];
    let applied = node.tuner.borrow_mut().as_mut().unwrap().apply("run", &settings, true).unwrap();
    assert_eq!((applied[0].before.as_str(), applied[0].applied.as_str()), (DEFAULT_RMEM, WIDE));
    assert!(applied[0].error.is_none());
    assert_eq!(applied[1].error.as_ref().unwrap().reason(), "NotAllowed");
    assert_eq!(node.kernel.value(RMEM), DEFAULT_RMEM);
    assert_eq!(node.open(), 0);
}

#[test]
fn the_machines_own_namespace_is_never_written() {
    let mut kernel = Fake::new();
    kernel.machine = true;
    let node = Node::new(kernel);
    assert_eq!(node.apply("run", &[(IDLE, "0")])[0].error.as_ref().unwrap().reason(), "MachineNamespace");
    assert_eq!(node.kernel.value(IDLE), "1");
}

#[test]
fn entries_of_a_namespace_that_is_gone_are_struck_out() {
    let mut node = Node::new(Fake::new());
    node.apply("run", &[(RMEM, WIDE)]);
    node.kernel.namespace = "net:[8]@boot".to_owned();
    node.restart();
    assert_eq!(node.restore("run"), []);
    assert_eq!(node.kernel.value(RMEM), WIDE);
}

#[test]
fn the_same_key_twice_is_refused_once() {
    let node = Node::new(Fake::new());
    let applied = node.apply("run", &[(IDLE, "0"), (IDLE, "1")]);
    assert!(applied[0].error.is_none());
    assert_eq!(applied[1].error.as_ref().unwrap().reason(), "NotAllowed");
    assert_eq!(node.kernel.value(IDLE), "0");
}

#[test]
fn owners_are_names() {
    let node = Node::new(Fake::new());
    for owner in ["", "two\nlines", &"x".repeat(513)] {
        let outcome = node.tuner.borrow_mut().as_mut().unwrap().apply(owner, &[], false);
        assert!(matches!(outcome, Err(TuneError::Owner)));
    }
}
