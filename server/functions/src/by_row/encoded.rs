//! `encode` and `decode`: bytes as texts of the formats base64, hex and escape.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

/// Characters of a line of base64, after which a line break stands (RFC 2045, section 6.8).
const LINE: usize = 76;

fn unknown(format: &str) -> SqlError {
    invalid(format!("unrecognized encoding: \"{format}\""))
        .with_hint("Valid encodings are base64, escape and hex.")
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::InvalidParameterValue, message)
}

/// The text of bytes.
///
/// # Errors
/// There is no such format.
pub(super) fn encode(bytes: &[u8], format: &str) -> SqlResult<String> {
    match format.to_ascii_lowercase().as_str() {
        "base64" => {
            let all = STANDARD.encode(bytes);
            let mut lines = String::with_capacity(all.len() + all.len() / LINE);
            let mut rest = all.as_str();
            // Behind the last one, too, if it is full.
            while let Some((line, after)) = rest.split_at_checked(LINE) {
                lines.push_str(line);
                lines.push('\n');
                rest = after;
            }
            lines.push_str(rest);
            Ok(lines)
        }
        "hex" => {
            let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
            let digits = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
            Ok(digits.collect())
        }
        "escape" => Ok((bytes.iter())
            .map(|byte| match byte {
                0 | 0x80..=0xff => format!("\\{byte:03o}"),
                b'\\' => "\\\\".to_owned(),
                _ => char::from(*byte).to_string(),
            })
            .collect()),
        _ => Err(unknown(format)),
    }
}

/// The bytes of a text.
///
/// # Errors
/// There is no such format, or the text is not of it.
pub(super) fn decode(text: &str, format: &str) -> SqlResult<Vec<u8>> {
    match format.to_ascii_lowercase().as_str() {
        "base64" => {
            let plain: String = text.chars().filter(|c| !" \t\n\r".contains(*c)).collect();
            let is_symbol = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
            if let Some(other) = plain.chars().find(|c| !is_symbol(c)) {
                return Err(invalid(format!(
                    "invalid symbol \"{other}\" found while decoding base64 sequence"
                )));
            }
            STANDARD
                .decode(plain.as_bytes())
                .map_err(|error| match (error, plain.find('=')) {
                    (base64::DecodeError::InvalidByte(..), Some(_)) => {
                        invalid("unexpected \"=\" while decoding base64 sequence")
                    }
                    _ => invalid("invalid base64 end sequence")
                        .with_hint("Input data is missing padding, is truncated, or is otherwise corrupted."),
                })
        }
        "hex" => hex(text),
        "escape" => escape(text),
        _ => Err(unknown(format)),
    }
}

fn hex(text: &str) -> SqlResult<Vec<u8>> {
    let mut digits = vec![];
    for character in text.chars().filter(|c| !" \t\n\r".contains(*c)) {
        let digit = character.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        digits.push(digit.ok_or_else(|| invalid(format!("invalid hexadecimal digit: \"{character}\"")))?);
    }
    if digits.len() % 2 == 1 {
        return Err(invalid("invalid hexadecimal data: odd number of digits"));
    }
    Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn escape(text: &str) -> SqlResult<Vec<u8>> {
    let mut bytes = vec![];
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => return Ok(bytes),
            [b'\\', b'\\', after @ ..] => {
                bytes.push(b'\\');
                after
            }
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                after
            }
            [b'\\', ..] => {
                return Err(SqlError::new(
                    SqlState::InvalidTextRepresentation,
                    "invalid input syntax for type bytea",
                ));
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                after
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let all: Vec<u8> = (0..=255).collect();
        for format in ["base64", "HEX", "escape"] {
            for length in [0, 1, 2, 3, 57, 58, 256] {
                let bytes = &all[256 - length..];
                let text = encode(bytes, format).unwrap();
                assert_eq!(decode(&text, format).unwrap(), bytes, "{format} of {length}");
            }
        }
        assert_eq!(encode(&[0; 58], "base64").unwrap().lines().count(), 2);
        assert_eq!(encode(&[0; 57], "base64").unwrap().len(), 77);
        assert_eq!(encode(b"\x124\xff", "escape").unwrap(), "\x124\\377");
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, format) in [
            ("MTI", "base64"),
            ("MT!z", "base64"),
            ("=MTI", "base64"),
            ("123", "hex"),
            ("zz", "hex"),
            ("\\9", "escape"),
            ("", "rot13"),
        ] {
            decode(text, format).unwrap_err();
        }
        assert_eq!(decode("M T\nI z", "base64").unwrap(), b"123");
    }
}
