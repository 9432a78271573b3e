//! RETURNING, and other queries over rows that a statement has in its hands.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast;
use millrace_catalog::Relation;
use millrace_catalog::scope::Scope;
use millrace_database::running::Running;
use millrace_functions::sql::{column_names, output_types};
use millrace_parser::quote_identifier;
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::from_internal::df;

use crate::outcome::{CommandTag, Outcome};
use crate::query::{OutputColumns, rows_of};
use crate::session::Session;
use crate::statement::select;

/// Binds the text of a query in which `tables` are names of given rows.
///
/// # Errors
/// It does not bind.
pub fn bind_over(
    session: &Session,
    scope: &Scope,
    text: &str,
    tables: BTreeMap<String, Arc<dyn TableProvider>>,
) -> SqlResult<LogicalPlan> {
    let mut statement = select::parse_query(text)?;
    select::prepare(session, &mut statement)?;
    let ast::Statement::Query(query) = &statement else {
        return Err(SqlError::internal(format!("not a query: {text}")));
    };
    let mut scope = scope.clone();
    scope.given.extend(tables);
    session.database().reader(&scope).bind_query(query)
}

/// What the changed rows are called in the query that RETURNING is.
const CHANGED: &str = "changed rows";

/// Rows of a relation as a table.
///
/// # Errors
/// The rows have another schema.
pub fn table_of(relation: &Relation, rows: Vec<RecordBatch>) -> SqlResult<Arc<dyn TableProvider>> {
    Ok(Arc::new(df(MemTable::try_new(
        Arc::clone(relation.schema()),
        vec![rows],
    ))?))
}

/// Binds the items of RETURNING over rows of a relation that the statement calls `name`.
///
/// # Errors
/// The items do not bind.
pub fn bind(
    session: &Session,
    scope: &Scope,
    relation: &Relation,
    name: &str,
    items: &[ast::SelectItem],
    rows: Vec<RecordBatch>,
) -> SqlResult<(LogicalPlan, OutputColumns)> {
    let list: Vec<String> = items.iter().map(ToString::to_string).collect();
    // The table's own name means the table, as it was before, in subqueries.
    let text = format!(
        "SELECT {} FROM {} AS {}",
        list.join(", "),
        quote_identifier(CHANGED),
        quote_identifier(name)
    );
    let names = match select::parse_query(&text)? {
        ast::Statement::Query(query) => column_names::output_names(&query),
        _ => vec![],
    };
    let tables = BTreeMap::from([(CHANGED.to_string(), table_of(relation, rows)?)]);
    let plan = bind_over(session, scope, &text, tables)?;
    let notes = output_types::of_plan(&plan);
    Ok((plan, OutputColumns { names, notes }))
}

/// What a statement says of the rows that it is about to change.
pub struct Returned {
    columns: OutputColumns,
    schema: SchemaRef,
    rows: Vec<RecordBatch>,
}

/// Evaluates RETURNING over `rows`, if there is one: before they are changed, because an error means that nothing was.
///
/// # Errors
/// RETURNING does not bind or fails.
pub async fn evaluate(
    session: &Arc<Session>,
    scope: &Scope,
    relation: &Relation,
    name: &str,
    items: Option<&[ast::SelectItem]>,
    rows: Vec<RecordBatch>,
) -> SqlResult<Option<Returned>> {
    let Some(items) = items else {
        return Ok(None);
    };
    let (plan, columns) = bind(session, scope, relation, name, items, rows)?;
    let physical = session.physical_plan(plan, &scope.before).await?;
    let schema = physical.schema();
    let rows = session.collect_physical(physical).await?;
    Ok(Some(Returned {
        columns,
        schema,
        rows,
    }))
}

/// What a change did: what it says of its rows, and its tag.
pub struct Changed {
    /// Its rows; `None`: it has no RETURNING.
    pub returned: Option<Returned>,
    /// What to say when it is done.
    pub tag: CommandTag,
}

impl Changed {
    /// What the statement answers with.
    pub fn outcome(self, session: &Arc<Session>, running: Running) -> Outcome {
        outcome(session, self.returned, self.tag, running)
    }
}

impl Returned {
    /// The columns as they are announced, and the rows.
    pub fn into_rows(self) -> (SchemaRef, Vec<RecordBatch>) {
        (self.columns.applied(&self.schema), self.rows)
    }
}

/// What a statement answers with when it has changed the rows.
fn outcome(session: &Arc<Session>, returned: Option<Returned>, tag: CommandTag, running: Running) -> Outcome {
    let Some(Returned {
        columns,
        schema,
        rows,
    }) = returned
    else {
        return Outcome::Done { tag };
    };
    let (schema, stream) = session.guarded(rows_of(schema, rows), &columns, running);
    Outcome::Rows { schema, stream, tag }
}
