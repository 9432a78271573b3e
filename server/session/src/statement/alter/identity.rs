//! ALTER COLUMN .. ADD GENERATED AS IDENTITY: a sequence for a column that there is, which is how pg_dump writes identity columns.

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{self, Ident, ObjectName};
use millrace_catalog::sequence::{SequenceDef, Takes};
use millrace_database::database::rows::positions;
use millrace_parser::ast::Identity;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use super::form::Altering;
use crate::names;
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
        takes: match identity.always {
            true => Takes::IdentityAlways,
            false => Takes::IdentityByDefault,
        },
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
