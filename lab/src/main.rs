//! The lab alone, for the tests of this crate and for looking at a node by hand:
//! `gridcast-lab node SPEC.json` keeps a node until its standard input ends.

use std::error::Error;
use std::fs::File;
use std::io::{Read, stdin};
use std::process::ExitCode;

use gridcast_lab::Lifetime;
use gridcast_lab::node::{Node, NodeSpec};

fn main() -> ExitCode {
    gridcast_lab::node::run_init_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let kept = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["node", spec] => keep(spec),
        _ => Err("use: gridcast-lab node SPEC.json; or rather `gridcast local`".into()),
    };
    match kept {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gridcast-lab: {error}");
            ExitCode::from(2)
        }
    }
}

fn keep(spec: &str) -> Result<(), Box<dyn Error>> {
    let spec: NodeSpec = serde_json::from_reader(File::open(spec)?)?;
    let lifetime = Lifetime::new()?;
    let node = Node::start(&spec, lifetime.watch()?, File::options().write(true).open("/dev/null")?)?;
    println!("{}", node.pid());
    stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
