//! CREATE EXTENSION: what some of PostgreSQL's extensions bring is there from the start; nothing else can be added.

use datafusion::sql::sqlparser::ast::CreateExtension;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;

/// Extensions whose relations and functions are there.
const BUILT_IN: [&str; 2] = ["pg_stat_statements", "plpgsql"];

/// As PostgreSQL answers where the extension exists, or where its files are not there.
pub fn create(session: &Session, create: &CreateExtension) -> SqlResult<Outcome> {
    let name = millrace_parser::fold(&create.name);
    if !BUILT_IN.contains(&name.as_str()) {
        return Err(
            SqlError::unsupported(format!("extension \"{name}\" is not available"))
                .with_hint("millrace has no extensions; pg_stat_statements is built in."),
        );
    }
    let message = format!("extension \"{name}\" already exists");
    if !create.if_not_exists {
        return Err(SqlError::new(SqlState::DuplicateObject, message));
    }
    session.notice(Severity::Notice, format!("{message}, skipping"));
    done("CREATE EXTENSION")
}
