//! The crates, from the bottom up: each may use those before it in this list, never those after it.

use super::tree::packages;

/// Every crate of the workspace. A new one gets its line here.
const LAYERS: &[&str] = &[
    // What must be there, for the tests of all others.
    "millrace-oracle",
    // What a query means, and what it costs.
    "millrace-parser",
    "millrace-clarity",
    "millrace-sql",
    "millrace-planner",
    // What lasts.
    "millrace-storage",
    // What runs.
    "millrace-mesh",
    "millrace-schedule",
    "millrace-resource",
    "millrace-state",
    "millrace-operator",
    "millrace-generator",
    "millrace-engine",
    // What users talk to.
    "millrace-postgres",
    "millrace-functions",
    "millrace-javascript",
    "millrace-auth",
    "millrace-catalog",
    "millrace-connectors",
    "millrace-database",
    "millrace-system",
    "millrace-session",
    "millrace-console",
    "millrace-wire",
    "millrace-cli",
    // What tests and measures all of it.
    "millrace-sql-tests",
    "millrace-benches",
];

#[test]
fn crates_use_only_those_before_them() {
    let mut faults = Vec::new();
    let packages = packages();
    for package in &packages {
        let Some(place) = LAYERS.iter().position(|name| *name == package.name) else {
            faults.push(format!("{} is missing in LAYERS of {}", package.name, file!()));
            continue;
        };
        // Dependencies of tests count too: a crate that only its tests need from above is still a circle for a reader.
        for line in package.manifest.lines() {
            let Some((used, _)) = line.split_once(['.', ' ', '=']) else {
                continue;
            };
            if let Some(other) = LAYERS.iter().position(|name| *name == used)
                && other >= place
            {
                faults.push(format!("{} uses {used}, which comes after it", package.name));
            }
        }
    }
    for name in LAYERS {
        if !packages.iter().any(|package| package.name == *name) {
            faults.push(format!(
                "{name} is in LAYERS of {}, but not in the workspace",
                file!()
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
