//! Which files are run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The extensions of sqllogictest files.
const EXTENSIONS: [&str; 2] = ["slt", "test"];
/// What the name of a file ends with that is run after another, once the server was started again.
const RESTART: &str = ".restart.slt";

/// The files that were named and those in the directories that were named, and below, in their order; no file twice, whichever
/// ways lead to it. One that is run after another stands for that other, so that a pattern of the shell (`*.slt`) may name both.
///
/// # Errors
/// Something does not exist, cannot be read, or is no sqllogictest file; or there is none, in words.
pub fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut files = vec![];
    for path in paths {
        if path.is_dir() {
            let before = files.len();
            find(path, &mut files)?;
            if files.len() == before {
                return Err(format!("there are no .slt files in {} or below", path.display()));
            }
        } else {
            check(path)?;
            files.push(match before_restart(path) {
                Some(first) => first,
                None => path.clone(),
            });
        }
    }
    let mut seen = BTreeSet::new();
    files.retain(|file| seen.insert(file.canonicalize().unwrap_or_else(|_| file.clone())));
    Ok(files)
}

/// The file that is run after this one, once the server was started again.
pub fn after_restart(file: &Path) -> Option<PathBuf> {
    let after = file.with_extension(&RESTART[1..]);
    (!is_after_restart(file) && after.is_file()).then_some(after)
}

fn is_after_restart(file: &Path) -> bool {
    file.to_string_lossy().ends_with(RESTART)
}

fn check(path: &Path) -> Result<(), String> {
    let shown = path.display();
    std::fs::metadata(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    if !is_test(path) {
        return Err(format!(
            "{shown} is not a sqllogictest file: its name must end with .slt or .test"
        ));
    }
    Ok(())
}

fn is_test(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
}

fn find(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |error| format!("cannot read {}: {error}", directory.display());
    let entries = std::fs::read_dir(directory).map_err(failed)?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            find(&path, files)?;
        } else if is_test(&path) && before_restart(&path).is_none() {
            files.push(path);
        }
    }
    Ok(())
}

/// The file after which this one is run, if there is one.
fn before_restart(path: &Path) -> Option<PathBuf> {
    let first = path.with_extension("").with_extension("slt");
    (is_after_restart(path) && first.is_file()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_searched_and_what_is_wrong_is_said() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("below/more")).unwrap();
        std::fs::create_dir(at("nothing")).unwrap();
        for name in [
            "b.slt",
            "a.test",
            "b.restart.slt",
            "alone.restart.slt",
            "below/more/c.slt",
            "notes.sql",
        ] {
            std::fs::write(at(name), "").unwrap();
        }
        let found = files(&[at("b.slt"), root.path().to_owned()]).unwrap();
        let expected = ["b.slt", "a.test", "alone.restart.slt", "below/more/c.slt"];
        assert_eq!(found, expected.map(at));
        // By other ways, too.
        std::os::unix::fs::symlink(at("b.slt"), at("below/b_again.slt")).unwrap();
        let ways = [
            at("below/../b.slt"),
            at("b.restart.slt"),
            at("b.slt"),
            root.path().to_owned(),
        ];
        let found = files(&ways).unwrap();
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(found[0], at("below/../b.slt"));
        assert_eq!(
            files(&[at("alone.restart.slt")]).unwrap(),
            [at("alone.restart.slt")]
        );
        assert_eq!(after_restart(&at("b.slt")), Some(at("b.restart.slt")));
        assert_eq!(after_restart(&at("a.test")), None);
        assert_eq!(after_restart(&at("alone.restart.slt")), None);
        for (path, expected) in [
            ("none.slt", "No such file"),
            ("notes.sql", "must end with .slt or .test"),
            ("nothing", "there are no .slt files in"),
        ] {
            let message = files(&[at(path)]).unwrap_err();
            assert!(message.contains(expected) && message.contains(path), "{message}");
        }
    }
}
