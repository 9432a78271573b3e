//! How the rows of a new relation are kept, temporary ones too.

use millrace_catalog::retention::Retention;
use millrace_catalog::temporary;
use millrace_parser::ast::{OnCommit, Options};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectKind;

use super::New;
use crate::notice::Severity;
use crate::session::Session;

/// How the rows of what is made are kept.
pub(super) fn of(new: &New<'_>, is_temporary: bool) -> SqlResult<Retention> {
    if !is_temporary {
        return match new.on_commit {
            None => Ok(new.keeping),
            Some(_) => Err(SqlError::new(
                SqlState::InvalidTableDefinition,
                "ON COMMIT can only be used on temporary tables",
            )),
        };
    }
    if new.kind != ObjectKind::Table || new.connector.is_some() {
        return Err(SqlError::unsupported(
            "only tables that are written to by statements can be temporary",
        ));
    }
    Ok(new.keeping.temporary(match new.on_commit {
        None | Some(OnCommit::PreserveRows) => temporary::OnCommit::PreserveRows,
        Some(OnCommit::DeleteRows) => temporary::OnCommit::DeleteRows,
        Some(OnCommit::Drop) => temporary::OnCommit::Drop,
    }))
}

/// Leaves out parameters that only say how PostgreSQL stores rows, and tells so.
pub(super) fn without_storage_parameters(session: &Session, options: &mut Options) {
    options.0.retain(|option| {
        let name = option.name.value.to_lowercase();
        let is_of_storage =
            name == "fillfactor" || name == "parallel_workers" || name.contains("autovacuum_");
        if is_of_storage {
            let message = format!("storage parameter \"{name}\" has no effect in millrace");
            session.notice(Severity::Notice, message);
        }
        !is_of_storage
    });
}
