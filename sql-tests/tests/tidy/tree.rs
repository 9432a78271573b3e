//! The crates of the workspace and their source files.

use std::fs;
use std::path::{Path, PathBuf};

/// A crate of the workspace.
pub struct Package {
    pub name: String,
    /// Its folder, from the root of the workspace.
    pub folder: String,
    /// Its `Cargo.toml`.
    pub manifest: String,
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate is in a folder of the workspace")
        .to_path_buf()
}

/// All crates, in the order of their folders.
pub fn packages() -> Vec<Package> {
    let mut found = Vec::new();
    collect_packages(&root(), &mut found);
    found.sort_by(|a, b| a.folder.cmp(&b.folder));
    assert!(
        found.len() >= 7,
        "the workspace has at least its seven top-level crates"
    );
    found
}

fn collect_packages(folder: &Path, found: &mut Vec<Package>) {
    for path in entries(folder) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !path.is_dir()
            || ["target", "fuzz", "src", "tests"].contains(&name.as_str())
            || name.starts_with('.')
        {
            continue;
        }
        let manifest = fs::read_to_string(path.join("Cargo.toml"));
        // One that is a workspace of its own is none of ours.
        if let Ok(manifest) = manifest
            && !manifest.contains("\n[workspace]")
        {
            let package = manifest
                .lines()
                .find_map(|line| line.strip_prefix("name = \""))
                .and_then(|rest| rest.strip_suffix('"'))
                .expect("a manifest begins with its package's name");
            found.push(Package {
                name: package.to_string(),
                folder: relative(&path),
                manifest,
            });
        }
        collect_packages(&path, found);
    }
}

/// The Rust files below `folder` (from the root), without those of crates nested in it, in order.
pub fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect_sources(&root().join(folder), &mut found);
    found
}

fn collect_sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in entries(folder) {
        if path.is_dir() {
            if !path.join("Cargo.toml").exists() {
                collect_sources(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Whether a file holds tests only.
pub fn is_test(path: &Path) -> bool {
    let path = relative(path);
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// A path from the root of the workspace.
pub fn relative(path: &Path) -> String {
    path.strip_prefix(root())
        .expect("only the workspace is read")
        .to_string_lossy()
        .into_owned()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("a folder of the workspace can be read").path())
        .collect();
    paths.sort();
    paths
}
