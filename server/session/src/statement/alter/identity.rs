//! Identity columns in ALTER TABLE: a sequence for a column that there is, which is how pg_dump writes them, and what changes of one.

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{self, Ident, ObjectName};
use millrace_catalog::sequence::{ColumnSequence, SequenceDef, Takes};
use millrace_database::database::rows::positions;
use millrace_parser::ast::{Identity, SequenceClauses};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use super::form::Altering;
use super::sequence;
use crate::names;
use crate::notice::Severity;
use crate::sequences::OwnSequence;
use crate::statement::create_relation::own_sequences;

/// Gives a column a sequence of its own.
pub(super) async fn add(
    altering: &Altering<'_>,
    name: &Ident,
    identity: &Identity,
    sequence: Option<&ObjectName>,
) -> SqlResult<()> {
    let (object, relation) = (altering.object, altering.relation);
    let name = millrace_parser::fold(name);
    let position = positions(relation, std::slice::from_ref(&name))?[0];
    let mut columns = relation.columns.clone();
    let column = &columns[position];
    let refused = |code: SqlState, what: &str| {
        let message = format!("column \"{name}\" of relation \"{}\" {what}", object.name);
        SqlError::new(code, message)
    };
    if column.field.is_nullable() {
        let what = "must be declared NOT NULL before identity can be added";
        return Err(refused(SqlState::ObjectNotInPrerequisiteState, what));
    }
    if column.sequence.is_some() || column.default.is_some() || column.generated.is_some() {
        let what = "already has a default value";
        return Err(refused(SqlState::ObjectNotInPrerequisiteState, what));
    }
    let data_type = match column.field.data_type() {
        DataType::Int16 => ast::DataType::SmallInt(None),
        DataType::Int32 => ast::DataType::Integer(None),
        DataType::Int64 => ast::DataType::BigInt(None),
        _ => {
            let message = "identity column type must be smallint, integer, or bigint";
            return Err(SqlError::new(SqlState::InvalidParameterValue, message));
        }
    };
    let wanted = OwnSequence {
        column: position,
        definition: SequenceDef::new(Some(&data_type), &identity.options)?,
        takes: takes(identity.always),
    };
    let place = (object.schema.as_str(), object.name.as_str(), object.id);
    let mut made = own_sequences::made(altering.guard, altering.scope, place, &mut columns, vec![wanted])?;
    if let (Some(own), Some(called)) = (made.first_mut(), sequence) {
        let (schema, called) = names::new_name(altering.session, altering.scope, called)?;
        altering.guard.check_free(&object.database, &schema, &called)?;
        (own.schema, own.name) = (schema, called);
        own.restate();
    }
    altering.guard.create_all(made).await?;
    altering
        .guard
        .put(object.with_columns(relation, columns, relation.event_time.clone()))
}

fn takes(always: bool) -> Takes {
    match always {
        true => Takes::IdentityAlways,
        false => Takes::IdentityByDefault,
    }
}

/// SET GENERATED, SET of its sequence's options, and RESTART.
pub(super) fn alter(
    altering: &Altering<'_>,
    name: &Ident,
    always: Option<bool>,
    clauses: &SequenceClauses,
) -> SqlResult<()> {
    let (position, own) = of_column(altering, name)?;
    if let Some(always) = always {
        let mut columns = altering.relation.columns.clone();
        columns[position].sequence = Some(ColumnSequence {
            takes: takes(always),
            ..own
        });
        let event_time = altering.relation.event_time.clone();
        let changed = altering
            .object
            .with_columns(altering.relation, columns, event_time);
        altering.guard.put(changed)?;
    }
    let catalog = altering.guard.catalog();
    match catalog.object(own.id) {
        Some(found) if *clauses != SequenceClauses::default() => {
            sequence::set(altering.session, altering.scope, altering.guard, found, clauses)
        }
        _ => Ok(()),
    }
}

/// DROP IDENTITY: the column keeps its values, and its sequence goes.
pub(super) async fn remove(altering: &Altering<'_>, name: &Ident, if_exists: bool) -> SqlResult<()> {
    let (position, own) = match of_column(altering, name) {
        Err(error) if if_exists && error.code == SqlState::ObjectNotInPrerequisiteState => {
            let notice = format!("{}, skipping", error.message);
            altering.session.notice(Severity::Notice, notice);
            return Ok(());
        }
        found => found?,
    };
    let mut columns = altering.relation.columns.clone();
    columns[position].sequence = None;
    let event_time = altering.relation.event_time.clone();
    altering.guard.put(
        altering
            .object
            .with_columns(altering.relation, columns, event_time),
    )?;
    altering.guard.drop(&[own.id].into()).await
}

/// An identity column's place, and its sequence.
fn of_column(altering: &Altering<'_>, name: &Ident) -> SqlResult<(usize, ColumnSequence)> {
    let name = millrace_parser::fold(name);
    let position = positions(altering.relation, std::slice::from_ref(&name))?[0];
    let own = altering.relation.columns[position].sequence;
    match own.filter(|own| own.takes != Takes::Default) {
        Some(own) => Ok((position, own)),
        None => Err(SqlError::new(
            SqlState::ObjectNotInPrerequisiteState,
            format!(
                "column \"{name}\" of relation \"{}\" is not an identity column",
                altering.object.name
            ),
        )),
    }
}
