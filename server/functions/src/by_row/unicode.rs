//! `unistr`, and the normal forms of Unicode (Unicode Standard Annex #15).

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use unicode_normalization::UnicodeNormalization;

/// A text whose characters may be written as `\0061`, `\u0061`, `\+000061` and `\U00000061`.
///
/// # Errors
/// An escape is none, or is of no character.
pub(super) fn unistr(text: &str) -> SqlResult<String> {
    let invalid = |message: &str| SqlError::new(SqlState::SyntaxError, message);
    let mut out = String::with_capacity(text.len());
    let mut high: Option<u32> = None;
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let mut code = u32::from(character);
        let mut after = &rest[character.len_utf8()..];
        if character == '\\' && after.starts_with('\\') {
            after = &after[1..];
        } else if character == '\\' {
            let (skipped, digits) = match after.as_bytes().first() {
                Some(b'u') => (1, 4),
                Some(b'U') => (1, 8),
                Some(b'+') => (1, 6),
                _ => (0, 4),
            };
            let read = after.get(skipped..skipped + digits);
            let read = read.filter(|read| read.bytes().all(|byte| byte.is_ascii_hexdigit()));
            code = read
                .and_then(|read| u32::from_str_radix(read, 16).ok())
                .ok_or_else(|| {
                    invalid("invalid Unicode escape")
                        .with_hint("Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX.")
                })?;
            after = &after[skipped + digits..];
        }
        match (high.take(), code) {
            (None, 0xd800..=0xdbff) => high = Some(code),
            (Some(first), 0xdc00..=0xdfff) => {
                let code = 0x10000 + ((first - 0xd800) << 10) + (code - 0xdc00);
                out.push(char::from_u32(code).ok_or_else(|| invalid("invalid Unicode surrogate pair"))?);
            }
            (Some(_), _) | (None, 0xdc00..=0xdfff) => return Err(invalid("invalid Unicode surrogate pair")),
            (None, _) => {
                let valid = char::from_u32(code).filter(|character| *character != '\0');
                out.push(valid.ok_or_else(|| invalid("invalid Unicode escape value"))?);
            }
        }
        rest = after;
    }
    match high {
        None => Ok(out),
        Some(_) => Err(invalid("invalid Unicode surrogate pair")),
    }
}

/// A text in a normal form.
///
/// # Errors
/// There is no such form.
pub(super) fn normalize(text: &str, form: &str) -> SqlResult<String> {
    match form.to_ascii_uppercase().as_str() {
        "NFC" => Ok(text.nfc().collect()),
        "NFD" => Ok(text.nfd().collect()),
        "NFKC" => Ok(text.nfkc().collect()),
        "NFKD" => Ok(text.nfkd().collect()),
        _ => Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("invalid normalization form: {form}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_characters() {
        for (text, expected) in [
            ("d\\0061t\\+000061", "data"),
            ("d\\u0061t\\U00000061", "data"),
            ("a\\\\b", "a\\b"),
            ("\\d83d\\de00", "\u{1f600}"),
            ("", ""),
        ] {
            assert_eq!(unistr(text).unwrap(), expected);
        }
        for text in [
            "\\",
            "\\12",
            "\\zzzz",
            "\\d83d",
            "\\de00",
            "\\d83dx",
            "\\0000",
            "\\+110000",
        ] {
            unistr(text).unwrap_err();
        }
    }

    #[test]
    fn there_are_four_forms() {
        assert_eq!(normalize("a\u{308}", "nfc").unwrap(), "\u{e4}");
        assert_eq!(normalize("\u{e4}", "NFD").unwrap(), "a\u{308}");
        assert_eq!(normalize("\u{fb01}", "NFKC").unwrap(), "fi");
        normalize("x", "NF").unwrap_err();
    }
}
