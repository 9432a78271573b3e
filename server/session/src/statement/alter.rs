//! ALTER of relations: names, columns, constraints, and two relations that swap their names.
//!
//! Views keep what their names meant when they were made, so that none of this touches them: see
//! [`millrace_catalog::bound`].

mod beside;
mod column;
mod constraint;
mod form;
mod freshness;
mod identity;
pub(super) mod owner;
mod policy;
mod sequence;
mod watermark;

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{self, Ident};
use millrace_catalog::retention::Retention;
use millrace_catalog::scope::Scope;
use millrace_catalog::temporary::is_temporary;
use millrace_catalog::{Definition, Object, Relation, kind_name};
use millrace_database::database::ddl::DdlGuard;
use millrace_parser::ast::{AlterOperation, AlterRelation, ObjectKind as Kind, Options};
use millrace_planner::{RelationId, RelationKind};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectKind;

use self::column::{add_column, differs_by_row, new_column, rename_column, set_default};
use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::sequences;
use crate::session::Session;
use crate::statement::{done, user_type};

/// Executes ALTER.
pub async fn execute(session: &Arc<Session>, mut alter: AlterRelation) -> SqlResult<Outcome> {
    if matches!(alter.kind, Kind::Type | Kind::Domain)
        && !matches!(alter.operations.as_slice(), [AlterOperation::OwnerTo(_)])
    {
        return user_type::alter(session, &alter).await;
    }
    if let [AlterOperation::OwnerTo(role)] = alter.operations.as_slice() {
        return owner::execute(session, &alter, role).await;
    }
    let operations = std::mem::take(&mut alter.operations);
    match <[AlterOperation; 1]>::try_from(operations) {
        Ok([operation]) if is_of_table(&operation) || adds_by_row(session, &alter, &operation)? => {
            session
                .in_transaction(Box::pin(perform(session, &alter, operation, true)))
                .await
        }
        Ok([operation]) => perform(session, &alter, operation, false).await,
        Err(operations) => {
            session
                .in_transaction(Box::pin(several(session, &alter, operations)))
                .await
        }
    }
}

/// Several actions, those first that PostgreSQL does first.
async fn several(
    session: &Arc<Session>,
    alter: &AlterRelation,
    mut operations: Vec<AlterOperation>,
) -> SqlResult<Outcome> {
    operations.sort_by_key(|operation| match operation {
        AlterOperation::DropColumn { .. } | AlterOperation::DropConstraint { .. } => 0,
        AlterOperation::SetColumnType { .. } => 1,
        AlterOperation::AddColumn { .. } => 2,
        _ => 3,
    });
    let adds = |operation: &AlterOperation| matches!(operation, AlterOperation::AddColumn { .. });
    let mut rewrites = !operations.iter().all(adds);
    for operation in &operations {
        rewrites |= adds_by_row(session, alter, operation)?;
    }
    let mut outcome = done("ALTER TABLE");
    for operation in operations {
        outcome = Ok(Box::pin(perform(session, alter, operation, rewrites)).await?);
    }
    outcome
}

/// Whether it adds a column to a table whose value is computed for each row that there is.
fn adds_by_row(session: &Session, alter: &AlterRelation, operation: &AlterOperation) -> SqlResult<bool> {
    match operation {
        AlterOperation::AddColumn { column, .. } if alter.kind == Kind::Table => {
            differs_by_row(session, &session.scope(), column)
        }
        _ => Ok(false),
    }
}

/// Whether it concerns all rows of a table: they are read or written while nobody else may write.
fn is_of_table(operation: &AlterOperation) -> bool {
    matches!(
        operation,
        AlterOperation::DropColumn { .. }
            | AlterOperation::SetColumnType { .. }
            | AlterOperation::SetColumnNotNull { .. }
            | AlterOperation::AddIdentity { .. }
            | AlterOperation::AlterIdentity { .. }
            | AlterOperation::DropIdentity { .. }
            | AlterOperation::AddConstraint(_)
            | AlterOperation::DropConstraint { .. }
            | AlterOperation::RenameConstraint { .. }
    )
}

/// Does one thing. With `rewrites` a new column is added by writing the rows anew, beside other actions that do.
async fn perform(
    session: &Arc<Session>,
    alter: &AlterRelation,
    operation: AlterOperation,
    rewrites: bool,
) -> SqlResult<Outcome> {
    let adds_by_rewriting = rewrites && matches!(operation, AlterOperation::AddColumn { .. });
    let (tag, kind) = match alter.kind {
        Kind::Stream => ("ALTER STREAM", ObjectKind::Stream),
        Kind::Table => ("ALTER TABLE", ObjectKind::Table),
        Kind::View => ("ALTER VIEW", ObjectKind::View),
        Kind::MaterializedView => ("ALTER MATERIALIZED VIEW", ObjectKind::MaterializedView),
        Kind::Index => ("ALTER INDEX", ObjectKind::Index),
        Kind::Sequence => ("ALTER SEQUENCE", ObjectKind::Sequence),
        _ => {
            return Err(SqlError::unsupported(
                "ALTER of this kind of object is not supported",
            ));
        }
    };
    // As in PostgreSQL, ALTER TABLE gives a new name or schema to what is no table, too.
    let kind = match &operation {
        AlterOperation::RenameTo(_) | AlterOperation::SetSchema(_) if kind == ObjectKind::Table => {
            let found = names::resolve(session, &session.scope(), &alter.name);
            let found = found.map_or(kind, |object| object.kind);
            let is_renamed = matches!(
                found,
                ObjectKind::View | ObjectKind::MaterializedView | ObjectKind::Index | ObjectKind::Sequence
            );
            if is_renamed { found } else { kind }
        }
        _ => kind,
    };
    // A table is waited for before the right to change definitions, which others are to have meanwhile.
    let mut held = None;
    let locks = match &operation {
        operation if is_of_table(operation) || adds_by_rewriting => {
            if let Ok(object) = find(session, &session.scope(), &alter.name, kind) {
                session.hold_table(table_of(&object)?).await?;
                held = Some(object.id);
            }
            if let AlterOperation::AddConstraint(constraint) = operation
                && let Some(parent) = constraint::referenced(session, constraint)
                && parent.kind == ObjectKind::Table
            {
                session.hold_table(table_of(&parent)?).await?;
            }
            None
        }
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
    match operation {
        AlterOperation::RenameTo(_) | AlterOperation::SwapWith(_) | AlterOperation::SetSchema(_)
            if let Some(of) = scope.catalog.kept_for(&object) =>
        {
            return Err(beside::goes_with(&object, of));
        }
        AlterOperation::SetOptions(_) | AlterOperation::ResetOptions(_)
            if beside::are_files_read(&scope, &object) =>
        {
            return Err(beside::all_are_needed(&object));
        }
        AlterOperation::RenameTo(name) => {
            beside::rename(
                &guard,
                &scope,
                &[(&object, &object.schema, &millrace_parser::fold(&name))],
            )?;
        }
        AlterOperation::SwapWith(other) => {
            let other = find(session, &scope, &other, kind)?;
            if let Some(of) = scope.catalog.kept_for(&other) {
                return Err(beside::goes_with(&other, of));
            }
            scope.check_owner(&other)?;
            session.database().jobs().check_unlocked(&[other.id])?;
            swap(&guard, &scope, &object, &other)?;
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
        } if !adds_by_rewriting => match locks {
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
            _ => return Err(renamed_meanwhile(&alter.name)),
        },
        operation @ (AlterOperation::AddColumn { .. }
        | AlterOperation::DropColumn { .. }
        | AlterOperation::SetColumnType { .. }
        | AlterOperation::SetColumnNotNull { .. }
        | AlterOperation::AddIdentity { .. }
        | AlterOperation::AlterIdentity { .. }
        | AlterOperation::DropIdentity { .. }
        | AlterOperation::AddConstraint(_)
        | AlterOperation::DropConstraint { .. }
        | AlterOperation::RenameConstraint { .. }) => {
            if held != Some(object.id) {
                return Err(renamed_meanwhile(&alter.name));
            }
            let altering = form::Altering {
                session,
                scope: &scope,
                guard: &guard,
                object: &object,
                relation: table_of(&object)?,
            };
            of_table(&altering, operation).await?;
        }
        AlterOperation::SetColumnDefault { name, default } => {
            set_default(session, &scope, &guard, &object, (&name, default))?;
        }
        AlterOperation::SetSequence(clauses) => {
            sequence::set(session, &scope, &guard, &object, &clauses)?;
        }
        AlterOperation::SetOptions(options) if is_watermark(&object, &options) => {
            watermark::set_back(session, &guard, &object, &options.0[0].value).await?;
        }
        AlterOperation::SetOptions(options) if object.kind == ObjectKind::MaterializedView => {
            freshness::set(&guard, &object, &options)?;
        }
        AlterOperation::ResetOptions(names) if object.kind == ObjectKind::MaterializedView => {
            freshness::reset(&guard, &object, &names)?;
        }
        AlterOperation::SetOptions(options) if policy::is_one(&object, &options) => {
            policy::set(session, &guard, &object, options).await?;
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
        AlterOperation::SetSchema(schema) => {
            set_schema(session, &scope, &guard, &object, &schema)?;
        }
        AlterOperation::OwnerTo(_) | AlterOperation::ChangeEnum(_) | AlterOperation::ChangeDomain(_) => {
            return Err(SqlError::internal(format!(
                "{operation} came to where columns are altered"
            )));
        }
    }
    done(tag)
}

async fn of_table(altering: &form::Altering<'_>, operation: AlterOperation) -> SqlResult<()> {
    match operation {
        AlterOperation::AddColumn {
            if_not_exists,
            column,
        } => {
            let mut definition = *column;
            let wanted = sequences::taken_from(std::slice::from_mut(&mut definition))?;
            let Some(mut column) = new_column(altering.session, altering.object, &definition, if_not_exists)?
            else {
                return Ok(());
            };
            if let Some(default) = &column.default {
                column.sequence = sequences::of_default(altering.session, default)?;
            }
            altering.add_column(column, wanted).await
        }
        AlterOperation::DropColumn {
            if_exists,
            name,
            behavior,
        } => altering.drop_column(&name, if_exists, behavior).await,
        AlterOperation::SetColumnType {
            name,
            data_type,
            using,
        } => altering.set_type(&name, &data_type, using).await,
        AlterOperation::SetColumnNotNull { name, not_null } => altering.set_not_null(&name, not_null).await,
        AlterOperation::AddIdentity {
            name,
            identity,
            sequence,
        } => identity::add(altering, &name, &identity, sequence.as_ref()).await,
        AlterOperation::AlterIdentity {
            name,
            always,
            clauses,
        } => identity::alter(altering, &name, always, &clauses),
        AlterOperation::DropIdentity { name, if_exists } => {
            identity::remove(altering, &name, if_exists).await
        }
        AlterOperation::AddConstraint(constraint) => altering.add_constraint(*constraint).await,
        AlterOperation::DropConstraint {
            if_exists,
            name,
            behavior,
        } => altering.drop_constraint(&name, if_exists, behavior).await,
        AlterOperation::RenameConstraint { from, to } => altering.rename_constraint(&from, &to),
        other => Err(SqlError::internal(format!("{other} is not of a table"))),
    }
}

/// A table whose rows come from statements.
fn table_of(object: &Object) -> SqlResult<&Relation> {
    let relation = columns_of(object)?;
    let cannot = || SqlError::unsupported(format!("this cannot be altered of {}", object.described()));
    match (object.kind, &relation.connector) {
        (ObjectKind::Table, None) => Ok(relation),
        (ObjectKind::Table, Some(_)) => Err(cannot().with_detail("Its rows come from a connector.")),
        _ => Err(cannot().with_hint("Rows of a stream never change: make a view of it.")),
    }
}

fn renamed_meanwhile(name: &ast::ObjectName) -> SqlError {
    let message = format!("relation \"{name}\" was renamed while the statement waited for it");
    SqlError::new(SqlState::SerializationFailure, message).with_hint("Run it again.")
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
        "The options that can be altered are durability, for a stream retention and retention_size, and, \
                    each by itself, on_error and schema_change of what is read from elsewhere.",
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
            RelationKind::Stream => "It is a stream that existed before the transaction.",
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

/// Moves an object, with its indexes and what else is a part of it.
fn set_schema(
    session: &Session,
    scope: &Scope,
    guard: &DdlGuard<'_>,
    object: &Arc<Object>,
    schema: &Ident,
) -> SqlResult<()> {
    if object.kind == ObjectKind::Index {
        return Err(SqlError::new(
            SqlState::WrongObjectType,
            format!("cannot change schema of index \"{}\"", object.name),
        )
        .with_hint("Change the schema of the table instead."));
    }
    let name = ast::ObjectName::from(vec![schema.clone(), Ident::with_quote('"', &object.name)]);
    let (schema, _) = names::new_name(session, scope, &name)?;
    if is_temporary(&schema) || is_temporary(&object.schema) {
        return Err(SqlError::unsupported(
            "cannot move objects into or out of temporary schemas",
        ));
    }
    if schema == object.schema {
        return Ok(());
    }
    let parts = owner::with_parts(scope, object);
    let moved = parts.into_iter().map(|part| {
        guard.check_free(&part.database, &schema, &part.name)?;
        Ok(renamed(&part, &schema, &part.name))
    });
    guard.put_all(moved.collect::<SqlResult<_>>()?)
}

/// Each gets the other's name. What was made over one of them goes on reading that one, under its new name.
fn swap(guard: &DdlGuard<'_>, scope: &Scope, one: &Object, other: &Object) -> SqlResult<()> {
    if one.id == other.id {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("cannot swap {} with itself", one.described()),
        ));
    }
    let names = [
        (one, &*other.schema, &*other.name),
        (other, &*one.schema, &*one.name),
    ];
    beside::rename(guard, scope, &names)
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

/// Whether something else gives the columns their values by their names.
fn is_named_by_source(object: &Object) -> bool {
    let connector = object.relation().and_then(|relation| relation.connector.as_ref());
    connector.is_some()
}
