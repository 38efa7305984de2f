//! Compiles the protocol definitions without a system `protoc`.

use std::error::Error;

const PROTOS: &[&str] = &[
    "csi/v1/csi.proto",
    "gridcast/v1/agent.proto",
    "gridcast/v1/certificates.proto",
    "gridcast/v1/datasets.proto",
    "gridcast/v1/relay.proto",
    "gridcast/v1/starter.proto",
    "pluginregistration/v1/api.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    for path in PROTOS {
        println!("cargo::rerun-if-changed={path}");
    }
    let descriptors = protox::compile(PROTOS, ["."])?;
    // Payload stays in the buffer that HTTP/2 filled: `bytes::Bytes`, never a copy in a Vec.
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
