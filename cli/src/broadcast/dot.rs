//! The trees of a plan as a graph for Graphviz: `gridcast plan … -o dot | dot -Tsvg`.

use std::fmt::Write as _;

use gridcast_core::broadcast::plan::Plan;

use super::drawing::colour;

/// One edge for each hop, in the colour of its tree.
pub(super) fn render(plan: &Plan) -> String {
    let mut out =
        String::from("digraph plan {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n");
    // Writing to a String cannot fail.
    let _ = writeln!(out, "  {} [style=bold];", quoted(&plan.source));
    for host in &plan.destinations {
        let name = quoted(&host.name);
        let label =
            format!("{}\\n{:.1} of {:.1}", host.name.escape_default(), host.rate_mbps, host.bound_mbps);
        let _ = writeln!(out, "  {name} [label=\"{label}\"];");
    }
    for (index, tree) in plan.trees.iter().enumerate() {
        let colour = colour(index, plan.trees.len());
        for hop in &tree.hops {
            let (from, to) = (quoted(&hop.from), quoted(&hop.to));
            let (rate, number) = (tree.rate_mbps, index + 1);
            let _ = writeln!(
                out,
                "  {from} -> {to} [color=\"{colour}\", tooltip=\"tree {number}, {rate:.1} Mbit/s: {}\"];",
                hop.path.join(" ").escape_default()
            );
        }
    }
    out.push_str("}\n");
    out
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.escape_default())
}
