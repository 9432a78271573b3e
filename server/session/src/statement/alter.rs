//! ALTER of relations: names, columns, and two relations that swap their names.
//!
//! Views keep what their names meant when they were made, so that none of this touches them: see
//! [`millrace_catalog::bound`].

mod owner;
mod watermark;

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::{DFSchema, ScalarValue};
use datafusion::sql::sqlparser::ast::{self, Ident};
use millrace_catalog::event_time::EventTimeDef;
use millrace_catalog::retention::Retention;
use millrace_catalog::scope::Scope;
use millrace_catalog::sequence::Takes;
use millrace_catalog::{ColumnDef, Definition, Object, Relation, kind_name};
use millrace_database::database::ddl::DdlGuard;
use millrace_database::database::rows::{RowBuilder, positions};
use millrace_engine::TableLocks;
use millrace_functions::sql::rewrite;
use millrace_parser::ast::{AlterOperation, AlterRelation, ColumnDefinition, ObjectKind as Kind, Options};
use millrace_parser::walk::walk_expressions_mut;
use millrace_planner::{Binder, RelationId, RelationKind};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_storage::ObjectKind;

use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::sequences;
use crate::session::Session;
use crate::statement::create_relation::{check_columns, check_expressions, columns};
use crate::statement::done;

/// Executes ALTER.
pub async fn execute(session: &Arc<Session>, alter: AlterRelation) -> SqlResult<Outcome> {
    if let AlterOperation::OwnerTo(role) = &alter.operation {
        return owner::execute(session, &alter, role).await;
    }
    let (tag, kind) = match alter.kind {
        Kind::Stream => ("ALTER STREAM", ObjectKind::Stream),
        Kind::Table => ("ALTER TABLE", ObjectKind::Table),
        Kind::View => ("ALTER VIEW", ObjectKind::View),
        Kind::MaterializedView => ("ALTER MATERIALIZED VIEW", ObjectKind::MaterializedView),
        Kind::Index => ("ALTER INDEX", ObjectKind::Index),
        _ => {
            return Err(SqlError::unsupported(
                "ALTER of this kind of object is not supported",
            ));
        }
    };
    // A table is waited for before the right to change definitions, which others are to have meanwhile.
    let locks = match &alter.operation {
        AlterOperation::AddColumn { .. } => match find(session, &session.scope(), &alter.name, kind) {
            Ok(object) if session.scope().check_owner(&object).is_err() => None,
            Ok(object) if session.transaction_is_open() => {
                hold(session, &object).await?;
                None
            }
            Ok(object) => Some((object.id, session.lock_table(RelationId(object.id.0)).await?)),
            Err(_) => None,
        },
        _ => None,
    };
    let guard = session.ddl().await?;
    let scope = session.scope();
    let object = match find(session, &scope, &alter.name, kind) {
        Err(error) if alter.if_exists && error.code == SqlState::UndefinedTable => {
            session.notice(
                Severity::Notice,
                format!("relation \"{}\" does not exist, skipping", alter.name),
            );
            return done(tag);
        }
        found => found?,
    };
    scope.check_owner(&object)?;
    session.database().jobs().check_unlocked(&[object.id])?;
    match alter.operation {
        AlterOperation::RenameTo(name) => rename(&guard, &object, &millrace_parser::fold(&name))?,
        AlterOperation::SwapWith(other) => {
            let other = find(session, &scope, &other, kind)?;
            scope.check_owner(&other)?;
            session.database().jobs().check_unlocked(&[other.id])?;
            swap(&guard, &object, &other)?;
        }
        AlterOperation::RenameColumn { from, .. } if is_named_by_source(&object) => {
            return Err(SqlError::unsupported(format!(
                "column \"{}\" cannot be renamed: what feeds \"{}\" names it so",
                from, object.name
            ))
            .with_hint("Give it another name in a view."));
        }
        AlterOperation::RenameColumn { from, to } => rename_column(&guard, &object, &from, &to)?,
        AlterOperation::AddColumn {
            if_not_exists,
            column,
        } => match locks {
            Some((locked, locks)) if locked == object.id => {
                // What feeds it is to give the column, too.
                let added = async || {
                    let locks = Some(&locks);
                    add_column(session, &scope, &guard, &object, &column, if_not_exists, locks)
                };
                session.database().restart_source(&object, added).await?;
            }
            None if guard.definitions().is_some() => {
                add_column(session, &scope, &guard, &object, &column, if_not_exists, None)?;
            }
            _ => {
                return Err(SqlError::new(
                    SqlState::SerializationFailure,
                    format!(
                        "relation \"{}\" was renamed while the statement waited for it",
                        alter.name
                    ),
                )
                .with_hint("Run it again."));
            }
        },
        AlterOperation::DropColumn { .. } => {
            return Err(
                SqlError::unsupported(format!("{tag} .. DROP COLUMN is not supported")).with_hint(
                    "Create a view without the column, or copy the other columns with CREATE TABLE .. AS.",
                ),
            );
        }
        AlterOperation::SetColumnType { .. } => {
            return Err(SqlError::unsupported(format!("{tag} .. TYPE is not supported"))
                .with_hint("Add a column of the new type, or cast in a view."));
        }
        AlterOperation::SetColumnDefault { name, default } => {
            set_default(session, &scope, &guard, &object, (&name, default))?;
        }
        AlterOperation::SetColumnNotNull { not_null, .. } => {
            let verb = if not_null { "SET" } else { "DROP" };
            return Err(
                SqlError::unsupported(format!("{tag} .. {verb} NOT NULL is not supported"))
                    .with_hint("Copy the rows into a new table with CREATE TABLE and INSERT .. SELECT."),
            );
        }
        AlterOperation::SetOptions(options) if is_watermark(&object, &options) => {
            watermark::set_back(session, &guard, &object, &options.0[0].value).await?;
        }
        AlterOperation::SetOptions(mut options) if is_stored(&object) => {
            let change = Retention::new(&mut options, kind)?;
            if let Some(option) = options.0.first() {
                return Err(not_altered(&option.name));
            }
            keep(&guard, &object, |keeping| Ok(keeping.altered(change)))?;
        }
        AlterOperation::ResetOptions(names) if is_stored(&object) => {
            keep(&guard, &object, |mut keeping| {
                for name in &names {
                    if !keeping.reset(&millrace_parser::fold(name)) {
                        return Err(not_altered(name));
                    }
                }
                Ok(keeping)
            })?;
        }
        AlterOperation::SetOptions(_) | AlterOperation::ResetOptions(_) => {
            return Err(SqlError::unsupported(format!("{tag} .. SET is not supported")));
        }
        AlterOperation::SetSchema(_) => {
            return Err(SqlError::unsupported(format!(
                "{tag} .. SET SCHEMA is not supported"
            )));
        }
        AlterOperation::OwnerTo(_) => {
            return Err(SqlError::internal("OWNER TO came to where columns are altered"));
        }
    }
    done(tag)
}

/// Whether it is `SET WATERMARK TO ..` of a stream.
fn is_watermark(object: &Object, options: &Options) -> bool {
    let [option] = options.0.as_slice() else {
        return false;
    };
    object.kind == ObjectKind::Stream && option.name.value.eq_ignore_ascii_case("watermark")
}

fn is_stored(object: &Object) -> bool {
    matches!(object.kind, ObjectKind::Stream | ObjectKind::Table)
}

fn not_altered(option: &Ident) -> SqlError {
    SqlError::unsupported(format!("option \"{}\" cannot be altered", option.value)).with_hint(
        "The options that can be altered are durability, and, for a stream, retention and \
                    retention_size.",
    )
}

/// Has the rows of a stream or table kept in another way from now on.
fn keep(
    guard: &DdlGuard<'_>,
    object: &Object,
    change: impl FnOnce(Retention) -> SqlResult<Retention>,
) -> SqlResult<()> {
    let mut new = object.clone();
    let Definition::Relation(relation) = &mut new.definition else {
        return Err(SqlError::internal("a stream or table is not a relation"));
    };
    relation.keeping = change(relation.keeping)?;
    new.restate();
    guard.keep(new)
}

/// Has a transaction hold a table to which it adds a column. What it has written there has the columns of before.
async fn hold(session: &Arc<Session>, object: &Object) -> SqlResult<()> {
    let relation = columns_of(object)?;
    let id = relation.info.id;
    let is_new = session
        .definitions()
        .is_some_and(|definitions| definitions.is_new(id));
    if session.has_changed(id) || (!is_new && relation.info.kind == RelationKind::Stream) {
        return Err(SqlError::unsupported(format!(
            "a column cannot be added to {} inside this transaction",
            object.described()
        ))
        .with_detail(match relation.info.kind {
            RelationKind::Stream => "It is a stream that was there before.",
            _ => "The transaction has written to it.",
        })
        .with_hint("Add it before BEGIN or after COMMIT."));
    }
    session.hold_table(relation).await
}

pub(super) fn find(
    session: &Session,
    scope: &Scope,
    name: &ast::ObjectName,
    kind: ObjectKind,
) -> SqlResult<Arc<Object>> {
    let object = names::resolve(session, scope, name)?;
    if object.kind == kind {
        object.check_up()?;
        return Ok(object);
    }
    let message = format!("\"{}\" is not a {}", object.name, kind_name(kind));
    Err(
        SqlError::new(SqlState::WrongObjectType, message.replace("a index", "an index"))
            .with_hint(format!("Use ALTER {}.", kind_name(object.kind).to_uppercase())),
    )
}

/// The object under another name.
fn renamed(object: &Object, schema: &str, name: &str) -> Object {
    let mut new = object.clone();
    new.name = name.to_string();
    new.schema = schema.to_string();
    if let Definition::Relation(relation) = &mut new.definition {
        relation.rename(name);
    }
    new.restate();
    new
}

fn rename(guard: &DdlGuard<'_>, object: &Object, name: &str) -> SqlResult<()> {
    guard.check_free(&object.database, &object.schema, name)?;
    guard.put(renamed(object, &object.schema, name))
}

/// Each gets the other's name. What was made over one of them goes on reading that one, under its new name.
fn swap(guard: &DdlGuard<'_>, one: &Object, other: &Object) -> SqlResult<()> {
    if one.id == other.id {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("cannot swap {} with itself", one.described()),
        ));
    }
    guard.put_all(vec![
        renamed(one, &other.schema, &other.name),
        renamed(other, &one.schema, &one.name),
    ])
}

/// The stored columns of a stream or table.
fn columns_of(object: &Object) -> SqlResult<&Relation> {
    match (object.kind, object.relation()) {
        (ObjectKind::Stream | ObjectKind::Table, Some(relation)) => Ok(relation),
        _ => Err(
            SqlError::unsupported(format!("the columns of {} cannot be altered", object.described()))
                .with_hint("Use CREATE OR REPLACE with other columns."),
        ),
    }
}

/// Rows that are written from now on get another default, or none.
fn set_default(
    session: &Session,
    scope: &Scope,
    guard: &DdlGuard<'_>,
    object: &Object,
    (name, default): (&Ident, Option<ast::Expr>),
) -> SqlResult<()> {
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
    let changed = with_columns(object, relation, changed, relation.event_time.clone());
    let relation = columns_of(&changed)?;
    check_expressions(session, scope, relation)?;
    guard.put(changed)
}

fn rename_column(guard: &DdlGuard<'_>, object: &Object, from: &Ident, to: &Ident) -> SqlResult<()> {
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
    guard.put(with_columns(object, relation, changed, event_time))
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

fn check_new(object: &Object, relation: &Relation, name: &str) -> SqlResult<()> {
    if relation.columns.iter().any(|column| column.field.name() == name) {
        return Err(SqlError::new(
            SqlState::DuplicateColumn,
            format!("column \"{name}\" of relation \"{}\" already exists", object.name),
        ));
    }
    Ok(())
}

/// The object with other columns; the key and its name stay.
fn with_columns(
    object: &Object,
    relation: &Relation,
    columns: Vec<ColumnDef>,
    event_time: Option<EventTimeDef>,
) -> Object {
    let kind = relation.info.kind;
    let mut changed = Relation::new(
        object.id,
        &object.name,
        kind,
        columns,
        relation.key(),
        kind == RelationKind::Stream,
    );
    changed.key_name.clone_from(&relation.key_name);
    let changed = changed
        .with_checks(relation.checks.clone())
        .with_event_time(event_time)
        .with_connector(relation.connector.clone())
        .with_errors(relation.errors)
        .with_keeping(relation.keeping);
    let mut new = object.clone();
    new.definition = Definition::Relation(Box::new(changed));
    new.restate();
    new
}

/// Whether something else gives the columns their values by their names.
fn is_named_by_source(object: &Object) -> bool {
    let connector = object.relation().and_then(|relation| relation.connector.as_ref());
    connector.is_some()
}

fn add_column(
    session: &Arc<Session>,
    scope: &Scope,
    guard: &DdlGuard<'_>,
    object: &Object,
    definition: &ColumnDefinition,
    if_not_exists: bool,
    locks: Option<&TableLocks>,
) -> SqlResult<()> {
    let relation = columns_of(object)?;
    let name = millrace_parser::fold(&definition.name);
    if let Err(error) = check_new(object, relation, &name) {
        if if_not_exists {
            session.notice(Severity::Notice, format!("{}, skipping", error.message));
            return Ok(());
        }
        return Err(error);
    }
    if definition.generated.is_some() || definition.proctime {
        return Err(
            SqlError::unsupported("adding a generated column is not supported")
                .with_hint(format!("Compute it in a view over \"{}\".", object.name)),
        );
    }
    let mut column = columns(std::slice::from_ref(definition), &[])?.remove(0);
    column.added = Some(value_in_old_rows(session, scope, object, &column)?);
    let mut changed = relation.columns.clone();
    changed.push(column.clone());
    check_columns(changed.iter().map(|column| column.field.name().as_str()))?;
    guard.add_column(
        locks,
        with_columns(object, relation, changed, relation.event_time.clone()),
        &column,
    )
}

/// What the rows that there are get: the default, as it is now, or NULL.
fn value_in_old_rows(
    session: &Session,
    scope: &Scope,
    object: &Object,
    column: &ColumnDef,
) -> SqlResult<ScalarValue> {
    if let Some(default) = &column.default {
        if sequences::of_default(session, default)?.is_some() {
            return Err(SqlError::unsupported(
                "adding a column with a default from a sequence is not supported",
            )
            .with_hint("Add the column, and give it the default with ALTER COLUMN .. SET DEFAULT."));
        }
        let mut default = default.clone();
        rewrite::expression(&mut default)?;
        let reader = session.database().reader(scope);
        let bound =
            df(Binder::new(session.database().state(), &reader).expression(&default, &DFSchema::empty()))?;
        if bound.is_volatile() {
            return Err(
                SqlError::unsupported("adding a column with a volatile default is not supported")
                    .with_detail("Each existing row would get a different value."),
            );
        }
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
