//! The words, numbers and signs of a path.

use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::json;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A word that is not quoted.
    Word(String),
    Text(String),
    Variable(String),
    Number(String),
    Symbol(&'static str),
}

pub(super) fn syntax(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::SyntaxError, message)
}

const SYMBOLS: [&str; 30] = [
    "**", "==", "!=", "<>", "<=", ">=", "&&", "||", "$", "@", ".", "[", "]", "(", ")", "{", "}", "?", "*",
    ",", "<", ">", "!", "+", "-", "/", "%", "=", ":", "|",
];

/// A text cut into them.
///
/// # Errors
/// 42601, 22P02.
pub(super) fn tokens(text: &str) -> SqlResult<Vec<Token>> {
    let mut found = vec![];
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        if let Some(comment) = rest.strip_prefix("/*") {
            let end = comment
                .find("*/")
                .ok_or_else(|| syntax("unexpected end of comment in jsonpath input"))?;
            rest = &comment[end + 2..];
            continue;
        }
        let Some(first) = rest.chars().next() else {
            return Ok(found);
        };
        if first == '"' {
            let (text, after) = quoted(&rest[1..])?;
            found.push(Token::Text(text));
            rest = after;
        } else if first == '$' && rest[1..].starts_with('"') {
            let (name, after) = quoted(&rest[2..])?;
            found.push(Token::Variable(name));
            rest = after;
        } else if first == '$' && rest[1..].starts_with(is_of_word) {
            let (name, after) = word(&rest[1..])?;
            found.push(Token::Variable(name));
            rest = after;
        } else if first.is_ascii_digit()
            || first == '.' && rest[1..].starts_with(|next: char| next.is_ascii_digit())
        {
            let (number, after) = number(rest)?;
            found.push(Token::Number(number));
            rest = after;
        } else if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            found.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let (name, after) = word(rest)?;
            found.push(Token::Word(name));
            rest = after;
        }
    }
}

fn is_of_word(character: char) -> bool {
    !character.is_whitespace() && !"?%$.[]{}()|&!=<>@#,*:-+/\"".contains(character)
}

/// A word, in which characters may be escaped.
fn word(text: &str) -> SqlResult<(String, &str)> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next().filter(|next| is_of_word(*next)) {
        rest = &rest[next.len_utf8()..];
        match next {
            '\\' => rest = escape(rest, &mut out)?,
            next => out.push(next),
        }
    }
    match out.is_empty() {
        true => Err(near(text)),
        false => Ok((out, rest)),
    }
}

fn near(text: &str) -> SqlError {
    match text.chars().next() {
        Some(next) => syntax(format!("syntax error at or near \"{next}\" of jsonpath input")),
        None => syntax("syntax error at end of jsonpath input"),
    }
}

/// What stands in quotes; the text begins behind the first.
fn quoted(text: &str) -> SqlResult<(String, &str)> {
    let mut out = String::new();
    let mut rest = text;
    loop {
        let Some(next) = rest.chars().next() else {
            return Err(syntax("unterminated quoted string at end of jsonpath input"));
        };
        rest = &rest[next.len_utf8()..];
        match next {
            '"' => return Ok((out, rest)),
            '\\' => rest = escape(rest, &mut out)?,
            next => out.push(next),
        }
    }
}

/// What stands behind a backslash.
fn escape<'a>(text: &'a str, out: &mut String) -> SqlResult<&'a str> {
    let invalid = || syntax("invalid escape sequence in jsonpath input");
    let Some(next) = text.chars().next() else {
        return Err(syntax("unexpected end after backslash in jsonpath input"));
    };
    let rest = &text[next.len_utf8()..];
    let code = |digits: &str| u32::from_str_radix(digits, 16).map_err(|_| invalid());
    let mut put = |code: u32| match char::from_u32(code) {
        Some('\0') | None => Err(SqlError::new(
            SqlState::InvalidTextRepresentation,
            "unsupported Unicode escape sequence in jsonpath input",
        )),
        Some(character) => {
            out.push(character);
            Ok(())
        }
    };
    match next {
        'b' => out.push('\u{8}'),
        'f' => out.push('\u{c}'),
        'n' => out.push('\n'),
        'r' => out.push('\r'),
        't' => out.push('\t'),
        'v' => out.push('\u{b}'),
        'x' => {
            put(code(rest.get(..2).ok_or_else(invalid)?)?)?;
            return Ok(&rest[2..]);
        }
        'u' => {
            if let Some(braced) = rest.strip_prefix('{') {
                let end = braced
                    .find('}')
                    .filter(|end| (1..=6).contains(end))
                    .ok_or_else(invalid)?;
                put(code(&braced[..end])?)?;
                return Ok(&braced[end + 1..]);
            }
            let high = code(rest.get(..4).ok_or_else(invalid)?)?;
            let after = &rest[4..];
            if (0xd800..0xdc00).contains(&high) {
                let low = after
                    .strip_prefix("\\u")
                    .and_then(|low| low.get(..4))
                    .ok_or_else(invalid)?;
                let low = code(low)?;
                if !(0xdc00..0xe000).contains(&low) {
                    return Err(invalid());
                }
                put(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))?;
                return Ok(&after[6..]);
            }
            put(high)?;
            return Ok(after);
        }
        other => out.push(other),
    }
    Ok(rest)
}

/// A number in plain digits.
fn number(text: &str) -> SqlResult<(String, &str)> {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let mut end = digits(0);
    if bytes.get(end) == Some(&b'.') {
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        match digits(end + 1 + sign) {
            0 => {
                return Err(syntax(format!(
                    "invalid numeric literal at or near \"{}\" of jsonpath input",
                    &text[..=end]
                )));
            }
            count => end += 1 + sign + count,
        }
    }
    let (written, rest) = text.split_at(end);
    if let Some(next) = rest.chars().next().filter(|next| is_of_word(*next)) {
        return Err(syntax(format!(
            "trailing junk after numeric literal at or near \"{written}{next}\" of jsonpath input"
        )));
    }
    if written.len() > 1 && written.starts_with('0') && written.as_bytes()[1].is_ascii_digit() {
        return Err(syntax(format!(
            "trailing junk after numeric literal at or near \"{}\" of jsonpath input",
            &written[..2]
        )));
    }
    let whole = match written {
        written if written.starts_with('.') => format!("0{written}"),
        written => written
            .replace(".e", "e")
            .replace(".E", "E")
            .trim_end_matches('.')
            .to_owned(),
    };
    let plain = json::normalize(&whole).map_err(|error| error.of("numeric", written))?;
    Ok((plain, rest))
}
