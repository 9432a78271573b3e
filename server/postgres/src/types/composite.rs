//! Composite types: values that have attributes, each with a name and a type of its own; and records, which are the same without a
//! name of the type.
//!
//! A value is held as Arrow's struct, whose fields carry what is known of the types of the attributes. The annotation of a column
//! names the type. A struct without one is a record: what ROW(..) and the name of a relation give, or a column of RisingWave's
//! STRUCT<..>.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use datafusion::sql::sqlparser::ast::{self, Ident, ObjectName, ObjectNamePart};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use millrace_parser::ast::STRUCT;
use millrace_parser::{type_word, type_word_text};
use postgres_types::{Kind, Type};

use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::enumeration::{EnumType, array_oid, shown};
use crate::types::parse::{self, CellError};
use crate::types::{ANNOTATION, SqlType, from_pg, from_sql, pg_type, sql_name};

/// The name under which SQL texts of the server's name a composite type; nobody can make a type of that name.
pub const WORD: &str = "millrace composite";

/// What annotations of composite types begin with.
const PREFIX: &str = "composite ";
/// The most attributes that a type can have, as PostgreSQL's.
pub const ATTRIBUTES_MAX: usize = 1_600;
/// Composite types that are made of each other. Texts that name a type get longer with each of them.
pub const NESTED_MAX: usize = 8;

/// A composite type, or one of records if it has no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompositeType {
    /// The oid; 0 of records.
    pub oid: u32,
    pub schema: String,
    pub name: String,
    /// The attributes in their order, each with its type, in which nothing has to be looked up.
    pub attributes: Vec<(String, ast::DataType)>,
}

impl CompositeType {
    /// The name as messages have it.
    pub fn shown(&self) -> String {
        match self.oid {
            0 => "record".to_owned(),
            _ => shown(&self.schema, &self.name),
        }
    }

    /// The type of columns.
    ///
    /// # Errors
    /// The type of an attribute is none that columns have.
    pub fn sql_type(&self) -> SqlResult<SqlType> {
        let fields = self.attributes.iter();
        let fields = fields.map(|(name, data_type)| Ok(from_sql(data_type)?.field(name, true)));
        let data_type = DataType::Struct(fields.collect::<SqlResult<Fields>>()?);
        Ok(match self.oid {
            0 => SqlType::plain(data_type),
            oid => {
                let names = serde_json::json!([self.schema, self.name]);
                SqlType::annotated(data_type, format!("{PREFIX}{oid} {names}"))
            }
        })
    }

    /// The type of a field; `None`: its values have no attributes.
    pub fn of(field: &Field) -> Option<Self> {
        let DataType::Struct(fields) = field.data_type() else {
            return None;
        };
        let known = field.metadata().get(ANNOTATION).and_then(|known| named(known));
        let (oid, schema, name) = known.unwrap_or_default();
        let attribute = |field: &Arc<Field>| Some((field.name().clone(), parsed(&sql_name(field))?));
        Some(CompositeType {
            oid,
            schema,
            name,
            attributes: fields.iter().map(attribute).collect::<Option<_>>()?,
        })
    }

    /// The type in SQL that the server writes and reads, which says all of it; of records it is RisingWave's STRUCT<..>.
    pub fn to_ast(&self) -> ast::DataType {
        let (word, named) = match self.oid {
            0 => (STRUCT, vec![]),
            oid => (
                WORD,
                vec![oid.to_string(), self.schema.clone(), self.name.clone()],
            ),
        };
        let attributes = self.attributes.iter();
        let attributes = attributes.flat_map(|(name, data_type)| [name.clone(), data_type.to_string()]);
        let words = named.into_iter().chain(attributes);
        let word = ObjectName(vec![ObjectNamePart::Identifier(Ident::with_quote('"', word))]);
        ast::DataType::Custom(word, words.map(|text| type_word(&text)).collect())
    }

    /// From what [`CompositeType::to_ast`] says.
    pub fn from_ast(name: &ObjectName, words: &[String]) -> Option<Self> {
        let [ObjectNamePart::Identifier(word)] = name.0.as_slice() else {
            return None;
        };
        let texts: Vec<String> = words
            .iter()
            .map(|word| type_word_text(word))
            .collect::<Option<_>>()?;
        let (oid, schema, name, attributes) = match (word.value.as_str(), texts.as_slice()) {
            (WORD, [oid, schema, name, attributes @ ..]) => {
                (oid.as_str(), schema.clone(), name.clone(), attributes)
            }
            (STRUCT, attributes) => ("0", String::new(), String::new(), attributes),
            _ => return None,
        };
        let attribute = |pair: &[String]| match pair {
            [name, data_type] => Some((name.clone(), parsed(data_type)?)),
            _ => None,
        };
        Some(CompositeType {
            oid: oid.parse().ok()?,
            schema,
            name,
            attributes: attributes.chunks(2).map(attribute).collect::<Option<_>>()?,
        })
    }

    /// How many composite types are within each other here, this one included.
    pub fn depth(&self) -> usize {
        let within = self.attributes.iter().map(|(_, data_type)| depth(data_type));
        1 + within.max().unwrap_or_default()
    }
}

fn depth(data_type: &ast::DataType) -> usize {
    match data_type {
        ast::DataType::Custom(name, words) => {
            CompositeType::from_ast(name, words).map_or(0, |known| known.depth())
        }
        ast::DataType::Array(
            ast::ArrayElemTypeDef::SquareBracket(element, _)
            | ast::ArrayElemTypeDef::AngleBracket(element)
            | ast::ArrayElemTypeDef::Parenthesis(element),
        ) => depth(element),
        _ => 0,
    }
}

fn parsed(text: &str) -> Option<ast::DataType> {
    let parsed = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_data_type());
    parsed.ok().map(with_quotation_marks)
}

/// A parser takes the quotation marks of an enum's words, and would not write them again.
fn with_quotation_marks(data_type: ast::DataType) -> ast::DataType {
    match data_type {
        ast::DataType::Custom(name, words) => {
            if let Some(known) = EnumType::from_ast(&name, &words) {
                return known.to_ast();
            }
            ast::DataType::Custom(name, words)
        }
        ast::DataType::Array(ast::ArrayElemTypeDef::SquareBracket(element, length)) => {
            let element = Box::new(with_quotation_marks(*element));
            ast::DataType::Array(ast::ArrayElemTypeDef::SquareBracket(element, length))
        }
        other => other,
    }
}

/// The oid, schema and name that an annotation says; `None`: it is none of a composite type.
pub fn named(annotation: &str) -> Option<(u32, String, String)> {
    let (oid, names) = annotation.strip_prefix(PREFIX)?.split_once(' ')?;
    let [schema, name] = serde_json::from_str::<[String; 2]>(names).ok()?;
    Some((oid.parse().ok()?, schema, name))
}

/// The type of a column as drivers are told of it; `None`: its values have no attributes.
pub fn pg(field: &Field) -> Option<Type> {
    let DataType::Struct(fields) = field.data_type() else {
        return None;
    };
    let Some((oid, schema, name)) = field.metadata().get(ANNOTATION).and_then(|known| named(known)) else {
        return Some(Type::RECORD);
    };
    let attributes = fields.iter();
    let attributes = attributes.map(|field| postgres_types::Field::new(field.name().clone(), pg_type(field)));
    Some(Type::new(
        name,
        oid,
        Kind::Composite(attributes.collect()),
        schema,
    ))
}

/// The type of arrays of a type that [`pg`] has made; `None`: it is another.
pub fn pg_array(element: &Type) -> Option<Type> {
    if *element == Type::RECORD {
        return Some(Type::RECORD_ARRAY);
    }
    let Kind::Composite(_) = element.kind() else {
        return None;
    };
    Some(Type::new(
        format!("_{}", element.name()),
        array_oid(element.oid()),
        Kind::Array(element.clone()),
        element.schema().to_owned(),
    ))
}

/// From what drivers are told.
pub fn of_pg(pg: &Type) -> Option<SqlType> {
    let Kind::Composite(attributes) = pg.kind() else {
        return None;
    };
    let fields = attributes.iter();
    let fields = fields.map(|attribute| Some(from_pg(attribute.type_())?.field(attribute.name(), true)));
    let data_type = DataType::Struct(fields.collect::<Option<Fields>>()?);
    let names = serde_json::json!([pg.schema(), pg.name()]);
    Some(SqlType::annotated(
        data_type,
        format!("{PREFIX}{} {names}", pg.oid()),
    ))
}

/// Converts a column of texts such as `(1,"a b",)`.
///
/// # Errors
/// The first row whose text is no input of the type.
pub(super) fn column(fields: &Fields, texts: &StringArray) -> Result<ArrayRef, CellError> {
    let mut members: Vec<Vec<Option<String>>> = vec![Vec::with_capacity(texts.len()); fields.len()];
    for (row, text) in texts.iter().enumerate() {
        let values = match text {
            None => vec![None; fields.len()],
            Some(text) => read(text, fields.len()).map_err(|error| CellError::new(row, error))?,
        };
        for (member, value) in members.iter_mut().zip(values) {
            member.push(value);
        }
    }
    let columns = fields.iter().zip(members);
    let columns = columns.map(|(field, texts)| parse::column(field, &StringArray::from(texts)));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    structs(fields, columns, texts.len(), texts.nulls().cloned()).map_err(|error| CellError::new(0, error))
}

/// A column of values with attributes.
///
/// # Errors
/// The columns are not of the fields' types.
pub fn structs(
    fields: &Fields,
    columns: Vec<ArrayRef>,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> SqlResult<ArrayRef> {
    if fields.is_empty() {
        return Ok(Arc::new(StructArray::new_empty_fields(rows, nulls)));
    }
    let made = StructArray::try_new(fields.clone(), columns, nulls);
    Ok(Arc::new(made.map_err(crate::from_internal::arrow)?))
}

/// The texts of the attributes in a text such as `(1,"a b",)`; nothing between two commas is NULL.
///
/// # Errors
/// It has another form (22P02), or another number of attributes.
pub fn read(text: &str, attributes: usize) -> SqlResult<Vec<Option<String>>> {
    let malformed = |detail: &str| {
        let shown: String = text.chars().take(1_000).collect();
        SqlError::new(
            SqlState::InvalidTextRepresentation,
            format!("malformed record literal: \"{shown}\""),
        )
        .with_detail(detail)
    };
    let inner = text.trim_start().strip_prefix('(');
    let inner = inner.ok_or_else(|| malformed("Missing left parenthesis."))?;
    let mut values = vec![];
    let mut rest = inner.chars().peekable();
    if attributes == 0 {
        match rest.next() {
            Some(')') => {}
            _ => return Err(malformed("Too many columns.")),
        }
    }
    while values.len() < attributes {
        let mut value: Option<String> = None;
        let mut is_quoted = false;
        loop {
            match rest.peek() {
                None => return Err(malformed("Unexpected end of input.")),
                Some(',' | ')') if !is_quoted => break,
                Some(_) => {}
            }
            let value = value.get_or_insert_default();
            match (rest.next(), is_quoted) {
                (Some('\\'), _) => match rest.next() {
                    Some(escaped) => value.push(escaped),
                    None => return Err(malformed("Unexpected end of input.")),
                },
                (Some('"'), true) if rest.peek() == Some(&'"') => {
                    rest.next();
                    value.push('"');
                }
                (Some('"'), _) => is_quoted = !is_quoted,
                (Some(other), _) => value.push(other),
                (None, _) => return Err(malformed("Unexpected end of input.")),
            }
        }
        values.push(value);
        match (rest.next(), values.len() == attributes) {
            (Some(','), true) => return Err(malformed("Too many columns.")),
            (Some(')'), false) => return Err(malformed("Too few columns.")),
            _ => {}
        }
    }
    match rest.all(char::is_whitespace) {
        true => Ok(values),
        false => Err(malformed("Junk after right parenthesis.")),
    }
}

/// Puts a value in quotation marks, as it may stand in the text of a row or of an array.
pub(crate) fn put_quoted(value: &str, out: &mut String) {
    out.push('"');
    for character in value.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{output, type_name};

    fn address() -> CompositeType {
        let attributes = [("street", "text"), ("no", "integer"), ("tags", "varchar(3)[]")];
        let attributes = attributes.map(|(name, text)| (name.to_owned(), parsed(text).unwrap()));
        CompositeType {
            oid: 16_500,
            schema: "public".to_owned(),
            name: "addr".to_owned(),
            attributes: attributes.to_vec(),
        }
    }

    #[test]
    fn a_type_comes_back_from_all_its_forms() {
        let mut address = address();
        for depth in 1..=NESTED_MAX {
            let field = address.sql_type().unwrap().field("a", true);
            assert_eq!(type_name(&field), "addr");
            let text = address.to_ast().to_string();
            let back = from_sql(&parsed(&text).unwrap()).unwrap();
            assert_eq!(back, address.sql_type().unwrap(), "{text}");
            let of_field = CompositeType::of(&field).unwrap();
            let again = from_sql(&parsed(&of_field.to_ast().to_string()).unwrap()).unwrap();
            assert_eq!(again, back);
            let record = CompositeType {
                oid: 0,
                schema: String::new(),
                name: String::new(),
                ..address.clone()
            };
            let written = record.to_ast().to_string();
            let of_record = from_sql(&parsed(&written).unwrap()).unwrap();
            assert_eq!(of_record, record.sql_type().unwrap(), "{written}");
            assert_eq!(of_field.sql_type().unwrap(), back);
            assert_eq!((of_field.depth(), address.depth()), (depth, depth));
            address = CompositeType {
                attributes: vec![("it's".to_owned(), address.to_ast())],
                ..address
            };
        }
    }

    #[test]
    fn texts_are_read_as_they_are_written() {
        let text = |name| Field::new(name, DataType::Utf8, true);
        let fields: Fields = vec![text("a"), text("b")].into();
        let field = Field::new("r", DataType::Struct(fields.clone()), true);
        for one in ["", "a", "a b", "(", "\"", "\\", "a,b", "NULL", "ä\n"] {
            for other in [None, Some(one), Some("x")] {
                let columns =
                    [Some(one), other].map(|value| Arc::new(StringArray::from(vec![value])) as ArrayRef);
                let record = structs(&fields, columns.to_vec(), 1, None).unwrap();
                let text = output::text(&field, &record, 0);
                let values = read(&text, 2).unwrap();
                assert_eq!(values, [Some(one.to_owned()), other.map(str::to_owned)], "{text}");
                assert_eq!(
                    parse::value(&field, Some(&text)).unwrap().as_ref(),
                    record.as_ref()
                );
            }
        }
        assert_eq!(read("(,)", 2).unwrap(), [None, None]);
        assert_eq!(read("()", 1).unwrap(), [None]);
        assert_eq!(read("()", 0).unwrap(), Vec::<Option<String>>::new());
        for wrong in ["1,2", "(1", "(1)", "(1,2,3)", "(1,2) x", "(1,\"2)", "(1,2\\"] {
            assert_eq!(
                read(wrong, 2).unwrap_err().code,
                SqlState::InvalidTextRepresentation,
                "{wrong}"
            );
        }
    }
}
