//! CREATE SEQUENCE.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{DataType, ObjectName, ObjectNamePart, SequenceOptions};
use millrace_catalog::sequence::SequenceDef;
use millrace_catalog::{Definition, Object};
use millrace_database::clock::now_ms;
use millrace_database::database::rows::positions;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{ObjectId, ObjectKind};

use crate::names;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;

/// What is to be made.
pub struct NewSequence {
    pub name: ObjectName,
    /// Whether it goes with the session.
    pub temporary: bool,
    pub if_not_exists: bool,
    pub data_type: Option<DataType>,
    pub options: Vec<SequenceOptions>,
    /// The column with whose table it goes.
    pub owned_by: Option<ObjectName>,
}

/// Executes CREATE SEQUENCE.
pub async fn execute(session: &Arc<Session>, new: NewSequence, text: &str) -> SqlResult<Outcome> {
    let mut definition = SequenceDef::new(new.data_type.as_ref(), &new.options)?;
    let guard = session.ddl().await?;
    let scope = session.scope();
    let (schema, name, _) = names::new_table_name(session, &scope, &new.name, new.temporary)?;
    if new.if_not_exists && names::is_there(session, &scope, &schema, &name) {
        return done("CREATE SEQUENCE");
    }
    guard.check_free(&scope.database, &schema, &name)?;
    if let Some(column) = &new.owned_by {
        definition.owner = owned_by(session, &scope, column)?;
    }
    let rights = scope.rights_of_new(ObjectKind::Sequence, &schema);
    let object = Object {
        id: guard.next_id()?,
        kind: ObjectKind::Sequence,
        database: scope.database.clone(),
        schema,
        name,
        sql: text.to_string(),
        comment: None,
        created_at_ms: now_ms(),
        depends: definition.owner.into_iter().collect(),
        definition: Definition::Sequence(Arc::new(definition)),
        rights,
    };
    guard.create(object).await?;
    done("CREATE SEQUENCE")
}

/// The table with which a sequence goes, by what OWNED BY names; `None`: NONE.
///
/// # Errors
/// It is no column of a table.
pub(crate) fn owned_by(
    session: &Session,
    scope: &millrace_catalog::scope::Scope,
    column: &ObjectName,
) -> SqlResult<Option<ObjectId>> {
    match column.to_string().eq_ignore_ascii_case("none") {
        true => Ok(None),
        false => owner(session, scope, column).map(|table| Some(table.id)),
    }
}

/// The table of a column.
fn owner(
    session: &Session,
    scope: &millrace_catalog::scope::Scope,
    column: &ObjectName,
) -> SqlResult<Arc<Object>> {
    let (table, name) = match column.0.split_last() {
        Some((ObjectNamePart::Identifier(name), table)) if !table.is_empty() => (table, name),
        _ => {
            return Err(SqlError::new(SqlState::SyntaxError, "invalid OWNED BY option")
                .with_hint("Specify OWNED BY table.column or OWNED BY NONE."));
        }
    };
    let table = names::resolve(session, scope, &ObjectName(table.to_vec()))?;
    match (table.kind, table.relation()) {
        (ObjectKind::Table, Some(relation)) => {
            positions(relation, &[millrace_parser::fold(name)])?;
            Ok(table)
        }
        _ => Err(SqlError::new(
            SqlState::WrongObjectType,
            format!("sequence cannot be owned by relation \"{}\"", table.name),
        )),
    }
}
