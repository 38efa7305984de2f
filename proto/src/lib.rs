//! Wire types.

/// Version 1 of the contracts.
#[allow(missing_docs, clippy::pedantic, unreachable_pub, unused_qualifications)]
pub mod v1 {
    tonic::include_proto!("gridcast.v1");
}
