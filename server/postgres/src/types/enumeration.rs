//! Enums: texts of a list, ordered as the list has them.
//!
//! A value is held as a text: eight hexadecimal digits that say where it stands among the values of its type, and its label behind
//! them. So held texts are compared, grouped and joined as the values are, and show what they are without a look at the catalog. The
//! annotation of a column names the type; which values there are, which an input has to know, stands beside it under [`VALUES`] (of
//! an array beside the array, since the type of a list is its element's, which may not change when a value is added).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::sql::sqlparser::ast::{self, Ident, ObjectName, ObjectNamePart};
use postgres_types::{Kind, Type};

use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::{ANNOTATION, SqlType, is_text};

/// The key in a field's metadata under which the values are, as JSON.
pub const VALUES: &str = "millrace.values";
/// The name under which SQL texts of the server's name an enum; nobody can make a type of that name.
pub const WORD: &str = "millrace enum";

/// What annotations of enums begin with.
const PREFIX: &str = "enum ";
/// How many digits say where a value stands.
const RANK_DIGITS: usize = 8;
/// The room between two values of a new type: so many can be put between them, and then half as many, and so on.
const RANK_STEP: u32 = 1 << 16;
/// The most values that a type can have.
pub const VALUES_MAX: usize = 10_000;
/// The longest label, in bytes.
const LABEL_BYTES_MAX: usize = 63;
/// What the array type's oid is more than that of its elements.
const ARRAY_OID: u32 = 1_100_000_000;

/// An enum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumType {
    /// The oid.
    pub oid: u32,
    pub schema: String,
    pub name: String,
    /// The values in their order, as they are held.
    pub values: Vec<String>,
}

/// The oid of the array type of a type that somebody made.
pub fn array_oid(oid: u32) -> u32 {
    oid.saturating_add(ARRAY_OID)
}

/// Where a new value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    Last,
    Before(&'a str),
    After(&'a str),
}

impl EnumType {
    /// A new type.
    ///
    /// # Errors
    /// A label comes twice (23505), is too long (42602), or there are too many (54000).
    pub fn new(oid: u32, schema: &str, name: &str, labels: &[String]) -> SqlResult<Self> {
        let mut new = EnumType {
            oid,
            schema: schema.to_owned(),
            name: name.to_owned(),
            values: vec![],
        };
        for label in labels {
            if new.held(label).is_some() {
                return Err(SqlError::new(
                    SqlState::UniqueViolation,
                    "duplicate key value violates unique constraint \"pg_enum_typid_label_index\"",
                )
                .with_detail(format!("Label \"{label}\" comes twice.")));
            }
            new = new.with_value(label, Place::Last)?;
        }
        Ok(new)
    }

    /// The type with another value.
    ///
    /// # Errors
    /// The label is there already (42710) or too long, the place is none of a value (22023), or there is no room left (54000).
    pub fn with_value(&self, label: &str, place: Place<'_>) -> SqlResult<Self> {
        if label.len() > LABEL_BYTES_MAX {
            return Err(
                SqlError::new(SqlState::InvalidName, format!("invalid enum label \"{label}\""))
                    .with_detail("Labels must be 63 bytes or less."),
            );
        }
        if self.held(label).is_some() {
            return Err(SqlError::new(
                SqlState::DuplicateObject,
                format!("enum label \"{label}\" already exists"),
            ));
        }
        let neighbour = |label: &str| {
            let found = self.labels().position(|known| known == label);
            found.ok_or_else(|| {
                SqlError::new(
                    SqlState::InvalidParameterValue,
                    format!("\"{label}\" is not an existing enum label"),
                )
            })
        };
        let position = match place {
            Place::Last => self.values.len(),
            Place::Before(label) => neighbour(label)?,
            Place::After(label) => neighbour(label)? + 1,
        };
        let below = match position.checked_sub(1) {
            Some(before) => rank(&self.values[before]),
            None => 0,
        };
        let new = match self.values.get(position) {
            Some(after) => below + (rank(after) - below) / 2,
            None => below.saturating_add(RANK_STEP),
        };
        if new == below || self.values.len() >= VALUES_MAX {
            return Err(SqlError::new(
                SqlState::ProgramLimitExceeded,
                format!("no value can be added there to type {}", self.name),
            )
            .with_detail("Too many values were put between the same two.")
            .with_hint("Make a new type with all of them."));
        }
        let mut wider = self.clone();
        wider.values.insert(position, held(new, label));
        Ok(wider)
    }

    /// The type with another label for a value.
    ///
    /// # Errors
    /// There is no such value (22023), or one of the new label (42710).
    pub fn renamed(&self, from: &str, to: &str) -> SqlResult<Self> {
        let Some(at) = self.labels().position(|known| known == from) else {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("\"{from}\" is not an existing enum label"),
            ));
        };
        if self.held(to).is_some() {
            return Err(SqlError::new(
                SqlState::DuplicateObject,
                format!("enum label \"{to}\" already exists"),
            ));
        }
        let mut renamed = self.clone();
        renamed.values[at] = held(rank(&self.values[at]), to);
        Ok(renamed)
    }

    /// The labels in their order.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.values.iter().map(|held| label(held))
    }

    /// How a value is held; `None`: there is none of that label.
    pub fn held(&self, wanted: &str) -> Option<&str> {
        let mut all = self.values.iter();
        all.find(|held| label(held) == wanted).map(String::as_str)
    }

    /// How an input is held.
    ///
    /// # Errors
    /// 22P02: the type has no such value.
    pub fn read(&self, text: &str) -> SqlResult<&str> {
        self.held(text).ok_or_else(|| {
            SqlError::new(
                SqlState::InvalidTextRepresentation,
                format!("invalid input value for enum {}: \"{text}\"", self.shown()),
            )
        })
    }

    /// The name as messages have it.
    pub fn shown(&self) -> String {
        shown(&self.schema, &self.name)
    }

    /// The type of columns.
    pub fn sql_type(&self) -> SqlType {
        let annotation = format!(
            "{PREFIX}{} {}",
            self.oid,
            serde_json::json!([self.schema, self.name])
        );
        SqlType {
            values: Some(serde_json::json!(self.values).to_string()),
            ..SqlType::annotated(DataType::Utf8, annotation)
        }
    }

    /// The type of a field.
    pub fn of(field: &Field) -> Option<Self> {
        let mut found = named(field.metadata().get(ANNOTATION)?)?;
        if let Some(values) = field.metadata().get(VALUES) {
            found.values = serde_json::from_str(values).unwrap_or_default();
        }
        Some(found)
    }

    /// The type as drivers are told of it.
    pub fn pg_type(&self) -> Type {
        let kind = Kind::Enum(self.values.clone());
        Type::new(self.name.clone(), self.oid, kind, self.schema.clone())
    }

    /// The type of arrays of it.
    pub fn array_pg_type(&self) -> Type {
        Type::new(
            format!("_{}", self.name),
            array_oid(self.oid),
            Kind::Array(self.pg_type()),
            self.schema.clone(),
        )
    }

    /// From what drivers are told.
    pub fn from_pg(pg: &Type) -> Option<Self> {
        match pg.kind() {
            Kind::Enum(values) => Some(EnumType {
                oid: pg.oid(),
                schema: pg.schema().to_owned(),
                name: pg.name().to_owned(),
                values: values.clone(),
            }),
            _ => None,
        }
    }

    /// The type in SQL that the server writes and reads, which says all of it.
    pub fn to_ast(&self) -> ast::DataType {
        let word = ObjectName(vec![ObjectNamePart::Identifier(Ident::with_quote('"', WORD))]);
        let texts = [&self.schema, &self.name].into_iter().chain(&self.values);
        let words = std::iter::once(self.oid.to_string()).chain(texts.map(|text| quoted_word(text)));
        ast::DataType::Custom(word, words.collect())
    }

    /// The same as a text.
    pub fn to_sql(&self) -> String {
        self.to_ast().to_string()
    }

    /// From what [`EnumType::to_ast`] says.
    pub fn from_ast(name: &ObjectName, words: &[String]) -> Option<Self> {
        let [ObjectNamePart::Identifier(word)] = name.0.as_slice() else {
            return None;
        };
        (word.value == WORD).then_some(())?;
        let (oid, texts) = words.split_first()?;
        let mut texts = texts.iter().map(|word| read_word(word));
        Some(EnumType {
            oid: oid.parse().ok()?,
            schema: texts.next()?,
            name: texts.next()?,
            values: texts.collect(),
        })
    }
}

/// A text among the words of a type.
fn quoted_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The same, read. The words are as they were written, or were read by a parser, which takes their quotation marks.
fn read_word(word: &str) -> String {
    let quoted = word.strip_prefix('\'').and_then(|word| word.strip_suffix('\''));
    quoted.map_or_else(|| word.to_owned(), |word| word.replace("''", "'"))
}

/// Whether a name needs no quotation marks.
pub(super) fn is_plain(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().all(is_letter) && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// A type's name as messages have it.
pub fn shown(schema: &str, name: &str) -> String {
    let quoted = |name: &str| match is_plain(name) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    };
    match schema {
        "public" => quoted(name),
        schema => format!("{}.{}", quoted(schema), quoted(name)),
    }
}

/// The type that an annotation names, without its values.
pub fn named(annotation: &str) -> Option<EnumType> {
    let (oid, names) = annotation.strip_prefix(PREFIX)?.split_once(' ')?;
    let [schema, name] = serde_json::from_str::<[String; 2]>(names).ok()?;
    Some(EnumType {
        oid: oid.parse().ok()?,
        schema,
        name,
        values: vec![],
    })
}

/// Whether a field is an enum.
pub fn is_enum(field: &Field) -> bool {
    let annotation = field.metadata().get(ANNOTATION);
    annotation.is_some_and(|annotation| annotation.starts_with(PREFIX))
}

/// The label of a held value.
pub fn label(held: &str) -> &str {
    held.get(RANK_DIGITS..).unwrap_or(held)
}

fn rank(held: &str) -> u32 {
    let digits = held.get(..RANK_DIGITS).unwrap_or_default();
    u32::from_str_radix(digits, 16).unwrap_or_default()
}

fn held(rank: u32, label: &str) -> String {
    format!("{rank:08x}{label}")
}

/// A column whose values are texts, in the place of one of an enum or of arrays of one; others stay.
pub fn text_field(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::List(item) => DataType::List(text_field(item)),
        other => other.clone(),
    };
    if !is_enum(field) && &data_type == field.data_type() {
        return Arc::clone(field);
    }
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
}

/// The values of a column as texts that are no longer held as an enum: labels, if it is one; else as they are.
pub fn as_texts(field: &Field, values: &ArrayRef) -> ArrayRef {
    if let (DataType::List(item), Some(list)) = (field.data_type(), values.as_list_opt::<i32>()) {
        let shown = text_field(item);
        if &shown == item {
            return Arc::clone(values);
        }
        let elements = as_texts(item, list.values());
        let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
        return match ListArray::try_new(shown, offsets, elements, nulls) {
            Ok(list) => Arc::new(list),
            Err(_) => Arc::clone(values),
        };
    }
    if !is_enum(field) || !is_text(values.data_type()) {
        return Arc::clone(values);
    }
    match arrow::compute::cast(values, &DataType::Utf8) {
        Ok(texts) => {
            let texts = texts.as_string::<i32>().iter();
            Arc::new(texts.map(|held| held.map(label)).collect::<StringArray>())
        }
        Err(_) => Arc::clone(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mood() -> EnumType {
        let labels = ["sad", "ok", "it's"].map(str::to_owned);
        EnumType::new(16_500, "public", "mood", &labels).unwrap()
    }

    #[test]
    fn held_values_are_ordered_as_they_were_declared() {
        let mut wider = mood();
        wider = wider.with_value("first", Place::Before("sad")).unwrap();
        wider = wider.with_value("soso", Place::After("sad")).unwrap();
        wider = wider.with_value("last", Place::Last).unwrap();
        let labels: Vec<&str> = wider.labels().collect();
        assert_eq!(labels, ["first", "sad", "soso", "ok", "it's", "last"]);
        assert!(wider.values.is_sorted());
        // What was held before is held as before.
        assert_eq!(wider.held("ok"), mood().held("ok"));
        assert_eq!(
            mood().with_value("ok", Place::Last).unwrap_err().code,
            SqlState::DuplicateObject
        );
        let mut crowded = mood();
        let mut added = 0;
        let refused = loop {
            match crowded.with_value(&added.to_string(), Place::After("sad")) {
                Ok(wider) => crowded = wider,
                Err(error) => break error,
            }
            added += 1;
        };
        assert_eq!((refused.code, added), (SqlState::ProgramLimitExceeded, 16));
        assert!(crowded.values.is_sorted());
    }

    #[test]
    fn a_type_comes_back_from_all_its_forms() {
        let mood = mood();
        let field = mood.sql_type().field("m", true);
        assert_eq!(EnumType::of(&field).as_ref(), Some(&mood));
        assert_eq!(EnumType::from_pg(&mood.pg_type()).as_ref(), Some(&mood));
        let parsed = datafusion::sql::sqlparser::parser::Parser::new(
            &datafusion::sql::sqlparser::dialect::PostgreSqlDialect {},
        )
        .try_with_sql(&format!("{}[]", mood.to_sql()))
        .and_then(|mut parser| parser.parse_data_type())
        .unwrap();
        let array = crate::types::from_sql(&parsed).unwrap().field("ms", true);
        assert_eq!(crate::types::pg_type(&array), mood.array_pg_type());
        assert_eq!(crate::types::type_name(&array), "mood[]");
        assert_eq!(crate::types::sql_name(&array), format!("{}[]", mood.to_sql()));
    }
}
