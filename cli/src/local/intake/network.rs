//! Which network joins the nodes: that of a file, or one switch?

use std::{collections::BTreeSet, path::Path};

use gridcast_core::broadcast::topology::{Host, LimitedHost, Link, Topology};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Failure;

use super::{NodePlan, listed, text};

/// The default link, Mbit/s and milliseconds one way.
const DEFAULT_LINK: (f64, f64) = (1000.0, 0.1);
/// Most bytes of a topology file; one of 16,384 links with every field has less than four million.
const MOST_BYTES: u64 = 8 << 20;

/// The topology of the file, or one switch. Its hosts are exactly the nodes.
pub(super) fn topology(file: Option<&Path>, nodes: &[NodePlan]) -> Result<Topology, Failure> {
    let names: Vec<String> = nodes.iter().map(|n| n.name.clone()).collect();
    let Some(file) = file else {
        return Ok(Topology::one_switch(&names, DEFAULT_LINK.0, DEFAULT_LINK.1));
    };
    let refuse = |why: String| Failure::input(format!("--topology {}: {why}", file.display()));
    let topology = parse(&text(file, MOST_BYTES).map_err(refuse)?).map_err(refuse)?;
    topology.validate().map_err(|e| refuse(e.to_string()))?;
    let declared: BTreeSet<&str> = topology.hosts.iter().map(Host::name).collect();
    let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    if let Some(unknown) = declared.difference(&wanted).next() {
        return Err(refuse(format!(
            "hosts: {unknown} is no node of the cluster; rename or remove it: the nodes are {}",
            listed(&names)
        )));
    }
    if let Some(missing) = wanted.difference(&declared).next() {
        return Err(refuse(format!("hosts: node {missing} is missing; add it, and a link to it")));
    }
    Ok(topology)
}

/// Reads YAML or JSON. Hosts and links are read one by one, so that an error names the one that is wrong.
fn parse(text: &str) -> Result<Topology, String> {
    const FORMAT: &str = "docs/topology.md shows the format";
    // Y is a switch, not a truth value.
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    let value: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|e| format!("cannot be understood: {e}; {FORMAT}"))?;
    if !value.is_object() {
        return Err(format!("must be a mapping with `hosts`, `switches` and `links`; {FORMAT}"));
    }
    let entries = |field: &str| value.get(field).and_then(Value::as_array).into_iter().flatten().enumerate();
    for (index, host) in entries("hosts").filter(|(_, host)| !host.is_string()) {
        if !host.is_object() {
            return Err(format!(
                "hosts[{index}]: must be a name or a mapping with `name`, but is {host}; {FORMAT}"
            ));
        }
        as_type::<LimitedHost>(&format!("hosts[{index}]"), host)?;
    }
    for (index, link) in entries("links") {
        as_type::<Link>(&format!("links[{index}]"), link)?;
    }
    serde_json::from_value(value).map_err(|e| format!("{e}; {FORMAT}"))
}

fn as_type<T: DeserializeOwned>(field: &str, value: &Value) -> Result<(), String> {
    T::deserialize(value).map(drop).map_err(|e| format!("{field}: {e}; docs/topology.md lists the fields"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_may_be_called_y() {
        let links = "links: [{a: a, b: X, mbps: 1}, {a: X, b: Y, mbps: 1}, {a: Y, b: n, mbps: 1}]";
        let topology = parse(&format!("hosts: [a, n]\nswitches: [X, Y]\n{links}")).unwrap();
        assert_eq!(topology.switches, ["X", "Y"]);
    }

    #[test]
    fn an_error_names_the_host_or_link() {
        for (text, part) in [
            ("hosts: [a, {name: b, sendmbps: 4}]", "hosts[1]: unknown field `sendmbps`"),
            ("hosts: [a, 5]", "hosts[1]: must be a name"),
            ("hosts: [a, {sendMbps: 4}]", "hosts[1]: missing field `name`"),
            ("hosts: [a, b]\nlinks: [{a: a, b: b, mbps: fast}]", "links[0]: invalid type"),
            ("hosts: [a, b]\nlinks: [{a: a, b: b}]", "links[0]: missing field `mbps`"),
            ("hosts: [a]\nlink: []", "unknown field `link`"),
            ("hosts: {a: b}", "invalid type"),
            ("switches: [a]", "missing field `hosts`"),
            ("hosts: [", "cannot be understood"),
            ("hi", "must be a mapping"),
            ("", "must be a mapping"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }

    #[test]
    fn yaml_and_json_are_read_alike() {
        let yaml =
            "hosts: [a, {name: b, sendMbps: 900}]\nlinks: [{a: a, b: b, mbps: 1e3, queueBytes: 100000}]";
        let json = r#"{"hosts":["a",{"name":"b","sendMbps":900}],"links":[{"a":"a","b":"b","mbps":1000,"queueBytes":100000}]}"#;
        assert_eq!(parse(yaml).unwrap(), parse(json).unwrap());
    }
}
