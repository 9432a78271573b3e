//! Rows of a sink, which are JSON, as records of Avro. The schema is one that [`millrace_catalog::sink::avro`] has made.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::{
    DataType, Date32Type, Field, Int64Type, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use bytes::{BufMut as _, Bytes, BytesMut};
use millrace_catalog::sink::avro::JSON_NAME;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::{parse, timestamptz};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::about::{Members, broken, invalid};

/// Makes records of one schema.
#[derive(Debug)]
pub(crate) struct Encoder {
    /// The number of the schema in the registry.
    id: u32,
    record: Arc<Form>,
}

/// What JSON becomes.
#[derive(Debug)]
enum Form {
    Boolean,
    /// Of both lengths: they are written alike.
    Whole,
    Float,
    Double,
    Bytes,
    Text,
    /// The text of the JSON itself.
    Json,
    Date,
    Time,
    Timestamp,
    Moment,
    Decimal(usize),
    Nullable(Arc<Form>),
    Array(Arc<Form>),
    Record(Vec<(String, Arc<Form>)>),
}

impl Encoder {
    /// For a schema and its number.
    ///
    /// # Errors
    /// It is none that a sink has.
    pub fn new(schema: &str, id: u32) -> SqlResult<Encoder> {
        let schema: Value = serde_json::from_str(schema).map_err(|error| foreign(&error.to_string()))?;
        let record = form(&schema, &mut HashMap::new())?;
        Ok(Encoder { id, record })
    }

    /// A record of a JSON object, behind the number of the schema.
    ///
    /// # Errors
    /// It is not what the schema says.
    pub fn encode(&self, object: &[u8]) -> SqlResult<Bytes> {
        let object: &RawValue = serde_json::from_slice(object).map_err(|error| broken("row", &error))?;
        let mut out = BytesMut::with_capacity(64);
        out.put_u8(0);
        out.put_u32(self.id);
        put(&self.record, object, &mut out)?;
        Ok(out.freeze())
    }
}

fn foreign(why: &str) -> SqlError {
    SqlError::new(
        SqlState::DataCorrupted,
        format!("the schema of the sink is not one that was made for it: {why}"),
    )
}

fn form(schema: &Value, named: &mut HashMap<String, Arc<Form>>) -> SqlResult<Arc<Form>> {
    let text = |member: &str| schema.get(member).and_then(Value::as_str);
    let found = match schema {
        Value::String(name) => match name.as_str() {
            "boolean" => Form::Boolean,
            "int" | "long" => Form::Whole,
            "float" => Form::Float,
            "double" => Form::Double,
            "bytes" => Form::Bytes,
            "string" => Form::Text,
            other => return named.get(other).cloned().ok_or_else(|| foreign(other)),
        },
        Value::Array(branches) => match branches.as_slice() {
            [Value::String(null), other] if null == "null" => Form::Nullable(form(other, named)?),
            _ => return Err(foreign("a union")),
        },
        _ => match (text("type"), text("logicalType")) {
            (_, Some("date")) => Form::Date,
            (_, Some("time-micros")) => Form::Time,
            (_, Some("local-timestamp-micros")) => Form::Timestamp,
            (_, Some("timestamp-micros")) => Form::Moment,
            (_, Some("decimal")) => {
                let scale = schema.get("scale").and_then(Value::as_u64).unwrap_or_default();
                Form::Decimal(usize::try_from(scale).map_err(|_| foreign("a scale"))?)
            }
            (Some("string"), None) if text("connect.name") == Some(JSON_NAME) => Form::Json,
            (Some("array"), None) => Form::Array(form(schema.get("items").unwrap_or(&Value::Null), named)?),
            (Some("record"), None) => {
                let fields = schema.get("fields").and_then(Value::as_array);
                let mut members = vec![];
                for field in fields.ok_or_else(|| foreign("a record"))? {
                    let name = field.get("name").and_then(Value::as_str);
                    let of = form(field.get("type").unwrap_or(&Value::Null), named)?;
                    members.push((name.ok_or_else(|| foreign("a field"))?.to_owned(), of));
                }
                let record = Arc::new(Form::Record(members));
                let (space, name) = (
                    text("namespace").unwrap_or_default(),
                    text("name").unwrap_or_default(),
                );
                named.insert(format!("{space}.{name}"), Arc::clone(&record));
                return Ok(record);
            }
            _ => return Err(foreign(&schema.to_string())),
        },
    };
    Ok(Arc::new(found))
}

fn put(form: &Form, given: &RawValue, out: &mut BytesMut) -> SqlResult<()> {
    let json = given.get();
    let wrong = || invalid(&format!("\"{json}\" is not of the type that the schema has"));
    match form {
        Form::Nullable(other) => match json {
            "null" => put_long(0, out),
            _ => {
                put_long(1, out);
                put(other, given, out)?;
            }
        },
        Form::Boolean => out.put_u8(u8::from(json.parse::<bool>().map_err(|_| wrong())?)),
        Form::Whole => put_long(json.parse().map_err(|_| wrong())?, out),
        // What JSON does not have is a text: NaN, Infinity.
        Form::Float => out.put_f32_le(json.trim_matches('"').parse().map_err(|_| wrong())?),
        Form::Double => out.put_f64_le(json.trim_matches('"').parse().map_err(|_| wrong())?),
        Form::Json => put_bytes(json.as_bytes(), out),
        Form::Text => put_bytes(text(given)?.as_bytes(), out),
        Form::Bytes => put_bytes(&parse::bytea(&text(given)?)?, out),
        Form::Decimal(scale) => put_bytes(&decimal(&text(given)?, *scale)?, out),
        Form::Date | Form::Time | Form::Timestamp | Form::Moment => put_long(time(form, &text(given)?)?, out),
        Form::Array(item) => {
            let items: Vec<&RawValue> = serde_json::from_str(json).map_err(|_| wrong())?;
            if !items.is_empty() {
                put_long(i64::try_from(items.len()).map_err(|_| wrong())?, out);
                for one in items {
                    put(item, one, out)?;
                }
            }
            put_long(0, out);
        }
        Form::Record(fields) => {
            let members: Members<'_> = serde_json::from_str(json).map_err(|error| broken("row", &error))?;
            for (name, of) in fields {
                let member = members
                    .get(name)
                    .ok_or_else(|| invalid(&format!("\"{name}\" is missing")))?;
                put(of, member, out).map_err(|mut error| {
                    error.message = format!("column \"{name}\": {}", error.message);
                    error
                })?;
            }
        }
    }
    Ok(())
}

/// A whole number: the sign last, seven bits a byte, the lowest first.
fn put_long(number: i64, out: &mut BytesMut) {
    let mut left = ((number << 1) ^ (number >> 63)) as u64;
    while left >= 0x80 {
        out.put_u8(left as u8 | 0x80);
        left >>= 7;
    }
    out.put_u8(left as u8);
}

fn put_bytes(bytes: &[u8], out: &mut BytesMut) {
    put_long(bytes.len() as i64, out);
    out.put_slice(bytes);
}

/// A text; what is none is it as it is written.
fn text(given: &RawValue) -> SqlResult<String> {
    match given.get() {
        quoted if quoted.starts_with('"') => {
            serde_json::from_str(quoted).map_err(|error| broken("row", &error))
        }
        other => Ok(other.to_owned()),
    }
}

/// The number of a date or time as SQL writes it: days, or microseconds.
fn time(form: &Form, text: &str) -> SqlResult<i64> {
    let field = |of: DataType| Field::new("", of, false);
    let value = match form {
        Form::Date => {
            let days = parse::value(&field(DataType::Date32), Some(text))?;
            return Ok(days.as_primitive::<Date32Type>().value(0).into());
        }
        Form::Time => {
            let since = parse::value(&field(DataType::Time64(TimeUnit::Microsecond)), Some(text))?;
            return Ok(since.as_primitive::<Time64MicrosecondType>().value(0));
        }
        Form::Moment => parse::value(&field(timestamptz()), Some(text))?,
        _ => parse::value(
            &field(DataType::Timestamp(TimeUnit::Microsecond, None)),
            Some(text),
        )?,
    };
    match value.as_primitive_opt::<TimestampMicrosecondType>() {
        Some(value) => Ok(value.value(0)),
        None => Ok(value.as_primitive::<Int64Type>().value(value.len() - 1)),
    }
}

/// The digits of a number with so many behind the point, in two's complement, the highest byte first and none too many.
fn decimal(text: &str, scale: usize) -> SqlResult<Vec<u8>> {
    let wrong = || invalid(&format!("Avro has no decimal \"{text}\""));
    let (before, behind) = text.split_once('.').unwrap_or((text, ""));
    if behind.len() > scale {
        return Err(wrong());
    }
    let digits = format!("{before}{behind:0<scale$}");
    let number: i128 = digits.parse().map_err(|_| wrong())?;
    let bytes = number.to_be_bytes();
    // Bytes in front that only repeat the sign are none.
    let fill = if number < 0 { 0xff } else { 0 };
    let is_sign = |pair: &[u8]| pair[0] == fill && (pair[1] & 0x80) == (fill & 0x80);
    let signs = bytes.windows(2).take_while(|pair| is_sign(pair)).count();
    Ok(bytes[signs..].to_vec())
}

#[cfg(test)]
mod tests {
    use apache_avro::Schema;
    use apache_avro::reader::datum::GenericDatumReader;
    use apache_avro::types::Value as Avro;
    use arrow::datatypes::Schema as Columns;
    use millrace_catalog::sink::SinkType;
    use millrace_catalog::sink::avro::AvroSchemas;
    use millrace_postgres::types::SqlType;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::schema::avro::Layout;
    use crate::schema::registry::{Language, Registered};
    use crate::written;

    fn columns() -> Columns {
        let plain = |name: &str, of: DataType| Field::new(name, of, true);
        Columns::new(vec![
            Field::new("id", DataType::Int64, false),
            plain("ok", DataType::Boolean),
            plain("small", DataType::Int16),
            plain("real", DataType::Float32),
            plain("wide", DataType::Float64),
            plain("raw", DataType::Binary),
            plain("name", DataType::Utf8),
            SqlType::annotated(DataType::Utf8, "jsonb").field("doc", true),
            plain("day", DataType::Date32),
            plain("at", DataType::Timestamp(TimeUnit::Microsecond, None)),
            plain("moment", timestamptz()),
            plain("clock", DataType::Time64(TimeUnit::Microsecond)),
            plain("price", DataType::Decimal128(9, 2)),
            plain(
                "tags",
                DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))),
            ),
        ])
    }

    fn schemas(sink_type: SinkType) -> AvroSchemas {
        let columns = columns();
        let names: Vec<String> = columns
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        AvroSchemas::new("shop.orders", sink_type, &names, Some(&[0]), &columns).unwrap()
    }

    /// What somebody else reads, and what we read.
    fn read(schema: &str, bytes: &[u8]) -> (Avro, String) {
        let registered = Registered {
            language: Language::Avro,
            text: schema.to_owned(),
            references: vec![],
        };
        let document = Layout::new(&registered, false)
            .unwrap()
            .document(&bytes[5..])
            .unwrap();
        let schema = Schema::parse_str(schema).unwrap();
        let reader = GenericDatumReader::builder(&schema).build().unwrap();
        let mut left = &bytes[5..];
        let value = reader.read_value(&mut left).unwrap();
        assert!(left.is_empty(), "all of it was read");
        (value, String::from_utf8(document).unwrap())
    }

    const ROW: &str = r#"{"id":-7,"ok":true,"small":-300,"real":0.1,"wide":"NaN","raw":"\\x00ff","name":"a\"\u00fc\n","doc":{"a": [1e400, "x"]},"day":"1969-12-31","at":"2024-02-29 12:34:56.789","moment":"2024-02-29 12:34:56.789+00","clock":"23:59:59.999999","price":"-1234567.89","tags":["x",null,"y"]}"#;

    #[test]
    fn others_read_what_was_written() {
        let schemas = schemas(SinkType::Upsert);
        let encoded = Encoder::new(&schemas.value, 258)
            .unwrap()
            .encode(ROW.as_bytes())
            .unwrap();
        assert_eq!(encoded[..5], [0, 0, 0, 1, 2]);
        let (value, document) = read(&schemas.value, &encoded);
        let Avro::Record(fields) = value else {
            panic!("it is a record")
        };
        let of = |name: &str| {
            let (_, value) = fields.iter().find(|(field, _)| field == name).unwrap();
            match value {
                Avro::Union(1, value) => value.as_ref().clone(),
                other => other.clone(),
            }
        };
        assert_eq!(of("id"), Avro::Long(-7));
        assert_eq!(of("ok"), Avro::Boolean(true));
        assert_eq!(of("small"), Avro::Int(-300));
        assert_eq!(of("real"), Avro::Float(0.1));
        assert!(matches!(of("wide"), Avro::Double(number) if number.is_nan()));
        assert_eq!(of("raw"), Avro::Bytes(vec![0, 255]));
        assert_eq!(of("name"), Avro::String("a\"ü\n".to_owned()));
        assert_eq!(of("doc"), Avro::String(r#"{"a": [1e400, "x"]}"#.to_owned()));
        assert_eq!(of("day"), Avro::Date(-1));
        let micros = 1_709_210_096_789_000;
        assert_eq!(of("at"), Avro::LocalTimestampMicros(micros));
        assert_eq!(of("moment"), Avro::TimestampMicros(micros));
        assert_eq!(of("clock"), Avro::TimeMicros(86_399_999_999));
        assert_eq!(
            of("price"),
            Avro::Decimal((-123_456_789_i32).to_be_bytes().into())
        );
        let text = |text: &str| Avro::Union(1, Box::new(Avro::String(text.to_owned())));
        let tags = vec![text("x"), Avro::Union(0, Box::new(Avro::Null)), text("y")];
        assert_eq!(of("tags"), Avro::Array(tags));
        assert!(
            document.contains(r#""moment":"2024-02-29 12:34:56.789Z""#),
            "{document}"
        );
        assert!(document.contains("-1234567.89"), "{document}");
    }

    #[test]
    fn nulls_keys_and_events() {
        let nulls: Vec<String> = (columns().fields().iter())
            .map(|field| {
                format!(
                    "\"{}\":{}",
                    field.name(),
                    if field.name() == "id" { "1" } else { "null" }
                )
            })
            .collect();
        let nulls = format!("{{{}}}", nulls.join(","));
        let schemas = schemas(SinkType::Debezium);
        let key = schemas.key.unwrap();
        let encoded = Encoder::new(&key, 1).unwrap().encode(br#"{"id":5}"#).unwrap();
        assert_eq!(encoded[5..], [10]);
        assert_eq!(read(&key, &encoded).1, r#"{"id":5}"#);
        let event = format!("{{\"before\":{nulls},\"after\":{ROW},\"op\":\"u\"}}");
        let encoder = Encoder::new(&schemas.value, 1).unwrap();
        let encoded = encoder.encode(event.as_bytes()).unwrap();
        let (_, document) = read(&schemas.value, &encoded);
        assert!(
            document.starts_with(&format!("{{\"before\":{nulls},\"after\":{{\"id\":-7,")),
            "{document}"
        );
        for wrong in ["{}", "[]", "", r#"{"before":null,"after":{"id":1},"op":"c"}"#] {
            assert!(encoder.encode(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_those_that_were_given() {
        let mut random = StdRng::seed_from_u64(7);
        for _ in 0..2_000 {
            let long = random.random::<i64>() >> random.random_range(0..63);
            let mut bytes = BytesMut::new();
            put_long(long, &mut bytes);
            let schema = Schema::Long;
            let reader = GenericDatumReader::builder(&schema).build().unwrap();
            assert_eq!(reader.read_value(&mut &bytes[..]).unwrap(), Avro::Long(long));
            let number = random.random::<i128>() >> random.random_range(2..127);
            let scale = random.random_range(0..30);
            let shown = written::decimal(&number.to_be_bytes(), scale).unwrap();
            let bytes = decimal(&shown, usize::try_from(scale).unwrap()).unwrap();
            assert_eq!(written::decimal(&bytes, scale).unwrap(), shown);
            assert!(
                bytes.len() == 1 || decimal(&shown, usize::try_from(scale).unwrap()).unwrap()[..] == bytes
            );
        }
        for (text, scale) in [("NaN", 2), ("1.234", 2), ("", 0), ("1e3", 0)] {
            assert!(decimal(text, scale).is_err(), "{text}");
        }
        assert_eq!(decimal("-0.02", 2).unwrap(), [0xfe]);
        assert_eq!(decimal("1", 2).unwrap(), [100]);
        assert_eq!(decimal("128", 0).unwrap(), [0, 128]);
    }
}
