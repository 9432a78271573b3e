//! `'name'::regclass`, `'name'::regtype`, `'name'::regnamespace`, `'name'::regrole`: the oid of a relation, a type, a schema or a role by
//! its name, as the session sees it.
//!
//! An oid is a number here, so `'name'::regclass` is one too; `'name'::regclass::text` gives the name back, and so does a
//! column of an answer, since PostgreSQL shows the name there.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    self, CastKind, DataType, Expr, GroupByExpr, Ident, OrderByKind, SelectItem, Value,
};
use millrace_catalog::Object;
use millrace_catalog::access::no_such_role;
use millrace_catalog::scope::Scope;
use millrace_catalog::temporary::{OWN_SCHEMA, is_temporary};
use millrace_catalog::user_type::type_oid;
use millrace_functions::sql::column_names;
use millrace_functions::{cast, syntax};
use millrace_parser::name_parts;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;
use millrace_postgres::types::named::{NamedType, TypeNames, resolved};
use millrace_storage::ObjectId;
use millrace_system::pg_catalog::functions::{NAME_OF_RELATION, OID_OF_RELATION};
use millrace_system::pg_catalog::roles::role_oid;
use millrace_system::pg_catalog::{FIRST_OID, namespace_oid, oid};
use postgres_types::Type;

use crate::session::Session;

/// The system's relations that are asked for by name, with PostgreSQL's oids.
const SYSTEM: &[(&str, i64)] = &[
    ("pg_aggregate", 2600),
    ("pg_am", 2601),
    ("pg_amop", 2602),
    ("pg_amproc", 2603),
    ("pg_attrdef", 2604),
    ("pg_attribute", 1249),
    ("pg_auth_members", 1261),
    ("pg_authid", 1260),
    ("pg_cast", 2605),
    ("pg_class", 1259),
    ("pg_collation", 3456),
    ("pg_constraint", 2606),
    ("pg_conversion", 2607),
    ("pg_database", 1262),
    ("pg_db_role_setting", 2964),
    ("pg_default_acl", 826),
    ("pg_depend", 2608),
    ("pg_description", 2609),
    ("pg_enum", 3501),
    ("pg_event_trigger", 3466),
    ("pg_extension", 3079),
    ("pg_foreign_data_wrapper", 2328),
    ("pg_foreign_server", 1417),
    ("pg_foreign_table", 3118),
    ("pg_index", 2610),
    ("pg_inherits", 2611),
    ("pg_init_privs", 3394),
    ("pg_language", 2612),
    ("pg_largeobject", 2613),
    ("pg_largeobject_metadata", 2995),
    ("pg_namespace", 2615),
    ("pg_opclass", 2616),
    ("pg_operator", 2617),
    ("pg_opfamily", 2753),
    ("pg_parameter_acl", 6243),
    ("pg_partitioned_table", 3350),
    ("pg_policy", 3256),
    ("pg_proc", 1255),
    ("pg_publication", 6104),
    ("pg_publication_namespace", 6237),
    ("pg_publication_rel", 6106),
    ("pg_range", 3541),
    ("pg_replication_origin", 6000),
    ("pg_rewrite", 2618),
    ("pg_seclabel", 3596),
    ("pg_sequence", 2224),
    ("pg_shdepend", 1214),
    ("pg_shdescription", 2396),
    ("pg_shseclabel", 3592),
    ("pg_statistic", 2619),
    ("pg_statistic_ext", 3381),
    ("pg_statistic_ext_data", 3429),
    ("pg_subscription", 6100),
    ("pg_subscription_rel", 6102),
    ("pg_tablespace", 1213),
    ("pg_transform", 3576),
    ("pg_trigger", 2620),
    ("pg_ts_config", 3602),
    ("pg_ts_config_map", 3603),
    ("pg_ts_dict", 3600),
    ("pg_ts_parser", 3601),
    ("pg_ts_template", 3764),
    ("pg_type", 1247),
    ("pg_user_mapping", 1418),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Relation,
    Schema,
    Type,
    Role,
}

fn kind(data_type: &DataType) -> Option<Kind> {
    let name = data_type.to_string().to_lowercase();
    match name.trim_start_matches("pg_catalog.") {
        "regclass" => Some(Kind::Relation),
        "regnamespace" => Some(Kind::Schema),
        "regtype" => Some(Kind::Type),
        "regrole" => Some(Kind::Role),
        _ => None,
    }
}

fn literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
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
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => {
                Some((text, kind(&typed.data_type)?))
            }
            _ => None,
        },
        Expr::Nested(inner) => named(inner),
        _ => None,
    }
}

/// What `to_regclass('name')` and its like ask for, if the expression is one.
fn asked(expr: &Expr) -> Option<(String, Kind)> {
    let Expr::Function(function) = expr else {
        return None;
    };
    let kind = match syntax::name_of(function)?.as_str() {
        "to_regclass" => Kind::Relation,
        "to_regtype" => Kind::Type,
        "to_regrole" => Kind::Role,
        "to_regnamespace" => Kind::Schema,
        _ => return None,
    };
    match syntax::arguments(function).as_slice() {
        [name] => Some((syntax::literal_text(name)?, kind)),
        _ => None,
    }
}

/// Has the columns of an answer that are names of objects shown as such. Where rows are ordered, grouped or compared by them, they are
/// as they were.
pub fn shown(statement: &mut ast::Statement) {
    let ast::Statement::Query(query) = statement else {
        return;
    };
    let ordered: Vec<String> = match query.order_by.as_ref().map(|order_by| &order_by.kind) {
        None => vec![],
        Some(OrderByKind::Expressions(by)) => by.iter().map(|by| by.expr.to_string()).collect(),
        Some(OrderByKind::All(_)) => return,
    };
    let ast::SetExpr::Select(select) = query.body.as_mut() else {
        return;
    };
    let is_grouped =
        !matches!(&select.group_by, GroupByExpr::Expressions(by, more) if by.is_empty() && more.is_empty());
    if select.distinct.is_some() || is_grouped || ordered.iter().any(|by| by.parse::<u64>().is_ok()) {
        return;
    }
    for item in &mut select.projection {
        let (expr, alias) = match &*item {
            SelectItem::UnnamedExpr(expr) => (expr, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias)),
            _ => continue,
        };
        let named_type = match expr {
            Expr::Cast { expr, data_type, .. } => {
                kind(data_type).filter(|kind| *kind != Kind::Schema || literal(expr).is_some())
            }
            expr => named(expr)
                .map(|(_, kind)| kind)
                .or(asked(expr).map(|(_, kind)| kind)),
        };
        if named_type.is_none() || alias.is_some_and(|alias| ordered.contains(&alias.to_string())) {
            continue;
        }
        let alias = match alias {
            Some(alias) => alias.clone(),
            None => Ident::with_quote('"', column_names::column_name(expr)),
        };
        let expr = Expr::Cast {
            kind: CastKind::DoubleColon,
            expr: Box::new(expr.clone()),
            data_type: DataType::Text,
            array: false,
            format: None,
        };
        *item = SelectItem::ExprWithAlias { expr, alias };
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
        return found(session, text, kind).map(|(_, name)| Some(syntax::text(&name)));
    }
    if let Expr::Cast { expr, data_type, .. } = expr
        && matches!(data_type, DataType::Text | DataType::Varchar(_))
        && let Some((text, kind)) = asked(expr)
    {
        return match found(session, &text, kind) {
            Ok((_, name)) => Ok(Some(syntax::text(&name))),
            Err(error) if is_unknown(&error) => {
                let null = Expr::value(Value::Null);
                Ok(Some(syntax::call(cast::NAME, vec![null, syntax::text("text")])))
            }
            Err(error) => Err(error),
        };
    }
    // Of functions that were made by SQL.
    if let Expr::Cast { expr, data_type, .. } = expr
        && matches!(
            data_type.to_string().to_lowercase().as_str(),
            "oid" | "pg_catalog.oid" | "bigint"
        )
        && let Expr::Cast { expr, data_type, .. } = expr.as_ref()
        && is_of_function(data_type)
        && let Some(text) = literal(expr)
    {
        let oid = function_oid(session, text)?;
        return Ok(Some(Expr::value(Value::Number(oid.to_string(), false))));
    }
    // PostgreSQL's own have no oids: what holds one has the name.
    if let Expr::Cast { expr, data_type, .. } = expr
        && is_of_function(data_type)
        && let Some(text) = literal(expr)
    {
        let parts = name_parts(without_arguments(text));
        return Ok(parts.last().map(|name| syntax::text(name)));
    }
    // The name of a type whose oid is a value: `t.oid::regtype::text`.
    if let Expr::Cast { expr, data_type, .. } = expr
        && matches!(data_type, DataType::Text | DataType::Varchar(_))
        && let Expr::Cast {
            expr: oid, data_type, ..
        } = expr.as_ref()
        && kind(data_type) == Some(Kind::Type)
        && literal(oid).is_none()
    {
        let of_any = Expr::value(Value::Null);
        return Ok(Some(syntax::call(
            "format_type",
            vec![oid.as_ref().clone(), of_any],
        )));
    }
    // The same of roles: `c.relowner::regrole::text`.
    if let Expr::Cast { expr, data_type, .. } = expr
        && matches!(data_type, DataType::Text | DataType::Varchar(_))
        && let Expr::Cast {
            expr: oid, data_type, ..
        } = expr.as_ref()
        && kind(data_type) == Some(Kind::Role)
    {
        let name = match user(session, oid) {
            Some(role) => syntax::text(&millrace_parser::quote_identifier(&role.name)),
            None => {
                let name = syntax::call("pg_get_userbyid", vec![oid.as_ref().clone()]);
                syntax::call("quote_ident", vec![name])
            }
        };
        return Ok(Some(name));
    }
    if let Expr::Cast { expr, data_type, .. } = expr
        && kind(data_type) == Some(Kind::Role)
        && literal(expr).is_none()
    {
        let oid = match user(session, expr) {
            Some(role) => Expr::value(Value::Number(role_oid(role.id).to_string(), false)),
            None => expr.as_ref().clone(),
        };
        return Ok(Some(syntax::call(cast::NAME, vec![oid, syntax::text("bigint")])));
    }
    // The same of relations: `c.oid::regclass::text`.
    if let Expr::Cast { expr, data_type, .. } = expr
        && matches!(data_type, DataType::Text | DataType::Varchar(_))
        && let Expr::Cast {
            expr: oid, data_type, ..
        } = expr.as_ref()
        && kind(data_type) == Some(Kind::Relation)
    {
        return Ok(Some(syntax::call(NAME_OF_RELATION, vec![oid.as_ref().clone()])));
    }
    if let Expr::Cast { expr, data_type, .. } = expr
        && kind(data_type) == Some(Kind::Relation)
        && literal(expr).is_none()
    {
        let oid = syntax::call(OID_OF_RELATION, vec![expr.as_ref().clone()]);
        return Ok(Some(syntax::call(cast::NAME, vec![oid, syntax::text("bigint")])));
    }
    if let Some((text, kind)) = named(expr) {
        let (oid, _) = found(session, text, kind)?;
        return Ok(Some(Expr::value(Value::Number(oid.to_string(), false))));
    }
    Ok(None)
}

/// Whether there is no object of a name.
fn is_unknown(error: &SqlError) -> bool {
    matches!(
        error.code,
        SqlState::UndefinedTable
            | SqlState::UndefinedObject
            | SqlState::InvalidSchemaName
            | SqlState::FeatureNotSupported
    )
}

/// The role that `current_user` and its like are.
fn user(session: &Session, expr: &Expr) -> Option<Arc<Object>> {
    let Expr::Function(function) = expr else {
        return None;
    };
    let identity = session.settings.lock().identity();
    let id = match syntax::name_of(function)?.as_str() {
        "current_user" | "user" | "current_role" => identity.current_user(),
        "session_user" => identity.session_user,
        _ => return None,
    };
    session.catalog().role_by_id(id).cloned()
}

fn is_of_function(data_type: &DataType) -> bool {
    let name = data_type.to_string().to_lowercase();
    matches!(name.trim_start_matches("pg_catalog."), "regproc" | "regprocedure")
}

/// `f(integer, text)` as `f`.
fn without_arguments(text: &str) -> &str {
    text.split('(').next().unwrap_or(text).trim()
}

/// The oid of a function that was made by SQL.
fn function_oid(session: &Session, text: &str) -> SqlResult<i64> {
    let scope = session.scope();
    let parts = name_parts(without_arguments(text));
    let name = parts.last().map(String::as_str).unwrap_or_default();
    let schemas = match parts.as_slice() {
        [schema, _] => vec![schema.clone()],
        _ => scope.search_path.clone(),
    };
    let mut schemas = schemas.iter();
    let found = schemas.find_map(|schema| scope.catalog.function(&scope.database, schema, name));
    found.map(|function| oid(function.id)).ok_or_else(|| {
        SqlError::new(
            SqlState::UndefinedFunction,
            format!("function \"{text}\" does not exist"),
        )
    })
}

/// The oid of a relation that a function is asked about by name.
///
/// # Errors
/// There is none of that name.
pub fn regclass(session: &Session, text: &str) -> SqlResult<Expr> {
    let (oid, _) = found(session, text, Kind::Relation)?;
    Ok(syntax::call(
        cast::NAME,
        vec![
            Expr::value(Value::Number(oid.to_string(), false)),
            syntax::text("integer"),
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

/// `to_regrole`: NULL where there is no role of the name.
pub fn to_regrole(session: &Session, text: &str) -> Expr {
    match role(session, text) {
        Ok((oid, _)) => Expr::value(Value::Number(oid.to_string(), false)),
        Err(_) => Expr::value(Value::Null),
    }
}

/// `to_regtype`: NULL where there is no type of the name.
///
/// # Errors
/// None that a name can bring about.
pub fn to_regtype(session: &Session, text: &str) -> SqlResult<Expr> {
    let scope = session.scope();
    match data_type(&session.database().reader(&scope), text) {
        Ok((oid, _)) => Ok(Expr::value(Value::Number(oid.to_string(), false))),
        Err(error)
            if matches!(
                error.code,
                SqlState::UndefinedObject | SqlState::FeatureNotSupported
            ) =>
        {
            Ok(Expr::value(Value::Null))
        }
        Err(error) => Err(error),
    }
}

fn found(session: &Session, text: &str, kind: Kind) -> SqlResult<(i64, String)> {
    if let Ok(oid) = text.trim().parse::<i64>() {
        return Ok((oid, text.trim().to_string()));
    }
    match kind {
        Kind::Relation => relation(session, text),
        Kind::Schema => schema(session, text),
        Kind::Role => role(session, text),
        Kind::Type => {
            let scope = session.scope();
            data_type(&session.database().reader(&scope), text)
        }
    }
}

/// The object of a schema, or the first of the search path.
fn in_catalog<'a>(scope: &'a Scope, schema: Option<&str>, name: &str) -> Option<&'a Arc<Object>> {
    match schema {
        Some(OWN_SCHEMA) => {
            let own = scope.search_path.iter().find(|schema| is_temporary(schema))?;
            scope.catalog.relation(&scope.database, own, name)
        }
        Some(schema) => scope.catalog.relation(&scope.database, schema, name),
        None => scope
            .search_path
            .iter()
            .find_map(|schema| scope.catalog.relation(&scope.database, schema, name)),
    }
}

/// The object that a name or an oid means.
///
/// # Errors
/// There is none, or it is in a schema into which whoever acts may not look.
pub(crate) fn object(session: &Session, text: &str) -> SqlResult<Arc<Object>> {
    let scope = session.scope();
    let parts = name_parts(text);
    let object = match (text.trim().parse::<i64>(), parts.as_slice()) {
        (Ok(oid), _) => {
            let id = u64::try_from(oid - FIRST_OID).ok();
            id.and_then(|id| scope.catalog.object(ObjectId(id)))
        }
        (_, [name]) => in_catalog(&scope, None, name),
        (_, [schema, name] | [_, schema, name]) => {
            scope.check_schema(schema)?;
            in_catalog(&scope, Some(schema), name)
        }
        _ => None,
    };
    object.cloned().ok_or_else(|| {
        SqlError::new(
            SqlState::UndefinedTable,
            format!("relation \"{text}\" does not exist"),
        )
    })
}

fn relation(session: &Session, text: &str) -> SqlResult<(i64, String)> {
    let scope = session.scope();
    let parts = name_parts(text);
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
    if let Some(schema) = schema {
        scope.check_schema(schema)?;
    }
    let object = in_catalog(&scope, schema.map(String::as_str), name);
    // A composite type has its attributes as a relation has its columns.
    let composite = || {
        let path = scope.search_path.iter();
        let within = |schema: &String| scope.catalog.user_type(&scope.database, schema, name);
        let found = schema.map_or_else(|| path.clone().find_map(within), within);
        found.filter(|of| matches!(of.named_type(), Some(NamedType::Composite(_))))
    };
    match object.or_else(composite) {
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

fn schema(session: &Session, text: &str) -> SqlResult<(i64, String)> {
    let scope = session.scope();
    let name = name_parts(text).join(".");
    match namespace_oid(&scope.catalog, &scope.database, &name) {
        0 => Err(SqlError::new(
            SqlState::InvalidSchemaName,
            format!("schema \"{name}\" does not exist"),
        )),
        oid => Ok((oid, millrace_parser::quote_identifier(&name).to_string())),
    }
}

fn role(session: &Session, text: &str) -> SqlResult<(i64, String)> {
    let name = name_parts(text).join(".");
    let known = session.catalog().role(&name).map(|role| role_oid(role.id));
    let oid = known.ok_or_else(|| no_such_role(&name))?;
    Ok((oid, millrace_parser::quote_identifier(&name).to_string()))
}

fn data_type(names: &dyn TypeNames, text: &str) -> SqlResult<(i64, String)> {
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
    let known = resolved(&parsed, names)?;
    if let Some(domain) = known.domains.first() {
        return Ok((i64::from(type_oid(ObjectId(domain.id))), domain.shown()));
    }
    let field = types::from_sql(&known.data_type)?.field("", true);
    let pg: Type = types::pg_type(&field);
    Ok((i64::from(pg.oid()), types::plain_name(&field)))
}

#[cfg(test)]
mod tests {

    use super::*;

    /// Nobody made a type.
    struct Nothing;

    impl TypeNames for Nothing {
        fn named(&self, _: &ast::ObjectName) -> SqlResult<Option<NamedType>> {
            Ok(None)
        }
    }

    #[test]
    fn types_have_the_oids_of_postgresql() {
        assert_eq!(data_type(&Nothing, "int4").unwrap(), (23, "integer".to_string()));
        assert_eq!(data_type(&Nothing, "text").unwrap(), (25, "text".to_string()));
        assert_eq!(
            data_type(&Nothing, "nosuch").unwrap_err().code,
            SqlState::UndefinedObject
        );
    }
}
