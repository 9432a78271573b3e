//! Where in the SQL text an error is, when only the name that is wrong is known.

use millrace_parser::Parsed;
use millrace_postgres::error::{SqlError, SqlState};

/// The error with the position of the name that its message quotes, in characters of the whole text.
pub fn locate(error: SqlError, parsed: &Parsed) -> SqlError {
    if error.position.is_some() || !names_something(error.code) {
        return error;
    }
    let Some(name) = name_in(&error.message) else {
        return error;
    };
    let place = find_word(&parsed.text, name).or_else(|| {
        // `schema.table` may be written with white space or quotes: its last part will do.
        name.rsplit_once('.')
            .and_then(|(_, last)| find_word(&parsed.text, last))
    });
    let position = place.map(|place| place + parsed.offset + 1);
    error.at(position)
}

fn names_something(code: SqlState) -> bool {
    matches!(
        code,
        SqlState::UndefinedColumn
            | SqlState::UndefinedTable
            | SqlState::UndefinedFunction
            | SqlState::UndefinedObject
            | SqlState::AmbiguousColumn
            | SqlState::DuplicateColumn
            | SqlState::GroupingError
    )
}

/// What stands in double quotes, or after the word `column` or `function`.
fn name_in(message: &str) -> Option<&str> {
    if let Some(quoted) = message.split('"').nth(1) {
        return Some(quoted);
    }
    let mut words = message.split_whitespace();
    words.find(|word| matches!(*word, "column" | "function"))?;
    words.next().map(|word| word.split('(').next().unwrap_or(word))
}

/// Where a word stands in SQL text, strings and comments left out; in characters, from 0.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let haystack: Vec<char> = text.chars().collect();
    let needle: Vec<char> = word.chars().collect();
    if needle.is_empty() {
        return None;
    }
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut at = 0;
    while at < haystack.len() {
        match (haystack[at], haystack.get(at + 1)) {
            ('\'', _) => {
                at += 1;
                while at < haystack.len() && haystack[at] != '\'' {
                    at += 1;
                }
            }
            ('-', Some('-')) => {
                while at < haystack.len() && haystack[at] != '\n' {
                    at += 1;
                }
            }
            _ => {
                let fits = haystack.len() - at >= needle.len()
                    && haystack[at..at + needle.len()]
                        .iter()
                        .zip(&needle)
                        .all(|(a, b)| a.to_lowercase().eq(b.to_lowercase()));
                let bounded = (at == 0 || !is_word(haystack[at - 1]))
                    && haystack.get(at + needle.len()).is_none_or(|next| !is_word(*next));
                if fits && bounded {
                    return Some(at);
                }
            }
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_as_a_word_outside_of_strings() {
        assert_eq!(find_word("select 'nope', Nope from t", "nope"), Some(15));
        assert_eq!(find_word("select nopes from t -- nope", "nope"), None);
        assert_eq!(find_word("äö nope", "nope"), Some(3));
    }

    #[test]
    fn an_error_gets_the_position_of_its_name() {
        let parsed = millrace_parser::parse("select 1; select x from t")
            .unwrap()
            .remove(1);
        let error = SqlError::new(SqlState::UndefinedTable, "relation \"t\" does not exist");
        assert_eq!(locate(error, &parsed).position, Some(25));
        let error = SqlError::new(SqlState::DivisionByZero, "division by \"t\"");
        assert_eq!(locate(error, &parsed).position, None);
    }
}
