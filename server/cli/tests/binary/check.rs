//! `millrace check`: damage of each kind of file, and what is no data directory.

use std::fs;
use std::path::{Path, PathBuf};

use crate::serve::{filled, start_in};
use crate::{run, text_of};

/// The files of a directory and below whose names end so.
fn files(directory: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut files(&path, end));
        } else if path.to_str().unwrap().ends_with(end) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn damage_is_found_where_it_is() {
    let data = filled();
    let check = || run(&["check", text_of(data.path())]);
    let (status, out, error) = check();
    assert_eq!(status, 0, "{out}{error}");
    assert!(
        out.ends_with("bytes were read: all is as it was written\n"),
        "{out}"
    );

    for (end, expected, meaning) in [
        (".seg", 1, "DAMAGED"),
        ("catalog.journal", 1, "DAMAGED"),
        (".manifest", 3, "harmless"),
        (".blocks", 3, "harmless"),
    ] {
        let path = files(data.path(), end)
            .pop()
            .unwrap_or_else(|| panic!("no file {end}"));
        let content = fs::read(&path).unwrap();
        let mut damaged = content.clone();
        // Behind the header of a segment or of a file of blocks, in the middle of others.
        let at = if end.starts_with('.') && end != ".manifest" {
            70
        } else {
            content.len() / 2
        };
        damaged[at] ^= 0x10;
        fs::write(&path, damaged).unwrap();
        let (status, out, _) = check();
        fs::write(&path, content).unwrap();
        assert_eq!(status, expected, "{end}: {out}");
        let line = format!("{meaning} {}", path.display());
        assert!(
            out.replace("DAMAGED  ", "DAMAGED ").contains(&line),
            "{end}: {out}"
        );
    }
    assert_eq!(check().0, 0);
}

#[test]
fn a_directory_in_use_or_of_something_else_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let (status, _, error) = run(&["check", text_of(data.path())]);
    assert_eq!(status, 1);
    assert!(error.contains("is empty"), "{error}");
    let (mut child, _, _) = start_in(data.path(), &["--stop-at-eof"]);
    let (status, _, error) = run(&["check", text_of(data.path())]);
    assert_eq!(status, 1);
    assert!(error.contains("is in use by process"), "{error}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let (status, _, error) = run(&["check", text_of(&data.path().join("none"))]);
    assert_eq!(status, 1);
    assert!(error.contains("No such file"), "{error}");
}
