//! `ALTER MATERIALIZED VIEW .. SET (freshness = '50 ms')` and `RESET (freshness)`: how old what its readers see may be from now on.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::Ident;
use millrace_catalog::{Definition, Object};
use millrace_database::database::ddl::DdlGuard;
use millrace_parser::ast::Options;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::statement::view_options::freshness;

const OPTION: &str = "freshness";

/// `SET`.
///
/// # Errors
/// There is another option, a value that it cannot have, or the catalog cannot be written.
pub(super) fn set(guard: &DdlGuard<'_>, object: &Object, options: &Options) -> SqlResult<()> {
    let mut target = None;
    for option in &options.0 {
        check(&option.name)?;
        if target.replace(freshness(option)?).is_some() {
            let message = format!("option \"{OPTION}\" is given more than once");
            return Err(SqlError::new(SqlState::SyntaxError, message));
        }
    }
    put(guard, object, target)
}

/// `RESET`: as the server's setting says.
///
/// # Errors
/// There is another option, or the catalog cannot be written.
pub(super) fn reset(guard: &DdlGuard<'_>, object: &Object, names: &[Ident]) -> SqlResult<()> {
    names.iter().try_for_each(check)?;
    put(guard, object, None)
}

fn check(name: &Ident) -> SqlResult<()> {
    if millrace_parser::fold(name) == OPTION {
        return Ok(());
    }
    Err(
        SqlError::unsupported(format!("option \"{}\" cannot be altered", name.value))
            .with_hint("Of a materialized view freshness can be altered; for the others there is CREATE OR REPLACE MATERIALIZED VIEW."),
    )
}

fn put(guard: &DdlGuard<'_>, object: &Object, target_us: Option<u64>) -> SqlResult<()> {
    let mut new = object.clone();
    let query = match &mut new.definition {
        Definition::Relation(relation) => relation.query.as_mut(),
        _ => None,
    };
    let query = query.ok_or_else(|| SqlError::internal("a materialized view has no query"))?;
    *query = Arc::new(query.with_names(query.names.clone()).with_freshness(target_us));
    new.restate();
    guard.put(new)
}
