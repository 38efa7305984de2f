//! Does `gridcast local experiment broadcast-sim` say what its documents promise?

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure here is a failed test")]

use std::process::Command;

use serde_json::Value;

fn broadcast_sim(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridcast"));
    command.args(["local", "experiment", "broadcast-sim", "--destinations", "8", "--draws", "2"]);
    let output = command.args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_json_has_all_methods_on_all_distributions() {
    let text = broadcast_sim(&["--seed", "3", "-o", "json"]);
    assert_eq!(text, broadcast_sim(&["--seed", "3", "-o", "json"]));
    let compared: Vec<Value> = serde_json::from_str(&text).unwrap();
    let conditions: Vec<&Value> = compared.iter().map(|comparison| &comparison["condition"]).collect();
    assert_eq!(conditions[..4], ["mixed", "uniform500", "uniform100", "trunks"]);
    assert_eq!(conditions.len(), 8);
    for comparison in &compared {
        assert_eq!(comparison["destinations"], 8);
        assert_eq!(comparison["boundMbps"].as_array().unwrap().len(), 2);
        let methods = comparison["methods"].as_array().unwrap();
        // Ours twice, flat once, the other six in both models.
        assert_eq!(methods.len(), 15);
        for method in methods {
            assert_eq!(method["aggregateMbps"].as_array().unwrap().len(), 2);
            assert!(method["overFlat"].as_f64().unwrap() > 0.0);
            let of_bound = method["ofBound"].as_f64().unwrap();
            assert!(of_bound > 0.0 && of_bound < 1.0 + 1e-9, "{method}");
        }
    }
}

#[test]
fn the_table_fits_and_has_a_line_for_each_distribution() {
    let text = broadcast_sim(&[]);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("500-1000, asym.")).count(), 2, "{text}");
    assert!(text.contains("paper 40.0"), "{text}");
}
