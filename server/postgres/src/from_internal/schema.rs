//! Columns and relations that are not there, or are there twice.

use datafusion::common::SchemaError;

use crate::error::{SqlError, SqlState};
use crate::names::did_you_mean;

pub(super) fn schema(error: SchemaError) -> SqlError {
    match error {
        SchemaError::AmbiguousReference { field } => SqlError::new(
            SqlState::AmbiguousColumn,
            format!("column reference \"{}\" is ambiguous", field.name()),
        ),
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => SqlError::new(
            SqlState::DuplicateColumn,
            format!("column \"{name}\" specified more than once"),
        ),
        SchemaError::FieldNotFound { field, valid_fields } => {
            let names = valid_fields.iter().map(|column| column.name());
            let hint = did_you_mean(field.name(), names);
            // Without FROM there are none.
            if let Some(relation) = &field.relation
                && valid_fields.iter().all(|column| {
                    column
                        .relation
                        .as_ref()
                        .is_some_and(|known| known.table() != relation.table())
                })
            {
                return SqlError::new(
                    SqlState::UndefinedTable,
                    format!("missing FROM-clause entry for table \"{}\"", relation.table()),
                );
            }
            let name = match &field.relation {
                Some(relation) => format!("{}.{}", relation.table(), field.name()),
                None => format!("\"{}\"", field.name()),
            };
            SqlError::new(SqlState::UndefinedColumn, format!("column {name} does not exist"))
                .with_hint_opt(hint)
        }
    }
}
