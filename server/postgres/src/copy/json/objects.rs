//! Plain objects, one a line, straight into columns.
//!
//! Reads only what it is sure to read as the general decoder does, and gives up ([`None`]) at everything
//! else: a value of another type than its column's, a member that comes twice, two objects on a line, anything malformed.
//! So it has no errors of its own: what it gives up on is read again by the general decoder, which has.
//!
//! Members mostly come in the same order in every object. The order of the last one is remembered, so that finding a
//! member's column is one comparison.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Decimal128Builder, Float32Builder, Float64Builder, Int16Builder, Int32Builder,
    Int64Builder, RecordBatch, StringBuilder,
};
use arrow::datatypes::{DataType, Field, SchemaRef};
use memchr::{memchr, memchr2};

use crate::types::ANNOTATION;
use crate::types::parse::number;

/// Columns are bits of a word while an object is read.
const COLUMNS_MAX: usize = 64;
/// Nesting of members that no column has.
const DEPTH_MAX: usize = 32;

/// Whether there is a reader for these columns.
pub fn is_plain(schema: &SchemaRef) -> bool {
    schema.fields().len() <= COLUMNS_MAX
        && schema
            .fields()
            .iter()
            .all(|field| Column::new(field.data_type(), field.data_type(), 0).is_some())
}

/// The objects as columns of the schema, a row for each; `None`: read them by other means.
pub fn read(schema: &SchemaRef, targets: &[Arc<Field>], lines: &[u8]) -> Option<RecordBatch> {
    // Once for all: what stands between two ASCII characters is valid then.
    let text = std::str::from_utf8(lines).ok()?;
    // At least two bytes a value: enough to begin with.
    let rows = lines.len() / 64 + 1;
    let columns: Option<Vec<Column>> = schema
        .fields()
        .iter()
        .zip(targets)
        .map(|(field, target)| Column::of(field.data_type(), target, rows))
        .collect();
    let mut reader = Reader {
        text,
        bytes: lines,
        at: 0,
        names: schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect(),
        columns: columns?,
        order: vec![],
        scratch: String::new(),
    };
    let mut rows = 0;
    while reader.at < lines.len() {
        // Nothing reads beyond the end of the line.
        let end = memchr(b'\n', &lines[reader.at..]).map_or(lines.len(), |length| reader.at + length);
        reader.bytes = &lines[..end];
        reader.space();
        if reader.at < end {
            reader.object()?;
            rows += 1;
            reader.space();
        }
        if reader.at < end {
            return None;
        }
        reader.at = end + 1;
    }
    if rows == 0 {
        return None;
    }
    let arrays = reader.columns.into_iter().map(Column::finish).collect();
    RecordBatch::try_new(Arc::clone(schema), arrays).ok()
}

enum Column {
    Boolean(BooleanBuilder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    Decimal(Decimal128Builder, u8, i8),
    /// A numeric without a precision.
    AnyNumeric(Decimal128Builder),
    Text(StringBuilder),
    /// The text of a time, which no number is.
    Time(StringBuilder),
}

impl Column {
    fn of(kind: &DataType, target: &Field, rows: usize) -> Option<Self> {
        Some(match Column::new(kind, target.data_type(), rows)? {
            Column::Decimal(out, _, _) if target.metadata().contains_key(ANNOTATION) => {
                Column::AnyNumeric(out)
            }
            column => column,
        })
    }

    fn new(kind: &DataType, target: &DataType, rows: usize) -> Option<Self> {
        Some(match kind {
            DataType::Boolean => Column::Boolean(BooleanBuilder::with_capacity(rows)),
            DataType::Int16 => Column::Int16(Int16Builder::with_capacity(rows)),
            DataType::Int32 => Column::Int32(Int32Builder::with_capacity(rows)),
            DataType::Int64 => Column::Int64(Int64Builder::with_capacity(rows)),
            DataType::Float32 => Column::Float32(Float32Builder::with_capacity(rows)),
            DataType::Float64 => Column::Float64(Float64Builder::with_capacity(rows)),
            DataType::Decimal128(precision, scale) => Column::Decimal(
                Decimal128Builder::with_capacity(rows).with_data_type(kind.clone()),
                *precision,
                *scale,
            ),
            DataType::Utf8
                if matches!(
                    target,
                    DataType::Date32 | DataType::Timestamp(..) | DataType::Time64(_) | DataType::Interval(_)
                ) =>
            {
                Column::Time(StringBuilder::with_capacity(rows, 24 * rows))
            }
            DataType::Utf8 => Column::Text(StringBuilder::with_capacity(rows, 16 * rows)),
            _ => return None,
        })
    }

    fn append_null(&mut self) {
        match self {
            Column::Boolean(out) => out.append_null(),
            Column::Int16(out) => out.append_null(),
            Column::Int32(out) => out.append_null(),
            Column::Int64(out) => out.append_null(),
            Column::Float32(out) => out.append_null(),
            Column::Float64(out) => out.append_null(),
            Column::Decimal(out, _, _) | Column::AnyNumeric(out) => out.append_null(),
            Column::Text(out) | Column::Time(out) => out.append_null(),
        }
    }

    /// A number in JSON's grammar.
    fn append_number(&mut self, token: &str) -> Option<()> {
        // Minus nothing is nothing to the general decoder.
        if token.starts_with('-') && !token.bytes().any(|byte| matches!(byte, b'1'..=b'9')) {
            return None;
        }
        match self {
            Column::Boolean(_) | Column::Time(_) => return None,
            Column::Int16(out) => out.append_value(i16::try_from(integer(token)?).ok()?),
            Column::Int32(out) => out.append_value(i32::try_from(integer(token)?).ok()?),
            Column::Int64(out) => out.append_value(integer(token)?),
            Column::Float32(out) => out.append_value(number::real(token).ok()?),
            Column::Decimal(out, precision, scale) => {
                out.append_value(number::decimal(token, *precision, *scale).ok()?);
            }
            Column::AnyNumeric(out) => out.append_value(number::any_numeric(token).ok()?),
            Column::Float64(out) => {
                // What overflows is for others to judge.
                let value: f64 = token.parse().ok()?;
                out.append_value(Some(value).filter(|value| value.is_finite())?);
            }
            // Exponents are written out.
            Column::Text(_) if token.contains(['e', 'E']) => return None,
            Column::Text(out) => out.append_value(token),
        }
        Some(())
    }

    fn append_boolean(&mut self, value: bool) -> Option<()> {
        match self {
            Column::Boolean(out) => out.append_value(value),
            Column::Text(out) => out.append_value(if value { "true" } else { "false" }),
            _ => return None,
        }
        Some(())
    }

    fn append_text(&mut self, value: &str) -> Option<()> {
        match self {
            Column::Text(out) | Column::Time(out) => out.append_value(value),
            _ => return None,
        }
        Some(())
    }

    fn finish(self) -> ArrayRef {
        match self {
            Column::Boolean(mut out) => Arc::new(out.finish()),
            Column::Int16(mut out) => Arc::new(out.finish()),
            Column::Int32(mut out) => Arc::new(out.finish()),
            Column::Int64(mut out) => Arc::new(out.finish()),
            Column::Float32(mut out) => Arc::new(out.finish()),
            Column::Float64(mut out) => Arc::new(out.finish()),
            Column::Decimal(mut out, _, _) | Column::AnyNumeric(mut out) => Arc::new(out.finish()),
            Column::Text(mut out) | Column::Time(mut out) => Arc::new(out.finish()),
        }
    }
}

/// A whole number of 64 bits.
fn integer(token: &str) -> Option<i64> {
    let (negative, digits) = match token.as_bytes() {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // No 18 digits overflow.
    if digits.len() > 18 {
        return token.parse().ok();
    }
    let mut value = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(digit - b'0');
    }
    Some(if negative { -value } else { value })
}

struct Reader<'a> {
    text: &'a str,
    /// Up to the end of the line.
    bytes: &'a [u8],
    at: usize,
    names: Vec<&'a str>,
    columns: Vec<Column>,
    /// The members of the last object: their names, and their columns if there are such.
    order: Vec<(&'a str, Option<usize>)>,
    /// A text without its escapes.
    scratch: String,
}

impl<'a> Reader<'a> {
    /// Skips white space.
    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_there = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn need(&mut self, byte: u8) -> Option<()> {
        self.take(byte).then_some(())
    }

    fn object(&mut self) -> Option<()> {
        self.need(b'{')?;
        self.space();
        let mut filled = 0_u64;
        let mut position = 0;
        if !self.take(b'}') {
            loop {
                let column = self.member(position)?;
                position += 1;
                self.space();
                self.need(b':')?;
                self.space();
                match column {
                    Some(column) => {
                        let bit = 1 << column;
                        if filled & bit != 0 {
                            return None;
                        }
                        filled |= bit;
                        self.value(column)?;
                    }
                    None => self.skip(0)?,
                }
                self.space();
                if self.take(b',') {
                    self.space();
                } else {
                    self.need(b'}')?;
                    break;
                }
            }
        }
        if filled.count_ones() as usize != self.columns.len() {
            for (column, out) in self.columns.iter_mut().enumerate() {
                if filled & (1 << column) == 0 {
                    out.append_null();
                }
            }
        }
        Some(())
    }

    /// Reads the name of the member at this position of its object; returns its column, if it has one.
    fn member(&mut self, position: usize) -> Option<Option<usize>> {
        self.need(b'"')?;
        if let Some((name, column)) = self.order.get(position) {
            let rest = &self.bytes[self.at..];
            if rest.len() > name.len() && rest[name.len()] == b'"' && rest.starts_with(name.as_bytes()) {
                self.at += name.len() + 1;
                return Some(*column);
            }
        }
        let length = memchr2(b'"', b'\\', &self.bytes[self.at..])?;
        let name = &self.text[self.at..self.at + length];
        self.at += length;
        self.need(b'"')?;
        let column = self.names.iter().position(|known| *known == name);
        self.order.truncate(position);
        self.order.push((name, column));
        Some(column)
    }

    fn value(&mut self, column: usize) -> Option<()> {
        match self.bytes.get(self.at)? {
            b'"' => {
                self.at += 1;
                let start = self.at;
                let length = memchr2(b'"', b'\\', &self.bytes[start..])?;
                self.at += length;
                if self.take(b'"') {
                    let value = &self.text[start..start + length];
                    return self.columns[column].append_text(value);
                }
                let scratch = std::mem::take(&mut self.scratch);
                self.scratch = self.escaped(start, scratch)?;
                self.columns[column].append_text(&self.scratch)
            }
            b'n' => {
                self.literal("null")?;
                self.columns[column].append_null();
                Some(())
            }
            b't' => {
                self.literal("true")?;
                self.columns[column].append_boolean(true)
            }
            b'f' => {
                self.literal("false")?;
                self.columns[column].append_boolean(false)
            }
            _ => {
                let token = self.number()?;
                self.columns[column].append_number(token)
            }
        }
    }

    fn literal(&mut self, word: &str) -> Option<()> {
        let is_there = self.bytes[self.at..].starts_with(word.as_bytes());
        self.at += word.len();
        is_there.then_some(())
    }

    /// A number in JSON's grammar.
    fn number(&mut self) -> Option<&'a str> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Some(&self.text[start..self.at])
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    /// The rest of a text whose first escape is here; `start` is where it began.
    fn escaped(&mut self, start: usize, mut out: String) -> Option<String> {
        out.clear();
        out.push_str(&self.text[start..self.at]);
        loop {
            self.need(b'\\')?;
            let escape = *self.bytes.get(self.at)?;
            self.at += 1;
            out.push(match escape {
                b'"' => '"',
                b'\\' => '\\',
                b'/' => '/',
                b'b' => '\u{8}',
                b'f' => '\u{c}',
                b'n' => '\n',
                b'r' => '\r',
                b't' => '\t',
                b'u' => {
                    let digits = self.bytes.get(self.at..self.at + 4)?;
                    if !digits.iter().all(u8::is_ascii_hexdigit) {
                        return None;
                    }
                    let code = u32::from_str_radix(&self.text[self.at..self.at + 4], 16).ok()?;
                    self.at += 4;
                    // Halves of a pair are rare.
                    char::from_u32(code)?
                }
                _ => return None,
            });
            let from = self.at;
            self.at += memchr2(b'"', b'\\', &self.bytes[from..])?;
            out.push_str(&self.text[from..self.at]);
            if self.take(b'"') {
                return Some(out);
            }
        }
    }

    /// A value of no column.
    fn skip(&mut self, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.bytes.get(self.at)? {
            b'"' => self.skip_text(),
            b'n' => self.literal("null"),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'{' => {
                self.at += 1;
                self.space();
                if self.take(b'}') {
                    return Some(());
                }
                loop {
                    self.skip_text()?;
                    self.space();
                    self.need(b':')?;
                    self.space();
                    self.skip(depth + 1)?;
                    self.space();
                    if !self.take(b',') {
                        return self.need(b'}');
                    }
                    self.space();
                }
            }
            b'[' => {
                self.at += 1;
                self.space();
                if self.take(b']') {
                    return Some(());
                }
                loop {
                    self.skip(depth + 1)?;
                    self.space();
                    if !self.take(b',') {
                        return self.need(b']');
                    }
                    self.space();
                }
            }
            _ => self.number().map(|_| ()),
        }
    }

    /// A text of no column; one with escapes is left to others.
    fn skip_text(&mut self) -> Option<()> {
        self.need(b'"')?;
        let length = memchr(b'"', &self.bytes[self.at..])?;
        if memchr(b'\\', &self.bytes[self.at..self.at + length]).is_some() {
            return None;
        }
        self.at += length + 1;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Schema, TimeUnit};
    use rand::rngs::StdRng;
    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::copy::json::{Documents, Shape};

    const NAMES: [&str; 9] = [
        "id", "small", "big", "ratio", "is_it", "text", "share", "price", "at",
    ];

    fn targets() -> Vec<Arc<Field>> {
        let kinds = [
            DataType::Int32,
            DataType::Int16,
            DataType::Int64,
            DataType::Float64,
            DataType::Boolean,
            DataType::Utf8,
            DataType::Float32,
            DataType::Decimal128(5, 2),
            DataType::Timestamp(TimeUnit::Microsecond, None),
        ];
        let fields = NAMES.iter().zip(kinds);
        fields
            .map(|(name, kind)| Arc::new(Field::new(*name, kind, true)))
            .collect()
    }

    fn schema() -> SchemaRef {
        let fields = targets().into_iter().map(|field| match field.data_type() {
            DataType::Timestamp(..) => Arc::new(Field::new(field.name(), DataType::Utf8, true)),
            _ => field,
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn read_here(lines: &[u8]) -> Option<RecordBatch> {
        read(&schema(), &targets(), lines)
    }

    /// The same lines by the general decoder.
    fn by_others(lines: &[u8]) -> Option<RecordBatch> {
        let documents = Documents {
            shape: Arc::new(Shape {
                schema: schema(),
                targets: targets(),
                is_plain: false,
            }),
            text: lines.to_vec(),
        };
        documents.read(0).ok()
    }

    /// A value that mostly fits the member.
    fn value(random: &mut StdRng, name: &str) -> String {
        let any = [
            "null",
            "true",
            "1",
            "-7",
            "1.5",
            "1e3",
            "-0",
            "0.1",
            "01",
            "1.",
            "-",
            "9223372036854775807",
            "99999999999999999999",
            "1e400",
            "70000",
            r#""""#,
            r#""x""#,
            r#""12""#,
            r#""a\nb""#,
            r#""\u00e9\/""#,
            r#""\ud83d\ude00""#,
            r#""\ud83d""#,
            r#""\q""#,
            "\"tab\there\"",
            r#""grün""#,
            "{}",
            r#"{"a":[1,{"b":null}]}"#,
            "[]",
            "[1,]",
            "nul",
            "",
        ];
        if random.random_bool(0.1) {
            return any.choose(random).unwrap().to_string();
        }
        match name {
            "small" => random.random::<i16>().to_string(),
            "id" => random.random::<i32>().to_string(),
            "big" => random.random::<i64>().to_string(),
            "ratio" => random.random::<f64>().to_string(),
            "is_it" => random.random::<bool>().to_string(),
            "share" => random.random::<f32>().to_string(),
            "price" => format!("{:.3}", random.random_range(0.0..900.0)),
            "at" => format!("\"2013-01-{:02} 10:00\"", random.random_range(1..29)),
            _ => format!("\"text {}\"", random.random::<u32>()),
        }
    }

    fn object(random: &mut StdRng) -> String {
        let mut members = vec![];
        for name in NAMES.iter().chain(&["other", "i\\u0064"]) {
            if random.random_bool(if name.contains('\\') { 0.05 } else { 0.8 }) {
                let space = [""; 4].iter().chain(&[" "]).copied().collect::<Vec<_>>();
                let space = space.choose(random).unwrap();
                members.push(format!(
                    "{space}\"{name}\"{space}:{space}{}{space}",
                    value(random, name)
                ));
            }
        }
        if random.random_bool(0.2) {
            members.reverse();
        }
        format!("{{{}}}", members.join(","))
    }

    #[test]
    fn what_is_read_is_what_others_read() {
        let seed: u64 = 20_261_121;
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut count = 0;
        for _ in 0..20_000 {
            let lines: Vec<String> = (0..random.random_range(1..4))
                .map(|_| object(&mut random))
                .collect();
            let mut bytes = lines
                .join(["\n", "\r\n", "\n\n", " "].choose(&mut random).unwrap())
                .into_bytes();
            if random.random_bool(0.3) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = *b"{}[]\",:\n 0x\xff".choose(&mut random).unwrap();
            }
            if let Some(batch) = read_here(&bytes) {
                let text = String::from_utf8_lossy(&bytes);
                assert_eq!(Some(batch), by_others(&bytes), "{text}");
                count += 1;
            }
        }
        assert!(count > 2_000, "{count} of 20000 test little");
    }

    #[test]
    fn usual_objects_are_read_here() {
        let lines = concat!(
            "{\"id\":1,\"text\":\"a \\\"b\\\" \\u00e9\",\"is_it\":true,\"ratio\":2.5,\"more\":{\"a\":[1,\"x\"]}}\n",
            " {\"text\":\"c\", \"id\":-2}\r\n\n{}"
        );
        let batch = read_here(lines.as_bytes()).unwrap();
        assert_eq!(batch.num_rows(), 3);
        assert_eq!(Some(batch), by_others(lines.as_bytes()));
    }

    #[test]
    fn what_is_wrong_or_strange_is_left_to_others() {
        for lines in [
            "{\"id\":1,\"id\":2}",
            "{\"id\":1}{\"id\":2}",
            "{\"text\":\"x\n\"}",
            "{\"id\":1.5}",
            "{\"id\":3000000000}",
            "{\"id\":\"1\"}",
            "{\"id\":1",
            "[{\"id\":1}]",
            "{\"other\":[1,]}",
            "{\"text\":{}}",
            "{\"at\":20130131}",
            "{\"price\":1000}",
            "",
        ] {
            assert!(read_here(lines.as_bytes()).is_none(), "{lines}");
        }
        assert!(read_here(b"{\"text\":\"\xff\"}").is_none());
    }
}
