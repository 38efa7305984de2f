//! Writes what is made from the Rust types: `crds/*.yaml`, and the tables of `docs/api.md`.
//!
//! `cargo run -p gridcast-crds --example generate`; with `--check` it writes nothing and fails if a file differs.

use std::{fs, path::Path, process::ExitCode};

use anyhow::Context as _;
use gridcast_crds::{definitions, reference};

fn main() -> anyhow::Result<ExitCode> {
    let check = std::env::args().any(|argument| argument == "--check");
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> =
        definitions::yaml().into_iter().map(|(name, text)| (crate_directory.join(name), text)).collect();
    let api = crate_directory.join("../docs/api.md");
    let document = fs::read_to_string(&api).with_context(|| format!("cannot read {}", api.display()))?;
    files.push((api, reference::update(&document)));

    let mut stale = false;
    for (path, text) in files {
        if fs::read_to_string(&path).unwrap_or_default() == text {
            continue;
        }
        if check {
            eprintln!("{} differs from the types; run `make crds`", path.display());
            stale = true;
        } else {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            println!("{}", path.display());
        }
    }
    Ok(if stale { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
