//! `SIMILAR TO`: SQL's regular expressions, written as PostgreSQL's.

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

/// The regular expression that takes the whole of what a pattern of SIMILAR TO takes. `escape` is empty or one character.
/// Two `escape"` separate three parts, of which the second is a group: `substring(x SIMILAR p ESCAPE e)` is that part.
///
/// # Errors
/// The escape is longer (22025), or there are more separators (2200C).
pub fn translate(pattern: &str, escape: Option<&str>) -> SqlResult<String> {
    let mut letters = escape.unwrap_or("\\").chars();
    let escape = letters.next();
    if letters.next().is_some() {
        return Err(
            SqlError::new(SqlState::InvalidEscapeSequence, "invalid escape string")
                .with_hint("Escape string must be empty or one character."),
        );
    }
    let mut out = String::from("^(?:");
    let mut is_escaped = false;
    let mut in_class = false;
    let mut separators = 0;
    for character in pattern.chars() {
        if is_escaped {
            is_escaped = false;
            if character != '"' || in_class {
                out.extend(['\\', character]);
                continue;
            }
            // The first part is as short as can be, the second as long as can be.
            out.push_str(match separators {
                0 => "){1,1}?(",
                1 => "){1,1}(?:",
                _ => {
                    return Err(SqlError::new(
                        SqlState::InvalidUseOfEscapeCharacter,
                        "SQL regular expression may not contain more than two escape-double-quote separators",
                    ));
                }
            });
            separators += 1;
        } else if escape == Some(character) {
            is_escaped = true;
        } else if in_class {
            if character == '\\' {
                out.push('\\');
            }
            out.push(character);
            in_class = character != ']';
        } else {
            match character {
                '[' => {
                    out.push('[');
                    in_class = true;
                }
                '%' => out.push_str(".*"),
                '_' => out.push('.'),
                '(' => out.push_str("(?:"),
                '\\' | '.' | '^' | '$' => out.extend(['\\', character]),
                other => out.push(other),
            }
        }
    }
    out.push_str(")$");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_take_the_whole_text() {
        for (pattern, escape, expected) in [
            ("a%_", None, "^(?:a.*.)$"),
            ("(a|b)+.", None, "^(?:(?:a|b)+\\.)$"),
            ("a\\%", None, "^(?:a\\%)$"),
            ("a#%[_%]", Some("#"), "^(?:a\\%[_%])$"),
            ("a\\d", Some(""), "^(?:a\\\\d)$"),
            ("%#\"o_b#\"%", Some("#"), "^(?:.*){1,1}?(o.b){1,1}(?:.*)$"),
        ] {
            assert_eq!(translate(pattern, escape).unwrap(), expected, "{pattern}");
        }
        assert_eq!(translate("a", Some("ab")).unwrap_err().code.code(), "22025");
    }
}
