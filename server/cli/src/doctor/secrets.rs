//! Files with secrets that others can read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Finding;

/// Whether everybody on the machine can read them. A group can be meant to: that of the service, or of who signs certificates.
pub fn look(files: &[(PathBuf, Vec<&'static str>)]) -> Vec<Finding> {
    let looked = files.iter().filter_map(|(path, keys)| {
        let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
        Some(readable(path, keys, mode))
    });
    looked.collect()
}

fn readable(path: &Path, keys: &[&str], mode: u32) -> Finding {
    let (shown, keys) = (path.display(), keys.join(" and "));
    match mode & 0o007 {
        0 => Finding::good("secrets", format!("{shown} ({keys}) has mode {mode:o}")),
        _ => Finding::bad(
            "secrets",
            format!(
                "mode {mode:o} lets everybody on this machine read {shown}, which has {keys}: chmod 640 {shown}"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn what_everybody_can_read_is_told() {
        let path = Path::new("/etc/millrace/millrace.toml");
        for (mode, state) in [
            (0o600, State::Good),
            (0o640, State::Good),
            (0o644, State::Bad),
            (0o666, State::Bad),
        ] {
            assert_eq!(readable(path, &["password"], mode).state, state, "{mode:o}");
        }
        assert!(look(&[(PathBuf::from("/nowhere"), vec!["tls_key"])]).is_empty());
    }
}
