//! ALTER of columns where the rows that there are stay as they are: names, defaults, and columns that are added.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::{DFSchema, ScalarValue};
use datafusion::sql::sqlparser::ast::{self, Ident};
use millrace_catalog::scope::Scope;
use millrace_catalog::sequence::Takes;
use millrace_catalog::{ColumnDef, Definition, Object, Relation};
use millrace_database::database::ddl::DdlGuard;
use millrace_database::database::rows::{RowBuilder, positions};
use millrace_engine::TableLocks;
use millrace_functions::sql::{named_types, rewrite};
use millrace_parser::ast::ColumnDefinition;
use millrace_parser::walk::walk_expressions_mut;
use millrace_planner::{Binder, RelationId, RelationKind};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_storage::ObjectKind;

use super::columns_of;
use crate::notice::Severity;
use crate::sequences;
use crate::session::Session;
use crate::statement::create_relation::{check_columns, check_expressions, columns};
use crate::statement_memory::check_column;

/// Rows that are written from now on get another default, or none.
pub(super) fn set_default(
    session: &Session,
    scope: &Scope,
    guard: &DdlGuard<'_>,
    object: &Object,
    (name, mut default): (&Ident, Option<ast::Expr>),
) -> SqlResult<()> {
    named_types::qualify(&mut default, &session.database().reader(scope))?;
    let relation = columns_of(object)?;
    let name = millrace_parser::fold(name);
    let position = positions(relation, std::slice::from_ref(&name))?[0];
    let mut changed = relation.columns.clone();
    let column = &mut changed[position];
    if column.generated.is_some() || column.proctime {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            format!(
                "column \"{name}\" of relation \"{}\" is a generated column",
                object.name
            ),
        ));
    }
    if column
        .sequence
        .is_some_and(|sequence| sequence.takes != Takes::Default)
    {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            format!(
                "column \"{name}\" of relation \"{}\" is an identity column",
                object.name
            ),
        ));
    }
    column.sequence = match &default {
        Some(default) => sequences::of_default(session, default)?,
        None => None,
    };
    column.default = default;
    let changed = object.with_columns(relation, changed, relation.event_time.clone());
    let relation = columns_of(&changed)?;
    check_expressions(session, scope, relation)?;
    guard.put(changed)
}

/// Gives a column another name, also where expressions over the table name it.
pub(super) fn rename_column(
    guard: &DdlGuard<'_>,
    object: &Object,
    from: &Ident,
    to: &Ident,
) -> SqlResult<()> {
    let mut object = object.clone();
    if let Definition::Relation(relation) = &mut object.definition {
        let (from, to) = (millrace_parser::fold(from), millrace_parser::fold(to));
        for check in &mut relation.checks {
            rename_in(&mut check.expression, &from, &to);
        }
    }
    let object = &object;
    let relation = columns_of(object)?;
    let (from, to) = (millrace_parser::fold(from), millrace_parser::fold(to));
    let position = positions(relation, std::slice::from_ref(&from))?[0];
    let mut changed = relation.columns.clone();
    check_name(&to)?;
    check_new(object, relation, &to)?;
    changed[position].field = Arc::new(changed[position].field.as_ref().clone().with_name(&to));
    for column in &mut changed {
        if let Some(expression) = &mut column.generated {
            rename_in(expression, &from, &to);
        }
    }
    let mut event_time = relation.event_time.clone();
    if let Some(event_time) = &mut event_time {
        rename_in(&mut event_time.watermark, &from, &to);
    }
    guard.put(object.with_columns(relation, changed, event_time))
}

/// Renames a column in an expression over the columns of one relation.
fn rename_in(expression: &mut ast::Expr, from: &str, to: &str) {
    let rename = |ident: &mut Ident| {
        if millrace_parser::fold(ident) == from {
            *ident = Ident::with_quote('"', to);
        }
    };
    let _: ControlFlow<()> = walk_expressions_mut(expression, |expr| {
        match expr {
            ast::Expr::Identifier(ident) => rename(ident),
            ast::Expr::CompoundIdentifier(parts) => {
                if let Some(last) = parts.last_mut() {
                    rename(last);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
}

/// Refuses what is no name.
fn check_name(name: &str) -> SqlResult<()> {
    match name.is_empty() {
        false => Ok(()),
        true => Err(SqlError::new(
            SqlState::SyntaxError,
            "zero-length delimited identifier at or near \"\"\"\"",
        )),
    }
}

fn check_new(object: &Object, relation: &Relation, name: &str) -> SqlResult<()> {
    if relation.columns.iter().any(|column| column.field.name() == name) {
        return Err(SqlError::new(
            SqlState::DuplicateColumn,
            format!("column \"{name}\" of relation \"{}\" already exists", object.name),
        ));
    }
    Ok(())
}

/// Adds a column behind the others, without touching the rows that there are.
pub(super) fn add_column(
    session: &Arc<Session>,
    scope: &Scope,
    guard: &DdlGuard<'_>,
    object: &Object,
    definition: &ColumnDefinition,
    if_not_exists: bool,
    locks: Option<&TableLocks>,
) -> SqlResult<()> {
    let relation = columns_of(object)?;
    let Some(mut column) = new_column(session, object, definition, if_not_exists)? else {
        return Ok(());
    };
    let value = value_in_old_rows(session, scope, object, &column)?;
    let rows = session.database().runtime().rows(RelationId(object.id.0));
    let bytes = value.size().saturating_mul(rows.unwrap_or(0) as usize);
    check_column(bytes)?;
    let _charge = session.keep_rows(bytes)?;
    column.added = Some(value);
    let mut changed = relation.columns.clone();
    changed.push(column.clone());
    check_columns(changed.iter().map(|column| column.field.name().as_str()))?;
    guard.add_column(
        locks,
        object.with_columns(relation, changed, relation.event_time.clone()),
        &column,
    )
}

/// A column that is to be added; `None`: it is there.
pub(super) fn new_column(
    session: &Session,
    object: &Object,
    definition: &ColumnDefinition,
    if_not_exists: bool,
) -> SqlResult<Option<ColumnDef>> {
    let name = millrace_parser::fold(&definition.name);
    check_name(&name)?;
    if let Err(error) = check_new(object, columns_of(object)?, &name) {
        if if_not_exists {
            session.notice(Severity::Notice, format!("{}, skipping", error.message));
            return Ok(None);
        }
        return Err(error);
    }
    let is_stream = object.kind == ObjectKind::Stream;
    if definition.proctime || definition.generated.is_some() && is_stream {
        return Err(
            SqlError::unsupported("adding a generated column to a stream is not supported")
                .with_hint(format!("Compute it in a view over \"{}\".", object.name)),
        );
    }
    if is_stream && (definition.identity.is_some() || sequences::is_serial(&definition.data_type)) {
        return Err(
            SqlError::unsupported("adding a column with a sequence to a stream is not supported")
                .with_detail("Rows that were written never change."),
        );
    }
    Ok(Some(
        columns(session, std::slice::from_ref(definition), &[])?.remove(0),
    ))
}

/// Whether a column that is added to a table has another value in each row that there is.
pub(super) fn differs_by_row(
    session: &Session,
    scope: &Scope,
    definition: &ColumnDefinition,
) -> SqlResult<bool> {
    if definition.generated.is_some()
        || definition.identity.is_some()
        || sequences::is_serial(&definition.data_type)
    {
        return Ok(true);
    }
    match &definition.default {
        Some(default) => {
            Ok(sequences::of_default(session, default)?.is_some() || is_volatile(session, scope, default)?)
        }
        None => Ok(false),
    }
}

fn is_volatile(session: &Session, scope: &Scope, default: &ast::Expr) -> SqlResult<bool> {
    let mut default = default.clone();
    let reader = session.database().reader(scope);
    named_types::resolve(&mut default, &reader)?;
    rewrite::expression(&mut default)?;
    let binder = Binder::new(session.database().state(), &reader);
    Ok(df(binder.expression(&default, &DFSchema::empty()))?.is_volatile())
}

/// What the rows that there are get: the default, as it is now, or NULL.
fn value_in_old_rows(
    session: &Session,
    scope: &Scope,
    object: &Object,
    column: &ColumnDef,
) -> SqlResult<ScalarValue> {
    if let Some(default) = &column.default
        && (sequences::of_default(session, default)?.is_some() || is_volatile(session, scope, default)?)
    {
        return Err(SqlError::unsupported(
            "adding a column with a volatile default to a stream is not supported",
        )
        .with_detail("Each existing row would get a different value."));
    }
    let alone = Relation::new(
        object.id,
        &object.name,
        RelationKind::Table,
        vec![column.clone()],
        &[],
        false,
    );
    let builder = RowBuilder::new(session.database(), scope, &alone, &[])?;
    let row = builder.build(&[], 1).map_err(|failure| {
        let error = *failure.error;
        match error.code {
            SqlState::NotNullViolation => SqlError::new(
                error.code,
                format!(
                    "column \"{}\" is NOT NULL and has no DEFAULT",
                    column.field.name()
                ),
            )
            .with_hint("It would be NULL in existing rows: add a DEFAULT, or omit NOT NULL."),
            _ => error,
        }
    })?;
    df(ScalarValue::try_from_array(row.column(0), 0))
}
