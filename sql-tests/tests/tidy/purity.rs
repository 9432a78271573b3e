//! Crates that decide and do nothing else: they read no clock, start no thread or task, and open no file, so that the same
//! input gives the same answer, live and in a simulation.

use std::fs;

use super::tree::{is_test, relative, sources};

/// The crates, and the files in them that are excused.
const PURE: &[(&str, &[&str])] = &[
    ("parser", &[]),
    ("planner", &[]),
    ("planner/sql", &[]),
    // How slow the machine is can only be found out by trying.
    ("planner/clarity", &["planner/clarity/src/probe.rs"]),
    // The simulator says how long its own decisions took.
    (
        "runtime/schedule",
        &[
            "runtime/schedule/src/simulation/driver.rs",
            "runtime/schedule/src/simulation/worker.rs",
        ],
    ),
    ("runtime/generator", &[]),
    ("runtime/state", &[]),
    ("runtime/operator", &[]),
];

/// What stands for a clock, a thread, a task or a file.
const FORBIDDEN: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "Utc::now",
    "thread::spawn",
    "thread::Builder",
    "thread::sleep",
    "tokio::spawn",
    "tokio::time",
    "tokio::net",
    "std::fs",
    "File::open",
    "File::create",
    "rand::rng",
];

#[test]
fn crates_that_decide_do_nothing_else() {
    let mut faults = Vec::new();
    for (folder, excused) in PURE {
        for path in sources(&format!("{folder}/src")) {
            let name = relative(&path);
            if is_test(&path) || excused.contains(&name.as_str()) {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source file can be read");
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for (number, line) in code.lines().enumerate() {
                let line = line.split("//").next().unwrap_or_default();
                for word in FORBIDDEN.iter().filter(|word| line.contains(**word)) {
                    faults.push(format!(
                        "{name}:{}: {word} in a crate that only decides",
                        number + 1
                    ));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
