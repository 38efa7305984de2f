//! Is this announcement one that this node can take?

use std::path::{Component, PathBuf};

use gridcast_proto::v1::PrepareRequest;

use super::DatasetError;
use super::record::{End, Record};
use super::upkeep::OURS;
use crate::node::pods::is_uid;

const MAX_PATH_BYTES: usize = 256;

/// Whether one of the paths lies at or below the other.
pub(super) fn touch(one: &Record, other: &Record) -> bool {
    one.namespace == other.namespace
        && (one.path.starts_with(&other.path) || other.path.starts_with(&one.path))
}

pub(super) fn new_record(request: PrepareRequest) -> Result<Record, DatasetError> {
    let PrepareRequest { namespace, name, uid, path, source } = request;
    let refuse = |field, value: &str, bound| {
        let value = value.escape_debug().take(120).collect();
        Err(DatasetError::Argument { field, value, bound })
    };
    if !is_name(&namespace, 63) || namespace.contains('.') {
        return refuse("namespace", &namespace, "a DNS label");
    }
    if !is_name(&name, 253) {
        return refuse("name", &name, "a DNS name");
    }
    if !is_uid(&uid) || uid.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return refuse("uid", &uid, "the UID of a Broadcast");
    }
    if source.is_empty() || source.len() > 253 {
        return refuse("source", &source, "the name in a certificate");
    }
    let path = if path.is_empty() { PathBuf::from(&name) } else { PathBuf::from(path) };
    let plain = path.components().all(|part| match part {
        Component::Normal(part) => part.to_str().is_some_and(|part| !part.starts_with(OURS)),
        _ => false,
    });
    if !plain || path.as_os_str().len() > MAX_PATH_BYTES {
        return refuse("path", &path.to_string_lossy(), "a relative path without `.` and `..`");
    }
    Ok(Record {
        namespace,
        name,
        uid,
        // Without doubled and final slashes, so that paths can be compared.
        path: path.components().collect(),
        source,
        begun: false,
        verified: None,
        mounts: Vec::new(),
        boot: String::new(),
        end: End::Wanted,
    })
}

/// Lower-case letters, digits, `-` and `.`, with a letter or digit at each end.
fn is_name(name: &str, longest: usize) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let ends = [label.bytes().next(), label.bytes().last()];
        ends.into_iter().all(|end| end.is_some_and(alphanumeric))
            && label.bytes().all(|byte| alphanumeric(byte) || byte == b'-')
    };
    name.len() <= longest && name.split('.').all(is_label)
}
