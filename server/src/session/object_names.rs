//! `'name'::regclass` and `'name'::regtype`: the oid of a relation or a type by its name, as the session sees it.
//!
//! An oid is a number here, so `'name'::regclass` is one too; only `'name'::regclass::text` gives the name back.

use datafusion::sql::sqlparser::ast::{self, DataType, Expr, Value};
use postgres_types::Type;

use crate::catalog::pg_catalog::FIRST_OID;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::{cast, rewrite};
use crate::session::Session;
use crate::types;

/// The system's relations that are asked for by name, with PostgreSQL's oids.
const SYSTEM: &[(&str, i64)] = &[
    ("pg_attrdef", 2604),
    ("pg_attribute", 1249),
    ("pg_authid", 1260),
    ("pg_class", 1259),
    ("pg_constraint", 2606),
    ("pg_database", 1262),
    ("pg_description", 2609),
    ("pg_index", 2610),
    ("pg_namespace", 2615),
    ("pg_proc", 1255),
    ("pg_rewrite", 2618),
    ("pg_trigger", 2620),
    ("pg_type", 1247),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Relation,
    Type,
}

fn kind(data_type: &DataType) -> Option<Kind> {
    let name = data_type.to_string().to_lowercase();
    match name.trim_start_matches("pg_catalog.") {
        "regclass" => Some(Kind::Relation),
        "regtype" => Some(Kind::Type),
        _ => None,
    }
}

fn literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        Expr::Nested(inner) => literal(inner),
        _ => None,
    }
}

/// The cast of a literal to a type of names, if the expression is one.
fn named(expr: &Expr) -> Option<(&str, Kind)> {
    match expr {
        Expr::Cast { expr, data_type, .. } => Some((literal(expr)?, kind(data_type)?)),
        Expr::TypedString(typed) => match &typed.value.value {
            Value::SingleQuotedString(text) => Some((text, kind(&typed.data_type)?)),
            _ => None,
        },
        Expr::Nested(inner) => named(inner),
        _ => None,
    }
}

/// What an expression becomes; `None`: it has nothing to do with names of objects.
///
/// # Errors
/// There is no object of that name.
pub fn replaced(session: &Session, expr: &Expr) -> SqlResult<Option<Expr>> {
    if let Expr::Cast { expr, data_type, .. } = expr
        && matches!(data_type, DataType::Text | DataType::Varchar(_))
        && let Some((text, kind)) = named(expr)
    {
        return found(session, text, kind).map(|(_, name)| Some(rewrite::text(&name)));
    }
    if let Some((text, kind)) = named(expr) {
        let (oid, _) = found(session, text, kind)?;
        return Ok(Some(Expr::value(Value::Number(oid.to_string(), false))));
    }
    Ok(None)
}

/// The oid of a relation that a function is asked about by name.
///
/// # Errors
/// There is none of that name.
pub fn regclass(session: &Session, text: &str) -> SqlResult<Expr> {
    let (oid, _) = found(session, text, Kind::Relation)?;
    Ok(rewrite::call(
        cast::NAME,
        vec![
            Expr::value(Value::Number(oid.to_string(), false)),
            rewrite::text("integer"),
        ],
    ))
}

/// `to_regclass`: NULL where there is no relation of the name.
///
/// # Errors
/// None that a name can bring about.
pub fn to_regclass(session: &Session, text: &str) -> SqlResult<Expr> {
    match found(session, text, Kind::Relation) {
        Ok((oid, _)) => Ok(Expr::value(Value::Number(oid.to_string(), false))),
        Err(error) if error.code == SqlState::UndefinedTable => Ok(Expr::value(Value::Null)),
        Err(error) => Err(error),
    }
}

fn found(session: &Session, text: &str, kind: Kind) -> SqlResult<(i64, String)> {
    if let Ok(oid) = text.trim().parse::<i64>() {
        return Ok((oid, text.trim().to_string()));
    }
    match kind {
        Kind::Relation => relation(session, text),
        Kind::Type => data_type(text),
    }
}

/// The parts of a name, with its quotes taken off and the rest folded.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for character in text.trim().chars() {
        match character {
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            other => {
                let last = parts.last_mut().expect("there is always a part");
                if quoted {
                    last.push(other);
                } else {
                    last.extend(other.to_lowercase());
                }
            }
        }
    }
    parts
}

fn relation(session: &Session, text: &str) -> SqlResult<(i64, String)> {
    let scope = session.scope();
    let parts = parts(text);
    let (schema, name) = match parts.as_slice() {
        [name] => (None, name),
        [schema, name] => (Some(schema), name),
        [_, schema, name] => (Some(schema), name),
        _ => {
            return Err(SqlError::new(
                SqlState::SyntaxError,
                format!("improper relation name: \"{text}\""),
            ));
        }
    };
    if schema.is_none_or(|schema| schema == "pg_catalog")
        && let Some((_, oid)) = SYSTEM.iter().find(|(system, _)| system == name)
    {
        return Ok((*oid, name.clone()));
    }
    let object = match schema {
        Some(schema) => scope.catalog.relation(&scope.database, schema, name),
        None => scope
            .search_path
            .iter()
            .find_map(|schema| scope.catalog.relation(&scope.database, schema, name)),
    };
    match object {
        Some(object) => {
            let number = i64::try_from(object.id.0).unwrap_or(i64::MAX - FIRST_OID);
            let visible = scope.search_path.contains(&object.schema);
            let quoted = millrace_parser::quote_identifier(&object.name).to_string();
            let shown = if visible {
                quoted
            } else {
                format!("{}.{quoted}", millrace_parser::quote_identifier(&object.schema))
            };
            Ok((FIRST_OID + number, shown))
        }
        None => Err(SqlError::new(
            SqlState::UndefinedTable,
            format!("relation \"{text}\" does not exist"),
        )),
    }
}

fn data_type(text: &str) -> SqlResult<(i64, String)> {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;
    let unknown = || {
        SqlError::new(
            SqlState::UndefinedObject,
            format!("type \"{text}\" does not exist"),
        )
    };
    let parsed: ast::DataType = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_data_type())
        .map_err(|_| unknown())?;
    let field = types::from_sql(&parsed)?.field("", true);
    let pg: Type = types::pg_type(&field);
    Ok((i64::from(pg.oid()), types::plain_name(&field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_parts_and_quotes() {
        assert_eq!(parts("T"), ["t"]);
        assert_eq!(parts("Public.\"A.b\""), ["public", "A.b"]);
    }

    #[test]
    fn types_have_the_oids_of_postgresql() {
        assert_eq!(data_type("int4").unwrap(), (23, "integer".to_string()));
        assert_eq!(data_type("text").unwrap(), (25, "text".to_string()));
        assert_eq!(data_type("nosuch").unwrap_err().code, SqlState::UndefinedObject);
    }
}
