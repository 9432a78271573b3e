//! Length and first lines of files.

use std::fs;

use super::tree::{is_test, packages, relative, sources};

/// The most lines of a source file, without its `mod tests`. Most have fewer than 200.
const LINES_MAX: usize = 600;

/// Files that are longer, and how long they may be. A file that became shorter gets its lower number here, or leaves the
/// list: it only shrinks.
const LONGER: &[(&str, usize)] = &[
    ("runtime/resource/src/cpu/slots.rs", 692),
    ("server/functions/src/arrays.rs", 707),
    ("server/functions/src/by_pattern.rs", 679),
    ("server/functions/src/jsonb.rs", 665),
    ("server/functions/src/regex/syntax.rs", 608),
];

#[test]
fn files_are_short() {
    let mut faults = Vec::new();
    for package in packages() {
        for path in sources(&format!("{}/src", package.folder)) {
            if is_test(&path) {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source file can be read");
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let lines = code.lines().count();
            let name = relative(&path);
            match LONGER.iter().find(|(file, _)| *file == name) {
                Some((_, allowed)) if lines > *allowed => {
                    faults.push(format!(
                        "{name} has {lines} lines, LONGER allows {allowed}: split it"
                    ));
                }
                Some((_, allowed)) if lines <= LINES_MAX || lines + 50 < *allowed => {
                    faults.push(format!(
                        "{name} has {lines} lines: say so in LONGER instead of {allowed}"
                    ));
                }
                None if lines > LINES_MAX => {
                    faults.push(format!(
                        "{name} has {lines} lines, {LINES_MAX} are the limit: split it"
                    ));
                }
                _ => {}
            }
        }
    }
    for (file, _) in LONGER {
        if !super::tree::root().join(file).exists() {
            faults.push(format!("{file} is in LONGER, but not in the tree"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn files_say_what_lives_in_them() {
    let mut faults = Vec::new();
    for package in packages() {
        for path in sources(&package.folder) {
            let text = fs::read_to_string(&path).expect("a source file can be read");
            if !text.starts_with("//!") {
                faults.push(format!(
                    "{} does not open with `//!`: what lives there?",
                    relative(&path)
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
