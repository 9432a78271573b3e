//! Messages of Protobuf as JSON, in the words of our own JSON.
//!
//! Members are called as in the schema. A field that was not set has its default value, or NULL where the schema can tell (`optional`,
//! messages, members of a oneof). Bytes are written as bytea is, 64-bit numbers as numbers; `google.protobuf.Timestamp` is a time,
//! `Duration` an interval, and the wrappers are what they wrap. Whatever else Protobuf's own JSON says of types does not hold.

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value,
};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use super::json::Json;
use super::registry::Registered;
use crate::about::invalid;
use crate::written;

/// The name of the file that the schema itself is.
const ROOT: &str = "millrace.root.proto";

/// What the bytes of a schema's messages are.
#[derive(Debug)]
pub(super) struct Layout {
    pool: DescriptorPool,
    /// The message that is asked for; none: the one that a record names.
    message: Option<MessageDescriptor>,
}

/// The schema's files, by name.
struct Files(Vec<(String, String)>);

impl FileResolver for Files {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.0.iter().find(|(known, _)| known == name) {
            Some((_, text)) => File::from_source(name, text),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

impl Layout {
    /// Of a schema, and of a message in it.
    ///
    /// # Errors
    /// It is none, or has no such message.
    pub(super) fn new(registered: &Registered, message: Option<&str>) -> SqlResult<Layout> {
        let broken = |error: protox::Error| unreadable(&error.to_string());
        let mut files = registered.references.clone();
        files.push((ROOT.to_owned(), registered.text.clone()));
        let mut resolver = ChainFileResolver::new();
        resolver.add(Files(files));
        resolver.add(GoogleFileResolver::new());
        let mut compiler = Compiler::with_file_resolver(resolver);
        compiler.include_imports(true).open_file(ROOT).map_err(broken)?;
        let pool = compiler.descriptor_pool();
        let message = match message {
            None => None,
            Some(name) => Some(pool.get_message_by_name(name).ok_or_else(|| {
                let all: Vec<String> = top_messages(&pool)
                    .map(|message| message.full_name().to_owned())
                    .collect();
                unreadable(&format!("it has no message \"{name}\""))
                    .with_hint(format!("It has {}.", all.join(", ")))
            })?),
        };
        Ok(Layout { pool, message })
    }

    /// The columns that messages have, each with its type in SQL.
    ///
    /// # Errors
    /// The schema has no message.
    pub(super) fn columns(&self) -> SqlResult<Vec<(String, String)>> {
        let message = self.message.clone().or_else(|| top_messages(&self.pool).next());
        let message = message.ok_or_else(|| unreadable("it has no message"))?;
        let column = |field: FieldDescriptor| (field.name().to_owned(), sql_type(&field));
        Ok(message.fields().map(column).collect())
    }

    /// A message as JSON. Before it stands which of the schema's messages it is.
    ///
    /// # Errors
    /// The bytes are not one of the schema.
    pub(super) fn document(&self, bytes: &[u8]) -> SqlResult<Vec<u8>> {
        let (path, bytes) = path(bytes)?;
        let named = self.message_at(&path)?;
        let message = self.message.clone().unwrap_or_else(|| named.clone());
        if message != named {
            let (is, wanted) = (named.full_name(), message.full_name());
            return Err(invalid(&format!("the record is a {is}, not a {wanted}")));
        }
        let mut json = Json::for_input(bytes.len());
        let message = DynamicMessage::decode(message, bytes)
            .map_err(|error| invalid(&format!("the record is not as its schema says: {error}")))?;
        write_message(&mut json, &message)?;
        Ok(json.finish())
    }

    /// The message at a path: the number of one of the file, then of one within that.
    fn message_at(&self, path: &[usize]) -> SqlResult<MessageDescriptor> {
        let missing = || invalid(&format!("the schema has no message at {path:?}"));
        let (first, within) = path.split_first().ok_or_else(missing)?;
        let mut message = top_messages(&self.pool).nth(*first).ok_or_else(missing)?;
        for number in within {
            let child = message.child_messages().nth(*number);
            message = child.ok_or_else(missing)?;
        }
        Ok(message)
    }
}

/// The type of SQL that has the values of a field.
fn sql_type(field: &FieldDescriptor) -> String {
    let one = match field.kind() {
        _ if field.is_map() => "jsonb",
        Kind::Bool => "boolean",
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => "integer",
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 | Kind::Uint32 | Kind::Fixed32 => "bigint",
        Kind::Uint64 | Kind::Fixed64 => "numeric(20, 0)",
        Kind::Float => "real",
        Kind::Double => "double precision",
        Kind::String | Kind::Enum(_) => "text",
        Kind::Bytes => "bytea",
        Kind::Message(message) => match message.full_name() {
            "google.protobuf.Timestamp" => "timestamptz",
            "google.protobuf.Duration" => "interval",
            "google.protobuf.DoubleValue" => "double precision",
            "google.protobuf.FloatValue" => "real",
            "google.protobuf.Int64Value" | "google.protobuf.UInt32Value" => "bigint",
            "google.protobuf.UInt64Value" => "numeric(20, 0)",
            "google.protobuf.Int32Value" => "integer",
            "google.protobuf.BoolValue" => "boolean",
            "google.protobuf.StringValue" => "text",
            "google.protobuf.BytesValue" => "bytea",
            _ => "jsonb",
        },
    };
    match field.is_list() && one != "jsonb" {
        true => format!("{one}[]"),
        false => one.to_owned(),
    }
}

/// The messages of the schema itself, in their order.
fn top_messages(pool: &DescriptorPool) -> impl Iterator<Item = MessageDescriptor> {
    let root = pool.get_file_by_name(ROOT);
    root.into_iter()
        .flat_map(|root| root.messages().collect::<Vec<_>>())
}

fn unreadable(why: &str) -> SqlError {
    SqlError::new(
        SqlState::FeatureNotSupported,
        format!("the schema of the record cannot be read: {why}"),
    )
}

/// Which message it is, and what follows: how many numbers, and the numbers; none stands for the first message alone.
fn path(bytes: &[u8]) -> SqlResult<(Vec<usize>, &[u8])> {
    const LONGEST: usize = 32;
    let mut rest = bytes;
    let mut number = || -> SqlResult<usize> {
        let (mut found, mut shift) = (0_u64, 0);
        loop {
            let (byte, behind) = rest
                .split_first()
                .ok_or_else(|| invalid("the record ends too soon"))?;
            rest = behind;
            found |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                // The lowest bit is the sign.
                return Ok((found >> 1) as usize);
            }
            if shift > 28 {
                return Err(invalid("the record does not say which message it is"));
            }
        }
    };
    let count = number()?;
    if count > LONGEST {
        return Err(invalid("the record does not say which message it is"));
    }
    let path = match count {
        0 => vec![0],
        count => (0..count).map(|_| number()).collect::<SqlResult<_>>()?,
    };
    Ok((path, rest))
}

fn write_message(json: &mut Json, message: &DynamicMessage) -> SqlResult<()> {
    if write_known(json, message)? {
        return Ok(());
    }
    json.raw("{")?;
    let mut is_first = true;
    for field in message.descriptor().fields() {
        if !std::mem::take(&mut is_first) {
            json.raw(",")?;
        }
        json.name(field.name())?;
        if field.supports_presence() && !message.has_field(&field) {
            json.raw("null")?;
            continue;
        }
        write_field(json, &field, &message.get_field(&field))?;
    }
    json.raw("}")
}

/// Messages that stand for a value; whether it is one.
fn write_known(json: &mut Json, message: &DynamicMessage) -> SqlResult<bool> {
    const PACKAGE: &str = "google.protobuf.";
    let descriptor = message.descriptor();
    let Some(name) = descriptor.full_name().strip_prefix(PACKAGE) else {
        return Ok(false);
    };
    let seconds = || {
        message
            .get_field_by_name("seconds")
            .and_then(|value| value.as_i64())
            .unwrap_or(0)
    };
    let nanos = || {
        message
            .get_field_by_name("nanos")
            .and_then(|value| value.as_i32())
            .unwrap_or(0)
    };
    match name {
        "Timestamp" => {
            let nanos = nanos();
            if !(0..1_000_000_000).contains(&nanos) {
                return Err(invalid("a timestamp has nanoseconds out of range"));
            }
            let second = written::moment(seconds(), 1)?;
            json.text(&format!("{second}.{nanos:09}Z"))?;
        }
        "Duration" => {
            let (seconds, nanos) = (seconds(), nanos());
            json.text(&format!("{seconds} seconds {} microseconds", nanos / 1_000))?;
        }
        "DoubleValue" | "FloatValue" | "Int64Value" | "UInt64Value" | "Int32Value" | "UInt32Value"
        | "BoolValue" | "StringValue" | "BytesValue" => {
            let Some(field) = descriptor.get_field_by_name("value") else {
                return Ok(false);
            };
            write_field(json, &field, &message.get_field(&field))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn write_field(json: &mut Json, field: &FieldDescriptor, value: &Value) -> SqlResult<()> {
    let kind = field.kind();
    match value {
        Value::List(items) => {
            json.raw("[")?;
            for (number, item) in items.iter().enumerate() {
                if number > 0 {
                    json.raw(",")?;
                }
                write_value(json, &kind, item)?;
            }
            json.raw("]")
        }
        Value::Map(entries) => {
            let of_values = kind
                .as_message()
                .map(|entry| entry.map_entry_value_field().kind());
            json.raw("{")?;
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            for (number, (key, value)) in entries.into_iter().enumerate() {
                if number > 0 {
                    json.raw(",")?;
                }
                json.name(&key_text(key))?;
                write_value(json, of_values.as_ref().unwrap_or(&kind), value)?;
            }
            json.raw("}")
        }
        one => write_value(json, &kind, one),
    }
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}

fn write_value(json: &mut Json, kind: &Kind, value: &Value) -> SqlResult<()> {
    match value {
        Value::Bool(value) => json.raw(if *value { "true" } else { "false" }),
        Value::I32(value) => json.raw(&value.to_string()),
        Value::I64(value) => json.raw(&value.to_string()),
        Value::U32(value) => json.raw(&value.to_string()),
        Value::U64(value) => json.raw(&value.to_string()),
        Value::F32(value) => json.real(*value),
        Value::F64(value) => json.double(*value),
        Value::String(value) => json.text(value),
        Value::Bytes(value) => json.text(&written::hexadecimal(value)),
        Value::EnumNumber(number) => {
            let known = kind.as_enum().and_then(|of| of.get_value(*number));
            match known {
                Some(value) => json.text(value.name()),
                // Of a schema that is newer than this one.
                None => json.text(&number.to_string()),
            }
        }
        Value::Message(message) => write_message(json, message),
        Value::List(_) | Value::Map(_) => Err(invalid("a list of lists is not one of Protobuf")),
    }
}
