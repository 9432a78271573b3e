//! Texts that differ in constants alone: `SELECT v FROM t WHERE id = 42` is `SELECT v FROM t WHERE id = $1`, and 42.
//!
//! A program that puts values into its texts sends a new text each time; by its template it is known again. Only what needs no parser is
//! understood: texts with comments, dollar quotes, escapes, fractions or parameters of their own have no template.

use datafusion::scalar::ScalarValue;

/// Longer texts have no template.
const BYTES_MAX: usize = 1 << 10;

/// A text with parameters in the place of its constants.
#[derive(Debug, PartialEq)]
pub(crate) struct Template {
    pub text: String,
    /// The constants: integers and texts.
    pub values: Vec<ScalarValue>,
}

impl Template {
    /// The template of one SELECT with constants.
    pub fn of(sql: &str) -> Option<Template> {
        let sql = sql.trim_ascii();
        let sql = sql.strip_suffix(';').unwrap_or(sql);
        let begins = sql
            .get(..6)
            .is_some_and(|word| word.eq_ignore_ascii_case("select"));
        if !begins || sql.len() > BYTES_MAX {
            return None;
        }
        let bytes = sql.as_bytes();
        let mut template = Template {
            text: String::with_capacity(sql.len()),
            values: vec![],
        };
        let (mut at, mut copied) = (0, 0);
        while let Some(byte) = bytes.get(at) {
            let next = bytes.get(at + 1).copied();
            let value = match byte {
                b'\'' => {
                    let end = end_of_quoted(bytes, at)?;
                    let text = sql.get(at + 1..end - 1)?.replace("''", "'");
                    Some((at, end, ScalarValue::Utf8(Some(text))))
                }
                b'0'..=b'9' => {
                    let end = at
                        + bytes[at..]
                            .iter()
                            .take_while(|byte| byte.is_ascii_digit())
                            .count();
                    if bytes.get(end).is_some_and(|byte| is_word(*byte) || *byte == b'.') {
                        return None;
                    }
                    // A sign belongs to the constant where nothing stands in front that it could be taken from.
                    let before = sql[..at].trim_ascii_end();
                    let signed = before.strip_suffix('-').map(str::trim_ascii_end);
                    let begin = match signed {
                        Some(before) if before.ends_with(['=', '(', ',']) => at.min(sql[..at].rfind('-')?),
                        _ => at,
                    };
                    let number = sql[begin..end].replace(|c: char| c.is_ascii_whitespace(), "");
                    Some((begin, end, ScalarValue::Int64(Some(number.parse().ok()?))))
                }
                b'"' => {
                    at += 1;
                    while *bytes.get(at)? != b'"' {
                        at += 1;
                    }
                    at += 1;
                    None
                }
                b'$' | b'\\' | b';' | b'?' => return None,
                b'-' if next == Some(b'-') => return None,
                b'/' if next == Some(b'*') => return None,
                b'.' if next.is_some_and(|byte| byte.is_ascii_digit()) => return None,
                byte if is_word(*byte) => {
                    at += bytes[at..].iter().take_while(|byte| is_word(**byte)).count();
                    // E'..', U&'..' and their like.
                    if matches!(bytes.get(at), Some(b'\'' | b'&')) {
                        return None;
                    }
                    None
                }
                _ => {
                    at += 1;
                    None
                }
            };
            if let Some((begin, end, value)) = value {
                template.values.push(value);
                template.text.push_str(sql.get(copied..begin)?);
                template.text.push('$');
                template.text.push_str(&template.values.len().to_string());
                (at, copied) = (end, end);
            }
        }
        template.text.push_str(sql.get(copied..)?);
        (!template.values.is_empty()).then_some(template)
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

/// Where a quoted text that begins at a place has ended.
fn end_of_quoted(bytes: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin + 1;
    loop {
        match (bytes.get(at)?, bytes.get(at + 1)) {
            (b'\\', _) => return None,
            (b'\'', Some(b'\'')) => at += 2,
            (b'\'', _) => return Some(at + 1),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(sql: &str) -> Option<(String, String)> {
        let template = Template::of(sql)?;
        let values = template.values.iter().map(|value| format!("{value}"));
        Some((template.text, values.collect::<Vec<_>>().join("|")))
    }

    #[test]
    fn constants_become_parameters() {
        let expect = |sql: &str, text: &str, values: &str| {
            assert_eq!(template(sql), Some((text.to_owned(), values.to_owned())), "{sql}");
        };
        expect(
            "  SELECT v FROM pk WHERE id = 42 ; ",
            "SELECT v FROM pk WHERE id = $1 ",
            "42",
        );
        expect(
            "select t1.\"a 1\" from t1 where é='it''s' and b2=-7 limit 3",
            "select t1.\"a 1\" from t1 where é=$1 and b2=$2 limit $3",
            "it's|-7|3",
        );
        // What a sign could be taken from stays as it is.
        expect(
            "SELECT a FROM t WHERE k = a -5",
            "SELECT a FROM t WHERE k = a -$1",
            "5",
        );
        expect("SELECT 'größe', 'x' FROM t", "SELECT $1, $2 FROM t", "größe|x");
    }

    #[test]
    fn what_needs_a_parser_has_no_template() {
        for sql in [
            "SELECT v FROM t",
            "UPDATE t SET v = 1",
            "SELECT v FROM t WHERE id = $1 AND b = 2",
            "SELECT v FROM t WHERE id = 1.5",
            "SELECT v FROM t WHERE id = .5",
            "SELECT v FROM t WHERE id = 1e5",
            "SELECT v FROM t WHERE id = 0x10",
            "SELECT v FROM t WHERE id = 99999999999999999999",
            "SELECT v FROM t WHERE id = 1 -- one",
            "SELECT v FROM t WHERE id = /* one */ 1",
            "SELECT v FROM t WHERE a = E'x'",
            "SELECT v FROM t WHERE a = U&'x'",
            "SELECT v FROM t WHERE a = 'x\\'",
            "SELECT v FROM t WHERE a = 'x",
            "SELECT \"v FROM t WHERE a = 1",
            "SELECT v FROM t WHERE a = $$x$$ AND b = 1",
            "SELECT 1; SELECT 2",
        ] {
            assert_eq!(Template::of(sql), None, "{sql}");
        }
    }
}
