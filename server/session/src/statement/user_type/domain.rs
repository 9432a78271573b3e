//! ALTER DOMAIN: rows that are there are looked at before the domain asks for more than it did.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::sql::sqlparser::ast::{Expr, Ident};
use millrace_catalog::user_type::{DomainDef, TypeDef};
use millrace_catalog::{CatalogSnapshot, CheckDef, Definition, Object, Reader};
use millrace_functions::sql::named_types;
use millrace_parser::ast::{AlterRelation, DomainChange};
use millrace_parser::quote_identifier;
use millrace_planner::RelationKind;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;
use millrace_postgres::types::named::resolved;
use millrace_storage::{ObjectId, ObjectKind};

use super::{check_condition, check_default, view_with_casts};
use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::query::Providers;
use crate::session::Session;
use crate::statement::{done, select};

/// Executes ALTER DOMAIN, inside a transaction.
pub(super) async fn alter(
    session: &Arc<Session>,
    alter: &AlterRelation,
    change: &DomainChange,
) -> SqlResult<Outcome> {
    let (object, _) = find(session, alter)?;
    session.scope().check_owner(&object)?;
    let asks_more = matches!(change, DomainChange::NotNull(true) | DomainChange::AddCheck(..));
    let mut held = BTreeSet::new();
    if asks_more {
        // Tables are waited for before the right to change definitions, which others are to have meanwhile.
        let catalog = Arc::clone(&session.scope().catalog);
        for (user, _) in columns_of(&catalog, object.id) {
            if user.kind == ObjectKind::Table
                && let Some(relation) = user.relation()
                && held.insert(user.id)
            {
                session.hold_table(relation).await?;
            }
        }
    }
    let guard = session.ddl().await?;
    let (object, domain) = find(session, alter)?;
    let scope = session.scope();
    scope.check_owner(&object)?;
    let catalog = guard.catalog();
    let (new, names, violation) = {
        let reader = session.database().reader(&scope);
        let new = changed(session, &reader, &object, &domain, change)?;
        let violation = Violation::of(&reader, change)?;
        let names: Vec<ObjectId> = reader.names().into_iter().map(|name| name.object).collect();
        (new, names, violation)
    };
    let is_condition = !matches!(change, DomainChange::Default(_) | DomainChange::Validate(_));
    if let Some(view) = view_with_casts(&catalog, object.id).filter(|_| is_condition) {
        return Err(SqlError::unsupported(format!(
            "the conditions of domain {} cannot be altered while {} casts to it",
            object.name,
            view.described()
        ))
        .with_hint(
            "Rows that the view stores would change meaning. Drop the view, alter the domain, and create it again.",
        ));
    }
    if asks_more {
        for (user, columns) in columns_of(&catalog, object.id) {
            let relation = user.relation().map(|relation| relation.info.kind);
            if relation == Some(RelationKind::Table)
                && user.kind == ObjectKind::Table
                && !held.contains(&user.id)
            {
                let message = format!(
                    "{} began to use the domain while the statement waited",
                    user.described()
                );
                return Err(SqlError::new(SqlState::SerializationFailure, message).with_hint("Run it again."));
            }
            for column in columns {
                violation.check_rows(session, &user, &column).await?;
            }
        }
    }
    let mut changed = object.as_ref().clone();
    let depends: BTreeSet<ObjectId> = object.depends.iter().copied().chain(names).collect();
    changed.depends = depends.into_iter().collect();
    changed.definition = Definition::Type(Arc::new(TypeDef::Domain(Box::new(new))));
    guard.put(changed)?;
    done("ALTER DOMAIN")
}

/// The domain, as it is then.
fn changed(
    session: &Session,
    reader: &Reader<'_>,
    object: &Object,
    domain: &DomainDef,
    change: &DomainChange,
) -> SqlResult<DomainDef> {
    let mut new = domain.clone();
    match change {
        DomainChange::Default(default) => new.default = default_of(session, reader, domain, default)?,
        DomainChange::NotNull(not_null) => new.not_null = *not_null,
        DomainChange::AddCheck(name, check) => {
            new.checks.push(new_check(
                session,
                reader,
                object,
                domain,
                (name.as_ref(), check),
            )?);
        }
        DomainChange::DropCheck { if_exists, name } => {
            let name = millrace_parser::fold(name);
            match new.checks.iter().position(|check| check.name == name) {
                Some(at) => drop(new.checks.remove(at)),
                None if *if_exists => {
                    let message = format!("{}, skipping", no_constraint(object, &name).message);
                    session.notice(Severity::Notice, message);
                }
                None => return Err(no_constraint(object, &name)),
            }
        }
        DomainChange::RenameCheck { from, to } => {
            let (from, to) = (millrace_parser::fold(from), millrace_parser::fold(to));
            check_free(object, domain, &to)?;
            match new.checks.iter_mut().find(|check| check.name == from) {
                Some(check) => check.name = to,
                None => return Err(no_constraint(object, &from)),
            }
        }
        // What was added was looked at then.
        DomainChange::Validate(name) => {
            let name = millrace_parser::fold(name);
            if !new.checks.iter().any(|check| check.name == name) {
                return Err(no_constraint(object, &name));
            }
        }
    }
    Ok(new)
}

fn find(session: &Session, alter: &AlterRelation) -> SqlResult<(Arc<Object>, DomainDef)> {
    let object = names::user_type(session, &session.scope(), &alter.name)?;
    match &object.definition {
        Definition::Type(definition) => match definition.as_ref() {
            TypeDef::Domain(domain) => Ok((Arc::clone(&object), domain.as_ref().clone())),
            _ => Err(SqlError::new(
                SqlState::WrongObjectType,
                format!("{} is not a domain", object.name),
            )),
        },
        _ => Err(SqlError::internal("a type is no type")),
    }
}

/// The relations with columns of a domain, or of one that is made of it, and these columns.
fn columns_of(catalog: &CatalogSnapshot, domain: ObjectId) -> Vec<(Arc<Object>, Vec<String>)> {
    let mut domains = BTreeSet::from([domain]);
    let mut next = vec![domain];
    while let Some(named) = next.pop() {
        for by in catalog.dependents(&BTreeSet::from([named])) {
            if by.kind == ObjectKind::Domain && domains.insert(by.id) {
                next.push(by.id);
            }
        }
    }
    let mut all = vec![];
    for user in catalog.dependents(&domains) {
        let columns = user.relation().map(|relation| relation.columns.as_slice());
        let of_it = columns.unwrap_or_default().iter().filter(|column| {
            let of = column.domain;
            of.is_some_and(|of| domains.contains(&of))
        });
        let names: Vec<String> = of_it.map(|column| column.field.name().clone()).collect();
        if !names.is_empty() {
            all.push((Arc::clone(user), names));
        }
    }
    all
}

fn default_of(
    session: &Session,
    reader: &Reader<'_>,
    domain: &DomainDef,
    default: &Option<Expr>,
) -> SqlResult<Option<Expr>> {
    let Some(mut default) = default.clone() else {
        return Ok(None);
    };
    let base = resolved(&domain.base, reader)?.data_type;
    let field = types::from_sql(&base)?.field("value", true);
    check_default(session, reader, &default, &field)?;
    named_types::qualify(&mut default, reader)?;
    Ok(Some(default))
}

/// A condition that is added, under its name or one of the domain's.
fn new_check(
    session: &Session,
    reader: &Reader<'_>,
    object: &Object,
    domain: &DomainDef,
    (name, check): (Option<&Ident>, &Expr),
) -> SqlResult<CheckDef> {
    let base = resolved(&domain.base, reader)?.data_type;
    let field = types::from_sql(&base)?.field("value", true);
    let mut expression = check.clone();
    check_condition(session, reader, &expression, &field)?;
    named_types::qualify(&mut expression, reader)?;
    let name = match name.map(millrace_parser::fold) {
        Some(given) => {
            check_free(object, domain, &given)?;
            given
        }
        None => names::free(&format!("{}_check", object.name), |name| {
            domain.checks.iter().any(|check| check.name == name)
        }),
    };
    Ok(CheckDef { name, expression })
}

fn check_free(object: &Object, domain: &DomainDef, name: &str) -> SqlResult<()> {
    match domain.checks.iter().any(|check| check.name == name) {
        false => Ok(()),
        true => Err(SqlError::new(
            SqlState::DuplicateObject,
            format!(
                "constraint \"{name}\" for domain \"{}\" already exists",
                object.name
            ),
        )),
    }
}

fn no_constraint(object: &Object, name: &str) -> SqlError {
    SqlError::new(
        SqlState::UndefinedObject,
        format!(
            "constraint \"{name}\" of domain \"{}\" does not exist",
            object.name
        ),
    )
}

/// What a change forbids.
enum Violation {
    Null,
    /// What values must be, where `"value"` is the value.
    Check(Box<Expr>),
}

impl Violation {
    fn of(reader: &Reader<'_>, change: &DomainChange) -> SqlResult<Self> {
        match change {
            DomainChange::AddCheck(_, check) => {
                let value = Expr::Identifier(Ident::with_quote('"', "value"));
                Ok(Violation::Check(Box::new(named_types::condition(
                    check, &value, reader,
                )?)))
            }
            _ => Ok(Violation::Null),
        }
    }

    /// Refuses values of a column that are so.
    async fn check_rows(&self, session: &Arc<Session>, user: &Object, column: &str) -> SqlResult<()> {
        let (condition, code, what) = match self {
            Violation::Check(check) => (
                format!("NOT ({check})"),
                SqlState::CheckViolation,
                "contains values that violate the new constraint",
            ),
            Violation::Null => (
                "\"value\" IS NULL".to_owned(),
                SqlState::NotNullViolation,
                "contains null values",
            ),
        };
        let text = format!(
            "SELECT 1 FROM (SELECT {} AS \"value\" FROM {}.{}) AS rows WHERE {condition} LIMIT 1",
            quote_identifier(column),
            quote_identifier(&user.schema),
            quote_identifier(&user.name)
        );
        let mut statement = select::parse_query(&text)?;
        let (plan, _) = select::bind(session, &session.scope(), &mut statement, select::Purpose::Run)?;
        let rows = session.collect(plan, &Providers::new()).await?;
        match rows.iter().map(RecordBatch::num_rows).sum::<usize>() {
            0 => Ok(()),
            _ => Err(SqlError::new(
                code,
                format!("column \"{column}\" of table \"{}\" {what}", user.name),
            )),
        }
    }
}
