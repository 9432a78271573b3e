//! What any text must leave standing in the planner: a statement is prepared, and a query planned, as it is and as a view, or the
//! answer is an error of the client's. Nothing is executed.
//!
//! The target `plan` and `sql-tests/tests/server/planned.rs` run it.

use std::error::Error;
use std::sync::Arc;

use millrace_database::DatabaseOptions;
use millrace_database::sessions::SessionInfo;
use millrace_parser::ast::Statement;
use millrace_postgres::error::{SqlResult, SqlState};
use millrace_session::Session;
use sqlparser::ast;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// What statements are about.
const SETUP: &str = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT, c NUMERIC(10, 2), d DATE, e JSONB, f INT[], g BOOLEAN, h DOUBLE PRECISION); \
     CREATE STREAM s (id BIGINT, ts TIMESTAMPTZ, k TEXT, v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5 seconds'); \
     CREATE VIEW w AS SELECT id, a + 1 AS x FROM t; \
     CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k";

/// A database with some relations, in this process.
pub struct Planner {
    session: Arc<Session>,
    runtime: Runtime,
    _directory: TempDir,
}

impl Planner {
    /// Opens one.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open() -> Result<Self, Box<dyn Error>> {
        let directory = tempfile::tempdir()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let session = runtime.block_on(async {
            let database = millrace_system::open(DatabaseOptions::new(directory.path())).await?;
            let info = SessionInfo {
                user: "millrace".to_owned(),
                database: "millrace".to_owned(),
                ..SessionInfo::default()
            };
            let session = Session::new(database, info)?;
            run(&session, SETUP).await?;
            Ok::<_, Box<dyn Error>>(session)
        })?;
        Ok(Planner {
            session,
            runtime,
            _directory: directory,
        })
    }

    /// Plans the statements of a text. Returns how many could be.
    ///
    /// # Panics
    /// Something is not as it must be.
    pub fn check(&self, sql: &str) -> usize {
        self.runtime.block_on(async {
            let mut planned = 0;
            for parsed in self.session.parse(sql).await.unwrap_or_default() {
                let is_query = matches!(&parsed.statement, Statement::Sql(statement) if matches!(**statement, ast::Statement::Query(_)));
                let text = parsed.text.clone();
                let prepared = self.session.prepare(Some(parsed), &[]).await;
                planned += usize::from(is_right(sql, &prepared.map(drop)));
                if is_query {
                    for explain in ["EXPLAIN", "EXPLAIN (TYPE STAGES)"] {
                        let explained = run(&self.session, &format!("{explain} {text}")).await;
                        planned += usize::from(is_right(sql, &explained));
                    }
                }
            }
            planned
        })
    }
}

/// Runs statements to their ends.
async fn run(session: &Arc<Session>, sql: &str) -> SqlResult<()> {
    let mut query = session.run(sql).await?;
    while let Some(outcome) = query.next().await {
        outcome?;
    }
    Ok(())
}

/// Whether it could be done; if not, the error is none of the server's.
fn is_right(sql: &str, done: &SqlResult<()>) -> bool {
    if let Err(error) = done {
        assert!(!error.message.is_empty(), "{sql:?}");
        assert_ne!(error.code, SqlState::InternalError, "{sql:?}: {error:?}");
    }
    done.is_ok()
}
