//! Which settings may be written, and with which values?
//!
//! A closed list: what is not here is refused by name, whoever asks. Each entry is per network namespace since Linux
//! 4.15 at the latest, so that writing it never reaches beyond the node.

/// Largest buffer maximum, 1 GiB: more is a slip of the pen, and the kernel would take it.
const MAX_BUFFER_BYTES: u64 = 1 << 30;

/// Form of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// minimum, default and maximum of a socket buffer, bytes, ascending.
    Buffer,
    /// Name of a congestion control.
    Algorithm,
    /// A number between the two.
    Number(u64, u64),
}

const ALLOWED: &[(&str, Form)] = &[
    ("net.ipv4.tcp_congestion_control", Form::Algorithm),
    ("net.ipv4.tcp_mtu_probing", Form::Number(0, 2)),
    ("net.ipv4.tcp_no_metrics_save", Form::Number(0, 1)),
    ("net.ipv4.tcp_notsent_lowat", Form::Number(0, u32::MAX as u64)),
    ("net.ipv4.tcp_rmem", Form::Buffer),
    ("net.ipv4.tcp_slow_start_after_idle", Form::Number(0, 1)),
    ("net.ipv4.tcp_wmem", Form::Buffer),
];

/// Why a setting is not even tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAllowed {
    /// The key is not on the list.
    #[error("{key} is not a setting that the agent writes; it writes {}", keys().collect::<Vec<_>>().join(", "))]
    Key {
        /// As given.
        key: String,
    },
    /// The value does not have the key's form.
    #[error("value `{value}` of {key} must be {form}")]
    Value {
        /// The key.
        key: String,
        /// As given.
        value: String,
        /// What it may be.
        form: String,
    },
}

/// All keys that may be written.
pub fn keys() -> impl Iterator<Item = &'static str> {
    ALLOWED.iter().map(|(key, _)| *key)
}

/// The value as it will be written and compared: one space between numbers, no leading zeros.
pub fn validate(key: &str, value: &str) -> Result<String, NotAllowed> {
    let refused = |form: String| NotAllowed::Value { key: printable(key), value: printable(value), form };
    let (_, form) = ALLOWED
        .iter()
        .find(|(allowed, _)| *allowed == key)
        .ok_or_else(|| NotAllowed::Key { key: printable(key) })?;
    match *form {
        Form::Buffer => buffer(value).ok_or_else(|| {
            refused(
                "three ascending numbers of bytes, minimum, default, maximum, at most 1073741824".to_owned(),
            )
        }),
        Form::Algorithm => algorithm(value)
            .ok_or_else(|| refused("the name of a congestion control, 1 to 15 of a-z 0-9 _ -".to_owned())),
        Form::Number(low, high) => number(value)
            .filter(|number| (low..=high).contains(number))
            .map(|number| number.to_string())
            .ok_or_else(|| refused(format!("a number from {low} to {high}"))),
    }
}

/// `value` as /proc/sys shows it, in the form of [`validate`]: tabs become spaces.
pub fn normalize(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn buffer(value: &str) -> Option<String> {
    let numbers: Option<Vec<u64>> = value.split_whitespace().take(4).map(number).collect();
    let numbers = numbers?;
    let &[least, usual, most] = numbers.as_slice() else { return None };
    let fits = 1 <= least && least <= usual && usual <= most && most <= MAX_BUFFER_BYTES;
    fits.then(|| format!("{least} {usual} {most}"))
}

/// The kernel's TCP_CA_NAME_MAX is 16 with the final NUL.
fn algorithm(value: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    let name = value.trim();
    ((1..=15).contains(&name.len()) && name.bytes().all(plain)).then(|| name.to_owned())
}

fn number(value: &str) -> Option<u64> {
    let value = value.trim();
    value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok())?
}

/// For messages: short, and without control characters.
fn printable(text: &str) -> String {
    text.chars().take(80).map(|char| if char.is_control() { '?' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_written_in_one_form() {
        for (key, value, written) in [
            ("net.ipv4.tcp_rmem", "4096\t131072  6291456\n", "4096 131072 6291456"),
            ("net.ipv4.tcp_wmem", "1 1 1", "1 1 1"),
            ("net.ipv4.tcp_congestion_control", "bbr\n", "bbr"),
            ("net.ipv4.tcp_slow_start_after_idle", "0", "0"),
            ("net.ipv4.tcp_notsent_lowat", "4294967295", "4294967295"),
        ] {
            assert_eq!(validate(key, value).as_deref(), Ok(written));
        }
    }

    #[test]
    fn a_key_that_is_not_listed_is_refused_by_name() {
        for key in [
            "kernel.core_pattern",
            "net.ipv4.ip_forward",
            "net.ipv4.tcp_rmem/../../../kernel/panic",
            "",
            "net",
        ] {
            let error = validate(key, "1").unwrap_err();
            assert_eq!(error, NotAllowed::Key { key: key.to_owned() });
            assert!(error.to_string().contains("net.ipv4.tcp_rmem"), "{error}");
        }
    }

    #[test]
    fn a_value_of_the_wrong_form_is_refused_with_the_form() {
        for (key, value) in [
            ("net.ipv4.tcp_rmem", "4096 131072"),
            ("net.ipv4.tcp_rmem", "1 2 3 4"),
            ("net.ipv4.tcp_rmem", "3 2 1"),
            ("net.ipv4.tcp_rmem", "0 1 2"),
            ("net.ipv4.tcp_rmem", "1 2 1073741825"),
            ("net.ipv4.tcp_rmem", "-1 2 3"),
            ("net.ipv4.tcp_rmem", "1 2 99999999999999999999999"),
            ("net.ipv4.tcp_congestion_control", "../bbr"),
            ("net.ipv4.tcp_congestion_control", "abcdefghijklmnop"),
            ("net.ipv4.tcp_congestion_control", ""),
            ("net.ipv4.tcp_slow_start_after_idle", "2"),
            ("net.ipv4.tcp_slow_start_after_idle", ""),
            ("net.ipv4.tcp_mtu_probing", "one"),
        ] {
            assert!(matches!(validate(key, value), Err(NotAllowed::Value { .. })), "{key} = {value}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_accepted_again_unchanged(value in "[ \t0-9a-z-]{0,40}") {
            for key in keys() {
                if let Ok(written) = validate(key, &value) {
                    prop_assert_eq!(validate(key, &written), Ok(written.clone()));
                    prop_assert_eq!(normalize(&written), written);
                }
            }
        }
    }
}
