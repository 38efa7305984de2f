//! How large is a member's /dev/shm?
//!
//! A container has 64 MiB of it, and an MPI program that needs more dies of a bus error with an unreadable message. A member
//! gets a memory-backed volume there instead, unless its template brings one. Its pages count against the container's
//! memory, so that half of the limit leaves the program as much again; without a limit kubelet's own bound holds, half of
//! what the machine has for pods.

use k8s_openapi::{
    api::core::v1::{Container, EmptyDirVolumeSource, Volume, VolumeMount},
    apimachinery::pkg::api::resource::Quantity,
};

use crate::auxiliary_pod::mount;

const PATH: &str = "/dev/shm";
const NAME: &str = "gridcast-shm";

/// The volume and its mount for this container; None where it has one already.
pub(super) fn shared_memory(container: &Container) -> Option<(Volume, VolumeMount)> {
    let has_one = |mount: &VolumeMount| mount.mount_path.trim_end_matches('/') == PATH;
    if container.volume_mounts.iter().flatten().any(has_one) {
        return None;
    }
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let limit = limits.and_then(|limits| limits.get("memory")).and_then(bytes);
    let volume = Volume {
        name: NAME.into(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".into()),
            size_limit: limit.map(|bytes| Quantity((bytes / 2).to_string())),
        }),
        ..Volume::default()
    };
    Some((volume, mount(NAME, PATH, false)))
}

/// A quantity of memory in whole bytes, as Kubernetes writes quantities; None where it is none, or not above zero.
fn bytes(quantity: &Quantity) -> Option<u64> {
    let text = quantity.0.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '+')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" => 1.0,
        "m" => 1e-3,
        "u" => 1e-6,
        "n" => 1e-9,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024_f64.powi(4),
        "Pi" => 1024_f64.powi(5),
        "Ei" => 1024_f64.powi(6),
        exponent => 10_f64.powi(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let bytes = number.parse::<f64>().ok()? * factor;
    // Beyond 2^53 a byte more or less does not matter, and nobody has that much memory.
    (bytes >= 2.0).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        for (text, wanted) in [
            ("1Gi", Some(1 << 30)),
            ("512Mi", Some(512 << 20)),
            ("0.5Gi", Some(1 << 29)),
            ("1G", Some(1_000_000_000)),
            ("128974848", Some(128_974_848)),
            ("129e6", Some(129_000_000)),
            ("1E3", Some(1000)),
            ("2E", Some(2_000_000_000_000_000_000)),
            ("128974848000m", Some(128_974_848)),
            ("0", None),
            ("", None),
            ("much", None),
            ("1Zi", None),
        ] {
            assert_eq!(bytes(&Quantity(text.into())), wanted, "{text}");
        }
    }
}
