//! `docs/guarantees.md` names the test that holds a promise: it must be there.

use std::fs;

use super::tree::root;

/// Where a name without a folder may be.
const FOLDERS: [&str; 3] = ["", "sql-tests/tests", "sql-tests/tests/server"];

#[test]
fn the_tests_that_hold_promises_are_there() {
    let text = fs::read_to_string(root().join("docs/guarantees.md")).expect("the promises can be read");
    let rows = text.lines().filter(|line| line.starts_with("| **"));
    let mut named = 0;
    for row in rows {
        let held_by = row.split(" | ").nth(1).unwrap_or_default();
        let names: Vec<&str> = held_by.split('`').skip(1).step_by(2).collect();
        // A command, or the name of a test in a file that is named too.
        let is_no_file = |name: &str| name.contains(' ') || !(name.contains('/') || name.contains('.'));
        let is_there = |name: &str| {
            FOLDERS
                .iter()
                .any(|folder| root().join(folder).join(name).exists())
        };
        for name in &names {
            assert!(is_no_file(name) || is_there(name), "{name} is not there: {row}");
        }
        named += usize::from(!names.is_empty());
        assert!(!names.is_empty(), "no test holds this: {row}");
    }
    assert!(named > 20, "{named} promises");
}
