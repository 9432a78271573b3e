//! `millrace completions` and `millrace man`.

use crate::{run, text_of};

#[test]
fn shells_and_man_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let (status, out, _) = run(&["completions", shell]);
        assert_eq!(status, 0);
        for word in ["doctor", "memory-limit", "junit"] {
            assert!(out.contains(word), "{shell}: {word}");
        }
    }
    let (status, page, _) = run(&["man"]);
    assert_eq!(status, 0);
    // What it is, in the words of who uses it.
    let help = run(&["--help"]).1;
    for text in [&help, &page] {
        assert!(text.contains("A declarative SQL streaming database"), "{text}");
    }
    assert!(
        page.contains(".TH millrace 1") && page.contains("millrace\\-check"),
        "{page}"
    );
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(run(&["man", "--dir", text_of(directory.path())]).0, 0);
    let serve = std::fs::read_to_string(directory.path().join("millrace-serve.1")).unwrap();
    assert!(
        serve.contains("memory\\-limit") || serve.contains("memory\\-limit".replace('\\', "").as_str()),
        "{serve}"
    );
}
