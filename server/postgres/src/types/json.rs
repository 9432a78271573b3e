//! JSON texts: checking, and PostgreSQL's normal form of jsonb.
//!
//! The normal form drops white space, puts one space after each colon and comma, sorts the keys of an object by length
//! and then by bytes, and keeps the last of equal keys. Numbers keep their digits, exponents written out: nothing goes through a float.

use std::borrow::Cow;

use crate::error::input::invalid;
use crate::error::{SqlError, SqlState};

/// How deep arrays and objects may nest.
const DEPTH_MAX: usize = 512;
/// What the values of one text may take: digits that are written out, and what holds each value, which a text of "[1,1,1," has
/// an awful lot of.
const TAKEN_BYTES_MAX: usize = 512 << 20;
/// What holds one value, with the key of a member.
const VALUE_BYTES: usize = size_of::<(String, Node<'_>)>();

/// Why a text is no JSON that can be read, and at which byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    pub kind: JsonErrorKind,
    /// What is wrong.
    pub message: String,
    /// Offset of the byte where it was noticed.
    pub offset: usize,
}

/// What sort of an error it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonErrorKind {
    /// It is not JSON.
    Syntax,
    /// A number has more digits than a numeric.
    Overflow,
    /// The value takes too much memory.
    TooLarge,
}

impl JsonError {
    /// The error of a text that is to be of this type.
    pub fn of(self, type_name: &str, text: &str) -> SqlError {
        match self.kind {
            JsonErrorKind::Syntax => {
                let place = format!("{}, at byte {}.", self.message, self.offset + 1);
                invalid(type_name, text).with_detail(place)
            }
            JsonErrorKind::Overflow => SqlError::new(SqlState::NumericValueOutOfRange, self.message),
            JsonErrorKind::TooLarge => SqlError::new(SqlState::ProgramLimitExceeded, self.message),
        }
    }
}

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Node<'a> {
    /// A number in plain digits, `true`, `false` or `null`.
    Plain(Cow<'a, str>),
    /// A string, unescaped.
    Text(String),
    /// The elements.
    Array(Vec<Node<'a>>),
    /// The members in the order of jsonb, each key once.
    Object(Vec<(String, Node<'a>)>),
}

impl Node<'_> {
    /// The null of JSON.
    pub fn null() -> Self {
        Node::Plain(Cow::Borrowed("null"))
    }

    /// Whether it is the null of JSON.
    pub fn is_null(&self) -> bool {
        matches!(self, Node::Plain(text) if text == "null")
    }

    /// The value as a text in jsonb's normal form.
    pub fn written(&self) -> String {
        let mut out = String::new();
        write(self, &mut out);
        out
    }
}

/// The normal form of a JSON text.
///
/// # Errors
/// The text is not JSON.
pub fn normalize(text: &str) -> Result<String, JsonError> {
    let node = parse(text)?;
    let mut out = String::with_capacity(text.len() + 8);
    write(&node, &mut out);
    Ok(out)
}

/// Checks that a text is JSON.
///
/// # Errors
/// The text is not JSON.
pub fn check(text: &str) -> Result<(), JsonError> {
    parse(text).map(|_| ())
}

/// A string as a JSON text, quotes included.
pub fn quote(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if u32::from(control) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Reads a JSON text.
///
/// # Errors
/// The text is not JSON.
pub fn parse(text: &str) -> Result<Node<'_>, JsonError> {
    let mut reader = Reader {
        text,
        at: 0,
        room: TAKEN_BYTES_MAX,
    };
    let node = reader.value(0)?;
    reader.space();
    if reader.at < text.len() {
        return reader.fail("unexpected text after the JSON value");
    }
    Ok(node)
}

fn write(node: &Node<'_>, out: &mut String) {
    match node {
        Node::Plain(text) => out.push_str(text),
        Node::Text(text) => quote(text, out),
        Node::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write(item, out);
            }
            out.push(']');
        }
        Node::Object(members) => {
            out.push('{');
            for (index, (key, value)) in members.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                quote(key, out);
                out.push_str(": ");
                write(value, out);
            }
            out.push('}');
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// What values may still take.
    room: usize,
}

impl<'a> Reader<'a> {
    fn fail<T>(&self, message: impl Into<String>) -> Result<T, JsonError> {
        self.fail_as(JsonErrorKind::Syntax, message)
    }

    fn fail_as<T>(&self, kind: JsonErrorKind, message: impl Into<String>) -> Result<T, JsonError> {
        Err(JsonError {
            kind,
            message: message.into(),
            offset: self.at,
        })
    }

    /// Bytes that are about to be taken.
    fn take(&mut self, bytes: usize) -> Result<(), JsonError> {
        match self.room.checked_sub(bytes) {
            Some(room) => {
                self.room = room;
                Ok(())
            }
            None => {
                let message = format!("a JSON value takes more than {} MB", TAKEN_BYTES_MAX >> 20);
                self.fail_as(JsonErrorKind::TooLarge, message)
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node<'a>, JsonError> {
        if depth > DEPTH_MAX {
            return self.fail(format!("nested more than {DEPTH_MAX} deep"));
        }
        self.take(VALUE_BYTES)?;
        self.space();
        match self.peek() {
            None => self.fail("expected a value, but the text ends"),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Node::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => {
                for word in ["true", "false", "null"] {
                    if self.text[self.at..].starts_with(word) {
                        let start = self.at;
                        self.at += word.len();
                        if !matches!(self.peek(), Some(b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_')) {
                            return Ok(Node::Plain(Cow::Borrowed(&self.text[start..self.at])));
                        }
                        self.at = start;
                    }
                }
                self.fail("expected a value")
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node<'a>, JsonError> {
        self.at += 1;
        let mut members: Vec<(String, Node<'a>)> = vec![];
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Node::Object(members));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return self.fail("expected a key in double quotes");
            }
            let key = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return self.fail("expected \":\"");
            }
            self.at += 1;
            members.push((key, self.value(depth + 1)?));
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    break;
                }
                _ => return self.fail("expected \",\" or \"}\""),
            }
        }
        // The sort is stable, so that of equal keys the last one written stands last.
        members.sort_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.as_bytes().cmp(b.as_bytes())));
        let mut kept: Vec<(String, Node<'a>)> = Vec::with_capacity(members.len());
        for member in members {
            match kept.last_mut() {
                Some(last) if last.0 == member.0 => *last = member,
                _ => kept.push(member),
            }
        }
        Ok(Node::Object(kept))
    }

    fn array(&mut self, depth: usize) -> Result<Node<'a>, JsonError> {
        self.at += 1;
        let mut items = vec![];
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Node::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Node::Array(items));
                }
                _ => return self.fail("expected \",\" or \"]\""),
            }
        }
    }

    fn number(&mut self) -> Result<Node<'a>, JsonError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let whole = self.digits();
        if whole == 0 || (whole > 1 && self.text.as_bytes()[self.at - whole] == b'0') {
            return self.fail("expected a number without leading zeros");
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return self.fail("expected a digit after the point");
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return self.fail("expected a digit in the exponent");
            }
        }
        let text = self.text;
        let written = &text[start..self.at];
        let Some(digits) = plain_length(written) else {
            return self.fail_as(JsonErrorKind::Overflow, "value overflows numeric format");
        };
        self.take(digits)?;
        Ok(Node::Plain(plain_digits(written)))
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            out.push_str(&self.text[start..self.at]);
            match self.peek() {
                None => return self.fail("the text ends inside a string"),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(_) => return self.fail("a control character in a string must be escaped"),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        self.at += 1;
        let Some(letter) = self.peek() else {
            return self.fail("the text ends inside a string");
        };
        let character = match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.at += 1;
                let mut code = self.hex4()?;
                if (0xD800..0xDC00).contains(&code) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    let low = self.hex4()?;
                    if !(0xDC00..0xE000).contains(&low) {
                        return self.fail("expected a low surrogate");
                    }
                    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                }
                return match char::from_u32(code) {
                    Some('\0') => self.fail("\\u0000 cannot be a character of text"),
                    Some(character) => Ok(character),
                    None => self.fail("a lone surrogate is not a character"),
                };
            }
            _ => return self.fail("unknown escape sequence"),
        };
        self.at += 1;
        Ok(character)
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let digits = self
            .text
            .get(self.at..self.at + 4)
            .filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|text| u32::from_str_radix(text, 16).ok()) {
            Some(code) => {
                self.at += 4;
                Ok(code)
            }
            None => self.fail("expected four hexadecimal digits"),
        }
    }
}

/// The exponents of numerics: the most digits before the point and behind it.
const EXPONENTS: std::ops::RangeInclusive<i64> = -16_383..=131_071;

/// What stands before the exponent of a number, and the exponent. One with more digits than can be read is a large one.
fn exponent_of(number: &str) -> Option<(&str, i64)> {
    let (mantissa, exponent) = number.split_once(['e', 'E'])?;
    let large = match exponent.starts_with('-') {
        true => i64::MIN,
        false => i64::MAX,
    };
    Some((mantissa, exponent.parse().unwrap_or(large)))
}

/// About how many bytes a number takes when its exponent is written out; none if it has too many digits.
fn plain_length(number: &str) -> Option<usize> {
    let Some((mantissa, exponent)) = exponent_of(number) else {
        return Some(0);
    };
    let exponent = EXPONENTS.contains(&exponent).then_some(exponent)?;
    Some(mantissa.len() + usize::try_from(exponent.unsigned_abs()).ok()?)
}

/// A number without an exponent, and zero without a sign; the digits after the point stay as they are written. It is one whose
/// length is known to be bounded.
fn plain_digits(written: &str) -> Cow<'_, str> {
    let (sign, body) = match written.strip_prefix('-') {
        Some(body) => ("-", body),
        None => ("", written),
    };
    let sign = if body
        .bytes()
        .take_while(|byte| !matches!(byte, b'e' | b'E'))
        .all(|byte| matches!(byte, b'0' | b'.'))
    {
        ""
    } else {
        sign
    };
    let Some((mantissa, exponent)) = exponent_of(body) else {
        return if sign.is_empty() {
            Cow::Borrowed(body)
        } else {
            Cow::Borrowed(written)
        };
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let point = length(whole).saturating_add(exponent);
    let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or_default());
    let (whole, fraction) = if point <= 0 {
        ("0".to_string(), format!("{}{digits}", zeros(-point)))
    } else if point >= length(&digits) {
        (
            format!("{digits}{}", zeros(point - length(&digits))),
            String::new(),
        )
    } else {
        let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or_default());
        (whole.to_string(), fraction.to_string())
    };
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let point = if fraction.is_empty() { "" } else { "." };
    Cow::Owned(format!("{sign}{whole}{point}{fraction}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_normalised_as_jsonb() {
        assert_eq!(
            normalize(r#"{"bb":1,"a" : [1,2 , {"x":null}],"a":true,"c":1.50}"#).unwrap(),
            r#"{"a": true, "c": 1.50, "bb": 1}"#
        );
        assert_eq!(normalize(" [ ] ").unwrap(), "[]");
        assert_eq!(normalize(r#""\u00e9\n\ud83d\ude00""#).unwrap(), "\"é\\n😀\"");
    }

    #[test]
    fn broken_texts_are_refused_where_they_break() {
        for (text, offset) in [
            ("", 0),
            ("{", 1),
            ("[1,]", 3),
            ("01", 2),
            ("{\"a\" 1}", 5),
            ("nul", 0),
            ("1 2", 2),
        ] {
            assert_eq!(normalize(text).unwrap_err().offset, offset, "{text}");
        }
        assert!(normalize(&"[".repeat(100_000)).is_err());
        assert!(normalize(r#""\ud800""#).is_err());
    }

    #[test]
    fn numbers_are_written_in_plain_digits() {
        for (written, plain) in [
            ("1e2", "100"),
            ("1.5e1", "15"),
            ("1.50", "1.50"),
            ("12.5e-3", "0.0125"),
            ("-0", "0"),
            ("-0.0", "0.0"),
            ("-1E+1", "-10"),
            ("0e5", "0"),
        ] {
            assert_eq!(normalize(written).unwrap(), plain, "{written}");
        }
    }

    #[test]
    fn digits_are_counted_before_they_are_written() {
        let kind = |text: &str| normalize(text).unwrap_err().kind;
        for text in [
            "1e131072",
            "-1e-16384",
            "1e99999999999999999999",
            "1e-99999999999999999999",
        ] {
            assert_eq!(kind(text), JsonErrorKind::Overflow, "{text}");
        }
        assert_eq!(normalize("1e131071").unwrap().len(), 131_072);
        let many = format!("[{}1]", "1e131071,".repeat(TAKEN_BYTES_MAX / 131_000));
        assert_eq!(kind(&many), JsonErrorKind::TooLarge);
    }

    #[test]
    fn the_normal_form_is_a_fixed_point() {
        for text in [r#"{"b":[1,{"c":"d"}],"a":"\u0001"}"#, "-1.5e10", "\"x\"", "null"] {
            let once = normalize(text).unwrap();
            assert_eq!(normalize(&once).unwrap(), once);
        }
    }
}
