//! What goes wrong, and when? Faults as text: `at=3s kill=B`.

use std::str::FromStr;
use std::time::Duration;

use super::super::topology::{MAX_MBPS, MIN_MBPS};

/// A fault at a time since the beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// When.
    pub at: Duration,
    /// What.
    pub kind: FaultKind,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// A host dies.
    Kill(String),
    /// A dead host, or one whose agent stopped, is back with what is on its disk.
    Back(String),
    /// A host that was not named takes part from now on.
    Join(String),
    /// The disk of a host is full.
    Full(String),
    /// The next three chunks that a host receives are spoilt on their way.
    Spoil(String),
    /// A host can send, receive and write this much, Mbit/s.
    Slow(String, f64),
    /// A link carries nothing more.
    Cut(String, String),
    /// A link carries what it did at first.
    Heal(String, String),
    /// A link carries this much in both directions, Mbit/s.
    Link(String, String, f64),
}

/// What is wrong with the text of a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says it")]
pub enum FaultError {
    #[error("the fault `{0}` has no time; begin it with `at=3s`")]
    NoTime(String),
    #[error("`{0}` is no time; write `3s` or `250ms`")]
    BadTime(String),
    #[error(
        "`{0}` is no fault; write kill=HOST, back=HOST, join=HOST, full=HOST, spoil=HOST, slow=HOST,MBPS, cut=A,B, \
         heal=A,B or link=A,B,MBPS"
    )]
    Unknown(String),
    #[error("`{0}` is no rate; write {MIN_MBPS} to {MAX_MBPS} Mbit/s")]
    BadRate(String),
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let mut words = text.split_whitespace();
        let time = words.next().and_then(|word| word.strip_prefix("at="));
        let at = time.map(time_of).ok_or_else(|| FaultError::NoTime(text.to_owned()))??;
        let what = words.next().unwrap_or_default();
        let unknown = || FaultError::Unknown(text.to_owned());
        let (verb, objects) = what.split_once('=').filter(|_| words.next().is_none()).ok_or_else(unknown)?;
        let objects: Vec<&str> = objects.split(',').collect();
        if objects.iter().any(|object| object.is_empty()) {
            return Err(unknown());
        }
        let own = |name: &&str| (*name).to_owned();
        let kind = match (verb, objects.as_slice()) {
            ("kill", [host]) => FaultKind::Kill(own(host)),
            ("back", [host]) => FaultKind::Back(own(host)),
            ("join", [host]) => FaultKind::Join(own(host)),
            ("full", [host]) => FaultKind::Full(own(host)),
            ("spoil", [host]) => FaultKind::Spoil(own(host)),
            ("slow", [host, mbps]) => FaultKind::Slow(own(host), rate_of(mbps)?),
            ("cut", [a, b]) => FaultKind::Cut(own(a), own(b)),
            ("heal", [a, b]) => FaultKind::Heal(own(a), own(b)),
            ("link", [a, b, mbps]) => FaultKind::Link(own(a), own(b), rate_of(mbps)?),
            _ => return Err(unknown()),
        };
        Ok(Self { at, kind })
    }
}

impl std::fmt::Display for FaultKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kill(host) => write!(formatter, "kill={host}"),
            Self::Back(host) => write!(formatter, "back={host}"),
            Self::Join(host) => write!(formatter, "join={host}"),
            Self::Full(host) => write!(formatter, "full={host}"),
            Self::Spoil(host) => write!(formatter, "spoil={host}"),
            Self::Slow(host, mbps) => write!(formatter, "slow={host},{mbps}"),
            Self::Cut(a, b) => write!(formatter, "cut={a},{b}"),
            Self::Heal(a, b) => write!(formatter, "heal={a},{b}"),
            Self::Link(a, b, mbps) => write!(formatter, "link={a},{b},{mbps}"),
        }
    }
}

fn time_of(text: &str) -> Result<Duration, FaultError> {
    let number = |digits: &str, unit: f64| digits.parse::<f64>().ok().map(|number| number * unit);
    let seconds = match text.strip_suffix("ms") {
        Some(digits) => number(digits, 1e-3),
        None => text.strip_suffix('s').and_then(|digits| number(digits, 1.0)),
    };
    let seconds = seconds.filter(|seconds| (0.0..=1e9).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| FaultError::BadTime(text.to_owned()))
}

fn rate_of(text: &str) -> Result<f64, FaultError> {
    let rate = text.parse::<f64>().ok().filter(|rate| (MIN_MBPS..=MAX_MBPS).contains(rate));
    rate.ok_or_else(|| FaultError::BadRate(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_written() {
        for text in [
            "kill=B",
            "back=B",
            "join=B",
            "full=B",
            "spoil=B",
            "slow=B,2.5",
            "cut=X,Y",
            "heal=X,Y",
            "link=X,Y,10",
        ] {
            let fault: Fault = format!("at=250ms {text}").parse().unwrap();
            assert_eq!((fault.at, fault.kind.to_string().as_str()), (Duration::from_millis(250), text));
        }
    }

    #[test]
    fn what_is_no_fault_is_refused_with_a_hint() {
        let refused = |text: &str| text.parse::<Fault>().unwrap_err().to_string();
        assert!(refused("kill=B").contains("at=3s"));
        assert!(refused("at=3 kill=B").contains("no time"));
        assert!(refused("at=-3s kill=B").contains("no time"));
        for text in ["at=3s", "at=3s kill", "at=3s kill=", "at=3s kill=B more", "at=3s cut=B", "at=3s eat=B"]
        {
            assert!(refused(text).contains("no fault"), "{text}");
        }
        for rate in ["0", "-1", "NaN", "inf", "1e9", "1e-9", "x"] {
            assert!(refused(&format!("at=3s slow=B,{rate}")).contains("no rate"));
        }
    }
}
