//! TRUNCATE: all rows of tables go.

use std::sync::Arc;

use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::sql::sqlparser::ast::Truncate;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal::df;

use crate::outcome::Outcome;
use crate::query::Providers;
use crate::session::Session;
use crate::statement::delete::removals;
use crate::statement::done;
use crate::{names, write};

/// Executes TRUNCATE. Several tables are emptied one after the other; inside a transaction, together.
pub async fn execute(session: &Arc<Session>, truncate: &Truncate) -> SqlResult<Outcome> {
    let scope = session.scope();
    let objects = truncate
        .table_names
        .iter()
        .map(|target| names::resolve(session, &scope, &target.name))
        .collect::<SqlResult<Vec<_>>>()?;
    for object in &objects {
        write::table(object, "truncate")?;
    }
    for object in &objects {
        let relation = write::table(object, "truncate")?;
        let write = session.begin_write(relation).await?;
        let source = provider_as_source(write.current().await?);
        let plan =
            df(LogicalPlanBuilder::scan(object.name.as_str(), source, None)
                .and_then(LogicalPlanBuilder::build))?;
        let rows = session.collect(plan, &Providers::new()).await?;
        let (changes, _) = removals(relation, rows)?;
        write.finish(changes).await?;
    }
    done("TRUNCATE TABLE")
}
