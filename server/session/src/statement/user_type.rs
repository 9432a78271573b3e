//! CREATE TYPE, CREATE DOMAIN, and ALTER TYPE.

mod domain;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::common::DFSchema;
use datafusion::logical_expr::ExprSchemable;
use datafusion::sql::sqlparser::ast::{self, Expr, Ident};
use millrace_catalog::scope::Scope;
use millrace_catalog::user_type::{DomainDef, TypeDef, type_oid};
use millrace_catalog::{CatalogSnapshot, CheckDef, Definition, Object, Reader};
use millrace_database::clock::now_ms;
use millrace_functions::sql::{named_types, rewrite};
use millrace_parser::ast::{
    AlterOperation, AlterRelation, CreateComposite, CreateDomain, CreateEnum, EnumChange, ObjectKind as Kind,
};
use millrace_parser::walk::walk_expressions;
use millrace_planner::Binder;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_postgres::types;
use millrace_postgres::types::composite::{ATTRIBUTES_MAX, CompositeType, NESTED_MAX};
use millrace_postgres::types::enumeration::{EnumType, Place};
use millrace_postgres::types::named::{qualified, resolved, without_names};
use millrace_storage::{ObjectId, ObjectKind};

use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;

/// Executes CREATE TYPE .. AS ENUM.
pub async fn create_enum(session: &Arc<Session>, create: &CreateEnum, text: &str) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let scope = session.scope();
    let (schema, name) = new_name(session, &scope, &create.name)?;
    let id = guard.next_id()?;
    let new = EnumType::new(type_oid(id), &schema, &name, &create.labels)?;
    let definition = TypeDef::Enum(new.values);
    guard.put(object(
        &scope,
        (id, ObjectKind::Type),
        (schema, name),
        definition,
        vec![],
        text,
    ))?;
    done("CREATE TYPE")
}

/// Executes CREATE TYPE .. AS (..).
pub async fn create_composite(
    session: &Arc<Session>,
    create: CreateComposite,
    text: &str,
) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let scope = session.scope();
    let (schema, name) = new_name(session, &scope, &create.name)?;
    let reader = session.database().reader(&scope);
    if create.attributes.len() > ATTRIBUTES_MAX {
        return Err(SqlError::new(
            SqlState::TooManyColumns,
            format!("tables can have at most {ATTRIBUTES_MAX} columns"),
        ));
    }
    let mut attributes: Vec<(String, ast::DataType)> = vec![];
    for (attribute, data_type) in &create.attributes {
        let attribute = millrace_parser::fold(attribute);
        if attributes.iter().any(|(known, _)| *known == attribute) {
            return Err(SqlError::new(
                SqlState::DuplicateColumn,
                format!("column \"{attribute}\" specified more than once"),
            ));
        }
        attributes.push((attribute, qualified(data_type, &reader)?));
    }
    let id = guard.next_id()?;
    let new = CompositeType {
        oid: type_oid(id),
        schema: schema.clone(),
        name: name.clone(),
        attributes: attributes.clone(),
    };
    let whole = without_names(new, &reader)?;
    whole.sql_type()?;
    if whole.depth() > NESTED_MAX {
        return Err(SqlError::new(
            SqlState::StatementTooComplex,
            format!("composite types are made of each other more than {NESTED_MAX} deep"),
        ));
    }
    let depends = reader.names().into_iter().map(|name| name.object).collect();
    guard.put(object(
        &scope,
        (id, ObjectKind::Type),
        (schema, name),
        TypeDef::Composite(attributes),
        depends,
        text,
    ))?;
    done("CREATE TYPE")
}

/// Executes CREATE DOMAIN.
/// Domains that are made of another domain. Each of them is a function around the value where the type is used.
const DOMAINS_NESTED_MAX: usize = 32;

pub async fn create_domain(session: &Arc<Session>, create: CreateDomain, text: &str) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let scope = session.scope();
    let (schema, name) = new_name(session, &scope, &create.name)?;
    let reader = session.database().reader(&scope);
    let base = resolved(&create.data_type, &reader)?;
    if base.domains.len() >= DOMAINS_NESTED_MAX {
        return Err(SqlError::new(
            SqlState::StatementTooComplex,
            format!("domains are made of each other more than {DOMAINS_NESTED_MAX} deep"),
        ));
    }
    let base = base.data_type;
    let field = types::from_sql(&base)?.field("value", true);
    if matches!(field.data_type(), arrow::datatypes::DataType::Struct(_)) {
        return Err(SqlError::unsupported(
            "domains of composite types are not supported",
        ));
    }
    let mut domain = DomainDef {
        base: qualified(&create.data_type, &reader)?,
        not_null: create.not_null,
        default: create.default,
        checks: vec![],
    };
    if let Some(default) = &mut domain.default {
        check_default(session, &reader, default, &field)?;
        named_types::qualify(default, &reader)?;
    }
    for (given, mut expression) in create.checks {
        check_condition(session, &reader, &expression, &field)?;
        named_types::qualify(&mut expression, &reader)?;
        let is_taken = |name: &str| domain.checks.iter().any(|check| check.name == name);
        let name = match given.map(|given| millrace_parser::fold(&given)) {
            Some(given) if is_taken(&given) => {
                return Err(SqlError::new(
                    SqlState::DuplicateObject,
                    format!("constraint \"{given}\" for domain \"{name}\" already exists"),
                ));
            }
            Some(given) => given,
            None => names::free(&format!("{name}_check"), is_taken),
        };
        domain.checks.push(CheckDef { name, expression });
    }
    let depends = reader.names().into_iter().map(|name| name.object).collect();
    let id = guard.next_id()?;
    let definition = TypeDef::Domain(Box::new(domain));
    let new = object(
        &scope,
        (id, ObjectKind::Domain),
        (schema, name),
        definition,
        depends,
        text,
    );
    guard.put(new)?;
    done("CREATE DOMAIN")
}

fn object(
    scope: &Scope,
    (id, kind): (ObjectId, ObjectKind),
    (schema, name): (String, String),
    definition: TypeDef,
    depends: Vec<ObjectId>,
    text: &str,
) -> Object {
    let rights = scope.rights_of_new(kind, &schema);
    Object {
        id,
        kind,
        database: scope.database.clone(),
        schema,
        name,
        sql: text.to_owned(),
        comment: None,
        created_at_ms: now_ms(),
        depends,
        definition: Definition::Type(Arc::new(definition)),
        rights,
    }
}

/// The schema and name of a new type, which no built-in type and no other has.
fn new_name(session: &Session, scope: &Scope, name: &ast::ObjectName) -> SqlResult<(String, String)> {
    let (schema, name) = names::new_name(session, scope, name)?;
    let catalog = &scope.catalog;
    // A relation's name is that of the type of its rows.
    let taken = catalog.user_type(&scope.database, &schema, &name);
    let taken = taken.or_else(|| catalog.relation(&scope.database, &schema, &name));
    if taken.is_some() {
        return Err(SqlError::new(
            SqlState::DuplicateObject,
            format!("type \"{name}\" already exists"),
        ));
    }
    let written = ast::DataType::Custom(ast::ObjectName::from(vec![Ident::new(&name)]), vec![]);
    if types::from_sql(&written).is_ok() {
        return Err(
            SqlError::new(SqlState::DuplicateObject, format!("type \"{name}\" is built in"))
                .with_hint("Use another name."),
        );
    }
    Ok((schema, name))
}

/// Refuses a default that does not fit.
fn check_default(session: &Session, reader: &Reader<'_>, default: &Expr, field: &Field) -> SqlResult<()> {
    let data_type = types::sql_name(field);
    let mut assigned = millrace_functions::syntax::call(
        millrace_functions::cast::ASSIGN,
        vec![
            default.clone(),
            millrace_functions::syntax::text(&data_type),
            millrace_functions::syntax::text("value"),
        ],
    );
    named_types::resolve(&mut assigned, reader)?;
    rewrite::expression(&mut assigned)?;
    let empty = DFSchema::empty();
    df(Binder::new(session.database().state(), reader).expression(&assigned, &empty))?;
    Ok(())
}

/// Refuses what is no condition on a value.
fn check_condition(session: &Session, reader: &Reader<'_>, check: &Expr, field: &Field) -> SqlResult<()> {
    let has_query = walk_expressions(check, |expr| match expr {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    if has_query.is_break() {
        return Err(SqlError::unsupported("cannot use subquery in check constraint"));
    }
    let value = Expr::Identifier(Ident::with_quote('"', "value"));
    let mut condition = named_types::condition(check, &value, reader)?;
    rewrite::expression(&mut condition)?;
    let schema = df(DFSchema::try_from(Schema::new(vec![field.clone()])))?;
    let bound = df(Binder::new(session.database().state(), reader).expression(&condition, &schema))?;
    let (_, of) = df(bound.to_field(&schema))?;
    if !of.data_type().is_null() && of.data_type() != &arrow::datatypes::DataType::Boolean {
        return Err(SqlError::new(
            SqlState::DatatypeMismatch,
            format!(
                "argument of CHECK must be type boolean, not type {}",
                types::plain_name(&of)
            ),
        ));
    }
    Ok(())
}

/// A materialized view whose query names the type itself, and not only columns of it; by views, functions or domains, too.
fn view_with_casts(catalog: &CatalogSnapshot, of_type: ObjectId) -> Option<Arc<Object>> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![of_type]);
    while let Some(named) = next.pop() {
        for by in catalog.dependents(&BTreeSet::from([named])) {
            if !by.depends.contains(&named) || !seen.insert(by.id) {
                continue;
            }
            match by.kind {
                ObjectKind::MaterializedView => return Some(Arc::clone(by)),
                ObjectKind::View | ObjectKind::Function | ObjectKind::Domain => next.push(by.id),
                _ => {}
            }
        }
    }
    None
}

/// Executes ALTER TYPE and ALTER DOMAIN, but for their owner.
pub async fn alter(session: &Arc<Session>, alter: &AlterRelation) -> SqlResult<Outcome> {
    let kind = if alter.kind == Kind::Domain {
        "DOMAIN"
    } else {
        "TYPE"
    };
    if let [AlterOperation::ChangeDomain(change)] = alter.operations.as_slice() {
        return session
            .in_transaction(Box::pin(domain::alter(session, alter, change)))
            .await;
    }
    let [AlterOperation::ChangeEnum(change)] = alter.operations.as_slice() else {
        return Err(
            SqlError::unsupported(format!("this form of ALTER {kind} is not supported")).with_hint(
                match alter.kind {
                    Kind::Domain => "DEFAULT, NOT NULL, constraints and OWNER TO can be altered.",
                    _ => "ADD VALUE, RENAME VALUE and OWNER TO are.",
                },
            ),
        );
    };
    let guard = session.ddl().await?;
    let scope = session.scope();
    let object = names::user_type(session, &scope, &alter.name)?;
    scope.check_owner(&object)?;
    let Some(types::named::NamedType::Enum(known)) = object.named_type() else {
        return Err(SqlError::new(
            SqlState::WrongObjectType,
            format!("\"{}\" is not an enum", object.name),
        ));
    };
    let catalog = guard.catalog();
    let users = catalog.dependents(&BTreeSet::from([object.id]));
    let changed = match change {
        EnumChange::Add {
            if_not_exists,
            label,
            beside,
        } => {
            if *if_not_exists && known.held(label).is_some() {
                let message = format!("enum label \"{label}\" already exists, skipping");
                session.notice(Severity::Notice, message);
                return done("ALTER TYPE");
            }
            if let Some(user) = users.iter().find(|user| user.kind == ObjectKind::Type) {
                return Err(SqlError::unsupported(format!(
                    "a value cannot be added to type {} while {} has an attribute of it",
                    known.shown(),
                    user.described()
                )));
            }
            if let Some(view) = view_with_casts(&catalog, object.id) {
                return Err(SqlError::unsupported(format!(
                    "a value cannot be added to type {} while {} casts to the type",
                    known.shown(),
                    view.described()
                ))
                .with_hint("Rows that the view stores would change meaning. Drop the view, add the value, and create it again."));
            }
            let place = match beside {
                None => Place::Last,
                Some((other, true)) => Place::Before(other),
                Some((other, false)) => Place::After(other),
            };
            known.with_value(label, place)?
        }
        EnumChange::Rename { from, to } => {
            if let Some(user) = users.first() {
                return Err(SqlError::unsupported(format!(
                    "a value of type {} cannot be renamed while {} uses the type",
                    known.shown(),
                    user.described()
                ))
                .with_hint("Rows hold the value with its label: add a value, and UPDATE the rows."));
            }
            known.renamed(from, to)?
        }
    };
    let mut put = vec![];
    let mut new = object.as_ref().clone();
    new.definition = Definition::Type(Arc::new(TypeDef::Enum(changed.values.clone())));
    put.push(new);
    // Columns of the type know its values, and views over them.
    for id in catalog.closure(&[object.id]) {
        if let Some(user) = catalog.object(id).filter(|user| user.id != object.id) {
            put.extend(user.with_values(&changed));
        }
    }
    let fed: Vec<Arc<Object>> = users
        .into_iter()
        .filter(|user| {
            user.relation()
                .is_some_and(|relation| relation.connector.is_some())
        })
        .cloned()
        .collect();
    guard.put_all(put)?;
    // What feeds a stream is to know them, too.
    for object in fed {
        session
            .database()
            .restart_source(&object, async || Ok(()))
            .await?;
    }
    done("ALTER TYPE")
}
