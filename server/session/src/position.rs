//! Where in the SQL text an error is, when only the name or the literal that is wrong is known.

use datafusion::sql::sqlparser::tokenizer::Token;
use millrace_parser::{Parsed, tokens};
use millrace_postgres::error::{SqlError, SqlState};

/// The error with the position of the name that its message quotes, in characters of the whole text.
pub fn locate(error: SqlError, parsed: &Parsed) -> SqlError {
    if error.position.is_some() {
        return error;
    }
    if let Some(literal) = error.literal() {
        let place = find_literal(&parsed.text, literal);
        return error.at(place.map(|place| place + parsed.offset + 1));
    }
    if !names_something(error.code) {
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

/// The text that a literal means; `None`: a token is none.
fn literal(token: &Token) -> Option<&str> {
    match token {
        Token::SingleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::UnicodeStringLiteral(text)
        | Token::NationalStringLiteral(text) => Some(text),
        Token::DollarQuotedString(text) => Some(&text.value),
        _ => None,
    }
}

/// Where a word stands in SQL text, strings and comments left out; in characters, from 0.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let needle: Vec<char> = word.chars().collect();
    if needle.is_empty() {
        return None;
    }
    let written: Vec<char> = text.chars().collect();
    let mut haystack = vec![' '; written.len()];
    // A name in quotation marks begins with the first of them.
    let mut begins: Vec<usize> = (0..written.len()).collect();
    for (place, token) in tokens(text) {
        if literal(&token).is_some() {
            continue;
        }
        let is_quoted = matches!(&token, Token::Word(word) if word.quote_style.is_some());
        for at in place.start..place.end.min(written.len()) {
            haystack[at] = written[at];
            if is_quoted {
                begins[at] = place.start;
            }
        }
    }
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let is_here = |at: usize| {
        let Some(found) = haystack.get(at..at + needle.len()) else {
            return false;
        };
        let is_same = |(one, other): (&char, &char)| one.to_lowercase().eq(other.to_lowercase());
        found.iter().zip(&needle).all(is_same)
            && (at == 0 || !is_word(haystack[at - 1]))
            && haystack.get(at + needle.len()).is_none_or(|next| !is_word(*next))
    };
    (0..haystack.len()).find(|at| is_here(*at)).map(|at| begins[at])
}

/// Where the literal of this text stands; none if there are several.
fn find_literal(text: &str, means: &str) -> Option<usize> {
    let tokens = tokens(text).into_iter();
    let mut found = tokens.filter(|(_, token)| literal(token) == Some(means));
    let (place, _) = found.next()?;
    found.next().is_none().then_some(place.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_as_a_word_outside_of_strings() {
        assert_eq!(find_word("select 'nope', Nope from t", "nope"), Some(15));
        assert_eq!(find_word("select nopes from t -- nope", "nope"), None);
        assert_eq!(find_word("äö nope", "nope"), Some(3));
        assert_eq!(find_word(r"select E'\'', nope", "nope"), Some(14));
        assert_eq!(find_word("select /* nope /* */ nope */ nope", "nope"), Some(29));
        assert_eq!(find_word("select $a$ nope $a$, nope", "nope"), Some(21));
        assert_eq!(find_word("select \"x nope\"", "x nope"), Some(7));
        assert_eq!(find_word("select $1, nope", "nope"), Some(11));
    }

    #[test]
    fn a_literal_is_found_by_what_it_means() {
        assert_eq!(find_literal("select 'it''s', 1", "it's"), Some(7));
        assert_eq!(find_literal(r"select e'it\'s'", "it's"), Some(7));
        assert_eq!(find_literal("select $$a$$, 'b' -- 'a'", "a"), Some(7));
        assert_eq!(find_literal("select 'a', 'a'", "a"), None);
        assert_eq!(find_literal("select a", "a"), None);
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
