//! Splitting the lines of a COPY into columns of texts.
//!
//! Bytes come in pieces of any size. A record that is not whole yet is kept; a whole one is cut at its delimiters and its
//! values are appended to the columns, unescaped. Nothing is converted here.

use arrow::array::{StringArray, StringBuilder};

use crate::copy::LINE_BYTES_MAX;
use crate::copy::layout::{Header, Layout};
use crate::error::input::shortened;
use crate::error::{SqlError, SqlState};

/// The texts of some records, a column each.
pub struct Columns {
    builders: Vec<StringBuilder>,
    lines: Vec<u64>,
}

impl Columns {
    /// Columns without rows.
    pub fn new(count: usize) -> Self {
        Columns {
            builders: (0..count).map(|_| StringBuilder::new()).collect(),
            lines: vec![],
        }
    }

    /// How many records there are.
    pub fn rows(&self) -> usize {
        self.lines.len()
    }

    /// The line on which each record ends, the first being 1.
    pub fn lines(&self) -> &[u64] {
        &self.lines
    }

    /// Appends a record that ends on this line.
    pub fn push(&mut self, texts: Vec<Option<String>>, line: u64) {
        for (builder, text) in self.builders.iter_mut().zip(texts) {
            builder.append_option(text);
        }
        self.lines.push(line);
    }

    /// Takes the columns out.
    pub fn take(&mut self) -> Vec<StringArray> {
        self.lines.clear();
        self.builders.iter_mut().map(StringBuilder::finish).collect()
    }
}

/// A record that cannot be split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitError {
    /// The line on which it ends.
    pub line: u64,
    /// What is wrong.
    pub message: String,
    /// The record, shortened; none when it is not text.
    pub text: Option<String>,
    /// The SQLSTATE.
    pub code: SqlState,
}

impl SplitError {
    /// The error as a user sees it; `what` is `COPY t`.
    pub fn into_sql(self, what: &str) -> SqlError {
        let context = match &self.text {
            Some(text) => format!("{what}, line {}: \"{text}\"", self.line),
            None => format!("{what}, line {}", self.line),
        };
        SqlError::new(self.code, self.message).with_context(context)
    }
}

/// Splits records as they come.
pub struct Splitter {
    layout: Layout,
    /// The names of the columns, for messages and for a header that is to match.
    names: Vec<String>,
    /// The beginning of a record that is not whole yet.
    pending: Vec<u8>,
    /// Whether the record so far ends inside quotes (CSV) or behind a backslash (text).
    open: bool,
    line: u64,
    header_due: bool,
    /// `\.` was read: what follows is ignored.
    ended: bool,
    scratch: String,
}

impl Splitter {
    /// A splitter for records of these columns.
    pub fn new(layout: &Layout, names: Vec<String>) -> Self {
        Splitter {
            layout: layout.clone(),
            names,
            pending: vec![],
            open: false,
            line: 0,
            header_due: layout.header != Header::Absent,
            ended: false,
            scratch: String::new(),
        }
    }

    /// Splits records until the bytes are used up or the columns have `limit` rows. Returns the bytes that are left.
    ///
    /// # Errors
    /// A record has too few or too many values, is not UTF-8, or is too long.
    pub fn push<'a>(
        &mut self,
        bytes: &'a [u8],
        columns: &mut Columns,
        limit: usize,
    ) -> Result<&'a [u8], SplitError> {
        let mut rest = bytes;
        while !rest.is_empty() && columns.rows() < limit {
            if self.ended {
                return Ok(&[]);
            }
            let Some(end) = self.record_end(rest) else {
                if self.pending.len() + rest.len() > LINE_BYTES_MAX {
                    return Err(SplitError {
                        line: self.line + 1,
                        message: format!("a line is longer than {} MB", LINE_BYTES_MAX >> 20),
                        text: None,
                        code: SqlState::ProgramLimitExceeded,
                    });
                }
                self.pending.extend_from_slice(rest);
                return Ok(&[]);
            };
            let (record, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            self.line += 1;
            if self.pending.is_empty() {
                self.record(record, columns)?;
            } else {
                let mut whole = std::mem::take(&mut self.pending);
                whole.extend_from_slice(record);
                self.record(&whole, columns)?;
                whole.clear();
                self.pending = whole;
            }
        }
        Ok(if self.ended { &[] } else { rest })
    }

    /// The last record may lack its end of line.
    ///
    /// # Errors
    /// As [`Self::push`]; or the data ends inside quotes.
    pub fn finish(&mut self, columns: &mut Columns) -> Result<(), SplitError> {
        if self.pending.is_empty() || self.ended {
            return Ok(());
        }
        let record = std::mem::take(&mut self.pending);
        self.line += 1;
        if self.open && self.layout.csv {
            return Err(SplitError {
                line: self.line,
                message: "unterminated CSV quoted field".into(),
                text: std::str::from_utf8(&record).ok().map(shortened),
                code: SqlState::BadCopyFileFormat,
            });
        }
        self.record(&record, columns)
    }

    /// Where the record ends: the newline that is neither quoted nor escaped. Keeps the state when there is none.
    fn record_end(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.layout.csv && self.layout.escape != self.layout.quote {
            return self.record_end_with_escapes(bytes);
        }
        let mut from = 0;
        while let Some(length) = memchr::memchr(b'\n', &bytes[from..]) {
            let end = from + length;
            self.carry(&bytes[from..end]);
            if !self.open {
                return Some(end);
            }
            // The newline belongs to the value; in text it also ends the escape.
            self.line += 1;
            if !self.layout.csv {
                self.open = false;
            }
            from = end + 1;
        }
        self.carry(&bytes[from..]);
        None
    }

    /// Follows the state over bytes without a newline.
    fn carry(&mut self, bytes: &[u8]) {
        if self.layout.csv {
            let quotes = memchr::memchr_iter(self.layout.quote, bytes).count();
            self.open ^= quotes % 2 == 1;
        } else if !bytes.is_empty() {
            let backslashes = bytes.iter().rev().take_while(|byte| **byte == b'\\').count();
            let carried = backslashes == bytes.len() && self.open;
            self.open = (backslashes % 2 == 1) != carried;
        }
    }

    /// CSV whose escape is not the quote: an escape inside quotes takes the meaning of the byte after it. Whether a
    /// piece ended behind an escape is seen in what is pending.
    fn record_end_with_escapes(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut escaped = self.open && {
            let escapes = self
                .pending
                .iter()
                .rev()
                .take_while(|byte| **byte == self.layout.escape)
                .count();
            escapes % 2 == 1
        };
        for (at, byte) in bytes.iter().enumerate() {
            if escaped {
                escaped = false;
            } else if self.open && *byte == self.layout.escape {
                escaped = true;
            } else if *byte == self.layout.quote {
                self.open = !self.open;
            } else if *byte == b'\n' {
                if !self.open {
                    return Some(at);
                }
                self.line += 1;
            }
        }
        None
    }

    fn record(&mut self, record: &[u8], columns: &mut Columns) -> Result<(), SplitError> {
        let record = record.strip_suffix(b"\r").unwrap_or(record);
        let text = std::str::from_utf8(record).map_err(|error| {
            let bad = record.get(error.valid_up_to()).copied().unwrap_or_default();
            SplitError {
                line: self.line,
                message: format!("invalid byte sequence for encoding \"UTF8\": 0x{bad:02x}"),
                text: None,
                code: SqlState::CharacterNotInRepertoire,
            }
        })?;
        if memchr::memchr(0, record).is_some() {
            return Err(SplitError {
                line: self.line,
                message: "invalid byte sequence for encoding \"UTF8\": 0x00".into(),
                text: None,
                code: SqlState::CharacterNotInRepertoire,
            });
        }
        if text == "\\." {
            self.ended = true;
            return Ok(());
        }
        if self.header_due {
            self.header_due = false;
            return self.header(text);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = if self.layout.csv {
            split_csv(&self.layout, text, &mut scratch, &mut |index, value| {
                append(columns, index, value)
            })
        } else {
            split_text(&self.layout, text, &mut scratch, &mut |index, value| {
                append(columns, index, value)
            })
        };
        self.scratch = scratch;
        let count = result.map_err(|message| self.malformed(message, text))?;
        if count != columns.builders.len() {
            let message = match self.names.get(count) {
                Some(missing) => format!("missing data for column \"{missing}\""),
                None => "extra data after last expected column".to_string(),
            };
            return Err(self.malformed(message, text));
        }
        columns.lines.push(self.line);
        Ok(())
    }

    fn malformed(&self, message: String, text: &str) -> SplitError {
        SplitError {
            line: self.line,
            message,
            text: Some(shortened(text)),
            code: SqlState::BadCopyFileFormat,
        }
    }

    fn header(&self, text: &str) -> Result<(), SplitError> {
        if self.layout.header == Header::Skip {
            return Ok(());
        }
        let names = header_names(&self.layout, text).map_err(|message| self.malformed(message, text))?;
        for (index, expected) in self.names.iter().enumerate() {
            match names.get(index) {
                Some(name) if name == expected => {}
                found => {
                    let found = found.map_or_else(|| "nothing".to_string(), |name| format!("\"{name}\""));
                    let message = format!(
                        "column name mismatch in header line field {}: got {found}, expected \"{expected}\"",
                        index + 1
                    );
                    return Err(self.malformed(message, text));
                }
            }
        }
        if names.len() > self.names.len() {
            let message = format!(
                "wrong number of fields in header line: got {}, expected {}",
                names.len(),
                self.names.len()
            );
            return Err(self.malformed(message, text));
        }
        Ok(())
    }
}

fn append(columns: &mut Columns, index: usize, value: Option<&str>) {
    if let Some(builder) = columns.builders.get_mut(index) {
        builder.append_option(value);
    }
}

/// The names in a header line.
///
/// # Errors
/// The line is malformed.
pub fn header_names(layout: &Layout, text: &str) -> Result<Vec<String>, String> {
    let mut names = vec![];
    let mut scratch = String::new();
    let mut take = |_: usize, value: Option<&str>| names.push(value.unwrap_or_default().to_string());
    if layout.csv {
        split_csv(layout, text, &mut scratch, &mut take)?;
    } else {
        split_text(layout, text, &mut scratch, &mut take)?;
    }
    Ok(names)
}

type Take<'a> = dyn FnMut(usize, Option<&str>) + 'a;

/// Splits a line of PostgreSQL's text format. Returns how many values it has.
fn split_text(
    layout: &Layout,
    text: &str,
    scratch: &mut String,
    take: &mut Take<'_>,
) -> Result<usize, String> {
    let bytes = text.as_bytes();
    let escapes = bytes.contains(&b'\\');
    let mut count = 0;
    let mut start = 0;
    loop {
        // The end of the value: a delimiter that is not escaped.
        let mut end = start;
        while end < bytes.len() && bytes[end] != layout.delimiter {
            end += if escapes && bytes[end] == b'\\' { 2 } else { 1 };
        }
        let end = end.min(bytes.len());
        let raw = &text[start..end];
        if raw == layout.null {
            take(count, None);
        } else if escapes && raw.contains('\\') {
            unescape(raw, scratch)?;
            take(count, Some(scratch));
        } else {
            take(count, Some(raw));
        }
        count += 1;
        if end == bytes.len() {
            return Ok(count);
        }
        start = end + 1;
    }
}

/// The value that a text with backslashes means.
fn unescape(raw: &str, out: &mut String) -> Result<(), String> {
    out.clear();
    let mut bytes: Vec<u8> = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let Some((letter, after)) = rest.split_first() else {
            bytes.push(b'\\');
            break;
        };
        rest = after;
        match letter {
            b'b' => bytes.push(8),
            b'f' => bytes.push(12),
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b't' => bytes.push(b'\t'),
            b'v' => bytes.push(11),
            b'0'..=b'7' => {
                let mut value = u32::from(letter - b'0');
                for _ in 0..2 {
                    match rest.split_first() {
                        Some((digit @ b'0'..=b'7', after)) => {
                            value = value * 8 + u32::from(digit - b'0');
                            rest = after;
                        }
                        _ => break,
                    }
                }
                bytes.push(value.to_le_bytes()[0]);
            }
            b'x' => {
                let mut value = 0;
                let mut digits = 0;
                while digits < 2
                    && let Some((first, after)) = rest.split_first()
                    && let Some(digit) = char::from(*first).to_digit(16)
                {
                    value = value * 16 + digit;
                    digits += 1;
                    rest = after;
                }
                bytes.push(if digits == 0 { b'x' } else { value.to_le_bytes()[0] });
            }
            other => bytes.push(*other),
        }
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => {
            *out = text;
            Ok(())
        }
        _ => Err("invalid byte sequence for encoding \"UTF8\" after an escape".to_string()),
    }
}

/// Splits a line of CSV. Returns how many values it has.
fn split_csv(
    layout: &Layout,
    text: &str,
    scratch: &mut String,
    take: &mut Take<'_>,
) -> Result<usize, String> {
    let bytes = text.as_bytes();
    let mut count = 0;
    let mut at = 0;
    loop {
        // The plain case: no quote up to the next delimiter.
        let length = bytes[at..]
            .iter()
            .position(|byte| *byte == layout.delimiter || *byte == layout.quote)
            .unwrap_or(bytes.len() - at);
        let end = at + length;
        if bytes.get(end) != Some(&layout.quote) {
            let raw = &text[at..end];
            take(count, (raw != layout.null).then_some(raw));
            at = end;
        } else {
            at = quoted(layout, text, at, scratch)?;
            take(count, Some(scratch));
        }
        count += 1;
        if at >= bytes.len() {
            return Ok(count);
        }
        at += 1;
    }
}

/// A value with quotes in it, from `start`. Returns where it ends.
fn quoted(layout: &Layout, text: &str, start: usize, scratch: &mut String) -> Result<usize, String> {
    scratch.clear();
    let bytes = text.as_bytes();
    let mut at = start;
    let mut inside = false;
    while at < bytes.len() {
        let byte = bytes[at];
        let next = bytes.get(at + 1).copied();
        if inside
            && byte == layout.escape
            && next.is_some_and(|next| next == layout.quote || next == layout.escape)
        {
            scratch.push(char::from(bytes[at + 1]));
            at += 2;
        } else if byte == layout.quote {
            inside = !inside;
            at += 1;
        } else if !inside && byte == layout.delimiter {
            break;
        } else {
            // A run of bytes without a meaning of their own is copied whole, so that no character is cut.
            let length = bytes[at + 1..]
                .iter()
                .position(|byte| *byte == layout.quote || *byte == layout.escape || *byte == layout.delimiter)
                .unwrap_or(bytes.len() - at - 1);
            scratch.push_str(&text[at..at + 1 + length]);
            at += 1 + length;
        }
    }
    if inside {
        Err("unterminated CSV quoted field".to_string())
    } else {
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Array;

    type Row = Vec<Option<String>>;

    fn split_in(layout: &Layout, width: usize, data: &[u8], piece: usize) -> Result<Vec<Row>, SplitError> {
        let names = (0..width).map(|index| format!("c{index}")).collect();
        let mut splitter = Splitter::new(layout, names);
        let mut columns = Columns::new(width);
        for piece in data.chunks(piece.max(1)) {
            let mut rest = piece;
            while !rest.is_empty() {
                rest = splitter.push(rest, &mut columns, usize::MAX)?;
            }
        }
        splitter.finish(&mut columns)?;
        let rows = columns.rows();
        let arrays = columns.take();
        Ok((0..rows)
            .map(|row| {
                arrays
                    .iter()
                    .map(|array| array.is_valid(row).then(|| array.value(row).to_string()))
                    .collect()
            })
            .collect())
    }

    /// Splits the data whole and in pieces of every small size: the outcome must be the same.
    fn split(layout: &Layout, width: usize, data: &str) -> Result<Vec<Row>, SplitError> {
        let whole = split_in(layout, width, data.as_bytes(), usize::MAX);
        for piece in 1..6 {
            assert_eq!(
                split_in(layout, width, data.as_bytes(), piece),
                whole,
                "in pieces of {piece}: {data:?}"
            );
        }
        whole
    }

    fn row(values: &[Option<&str>]) -> Row {
        values.iter().map(|value| value.map(str::to_string)).collect()
    }

    #[test]
    fn text_lines() {
        let rows = split(
            &Layout::text(),
            2,
            "1\ta\\tb\r\n\\N\t\\\\N\n3\tline\\\nbreak\n4\t\\x41\\101",
        )
        .unwrap();
        assert_eq!(
            rows,
            [
                row(&[Some("1"), Some("a\tb")]),
                row(&[None, Some("\\N")]),
                row(&[Some("3"), Some("line\nbreak")]),
                row(&[Some("4"), Some("AA")]),
            ]
        );
    }

    #[test]
    fn csv_lines() {
        let layout = Layout::csv(Header::Skip);
        let rows = split(&layout, 2, "a,b\n1,\"x, \"\"y\"\"\nz\"\n,\"\"\nab\"c,d\"e,ö\n").unwrap();
        assert_eq!(
            rows,
            [
                row(&[Some("1"), Some("x, \"y\"\nz")]),
                row(&[None, Some("")]),
                row(&[Some("abc,de"), Some("ö")]),
            ]
        );
    }

    #[test]
    fn csv_with_another_escape() {
        let layout = Layout {
            escape: b'\\',
            ..Layout::csv(Header::Absent)
        };
        let rows = split(&layout, 2, "\"a\\\"b\\\\\",\"c\nd\"\n").unwrap();
        assert_eq!(rows, [row(&[Some("a\"b\\"), Some("c\nd")])]);
    }

    #[test]
    fn data_may_end_with_a_marker() {
        assert_eq!(
            split(&Layout::text(), 1, "1\n\\.\n2\n").unwrap(),
            [row(&[Some("1")])]
        );
    }

    #[test]
    fn wrong_numbers_of_values_name_line_and_column() {
        let error = split(&Layout::text(), 2, "1\t2\n3\n").unwrap_err();
        assert_eq!(
            (error.line, error.message.as_str()),
            (2, "missing data for column \"c1\"")
        );
        let error = split(&Layout::csv(Header::Absent), 2, "\"1\n\",2,3\n").unwrap_err();
        assert_eq!(
            (error.line, error.message.as_str()),
            (2, "extra data after last expected column")
        );
        assert_eq!(
            error.clone().into_sql("COPY t").context.as_deref(),
            Some("COPY t, line 2: \"\"1\n\",2,3\"")
        );
    }

    #[test]
    fn broken_data_is_refused() {
        assert!(split(&Layout::csv(Header::Absent), 1, "\"abc").is_err());
        assert_eq!(
            split_in(&Layout::text(), 1, b"a\xff\n", 9).unwrap_err().code,
            SqlState::CharacterNotInRepertoire
        );
        assert!(split(&Layout::text(), 1, "\\377\n").is_err());
    }

    #[test]
    fn a_header_must_match_if_asked() {
        let layout = Layout::csv(Header::Match);
        assert_eq!(split(&layout, 2, "c0,c1\n1,2\n").unwrap().len(), 1);
        assert!(split(&layout, 2, "c0,cx\n1,2\n").is_err());
        assert!(split(&layout, 2, "c0\n1,2\n").is_err());
        assert!(split(&layout, 2, "c0,c1,c2\n1,2\n").is_err());
    }

    #[test]
    fn a_limit_stops_between_records() {
        let mut splitter = Splitter::new(&Layout::text(), vec!["a".into()]);
        let mut columns = Columns::new(1);
        let rest = splitter.push(b"1\n2\n3\n", &mut columns, 2).unwrap();
        assert_eq!((columns.rows(), rest), (2, &b"3\n"[..]));
    }

    /// Random bytes from what matters to the formats: nothing panics, and pieces do not change the outcome.
    #[test]
    fn random_data_splits_the_same_in_pieces() {
        let alphabet = b"a,\"\\\n\r\t.N\xc3\xa4x0";
        let mut seed: u64 = 42;
        let mut random = move || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap()
        };
        let layouts = [
            Layout::text(),
            Layout::csv(Header::Absent),
            Layout {
                escape: b'\\',
                ..Layout::csv(Header::Absent)
            },
        ];
        for _ in 0..4_000 {
            let length = random() % 24;
            let data: Vec<u8> = (0..length).map(|_| alphabet[random() % alphabet.len()]).collect();
            let layout = &layouts[random() % layouts.len()];
            let width = 1 + random() % 2;
            let whole = split_in(layout, width, &data, usize::MAX);
            let pieces = split_in(layout, width, &data, 1 + random() % 4);
            assert_eq!(whole, pieces, "{layout:?} {data:?}");
        }
    }
}
