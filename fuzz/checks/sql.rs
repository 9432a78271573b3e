//! What any text must leave standing in the parser: it does not panic, what it accepts is a part of the text and can be
//! printed, and an error says something and points into the text.
//!
//! The target `sql` and `parser/tests/mutation.rs` run it.

use millrace_parser::parse;

/// Parses a text and looks at what comes of it.
///
/// # Panics
/// Something is not as it must be.
pub fn check(sql: &str) {
    let length = sql.chars().count();
    match parse(sql) {
        Ok(parsed) => {
            for one in parsed {
                let part: String = sql
                    .chars()
                    .skip(one.offset)
                    .take(one.text.chars().count())
                    .collect();
                assert_eq!(part, one.text, "{sql}");
                let _ = one.statement.to_string();
            }
        }
        Err(error) => {
            assert!(!error.message.is_empty(), "{sql}");
            if let Some(position) = error.position {
                assert!(
                    (1..=length + 1).contains(&position),
                    "{position} in {sql:?}: {error:?}"
                );
            }
        }
    }
}
