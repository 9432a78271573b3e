//! `parse_ident`: the parts of a name with dots.

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

/// The parts of a name, as they are when they are looked up. What follows the last one is refused if that is asked for.
///
/// # Errors
/// It is no name.
pub(super) fn parts(text: &str, is_strict: bool) -> SqlResult<Vec<String>> {
    let invalid = |detail: &str| {
        let error = SqlError::new(
            SqlState::InvalidParameterValue,
            format!("string is not a valid identifier: \"{text}\""),
        );
        match detail {
            "" => error,
            detail => error.with_detail(detail),
        }
    };
    let mut parts = vec![];
    let mut rest = text.trim_start();
    loop {
        if let Some(mut quoted) = rest.strip_prefix('"') {
            let mut part = String::new();
            loop {
                let Some(end) = quoted.find('"') else {
                    return Err(invalid("String has unclosed double quotes."));
                };
                part.push_str(&quoted[..end]);
                quoted = &quoted[end + 1..];
                match quoted.strip_prefix('"') {
                    Some(after) => {
                        part.push('"');
                        quoted = after;
                    }
                    None => break,
                }
            }
            if part.is_empty() {
                return Err(invalid("Quoted identifier must not be empty."));
            }
            parts.push(part);
            rest = quoted;
        } else {
            let starts = |c: char| c.is_alphabetic() || c == '_' || !c.is_ascii();
            let goes_on = |c: char| starts(c) || c.is_ascii_digit() || c == '$';
            let end = rest.find(|c| !goes_on(c)).unwrap_or(rest.len());
            if !rest.starts_with(starts) {
                return Err(match (parts.is_empty(), rest.starts_with('.')) {
                    (_, true) => invalid("No valid identifier before \".\"."),
                    (false, false) => invalid("No valid identifier after \".\"."),
                    (true, false) => invalid(""),
                });
            }
            parts.push(rest[..end].to_lowercase());
            rest = &rest[end..];
        }
        rest = rest.trim_start();
        match rest.strip_prefix('.') {
            Some(after) => rest = after.trim_start(),
            None if rest.is_empty() || !is_strict => return Ok(parts),
            None => return Err(invalid("")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_parts() {
        for (text, expected) in [
            ("\"SomeSchema\".someTable", vec!["SomeSchema", "sometable"]),
            (" a . b . c ", vec!["a", "b", "c"]),
            ("\"a\"\"b\".c$1", vec!["a\"b", "c$1"]),
        ] {
            assert_eq!(parts(text, true).unwrap(), expected, "{text}");
        }
        for text in ["", ".", "a.", ".a", "\"a", "\"\"", "1a", "a b", "a.b-c"] {
            parts(text, true).unwrap_err();
        }
        assert_eq!(parts("foo.bar baz", false).unwrap(), ["foo", "bar"]);
    }
}
