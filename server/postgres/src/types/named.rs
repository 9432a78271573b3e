//! Types that somebody made, as statements name them.
//!
//! Which there are the catalog knows. A statement's names are replaced by what says all of a type before anything else looks at
//! them, so that the rest needs no catalog.

use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, DataType, Expr, Ident, ObjectName, ObjectNamePart};

use millrace_parser::ast::STRUCT;

use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::composite::{self, CompositeType, NESTED_MAX};
use crate::types::enumeration::{EnumType, WORD, is_plain, shown};
use crate::types::from_sql;

/// Knows what names of types mean that are no built-in ones.
pub trait TypeNames {
    /// What a name means; `None`: nothing.
    ///
    /// # Errors
    /// It names another database, or whoever acts may not look into its schema.
    fn named(&self, name: &ObjectName) -> SqlResult<Option<NamedType>>;
}

/// A type that somebody made.
#[derive(Debug, Clone)]
pub enum NamedType {
    Enum(EnumType),
    Domain(Box<Domain>),
    /// A composite type, in which names of types are complete; or the row of a relation, which has no oid and no such names.
    Composite(CompositeType),
}

/// A domain: another type, and what its values must be.
#[derive(Debug, Clone)]
pub struct Domain {
    /// Its identity in the catalog.
    pub id: u64,
    pub schema: String,
    pub name: String,
    /// What it is made of; the name of an enum or of a domain is complete.
    pub base: DataType,
    pub not_null: bool,
    pub default: Option<Expr>,
    /// What values must be, where `VALUE` is the value, by the names of the constraints.
    pub checks: Vec<(String, Expr)>,
}

impl Domain {
    /// The name as messages have it.
    pub fn shown(&self) -> String {
        shown(&self.schema, &self.name)
    }
}

/// A type without names that the catalog has to be asked for, and the domains that it came from, the outermost first.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub data_type: DataType,
    pub domains: Vec<Domain>,
}

/// What a type means. The words by which the server says a type are nobody else's: a type is looked up once.
///
/// # Errors
/// As [`TypeNames::named`]; it is an array of a domain (0A000).
pub fn resolved(data_type: &DataType, names: &dyn TypeNames) -> SqlResult<Resolved> {
    let plain = |data_type: DataType| Resolved {
        data_type,
        domains: vec![],
    };
    match data_type {
        DataType::Custom(name, _) if is_word(name) => Err(SqlError::new(
            SqlState::UndefinedObject,
            format!("type {name} does not exist"),
        )),
        DataType::Custom(name, words) if is_struct(name) => match CompositeType::from_ast(name, words) {
            Some(known) if known.depth() > NESTED_MAX => Err(SqlError::new(
                SqlState::StatementTooComplex,
                format!("composite types are made of each other more than {NESTED_MAX} deep"),
            )),
            Some(known) => Ok(plain(without_names(known, names)?.to_ast())),
            None => Ok(plain(data_type.clone())),
        },
        DataType::Custom(name, _) => {
            if from_sql(data_type).is_ok() {
                return Ok(plain(data_type.clone()));
            }
            match names.named(name)? {
                None => Ok(plain(data_type.clone())),
                Some(NamedType::Enum(known)) => Ok(plain(known.to_ast())),
                Some(NamedType::Domain(domain)) => {
                    let mut base = resolved(&domain.base, names)?;
                    base.domains.insert(0, *domain);
                    Ok(base)
                }
                // The row of a relation: there are no names in it.
                Some(NamedType::Composite(known)) if known.oid == 0 => Ok(plain(known.to_ast())),
                Some(NamedType::Composite(known)) => Ok(plain(without_names(known, names)?.to_ast())),
            }
        }
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, length)) => {
            let element = array_element(element, names)?;
            let element = ArrayElemTypeDef::SquareBracket(Box::new(element), *length);
            Ok(plain(DataType::Array(element)))
        }
        DataType::Array(ArrayElemTypeDef::AngleBracket(element) | ArrayElemTypeDef::Parenthesis(element)) => {
            let element = array_element(element, names)?;
            let element = ArrayElemTypeDef::SquareBracket(Box::new(element), None);
            Ok(plain(DataType::Array(element)))
        }
        other => Ok(plain(other.clone())),
    }
}

/// A composite type in which nothing has to be looked up.
///
/// # Errors
/// As [`TypeNames::named`]; an attribute is of a domain (0A000).
pub fn without_names(mut known: CompositeType, names: &dyn TypeNames) -> SqlResult<CompositeType> {
    for (attribute, data_type) in &mut known.attributes {
        let of = resolved(data_type, names)?;
        if let Some(domain) = of.domains.first() {
            return Err(SqlError::unsupported(format!(
                "attribute \"{attribute}\" is of domain {}, which is not supported",
                domain.shown()
            ))
            .with_hint("Use its base type."));
        }
        *data_type = of.data_type;
    }
    Ok(known)
}

fn array_element(element: &DataType, names: &dyn TypeNames) -> SqlResult<DataType> {
    let element = resolved(element, names)?;
    match element.domains.first() {
        None => Ok(element.data_type),
        Some(domain) => Err(SqlError::unsupported(format!(
            "arrays of domain {} are not supported",
            domain.shown()
        ))
        .with_hint("Use an array of its base type.")),
    }
}

/// Whether it is RisingWave's STRUCT<..>.
fn is_struct(name: &ObjectName) -> bool {
    matches!(name.0.as_slice(), [ObjectNamePart::Identifier(word)] if word.value == STRUCT)
}

fn is_word(name: &ObjectName) -> bool {
    matches!(name.0.as_slice(), [ObjectNamePart::Identifier(word)] if [WORD, composite::WORD].contains(&word.value.as_str()))
}

/// The type with complete names in the place of those that somebody made: it means the same wherever it is read.
///
/// # Errors
/// As [`TypeNames::named`].
pub fn qualified(data_type: &DataType, names: &dyn TypeNames) -> SqlResult<DataType> {
    match data_type {
        DataType::Custom(name, words) if is_struct(name) => {
            let Some(mut known) = CompositeType::from_ast(name, words) else {
                return Ok(data_type.clone());
            };
            for (_, of) in &mut known.attributes {
                *of = qualified(of, names)?;
            }
            Ok(known.to_ast())
        }
        DataType::Custom(name, words) if from_sql(data_type).is_err() => {
            let (schema, base) = match names.named(name)? {
                None => return Ok(data_type.clone()),
                Some(NamedType::Enum(known)) => (known.schema, known.name),
                Some(NamedType::Domain(domain)) => {
                    let domain = *domain;
                    (domain.schema, domain.name)
                }
                Some(NamedType::Composite(known)) => (known.schema, known.name),
            };
            let part = |name: String| {
                ObjectNamePart::Identifier(match is_plain(&name) {
                    true => Ident::new(name),
                    false => Ident::with_quote('"', name),
                })
            };
            Ok(DataType::Custom(
                ObjectName(vec![part(schema), part(base)]),
                words.clone(),
            ))
        }
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, length)) => {
            let element = qualified(element, names)?;
            Ok(DataType::Array(ArrayElemTypeDef::SquareBracket(
                Box::new(element),
                *length,
            )))
        }
        other => Ok(other.clone()),
    }
}
