//! `ON CONFLICT` of CREATE TABLE: what becomes of rows under keys that are there.

use millrace_parser::ast::CreateTable;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

/// Refuses a rule where there is no key, or another one.
///
/// # Errors
/// 42P16, 0A000.
pub(super) fn check(create: &CreateTable, has_connector: bool) -> SqlResult<()> {
    let Some(rule) = create.on_conflict else {
        return Ok(());
    };
    let what = format!("ON CONFLICT {}", rule.clause());
    if create.as_query.is_some() {
        return Err(SqlError::unsupported(format!(
            "{what} is not supported with CREATE TABLE AS"
        )));
    }
    if has_connector {
        return Err(
            SqlError::unsupported(format!("{what} is not supported with a connector"))
                .with_detail("A row of a key takes the place of the one before."),
        );
    }
    if create.primary_key.is_empty() {
        return Err(SqlError::new(
            SqlState::InvalidTableDefinition,
            format!("{what} needs a primary key"),
        ));
    }
    Ok(())
}
