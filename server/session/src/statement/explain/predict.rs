//! EXPLAIN (PREDICT) of a query: what it will take, from the rows that it will read and the runs that were analysed before.

use std::sync::Arc;
use std::time::Instant;

use datafusion::sql::sqlparser::ast;
use millrace_catalog::scope::Scope;
use millrace_clarity::render::forecast::forecast_text;
use millrace_clarity::render::json::{Document, Predicted};
use millrace_parser::ast::{ExplainFormat, ExplainOptions};
use millrace_postgres::error::SqlResult;

use super::analyze::json;
use crate::forecasting::{nanoseconds, of_plan};
use crate::query::Providers;
use crate::session::Session;
use crate::statement::select;

/// Predicts a query.
pub(super) async fn query(
    session: &Arc<Session>,
    scope: &Scope,
    sql: &mut ast::Statement,
    query_text: String,
    options: &ExplainOptions,
) -> SqlResult<Vec<String>> {
    let begun = Instant::now();
    let (plan, _) = select::bind(session, scope, sql, select::Purpose::Run)?;
    let physical = session.physical_plan(plan, &Providers::new()).await?;
    let planning = nanoseconds(begun.elapsed());
    let found = of_plan(session.database(), &query_text, &physical, planning);
    match options.format {
        ExplainFormat::Text => Ok(forecast_text(&found)),
        _ => json(&Document::new(Predicted { forecast: found })),
    }
}
