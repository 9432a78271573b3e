//! How errors read in the log. Those of Arrow and DataFusion are put into the words of SQL above the runtime, which only carries them:
//! whoever starts it says here how.

use std::sync::OnceLock;

static WORDS: OnceLock<fn(&str) -> String> = OnceLock::new();

/// From now on the log has errors as `words` makes them of their texts. The first to say so is who counts.
pub fn log_errors_as(words: fn(&str) -> String) {
    let _ = WORDS.set(words);
}

/// The text of an error for the log.
pub fn logged(error: &str) -> String {
    match WORDS.get() {
        Some(words) => words(error),
        None => error.to_owned(),
    }
}
