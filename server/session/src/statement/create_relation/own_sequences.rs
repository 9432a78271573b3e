//! The sequences that `serial` and IDENTITY make for their columns.

use std::sync::Arc;

use millrace_catalog::scope::Scope;
use millrace_catalog::sequence::{ColumnSequence, Takes};
use millrace_catalog::{ColumnDef, Definition, Object};
use millrace_database::clock::now_ms;
use millrace_database::database::ddl::DdlGuard;
use millrace_parser::quote_identifier;
use millrace_postgres::error::SqlResult;
use millrace_storage::{ObjectId, ObjectKind};

use crate::names;
use crate::sequences::OwnSequence;

/// Makes the sequences, called `table_column_seq`, and tells their columns.
///
/// # Errors
/// The catalog cannot be written.
pub(crate) fn made(
    guard: &DdlGuard<'_>,
    scope: &Scope,
    (schema, table, id): (&str, &str, ObjectId),
    columns: &mut [ColumnDef],
    wanted: Vec<OwnSequence>,
) -> SqlResult<Vec<Object>> {
    let mut made: Vec<Object> = vec![];
    for OwnSequence {
        column,
        mut definition,
        takes,
    } in wanted
    {
        let column = &mut columns[column];
        let name = names::free(&format!("{table}_{}_seq", column.field.name()), |name| {
            name == table
                || made.iter().any(|other| other.name == name)
                || guard.check_free(&scope.database, schema, name).is_err()
        });
        definition.owner = Some(id);
        let mut object = Object {
            id: guard.next_id()?,
            kind: ObjectKind::Sequence,
            database: scope.database.clone(),
            schema: schema.to_string(),
            name,
            sql: String::new(),
            comment: None,
            created_at_ms: now_ms(),
            depends: vec![id],
            definition: Definition::Sequence(Arc::new(definition)),
            rights: scope.rights_of_new(ObjectKind::Sequence, schema),
        };
        object.restate();
        column.sequence = Some(ColumnSequence { id: object.id, takes });
        if takes == Takes::Default {
            let name = quote_identifier(&object.name).to_string().replace('\'', "''");
            let default = format!("nextval('{name}'::regclass)");
            column.default = Some(millrace_parser::parse_expression(&default)?);
        }
        made.push(object);
    }
    Ok(made)
}
