//! What docs give to Prometheus and Grafana. That the names in them exist is tested beside the metrics; here, that they say something
//! about now, and with promtool, if there is one, that alerts begin and end.

use std::path::{Path, PathBuf};
use std::process::Command;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(docs().join(name)).unwrap()
}

/// A percentile or maximum of all that there was since the start stays where it was once bad.
#[test]
fn nothing_goes_by_what_is_kept_since_the_start() {
    for name in ["prometheus/alerts.yml", "grafana/millrace.json"] {
        let text = read(name);
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        for word in text.split(|c| !is_part(c)) {
            let is_of_all_time = word.starts_with("millrace_")
                && ["_p50", "_p99", "_max"].iter().any(|end| word.ends_with(end));
            assert!(!is_of_all_time, "{name}: {word}");
        }
    }
}

#[test]
fn the_configuration_has_the_alerts_and_the_name_that_they_ask_for() {
    let (config, alerts) = (read("prometheus/prometheus.yml"), read("prometheus/alerts.yml"));
    assert!(config.contains("rule_files: [alerts.yml]"));
    let job = alerts
        .split("job=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap();
    assert!(config.contains(&format!("job_name: {job}\n")), "{job}");
}

#[test]
fn alerts_begin_and_end() {
    if Command::new("promtool").arg("--version").output().is_err() {
        println!("skipped: there is no promtool");
        return;
    }
    for arguments in [
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        let mut promtool = Command::new("promtool");
        promtool.args(arguments).current_dir(docs().join("prometheus"));
        let output = promtool.output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
}
