//! Writes `crds/*.yaml` from the Rust types: `cargo run -p gridcast-crds --example generate`.
//!
//! With `--check` it writes nothing and fails if a file differs.

use std::{path::Path, process::ExitCode};

use anyhow::Context;

fn main() -> anyhow::Result<ExitCode> {
    let check = std::env::args().any(|argument| argument == "--check");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut stale = false;
    for (name, text) in gridcast_crds::definitions::yaml() {
        let path = directory.join(name);
        if check {
            if std::fs::read_to_string(&path).unwrap_or_default() != text {
                eprintln!("{} differs from the types; run `make crds`", path.display());
                stale = true;
            }
        } else {
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            println!("{}", path.display());
        }
    }
    Ok(if stale { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
