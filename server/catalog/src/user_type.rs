//! Types that somebody made: enums, domains, and composite types.

use datafusion::sql::sqlparser::ast::{DataType, Expr};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use millrace_postgres::types::FIRST_OID;
use millrace_postgres::types::enumeration::array_oid;
use millrace_storage::ObjectId;
use serde::{Deserialize, Serialize};

use crate::constraint::CheckDef;

/// What a type is.
#[derive(Debug, Clone)]
pub enum TypeDef {
    /// An enum: its values in their order, as they are held (see [`millrace_postgres::types::enumeration`]).
    Enum(Vec<String>),
    /// A domain.
    Domain(Box<DomainDef>),
    /// A composite type: its attributes, each with its type. Names of types in it are complete.
    Composite(Vec<(String, DataType)>),
}

/// A domain. Names of types in it are complete.
#[derive(Debug, Clone)]
pub struct DomainDef {
    /// What it is made of.
    pub base: DataType,
    pub not_null: bool,
    pub default: Option<Expr>,
    /// What values must be, where `VALUE` is the value.
    pub checks: Vec<CheckDef>,
}

/// The lasting form.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredType {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    values: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    domain: Option<StoredDomain>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attributes: Option<Vec<(String, String)>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredDomain {
    base: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    not_null: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    checks: Vec<(String, String)>,
}

impl TypeDef {
    /// The lasting form.
    pub fn to_stored(&self) -> StoredType {
        match self {
            TypeDef::Enum(values) => StoredType {
                values: Some(values.clone()),
                domain: None,
                attributes: None,
            },
            TypeDef::Composite(attributes) => StoredType {
                values: None,
                domain: None,
                attributes: Some(
                    (attributes.iter())
                        .map(|(name, data_type)| (name.clone(), data_type.to_string()))
                        .collect(),
                ),
            },
            TypeDef::Domain(domain) => StoredType {
                values: None,
                domain: Some(StoredDomain {
                    base: domain.base.to_string(),
                    not_null: domain.not_null,
                    default: domain.default.as_ref().map(ToString::to_string),
                    checks: (domain.checks.iter())
                        .map(|check| (check.name.clone(), check.expression.to_string()))
                        .collect(),
                }),
                attributes: None,
            },
        }
    }

    /// From the lasting form.
    ///
    /// # Errors
    /// It does not parse.
    pub fn from_stored(stored: &StoredType) -> Result<TypeDef, String> {
        let expression =
            |text: &String| millrace_parser::parse_expression(text).map_err(|error| error.message);
        let data_type = |text: &String| {
            Parser::new(&PostgreSqlDialect {})
                .try_with_sql(text)
                .and_then(|mut parser| parser.parse_data_type())
                .map_err(|error| error.to_string())
        };
        match (&stored.values, &stored.domain, &stored.attributes) {
            (Some(values), None, None) => Ok(TypeDef::Enum(values.clone())),
            (None, None, Some(attributes)) => Ok(TypeDef::Composite(
                (attributes.iter())
                    .map(|(name, text)| Ok((name.clone(), data_type(text)?)))
                    .collect::<Result<_, String>>()?,
            )),
            (None, Some(domain), None) => Ok(TypeDef::Domain(Box::new(DomainDef {
                base: data_type(&domain.base)?,
                not_null: domain.not_null,
                default: domain.default.as_ref().map(expression).transpose()?,
                checks: (domain.checks.iter())
                    .map(|(name, check)| {
                        Ok(CheckDef {
                            name: name.clone(),
                            expression: expression(check)?,
                        })
                    })
                    .collect::<Result<_, String>>()?,
            }))),
            _ => Err("it is no enum, no domain and no composite type".to_owned()),
        }
    }
}

/// The oid of a type.
pub fn type_oid(id: ObjectId) -> u32 {
    u32::try_from(id.0).map_or(u32::MAX, |id| FIRST_OID.saturating_add(id))
}

/// The oid of the type of arrays of a type.
pub fn array_type_oid(id: ObjectId) -> u32 {
    array_oid(type_oid(id))
}

/// The type with an oid.
pub fn id_of(oid: u32) -> Option<ObjectId> {
    oid.checked_sub(FIRST_OID).map(|id| ObjectId(id.into()))
}
