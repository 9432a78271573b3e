//! What two statements that differ only in constants have in common: a number, and a text with `$n` in their place.
//!
//! The text is read as PostgreSQL's lexer would, without a tree: comments and the amount of space do not count, and neither does the
//! case of words that are not quoted.

use twox_hash::XxHash3_64;

/// Of a longer text the beginning is kept, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 4 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Constant,
    /// Quoted names, operators and punctuation, `$1`: what stands as it is.
    Other,
}

/// A piece of a statement's text.
struct Piece<'a> {
    kind: Kind,
    text: &'a str,
    /// Whether space or a comment stands before it.
    is_spaced: bool,
}

struct Pieces<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Pieces<'a> {
    fn new(text: &'a str) -> Self {
        Pieces { text, at: 0 }
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn ends_at(&self, found: Option<usize>, length: usize) -> usize {
        found.map_or(self.text.len(), |at| at + length)
    }

    /// Passes over space and comments. Whether there were any.
    fn skip(&mut self) -> bool {
        let start = self.at;
        loop {
            match (self.byte(0), self.byte(1)) {
                (b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, _) => self.at += 1,
                (b'-', b'-') => {
                    let rest = &self.text.as_bytes()[self.at..];
                    let end = memchr(rest, b'\n').map(|end| self.at + end);
                    self.at = self.ends_at(end, 1);
                }
                (b'/', b'*') => self.skip_comment(),
                _ => return self.at > start,
            }
        }
    }

    fn skip_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.text.len() {
            match (self.byte(0), self.byte(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    /// Where a string or quoted name ends whose opening quote is at `open`.
    fn quoted(&self, open: usize, escapes: bool) -> usize {
        let bytes = self.text.as_bytes();
        let (quote, mut at) = (bytes[open], open + 1);
        while at < bytes.len() {
            if escapes && bytes[at] == b'\\' {
                at += 2;
            } else if bytes[at] != quote {
                at += 1;
            } else if bytes.get(at + 1) == Some(&quote) {
                at += 2;
            } else {
                return at + 1;
            }
        }
        bytes.len()
    }

    /// Where `$$..$$` or `$tag$..$tag$` ends; `None`: this is none.
    fn dollar_quoted(&self) -> Option<usize> {
        let rest = &self.text[self.at + 1..];
        let tag = rest.find('$')?;
        let is_tag = rest[..tag].bytes().all(is_word_byte) && !rest.starts_with(|c: char| c.is_ascii_digit());
        let opening = &self.text[self.at..self.at + tag + 2];
        let begin = self.at + opening.len();
        is_tag.then(|| {
            let end = self.text[begin..].find(opening).map(|end| begin + end);
            self.ends_at(end, opening.len())
        })
    }

    fn while_at(&self, from: usize, mut holds: impl FnMut(u8) -> bool) -> usize {
        let bytes = &self.text.as_bytes()[from..];
        from + bytes.iter().take_while(|byte| holds(**byte)).count()
    }

    fn number_end(&self) -> usize {
        let bytes = self.text.as_bytes();
        let mut end = self.while_at(self.at, |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_')
        });
        // The sign of an exponent; `0xe-1` is a difference.
        let is_hex = matches!(bytes.get(self.at + 1), Some(b'x' | b'X'));
        if !is_hex && matches!(bytes[end - 1], b'e' | b'E') && matches!(bytes.get(end), Some(b'+' | b'-')) {
            end = self.while_at(end + 1, |byte| byte.is_ascii_digit() || byte == b'_');
        }
        end
    }
}

fn memchr(bytes: &[u8], wanted: u8) -> Option<usize> {
    bytes.iter().position(|byte| *byte == wanted)
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let is_spaced = self.skip();
        let start = self.at;
        if start >= self.text.len() {
            return None;
        }
        let (kind, end) = match (self.byte(0), self.byte(1), self.byte(2)) {
            (b'\'', ..) => (Kind::Constant, self.quoted(start, false)),
            (b'e' | b'E', b'\'', _) => (Kind::Constant, self.quoted(start + 1, true)),
            (b'b' | b'B' | b'x' | b'X' | b'n' | b'N', b'\'', _) => {
                (Kind::Constant, self.quoted(start + 1, false))
            }
            (b'u' | b'U', b'&', b'\'') => (Kind::Constant, self.quoted(start + 2, false)),
            (b'u' | b'U', b'&', b'"') => (Kind::Other, self.quoted(start + 2, false)),
            (b'"', ..) => (Kind::Other, self.quoted(start, false)),
            (b'$', b'0'..=b'9', _) => (
                Kind::Other,
                self.while_at(start + 1, |byte| byte.is_ascii_digit()),
            ),
            (b'$', ..) => match self.dollar_quoted() {
                Some(end) => (Kind::Constant, end),
                None => (Kind::Other, start + 1),
            },
            (b'0'..=b'9', ..) | (b'.', b'0'..=b'9', _) => (Kind::Constant, self.number_end()),
            (first, ..) if is_word_byte(first) => {
                let end = self.while_at(start, |byte| is_word_byte(byte) || byte == b'$');
                (Kind::Word, end)
            }
            _ => (Kind::Other, start + 1),
        };
        // What was cut in the middle of a character, by an escape before the end, is taken to the end.
        let end = (end..=self.text.len()).find(|end| self.text.is_char_boundary(*end));
        self.at = end.unwrap_or(self.text.len());
        Some(Piece {
            kind,
            text: &self.text[start..self.at],
            is_spaced,
        })
    }
}

/// What statements that differ only in constants have in common, as a number that is not 0.
pub(super) fn query_id(text: &str) -> i64 {
    let mut hash = XxHash3_64::new();
    let mut buffer = [0u8; 64];
    for piece in Pieces::new(text) {
        match piece.kind {
            Kind::Constant => std::hash::Hasher::write(&mut hash, b"?"),
            Kind::Word if piece.text.len() <= buffer.len() => {
                let lower = &mut buffer[..piece.text.len()];
                lower.copy_from_slice(piece.text.as_bytes());
                lower.make_ascii_lowercase();
                std::hash::Hasher::write(&mut hash, lower);
            }
            Kind::Word => std::hash::Hasher::write(&mut hash, piece.text.to_ascii_lowercase().as_bytes()),
            Kind::Other => std::hash::Hasher::write(&mut hash, piece.text.as_bytes()),
        }
        // So that `a b` is not `ab`.
        std::hash::Hasher::write(&mut hash, b"\0");
    }
    match std::hash::Hasher::finish(&hash).cast_signed() {
        0 => 1,
        id => id,
    }
}

/// The text with `$n` in the place of constants, counted from behind the parameters that it has; only the beginning of a long one.
pub fn normalized(text: &str) -> String {
    let parameters = Pieces::new(text).filter(|piece| piece.kind == Kind::Other);
    let parameters = parameters.filter_map(|piece| piece.text.strip_prefix('$')?.parse::<u32>().ok());
    let mut number = parameters.max().unwrap_or(0);
    let mut shown = String::with_capacity(text.len().min(TEXT_BYTES_MAX));
    for piece in Pieces::new(text) {
        if piece.is_spaced && !shown.is_empty() {
            shown.push(' ');
        }
        match piece.kind {
            Kind::Constant => {
                number += 1;
                shown.push_str(&format!("${number}"));
            }
            Kind::Word | Kind::Other => shown.push_str(piece.text),
        }
        if shown.len() > TEXT_BYTES_MAX {
            let end = (0..=TEXT_BYTES_MAX)
                .rev()
                .find(|end| shown.is_char_boundary(*end));
            shown.truncate(end.unwrap_or(0));
            shown.push_str("...");
            break;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn constants_become_parameters() {
        for (text, expected) in [
            ("SELECT 1", "SELECT $1"),
            (
                "SELECT  a1,\n\t2.5e-3 , .5 FROM t1 -- why\n",
                "SELECT a1, $1 , $2 FROM t1",
            ),
            (
                "SELECT 'it''s', E'\\'x', $$a'b$$, $q$ $$ $q$",
                "SELECT $1, $2, $3, $4",
            ),
            ("SELECT U&'d\\0061t', x'1f', B'01', n'x'", "SELECT $1, $2, $3, $4"),
            (
                "SELECT \"a 1\", U&\"x 2\" /* 3 /* 4 */ 5 */ + $2 + 6",
                "SELECT \"a 1\", U&\"x 2\" + $2 + $3",
            ),
            ("SELECT a[1:2], b-1, 0x1f, 1_000", "SELECT a[$1:$2], b-$3, $4, $5"),
            ("SELECT 'ä', ä, \"ö\"", "SELECT $1, ä, \"ö\""),
            ("SELECT 'open", "SELECT $1"),
            ("SELECT E'open\\", "SELECT $1"),
            ("SELECT E'\\ä'", "SELECT $1"),
            ("ALTER ROLE a PASSWORD 'x'", "ALTER ROLE a PASSWORD $1"),
            ("", ""),
        ] {
            assert_eq!(normalized(text), expected, "{text}");
        }
    }

    #[test]
    fn what_differs_in_constants_only_is_one_statement() {
        let one = [
            "SELECT a FROM t WHERE b = 1",
            "select A /* x */ from T\nwhere b='y'",
            " SELECT a FROM t WHERE b=$$z$$",
        ];
        for text in one {
            assert_eq!(query_id(text), query_id(one[0]), "{text}");
        }
        let others = [
            "SELECT a FROM t WHERE b = $1",
            "SELECT \"A\" FROM t WHERE b = 1",
            "SELECT ab FROM t WHERE b = 1",
            "SELECT a FROM t WHERE b = 1 + 1",
        ];
        for text in others {
            assert_ne!(query_id(text), query_id(one[0]), "{text}");
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let text = format!("SELECT {}", "ä, ".repeat(TEXT_BYTES_MAX));
        let shown = normalized(&text);
        assert!(
            shown.len() <= TEXT_BYTES_MAX + 3 && shown.ends_with("..."),
            "{shown}"
        );
    }

    #[test]
    fn any_text_is_read_to_its_end() {
        let alphabet: Vec<char> = "a1'\"$\\/*-.eEuU& \nä0xb".chars().collect();
        let mut random = StdRng::seed_from_u64(7);
        for _ in 0..20_000 {
            let length = random.random_range(0..24);
            let text: String = (0..length)
                .map(|_| alphabet[random.random_range(0..alphabet.len())])
                .collect();
            let read: usize = Pieces::new(&text).map(|piece| piece.text.len()).sum();
            assert!(read <= text.len(), "{text}");
            query_id(&text);
            normalized(&text);
        }
    }
}
