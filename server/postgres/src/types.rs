//! PostgreSQL's types and the Arrow types that hold them.
//!
//! | SQL | Arrow | annotation |
//! |---|---|---|
//! | boolean, smallint, int, bigint, real, double precision | Boolean, Int16, Int32, Int64, Float32, Float64 | |
//! | numeric(p, s); numeric | Decimal128(p, s); Decimal128(38, 10) | `numeric` without precision |
//! | text; varchar(n); char(n) | Utf8 | `varchar(n)`, `char(n)` |
//! | bytea | Binary | |
//! | date, time, timestamp, timestamptz | Date32, Time64(us), Timestamp(us), Timestamp(us, UTC) | |
//! | interval | Interval(MonthDayNano) | |
//! | the same with digits of seconds | the same | the type's name, `timestamp(3) without time zone` |
//! | uuid | Utf8, lower case with hyphens | `uuid` |
//! | json, jsonb | Utf8, jsonb in PostgreSQL's normal form | `json`, `jsonb` |
//! | t[] | List | the element's |
//! | an enum | Utf8, see [`enumeration`] | `enum`, its oid and its name |
//! | a composite type; a record | Struct, see [`composite`] | `composite`, its oid and its name; none |
//!
//! Where Arrow has no type of its own, the field's metadata says what the column is, under [`ANNOTATION`]; comparisons
//! and casts of uuid and jsonb are then those of their texts, which order the same way. `numeric` without a precision is
//! held with ten digits after the point; char(n) is held without its padding.

pub mod composite;
pub mod digits;
pub mod enumeration;
pub mod interval;
pub mod interval_fields;
pub mod json;
pub mod jsonpath;
mod lengths;
pub mod named;
pub mod output;
pub mod padding;
pub mod parameter;
pub mod parse;
pub mod resolution;
pub mod zone;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::sql::sqlparser::ast::{self, ArrayElemTypeDef, ExactNumberInfo, TimezoneInfo};
use millrace_sql::complexity::check_type;
use postgres_types::Type;

use crate::error::{SqlError, SqlResult, SqlState};
use crate::from_internal;
use crate::types::composite::CompositeType;
use crate::types::enumeration::{EnumType, VALUES};
pub use crate::types::lengths::length_limit;

/// The key in a field's metadata under which the name of the SQL type stands where Arrow's says too little.
pub const ANNOTATION: &str = "millrace.type";

/// Digits after the point of `numeric` without a precision.
pub const NUMERIC_SCALE: i8 = 10;
/// Digits of the widest numeric.
pub const NUMERIC_PRECISION: u8 = 38;

/// The first oid that PostgreSQL gives to objects of users: an object's is this plus its identity.
pub const FIRST_OID: u32 = 16_384;

/// An SQL type: what holds it, and what else is to be known of it.
#[derive(Debug, Clone)]
pub struct SqlType {
    /// The Arrow type.
    pub data_type: DataType,
    /// The annotation that goes into the field's metadata.
    pub annotation: Option<String>,
    /// Which values there are of an enum, or of the elements of an array, for the field's metadata. It is the same type when some
    /// are added.
    pub values: Option<String>,
}

impl PartialEq for SqlType {
    fn eq(&self, other: &Self) -> bool {
        self.data_type == other.data_type && self.annotation == other.annotation
    }
}

impl Eq for SqlType {}

impl SqlType {
    /// A type that Arrow expresses fully.
    pub fn plain(data_type: DataType) -> Self {
        SqlType {
            data_type,
            annotation: None,
            values: None,
        }
    }

    /// A type that needs an annotation.
    pub fn annotated(data_type: DataType, annotation: impl Into<String>) -> Self {
        SqlType {
            data_type,
            annotation: Some(annotation.into()),
            values: None,
        }
    }

    /// A column of this type.
    pub fn field(&self, name: impl Into<String>, nullable: bool) -> Field {
        let notes = [(ANNOTATION, &self.annotation), (VALUES, &self.values)];
        let notes = notes.into_iter();
        let notes = notes.filter_map(|(key, note)| Some((key.to_owned(), note.clone()?)));
        Field::new(name, self.data_type.clone(), nullable).with_metadata(notes.collect())
    }

    /// The type of a column.
    pub fn of(field: &Field) -> Self {
        SqlType {
            data_type: field.data_type().clone(),
            annotation: field.metadata().get(ANNOTATION).cloned(),
            values: field.metadata().get(VALUES).cloned(),
        }
    }

    /// Arrays of it.
    #[must_use]
    pub fn array(mut self) -> Self {
        let values = self.values.take();
        SqlType {
            values,
            ..SqlType::plain(DataType::List(Arc::new(self.field("item", true))))
        }
    }
}

/// The elements of an array, with what is known of their type.
pub fn element(array: &Field) -> Option<FieldRef> {
    let (DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) =
        array.data_type()
    else {
        return None;
    };
    let Some(values) = array.metadata().get(VALUES) else {
        return Some(Arc::clone(item));
    };
    let mut metadata = item.metadata().clone();
    metadata.insert(VALUES.to_owned(), values.clone());
    Some(Arc::new(item.as_ref().clone().with_metadata(metadata)))
}

/// The type that holds timestamptz.
pub fn timestamptz() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC")))
}

/// What an SQL type name means.
///
/// # Errors
/// The type is not known (42704) or not supported (0A000).
pub fn from_sql(sql_type: &ast::DataType) -> SqlResult<SqlType> {
    use ast::DataType as Sql;
    Ok(match sql_type {
        Sql::Boolean | Sql::Bool => SqlType::plain(DataType::Boolean),
        Sql::SmallInt(_) | Sql::Int2(_) | Sql::TinyInt(_) => SqlType::plain(DataType::Int16),
        Sql::Int(_) | Sql::Integer(_) | Sql::Int4(_) => SqlType::plain(DataType::Int32),
        Sql::BigInt(_) | Sql::Int8(_) => SqlType::plain(DataType::Int64),
        Sql::Real | Sql::Float4 => SqlType::plain(DataType::Float32),
        Sql::Float(ExactNumberInfo::Precision(bits)) if *bits <= 24 => SqlType::plain(DataType::Float32),
        Sql::Float(_) | Sql::Double(_) | Sql::DoublePrecision | Sql::Float8 => {
            SqlType::plain(DataType::Float64)
        }
        Sql::Numeric(info) | Sql::Decimal(info) | Sql::Dec(info) => lengths::numeric(info)?,
        Sql::Text | Sql::String(_) => SqlType::plain(DataType::Utf8),
        Sql::Varchar(length)
        | Sql::CharacterVarying(length)
        | Sql::CharVarying(length)
        | Sql::Nvarchar(length) => match lengths::of_characters(length.as_ref())? {
            Some(length) => SqlType::annotated(DataType::Utf8, format!("varchar({length})")),
            None => SqlType::annotated(DataType::Utf8, "varchar"),
        },
        Sql::Char(length) | Sql::Character(length) => {
            let length = lengths::of_characters(length.as_ref())?.unwrap_or(1);
            SqlType::annotated(DataType::Utf8, format!("char({length})"))
        }
        Sql::Bytea => SqlType::plain(DataType::Binary),
        Sql::Date => SqlType::plain(DataType::Date32),
        Sql::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            digits::annotated(DataType::Time64(TimeUnit::Microsecond), *digits)?
        }
        Sql::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            digits::annotated(DataType::Timestamp(TimeUnit::Microsecond, None), *digits)?
        }
        Sql::Timestamp(digits, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
            digits::annotated(timestamptz(), *digits)?
        }
        Sql::Interval { fields, precision } => digits::interval(fields.as_ref(), *precision)?,
        Sql::Uuid => SqlType::annotated(DataType::Utf8, "uuid"),
        Sql::JSON => SqlType::annotated(DataType::Utf8, "json"),
        Sql::JSONB => SqlType::annotated(DataType::Utf8, "jsonb"),
        Sql::Array(
            ArrayElemTypeDef::SquareBracket(element, _)
            | ArrayElemTypeDef::AngleBracket(element)
            | ArrayElemTypeDef::Parenthesis(element),
        ) => {
            // Arrays of arrays are PostgreSQL's multidimensional arrays: the same type whatever the dimensions.
            let array = from_sql(element)?.array();
            check_type(&array.data_type).map_err(from_internal::datafusion)?;
            array
        }
        Sql::Custom(name, words) => {
            if let Some(known) = EnumType::from_ast(name, words) {
                return Ok(known.sql_type());
            }
            if let Some(known) = CompositeType::from_ast(name, words) {
                let known = known.sql_type()?;
                check_type(&known.data_type).map_err(from_internal::datafusion)?;
                return Ok(known);
            }
            let name = name.to_string().replace('"', "").to_lowercase();
            match name.trim_start_matches("pg_catalog.") {
                "timestamptz" => SqlType::plain(timestamptz()),
                "jsonpath" => SqlType::annotated(DataType::Utf8, "jsonpath"),
                "name" | "bpchar" => SqlType::plain(DataType::Utf8),
                "oid" => SqlType::annotated(DataType::Int64, "oid"),
                "xid" => SqlType::plain(DataType::Int64),
                "int2" => SqlType::plain(DataType::Int16),
                "int4" => SqlType::plain(DataType::Int32),
                "int8" => SqlType::plain(DataType::Int64),
                "float4" => SqlType::plain(DataType::Float32),
                "float8" => SqlType::plain(DataType::Float64),
                "bool" => SqlType::plain(DataType::Boolean),
                "text" => SqlType::plain(DataType::Utf8),
                "serial" | "bigserial" | "smallserial" | "serial2" | "serial4" | "serial8" => {
                    return Err(SqlError::unsupported(format!("type \"{name}\" is not supported"))
                        .with_hint("It is one only of the columns of CREATE TABLE. Use an integer type."));
                }
                other => {
                    let known = KNOWN_TYPES.iter().copied();
                    return Err(SqlError::new(
                        SqlState::UndefinedObject,
                        format!("type \"{other}\" does not exist"),
                    )
                    .with_hint_opt(crate::names::did_you_mean(other, known)));
                }
            }
        }
        other => return Err(SqlError::unsupported(format!("type {other} is not supported"))),
    })
}

/// The names that a misspelt type is compared with.
const KNOWN_TYPES: &[&str] = &[
    "bigint",
    "boolean",
    "bytea",
    "char",
    "date",
    "double precision",
    "integer",
    "interval",
    "json",
    "jsonb",
    "jsonpath",
    "numeric",
    "real",
    "smallint",
    "text",
    "time",
    "timestamp",
    "timestamptz",
    "uuid",
    "varchar",
];

/// Whether it holds texts, in whatever layout.
pub fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

/// The PostgreSQL type of a column, as it goes over the wire.
pub fn pg_type(field: &Field) -> Type {
    if let Some(known) = EnumType::of(field) {
        return known.pg_type();
    }
    if let Some(composite) = composite::pg(field) {
        return composite;
    }
    if let Some(annotation) = field.metadata().get(ANNOTATION) {
        match annotation.as_str() {
            // An array whose elements say too little themselves.
            other if other.ends_with("[]") => {
                if let Some(array) = named_array(other) {
                    return array;
                }
            }
            "uuid" => return Type::UUID,
            "json" => return Type::JSON,
            "jsonb" => return Type::JSONB,
            "jsonpath" => return Type::JSONPATH,
            "name" => return Type::NAME,
            "\"char\"" => return Type::CHAR,
            "int2vector" => return Type::INT2_VECTOR,
            "oidvector" => return Type::OID_VECTOR,
            "oid" => return Type::OID,
            other if other.starts_with("varchar") => return Type::VARCHAR,
            other if other.starts_with("char(") => return Type::BPCHAR,
            _ => {}
        }
    }
    if let Some(element) = element(field) {
        return array_of(&pg_type(&element));
    }
    // What has no type is a text in a result.
    if matches!(field.data_type(), DataType::Null) {
        return Type::TEXT;
    }
    // Wider than columns are: a literal of 50 digits. arrow-pg knows none of them.
    if matches!(field.data_type(), DataType::Decimal256(..)) {
        return Type::NUMERIC;
    }
    // Fields of pg_catalog carry annotations of their own, which arrow-pg knows.
    arrow_pg::datatypes::field_into_pg_type(&Arc::new(field.clone())).unwrap_or(Type::TEXT)
}

/// The array type of a name such as `oid[]`.
fn named_array(name: &str) -> Option<Type> {
    Some(match name {
        "oid[]" => Type::OID_ARRAY,
        "name[]" => Type::NAME_ARRAY,
        "uuid[]" => Type::UUID_ARRAY,
        "json[]" => Type::JSON_ARRAY,
        "jsonb[]" => Type::JSONB_ARRAY,
        "varchar[]" => Type::VARCHAR_ARRAY,
        "bpchar[]" => Type::BPCHAR_ARRAY,
        _ => return None,
    })
}

/// The array type of an element type.
fn array_of(element: &Type) -> Type {
    match *element {
        Type::BOOL => Type::BOOL_ARRAY,
        Type::INT2 => Type::INT2_ARRAY,
        Type::INT4 => Type::INT4_ARRAY,
        Type::INT8 => Type::INT8_ARRAY,
        Type::FLOAT4 => Type::FLOAT4_ARRAY,
        Type::FLOAT8 => Type::FLOAT8_ARRAY,
        Type::NUMERIC => Type::NUMERIC_ARRAY,
        Type::VARCHAR => Type::VARCHAR_ARRAY,
        Type::BPCHAR => Type::BPCHAR_ARRAY,
        Type::BYTEA => Type::BYTEA_ARRAY,
        Type::DATE => Type::DATE_ARRAY,
        Type::TIME => Type::TIME_ARRAY,
        Type::TIMESTAMP => Type::TIMESTAMP_ARRAY,
        Type::TIMESTAMPTZ => Type::TIMESTAMPTZ_ARRAY,
        Type::INTERVAL => Type::INTERVAL_ARRAY,
        Type::UUID => Type::UUID_ARRAY,
        Type::JSON => Type::JSON_ARRAY,
        Type::JSONB => Type::JSONB_ARRAY,
        Type::OID => Type::OID_ARRAY,
        Type::NAME => Type::NAME_ARRAY,
        // The array types themselves: more dimensions are the same type.
        ref other if matches!(other.kind(), postgres_types::Kind::Array(_)) => other.clone(),
        ref other => match EnumType::from_pg(other) {
            Some(known) => known.array_pg_type(),
            None => composite::pg_array(other).unwrap_or(Type::TEXT_ARRAY),
        },
    }
}

/// What holds a parameter of a PostgreSQL type; `None` when millrace does not know the type.
pub fn from_pg(pg: &Type) -> Option<SqlType> {
    if let postgres_types::Kind::Array(element) = pg.kind() {
        let list = from_pg(element)?.array();
        return Some(match *pg {
            Type::INT2_VECTOR => SqlType::annotated(list.data_type, "int2vector"),
            Type::OID_VECTOR => SqlType::annotated(list.data_type, "oidvector"),
            _ => list,
        });
    }
    if let Some(known) = EnumType::from_pg(pg) {
        return Some(known.sql_type());
    }
    if let Some(composite) = composite::of_pg(pg) {
        return Some(composite);
    }
    Some(match *pg {
        Type::BOOL => SqlType::plain(DataType::Boolean),
        Type::INT2 => SqlType::plain(DataType::Int16),
        Type::INT4 => SqlType::plain(DataType::Int32),
        Type::INT8 => SqlType::plain(DataType::Int64),
        Type::OID => SqlType::annotated(DataType::Int64, "oid"),
        Type::FLOAT4 => SqlType::plain(DataType::Float32),
        Type::FLOAT8 => SqlType::plain(DataType::Float64),
        Type::NUMERIC => {
            SqlType::annotated(DataType::Decimal128(NUMERIC_PRECISION, NUMERIC_SCALE), "numeric")
        }
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::CHAR => {
            SqlType::plain(DataType::Utf8)
        }
        // A name, or an oid as a text: what it means is looked up where it is used.
        Type::REGCLASS => SqlType::plain(DataType::Utf8),
        Type::BYTEA => SqlType::plain(DataType::Binary),
        Type::DATE => SqlType::plain(DataType::Date32),
        Type::TIME => SqlType::plain(DataType::Time64(TimeUnit::Microsecond)),
        Type::TIMESTAMP => SqlType::plain(DataType::Timestamp(TimeUnit::Microsecond, None)),
        Type::TIMESTAMPTZ => SqlType::plain(timestamptz()),
        Type::INTERVAL => SqlType::plain(DataType::Interval(IntervalUnit::MonthDayNano)),
        Type::UUID => SqlType::annotated(DataType::Utf8, "uuid"),
        Type::JSON => SqlType::annotated(DataType::Utf8, "json"),
        Type::JSONB => SqlType::annotated(DataType::Utf8, "jsonb"),
        Type::JSONPATH => SqlType::annotated(DataType::Utf8, "jsonpath"),
        _ => return None,
    })
}

/// Whether a column is a `numeric` without a precision, which shows no zeros at the end. The type tells it: expressions over
/// such a column may have lost its annotation, and casts to another precision may have kept it.
pub fn is_any_numeric(field: &Field) -> bool {
    field.data_type() == &DataType::Decimal128(NUMERIC_PRECISION, NUMERIC_SCALE)
}

/// `pg_attribute.atttypmod`: the precision and scale of a numeric, the length of a varchar or char, the digits of a time's
/// seconds, or those of an array's elements; else -1.
pub fn modifier(field: &Field) -> i32 {
    /// PostgreSQL counts the header of a variable-length value.
    const HEADER_BYTES: i32 = 4;
    if let Some((_, length)) = length_limit(field) {
        return i32::try_from(length).map_or(i32::MAX, |length| length.saturating_add(HEADER_BYTES));
    }
    match field.data_type() {
        DataType::List(item) => modifier(item),
        DataType::Decimal128(precision, scale)
            if *scale >= 0 && !field.metadata().contains_key(ANNOTATION) =>
        {
            ((i32::from(*precision) << 16) | i32::from(*scale)) + HEADER_BYTES
        }
        _ => digits::modifier(field).unwrap_or(-1),
    }
}

/// The type of an expression without lengths and precisions, as `pg_typeof` names it.
pub fn plain_name(field: &Field) -> String {
    if matches!(field.data_type(), DataType::Interval(_)) {
        return "interval".to_owned();
    }
    let name = type_name(field);
    match (name.find('('), name.find(')')) {
        (Some(start), Some(end)) if start < end => format!("{}{}", &name[..start], &name[end + 1..]),
        _ => name,
    }
}

/// The type of a column as `\d` and error messages name it.
pub fn type_name(field: &Field) -> String {
    let annotation = field
        .metadata()
        .get(ANNOTATION)
        .filter(|name| *name != "numeric" || is_any_numeric(field))
        // A cast to another type may have kept it.
        .filter(|name| !digits::names_a_time(name) || digits::is_noted(field));
    if let Some(annotation) = annotation {
        if let Some(known) = enumeration::named(annotation) {
            return known.shown();
        }
        if let Some((_, schema, name)) = composite::named(annotation) {
            return enumeration::shown(&schema, &name);
        }
        return match annotation.strip_prefix("varchar") {
            Some(rest) => format!("character varying{rest}"),
            None => match annotation.strip_prefix("char(") {
                Some(rest) => format!("character({rest}"),
                None => annotation.clone(),
            },
        };
    }
    match field.data_type() {
        DataType::Boolean => "boolean".into(),
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => "smallint".into(),
        DataType::Int32 | DataType::UInt16 => "integer".into(),
        DataType::Int64 | DataType::UInt32 => "bigint".into(),
        DataType::UInt64 => "numeric".into(),
        DataType::Float16 | DataType::Float32 => "real".into(),
        DataType::Float64 => "double precision".into(),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            format!("numeric({precision},{scale})")
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => "text".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "bytea".into()
        }
        DataType::Date32 | DataType::Date64 => "date".into(),
        DataType::Time32(_) | DataType::Time64(_) => "time without time zone".into(),
        DataType::Timestamp(_, None) => "timestamp without time zone".into(),
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone".into(),
        DataType::Interval(_) | DataType::Duration(_) => "interval".into(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            format!("{}[]", type_name(item))
        }
        DataType::Dictionary(_, value) => type_name(&Field::new("", value.as_ref().clone(), true)),
        DataType::Struct(_) => "record".into(),
        other => other.to_string().to_lowercase(),
    }
}

/// The type of a column in SQL that the server writes and reads again: all that is known of it.
pub fn sql_name(field: &Field) -> String {
    if let Some(known) = EnumType::of(field) {
        return known.to_sql();
    }
    if let Some(known) = CompositeType::of(field) {
        return known.to_ast().to_string();
    }
    match element(field) {
        Some(element) => format!("{}[]", sql_name(&element)),
        None => type_name(field),
    }
}

/// A type of the wire, as `\d` and error messages name it.
pub fn pg_name(pg: &Type) -> String {
    match from_pg(pg) {
        Some(sql_type) if !matches!(*pg, Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::CHAR) => {
            plain_name(&sql_type.field("", true))
        }
        _ => match *pg {
            Type::VARCHAR => "character varying".to_owned(),
            Type::BPCHAR => "character".to_owned(),
            _ => pg.name().to_owned(),
        },
    }
}

/// The stored form of a column of a query's result: string views and dictionaries become plain strings, times get
/// microseconds, unsigned integers the signed type that holds them.
pub fn stored(field: &Field) -> FieldRef {
    let data_type = stored_type(field.data_type());
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()).with_metadata(field.metadata().clone()))
}

fn stored_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Null | DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 | DataType::UInt64 => DataType::Int64,
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(_, None) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(_, Some(_)) => timestamptz(),
        DataType::Duration(_) | DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Dictionary(_, value) => stored_type(value),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            let item = stored(item);
            DataType::List(Arc::new(
                item.as_ref().clone().with_name("item").with_nullable(true),
            ))
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| stored(field)).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn sql_type(text: &str) -> SqlResult<SqlType> {
        let data_type = Parser::new(&PostgreSqlDialect {})
            .try_with_sql(text)
            .and_then(|mut parser| parser.parse_data_type())
            .expect("the test's type parses");
        from_sql(&data_type)
    }

    #[test]
    fn every_type_comes_back_from_its_field() {
        let cases = [
            ("boolean", Type::BOOL, "boolean"),
            ("int2", Type::INT2, "smallint"),
            ("int", Type::INT4, "integer"),
            ("bigint", Type::INT8, "bigint"),
            ("real", Type::FLOAT4, "real"),
            ("double precision", Type::FLOAT8, "double precision"),
            ("numeric(10,2)", Type::NUMERIC, "numeric(10,2)"),
            ("numeric", Type::NUMERIC, "numeric"),
            ("text", Type::TEXT, "text"),
            ("varchar(5)", Type::VARCHAR, "character varying(5)"),
            ("char(3)", Type::BPCHAR, "character(3)"),
            ("bytea", Type::BYTEA, "bytea"),
            ("date", Type::DATE, "date"),
            ("time", Type::TIME, "time without time zone"),
            ("timestamp", Type::TIMESTAMP, "timestamp without time zone"),
            ("timestamptz", Type::TIMESTAMPTZ, "timestamp with time zone"),
            ("interval", Type::INTERVAL, "interval"),
            ("uuid", Type::UUID, "uuid"),
            ("jsonb", Type::JSONB, "jsonb"),
            ("int[]", Type::INT4_ARRAY, "integer[]"),
            ("uuid[]", Type::UUID_ARRAY, "uuid[]"),
        ];
        for (text, pg, name) in cases {
            let field = sql_type(text).expect(text).field("c", true);
            assert_eq!(pg_type(&field), pg, "{text}");
            assert_eq!(type_name(&field), name, "{text}");
        }
    }

    #[test]
    fn impossible_types_are_refused_with_their_reason() {
        assert_eq!(
            sql_type("numeric(60,2)").unwrap_err().code,
            SqlState::InvalidParameterValue
        );
        assert_eq!(
            sql_type("numeric(4,7)").unwrap_err().code,
            SqlState::InvalidParameterValue
        );
        let error = sql_type("intgerr").unwrap_err();
        assert_eq!(error.code, SqlState::UndefinedObject);
        assert_eq!(error.hint.as_deref(), Some("Perhaps you meant \"integer\"."));
    }

    #[test]
    fn lengths_are_read_from_the_annotation() {
        let varchar = sql_type("varchar(5)").unwrap().field("c", true);
        assert_eq!(length_limit(&varchar), Some(("character varying", 5)));
        let text = sql_type("text").unwrap().field("c", true);
        assert_eq!(length_limit(&text), None);
    }
}
