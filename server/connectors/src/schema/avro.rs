//! Records of Avro as JSON, in the words of our own JSON.
//!
//! ```text
//!  null, boolean, numbers    themselves; NaN and infinities are texts
//!  bytes, fixed              \x00ff, or base64 where Debezium is read
//!  decimal                   a number with all of its digits
//!  date, time, timestamp     as SQL writes them; a timestamp that is not local has a Z
//!  enum, uuid, duration      a text
//!  array, record, map        themselves
//!  union                     the value of its branch
//! ```
//! The layout of bytes is Avro's specification 1.12, "Binary encoding"; schemas are parsed by the library of Apache Avro.

mod connect;
pub(super) mod encode;

use std::collections::HashMap;

use apache_avro::Schema;
use apache_avro::schema::{InnerDecimalSchema, Name, UuidSchema};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use self::connect::Connect;
use super::json::{DEPTH_MAX, Json};
use super::registry::Registered;
use crate::about::invalid;
use crate::{debezium, written};

/// What the bytes of a schema's records are.
#[derive(Debug)]
pub(super) struct Layout {
    /// Types that refer to others by their place.
    nodes: Vec<Node>,
    root: usize,
    /// If events of Debezium are read.
    debezium: Option<Connect>,
}

#[derive(Debug)]
enum Node {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Enum(Vec<String>),
    Array(usize),
    Map(usize),
    Union(Vec<usize>),
    Record(Vec<(String, usize)>),
    Decimal {
        /// In bytes, if that is fixed.
        size: Option<usize>,
        precision: usize,
        scale: i64,
    },
    /// A number with its own scale behind it, both in bytes.
    BigDecimal,
    /// The sixteen bytes of a UUID, or bytes with their length before them.
    Uuid(bool),
    Date,
    /// In so many parts of a second.
    Time(i64),
    /// In so many parts of a second, and whether it is a moment.
    Timestamp(i64, bool),
    Duration,
    /// A type that is being read.
    Open,
}

/// Makes nodes of schemas.
#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    named: HashMap<String, usize>,
}

impl Layout {
    /// Of a schema.
    ///
    /// # Errors
    /// It is none, or refers to a type that is not there.
    pub(super) fn new(registered: &Registered, is_debezium: bool) -> SqlResult<Layout> {
        let broken = |error: apache_avro::Error| unreadable(&error.to_string());
        let texts = registered.references.iter().map(|(_, text)| text);
        let (schema, others) = Schema::parse_str_with_list(&registered.text, texts).map_err(broken)?;
        let mut builder = Builder::default();
        // They may refer to each other in any order.
        for other in &others {
            builder.declare(other);
        }
        for other in &others {
            builder.add(other, None)?;
        }
        let root = builder.add(&schema, None)?;
        let debezium = is_debezium.then(|| Connect::of(&registered.text)).transpose()?;
        Ok(Layout {
            nodes: builder.nodes,
            root,
            debezium,
        })
    }

    /// The columns that records have, each with its type in SQL; of an event of Debezium those of the row.
    ///
    /// # Errors
    /// They are no records.
    pub(super) fn columns(&self) -> SqlResult<Vec<(String, String)>> {
        let mut record = self.root;
        if self.debezium.is_some() {
            let Node::Record(members) = &self.nodes[record] else {
                return Err(unreadable("it is not one of events of Debezium"));
            };
            let after = members.iter().find(|(name, _)| name == "after");
            let (_, after) = after.ok_or_else(|| unreadable("it is not one of events of Debezium"))?;
            record = self.not_null(*after).unwrap_or(*after);
        }
        let Node::Record(fields) = &self.nodes[record] else {
            return Err(unreadable("it is not one of records"));
        };
        let named = |name: &str| debezium::sql_type(self.debezium.as_ref()?.names.get(name)?);
        let column = |(name, field): &(String, usize)| {
            let sql = named(name).map_or_else(|| self.sql_type(*field), str::to_owned);
            (name.clone(), sql)
        };
        Ok(fields.iter().map(column).collect())
    }

    /// The other branch of a union with null.
    fn not_null(&self, at: usize) -> Option<usize> {
        let Node::Union(variants) = &self.nodes[at] else {
            return None;
        };
        let mut others = variants
            .iter()
            .filter(|variant| !matches!(self.nodes[**variant], Node::Null));
        let other = *others.next()?;
        others.next().is_none().then_some(other)
    }

    /// The type of SQL that has the values.
    fn sql_type(&self, at: usize) -> String {
        match &self.nodes[at] {
            Node::Boolean => "boolean",
            Node::Int => "integer",
            Node::Long => "bigint",
            Node::Float => "real",
            Node::Double => "double precision",
            Node::Bytes | Node::Fixed(_) => "bytea",
            Node::Text | Node::Enum(_) | Node::Null => "text",
            Node::Uuid(_) => "uuid",
            Node::Date => "date",
            Node::Time(_) => "time",
            Node::Timestamp(_, true) => "timestamptz",
            Node::Timestamp(_, false) => "timestamp",
            Node::Duration => "interval",
            Node::BigDecimal => "numeric",
            Node::Decimal { precision, scale, .. } => return format!("numeric({precision}, {scale})"),
            Node::Union(_) => match self.not_null(at) {
                Some(other) => return self.sql_type(other),
                None => "jsonb",
            },
            Node::Array(items) => {
                let items = self.not_null(*items).unwrap_or(*items);
                return match &self.nodes[items] {
                    Node::Array(_) | Node::Map(_) | Node::Record(_) | Node::Union(_) => "jsonb".to_owned(),
                    _ => format!("{}[]", self.sql_type(items)),
                };
            }
            Node::Map(_) | Node::Record(_) | Node::Open => "jsonb",
        }
        .to_owned()
    }

    /// A record as JSON.
    ///
    /// # Errors
    /// The bytes are not one of the schema.
    pub(super) fn document(&self, bytes: &[u8]) -> SqlResult<Vec<u8>> {
        let mut json = Json::for_input(bytes.len());
        if let Some(connect) = &self.debezium {
            json.raw(&connect.before)?;
        }
        let mut datum = Datum { bytes, json };
        datum.value(self, self.root, 0)?;
        if !datum.bytes.is_empty() {
            let more = datum.bytes.len();
            return Err(invalid(&format!(
                "{more} bytes are left behind the record of Avro"
            )));
        }
        if self.debezium.is_some() {
            datum.json.raw("}")?;
        }
        Ok(datum.json.finish())
    }
}

fn unreadable(why: &str) -> SqlError {
    SqlError::new(
        SqlState::FeatureNotSupported,
        format!("the schema of the record cannot be read: {why}"),
    )
}

impl Builder {
    fn declare(&mut self, schema: &Schema) {
        if let Some(name) = schema.name() {
            self.named.insert(name.fullname(None), self.nodes.len());
            self.nodes.push(Node::Open);
        }
    }

    fn place(&mut self, name: Option<String>) -> usize {
        if let Some(place) = name.as_ref().and_then(|name| self.named.get(name)) {
            return *place;
        }
        self.nodes.push(Node::Open);
        let place = self.nodes.len() - 1;
        if let Some(name) = name {
            self.named.insert(name, place);
        }
        place
    }

    /// The place of a type; names without a namespace are in the one around.
    fn add(&mut self, schema: &Schema, around: Option<&str>) -> SqlResult<usize> {
        if let Schema::Ref { name } = schema {
            let name = name.fullname(around);
            let found = self.named.get(&name).copied();
            return found.ok_or_else(|| unreadable(&format!("it has no type \"{name}\"")));
        }
        let full = |name: &Name| name.fullname(around);
        let place = self.place(schema.name().map(full));
        let node = match schema {
            Schema::Null => Node::Null,
            Schema::Boolean => Node::Boolean,
            Schema::Int => Node::Int,
            Schema::Long => Node::Long,
            Schema::Float => Node::Float,
            Schema::Double => Node::Double,
            Schema::Bytes => Node::Bytes,
            Schema::String => Node::Text,
            Schema::Fixed(fixed) => Node::Fixed(fixed.size),
            Schema::Enum(named) => Node::Enum(named.symbols.clone()),
            Schema::Array(array) => Node::Array(self.add(&array.items, around)?),
            Schema::Map(map) => Node::Map(self.add(&map.types, around)?),
            Schema::Union(union) => {
                let variants = union.variants().iter();
                Node::Union(
                    variants
                        .map(|variant| self.add(variant, around))
                        .collect::<SqlResult<_>>()?,
                )
            }
            Schema::Record(record) => {
                let qualified = record.name.fully_qualified_name(around);
                let around = qualified.namespace();
                let fields = record.fields.iter();
                let fields = fields.map(|field| Ok((field.name.clone(), self.add(&field.schema, around)?)));
                Node::Record(fields.collect::<SqlResult<_>>()?)
            }
            Schema::Decimal(decimal) => {
                let size = match &decimal.inner {
                    InnerDecimalSchema::Bytes => None,
                    InnerDecimalSchema::Fixed(fixed) => Some(fixed.size),
                };
                Node::Decimal {
                    size,
                    precision: decimal.precision,
                    scale: decimal.scale as i64,
                }
            }
            Schema::BigDecimal => Node::BigDecimal,
            Schema::Uuid(UuidSchema::String) => Node::Text,
            Schema::Uuid(UuidSchema::Bytes) => Node::Uuid(false),
            Schema::Uuid(UuidSchema::Fixed(_)) => Node::Uuid(true),
            Schema::Date => Node::Date,
            Schema::TimeMillis => Node::Time(1_000),
            Schema::TimeMicros => Node::Time(1_000_000),
            Schema::TimestampMillis => Node::Timestamp(1_000, true),
            Schema::TimestampMicros => Node::Timestamp(1_000_000, true),
            Schema::TimestampNanos => Node::Timestamp(1_000_000_000, true),
            Schema::LocalTimestampMillis => Node::Timestamp(1_000, false),
            Schema::LocalTimestampMicros => Node::Timestamp(1_000_000, false),
            Schema::LocalTimestampNanos => Node::Timestamp(1_000_000_000, false),
            Schema::Duration(_) => Node::Duration,
            Schema::Ref { .. } => unreachable!("references are answered above"),
        };
        self.nodes[place] = node;
        Ok(place)
    }
}

/// Bytes that are being read, and what was made of them.
struct Datum<'b> {
    bytes: &'b [u8],
    json: Json,
}

impl<'b> Datum<'b> {
    fn take(&mut self, count: usize) -> SqlResult<&'b [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or_else(too_short)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> SqlResult<[u8; N]> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or_else(too_short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// A number in groups of seven bits, the lowest first, of which the lowest bit is the sign.
    fn long(&mut self) -> SqlResult<i64> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(invalid("a number of Avro has more than 64 bits"));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok((number >> 1) as i64 ^ -((number & 1) as i64));
            }
            shift += 7;
            if shift > 63 {
                return Err(invalid("a number of Avro has more than 64 bits"));
            }
        }
    }

    fn int(&mut self) -> SqlResult<i32> {
        let long = self.long()?;
        i32::try_from(long).map_err(|_| invalid("an int of Avro has more than 32 bits"))
    }

    /// Bytes with their length before them.
    fn sized(&mut self) -> SqlResult<&'b [u8]> {
        let length = self.long()?;
        let length = usize::try_from(length).map_err(|_| invalid("a length in Avro is negative"))?;
        self.take(length)
    }

    fn text(&mut self) -> SqlResult<&'b str> {
        std::str::from_utf8(self.sized()?).map_err(|_| invalid("a text of Avro is not UTF-8"))
    }

    /// Items of an array or a map, in blocks of which each says how many it has.
    fn blocks(&mut self, mut item: impl FnMut(&mut Self) -> SqlResult<()>) -> SqlResult<()> {
        let mut is_first = true;
        loop {
            let mut count = self.long()?;
            if count < 0 {
                // The size of the block, for those who skip it.
                self.long()?;
                count = count
                    .checked_neg()
                    .ok_or_else(|| invalid("a block of Avro is too long"))?;
            }
            if count == 0 {
                return Ok(());
            }
            for _ in 0..count {
                if !std::mem::take(&mut is_first) {
                    self.json.raw(",")?;
                }
                item(self)?;
            }
        }
    }

    fn value(&mut self, layout: &Layout, at: usize, depth: usize) -> SqlResult<()> {
        if depth > DEPTH_MAX {
            return Err(invalid(&format!(
                "a record of Avro is nested more than {DEPTH_MAX} deep"
            )));
        }
        match &layout.nodes[at] {
            Node::Union(variants) => {
                let number = self.long()?;
                let variant = usize::try_from(number)
                    .ok()
                    .and_then(|number| variants.get(number));
                let variant =
                    variant.ok_or_else(|| invalid(&format!("a union of Avro has no branch {number}")))?;
                self.value(layout, *variant, depth + 1)
            }
            Node::Array(items) => {
                self.json.raw("[")?;
                self.blocks(|datum| datum.value(layout, *items, depth + 1))?;
                self.json.raw("]")
            }
            Node::Map(values) => {
                self.json.raw("{")?;
                self.blocks(|datum| {
                    let name = datum.text()?;
                    datum.json.name(name)?;
                    datum.value(layout, *values, depth + 1)
                })?;
                self.json.raw("}")
            }
            Node::Record(fields) => {
                self.json.raw("{")?;
                for (number, (name, field)) in fields.iter().enumerate() {
                    if number > 0 {
                        self.json.raw(",")?;
                    }
                    self.json.name(name)?;
                    self.value(layout, *field, depth + 1)?;
                }
                self.json.raw("}")
            }
            node => self.leaf(layout, node),
        }
    }

    /// A value that has no others in it: apart from those, so that what calls itself takes little of the stack.
    #[inline(never)]
    fn leaf(&mut self, layout: &Layout, node: &Node) -> SqlResult<()> {
        match node {
            Node::Null => self.json.raw("null"),
            Node::Boolean => match self.array()? {
                [0] => self.json.raw("false"),
                [1] => self.json.raw("true"),
                [other] => Err(invalid(&format!("a boolean of Avro is {other}"))),
            },
            Node::Int => {
                let int = self.int()?;
                self.json.raw(&int.to_string())
            }
            Node::Long => {
                let long = self.long()?;
                self.json.raw(&long.to_string())
            }
            Node::Float => {
                let float = f32::from_le_bytes(self.array()?);
                self.json.real(float)
            }
            Node::Double => {
                let double = f64::from_le_bytes(self.array()?);
                self.json.double(double)
            }
            Node::Bytes => {
                let bytes = self.sized()?;
                self.binary(layout, bytes)
            }
            Node::Fixed(size) => {
                let bytes = self.take(*size)?;
                self.binary(layout, bytes)
            }
            Node::Text => {
                let text = self.text()?;
                self.json.text(text)
            }
            Node::Enum(symbols) => {
                let number = self.long()?;
                let symbol = usize::try_from(number)
                    .ok()
                    .and_then(|number| symbols.get(number));
                let symbol =
                    symbol.ok_or_else(|| invalid(&format!("an enum of Avro has no symbol {number}")))?;
                self.json.text(symbol)
            }
            Node::Decimal { size, scale, .. } => {
                let bytes = match size {
                    Some(size) => self.take(*size)?,
                    None => self.sized()?,
                };
                self.json.raw(&written::decimal(bytes, *scale)?)
            }
            Node::BigDecimal => {
                let bytes = self.sized()?;
                let mut inner = Datum {
                    bytes,
                    json: Json::for_input(0),
                };
                let digits = inner.sized()?;
                let scale = inner.long()?;
                self.json.raw(&written::decimal(digits, scale)?)
            }
            Node::Uuid(is_fixed) => {
                let bytes = if *is_fixed { self.take(16)? } else { self.sized()? };
                let bytes: [u8; 16] = bytes
                    .try_into()
                    .map_err(|_| invalid("a UUID of Avro does not have 16 bytes"))?;
                let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                let groups = [0..4, 4..6, 6..8, 8..10, 10..16].map(|group| digits[group].concat());
                self.json.text(&groups.join("-"))
            }
            Node::Date => {
                let days = self.int()?;
                self.json.text(&written::date(days.into())?)
            }
            Node::Time(parts) => {
                let since = self.long()?;
                self.json.text(&written::time_of_day(since, *parts)?)
            }
            Node::Timestamp(parts, is_moment) => {
                let since = self.long()?;
                let zone = if *is_moment { "Z" } else { "" };
                self.json
                    .text(&format!("{}{zone}", written::moment(since, *parts)?))
            }
            Node::Duration => {
                let mut part = || self.array().map(u32::from_le_bytes);
                let (months, days, millis) = (part()?, part()?, part()?);
                self.json
                    .text(&format!("{months} months {days} days {millis} milliseconds"))
            }
            Node::Open | Node::Union(_) | Node::Array(_) | Node::Map(_) | Node::Record(_) => {
                Err(unreadable("a type has no definition"))
            }
        }
    }

    fn binary(&mut self, layout: &Layout, bytes: &[u8]) -> SqlResult<()> {
        match layout.debezium {
            Some(_) => self.json.text(&STANDARD.encode(bytes)),
            None => self.json.text(&written::hexadecimal(bytes)),
        }
    }
}

fn too_short() -> SqlError {
    invalid("the record of Avro ends too soon")
}

#[cfg(test)]
mod tests;
