//! JSON texts: checking, and PostgreSQL's normal form of jsonb.
//!
//! The normal form drops white space, puts one space after each colon and comma, sorts the keys of an object by length
//! and then by bytes, and keeps the last of equal keys. Numbers keep their digits, exponents written out: nothing goes through a float.

use std::borrow::Cow;

/// How deep arrays and objects may nest.
const DEPTH_MAX: usize = 512;

/// Why a text is not JSON, and at which byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    /// What is wrong.
    pub message: String,
    /// Offset of the byte where it was noticed.
    pub offset: usize,
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
    let mut reader = Reader { text, at: 0 };
    let node = reader.value(0)?;
    reader.space();
    if reader.at < text.len() {
        return reader.fail("something follows the JSON value");
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
}

impl<'a> Reader<'a> {
    fn fail<T>(&self, message: impl Into<String>) -> Result<T, JsonError> {
        Err(JsonError {
            message: message.into(),
            offset: self.at,
        })
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
        self.space();
        match self.peek() {
            None => self.fail("the text ends where a value is expected"),
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
                self.fail("a value is expected")
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
                return self.fail("a key in double quotes is expected");
            }
            let key = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return self.fail("\":\" is expected");
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
                _ => return self.fail("\",\" or \"}\" is expected"),
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
                _ => return self.fail("\",\" or \"]\" is expected"),
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
            return self.fail("a number without leading zeros is expected");
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return self.fail("a digit is expected after the point");
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return self.fail("a digit is expected in the exponent");
            }
        }
        let written = &self.text[start..self.at];
        plain_digits(written)
            .map(Node::Plain)
            .map_or_else(|| self.fail("the number has too many digits"), Ok)
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
                        return self.fail("a low surrogate is expected");
                    }
                    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                }
                return match char::from_u32(code) {
                    Some('\0') => self.fail("\\u0000 cannot be a character of text"),
                    Some(character) => Ok(character),
                    None => self.fail("a lone surrogate is not a character"),
                };
            }
            _ => return self.fail("this escape is not known"),
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
            None => self.fail("four hexadecimal digits are expected"),
        }
    }
}

/// The most digits that a number has on either side of its point.
const DIGITS_MAX: i64 = 16_383;

/// A number without an exponent, and zero without a sign; the digits after the point stay as they are written. `None`:
/// it would have too many digits.
fn plain_digits(written: &str) -> Option<Cow<'_, str>> {
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
    let Some((mantissa, exponent)) = body.split_once(['e', 'E']) else {
        return Some(if sign.is_empty() {
            Cow::Borrowed(body)
        } else {
            Cow::Borrowed(written)
        });
    };
    let exponent: i64 = exponent
        .parse()
        .ok()
        .filter(|value: &i64| value.abs() <= DIGITS_MAX)?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let point = i64::try_from(whole.len()).ok()? + exponent;
    let length = i64::try_from(digits.len()).ok()?;
    let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or_default());
    let (whole, fraction) = if point <= 0 {
        ("0".to_string(), format!("{}{digits}", zeros(-point)))
    } else if point >= length {
        (format!("{digits}{}", zeros(point - length)), String::new())
    } else {
        let (whole, fraction) = digits.split_at(usize::try_from(point).ok()?);
        (whole.to_string(), fraction.to_string())
    };
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let point = if fraction.is_empty() { "" } else { "." };
    Some(Cow::Owned(format!("{sign}{whole}{point}{fraction}")))
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
        assert!(normalize("1e99999999").is_err());
    }

    #[test]
    fn the_normal_form_is_a_fixed_point() {
        for text in [r#"{"b":[1,{"c":"d"}],"a":"\u0001"}"#, "-1.5e10", "\"x\"", "null"] {
            let once = normalize(text).unwrap();
            assert_eq!(normalize(&once).unwrap(), once);
        }
    }
}
