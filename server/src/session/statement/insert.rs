//! INSERT: VALUES or a query, defaults, ON CONFLICT, RETURNING.

pub(crate) mod conflict;
mod values;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast::{self, Expr, Insert, OnInsert, SetExpr, Value};
use millrace_planner::RelationKind;
use millrace_planner::relation::relations;
use millrace_storage::ChangeBatch;

use crate::catalog::Relation;
use crate::database::df;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::{cast, rewrite};
use crate::session::query::Providers;
use crate::session::rows::{RowBuilder, positions};
use crate::session::statement::{names, returning, select};
use crate::session::write::{WriteScope, writable};
use crate::session::{CommandTag, Outcome, Running, Scope, Session};
use crate::types;

pub(crate) use conflict::check_unique;

/// Executes INSERT.
pub(crate) async fn execute(
    session: &Arc<Session>,
    mut insert: Insert,
    running: Running,
) -> SqlResult<Outcome> {
    let scope = session.scope();
    let object = names::insert_target(session, &scope, &insert)?;
    let relation = writable(&object, "insert into")?;
    if insert.or.is_some() || insert.replace_into || insert.ignore {
        return Err(
            SqlError::unsupported("INSERT OR .. and REPLACE are not supported")
                .with_hint("Use INSERT .. ON CONFLICT (key) DO UPDATE SET .."),
        );
    }
    let listed: Vec<String> = insert.columns.iter().map(names::last).collect();
    let mut given = positions(relation, &listed)?;
    let write = session.begin_write(relation).await?;
    let rows = match insert.source.take() {
        Some(query) => {
            let batches = source(
                session,
                &scope,
                relation,
                *query,
                &mut given,
                !listed.is_empty(),
                &write,
            )
            .await?;
            let builder = RowBuilder::new(session.database(), &scope, relation, &given)?;
            whole_rows(&builder, &batches)?
        }
        None => {
            let builder = RowBuilder::new(session.database(), &scope, relation, &[])?;
            vec![builder.build(&[], 1).map_err(|failure| *failure.error)?]
        }
    };
    let name = insert.table_alias.as_ref().map_or_else(
        || names::last_of_table(&insert.table),
        |alias| millrace_parser::fold(&alias.alias),
    );
    let changes = match &insert.on {
        None => {
            if write.in_transaction()
                && !relation.key().is_empty()
                && relation.info.kind == RelationKind::Table
            {
                check_unique(session, relation, &write, &rows, &[]).await?;
            }
            conflict::Resolved::inserted(rows)
        }
        Some(OnInsert::OnConflict(clause)) => {
            conflict::resolve(
                session,
                &scope,
                &object.name,
                &name,
                relation,
                &write,
                rows,
                clause,
            )
            .await?
        }
        Some(other) => {
            return Err(SqlError::unsupported(format!(
                "{} is not supported",
                other.to_string().trim()
            )));
        }
    };
    let count = changes.rows.iter().map(|batch| batch.num_rows() as u64).sum();
    write.finish(changes.changes).await?;
    let tag = CommandTag::rows("INSERT 0", count);
    returning::outcome(
        session,
        &scope,
        relation,
        &name,
        insert.returning.as_deref(),
        changes.rows,
        tag,
        running,
    )
    .await
}

/// The rows of the query, one column for each that is given. `given` is cut to what VALUES without a column list has.
async fn source(
    session: &Arc<Session>,
    scope: &Scope,
    relation: &Relation,
    mut query: ast::Query,
    given: &mut Vec<usize>,
    listed: bool,
    write: &WriteScope,
) -> SqlResult<Vec<RecordBatch>> {
    if let SetExpr::Values(values) = query.body.as_mut() {
        for row in &mut values.rows {
            for (expr, position) in row.content.iter_mut().zip(given.iter()) {
                if is_default(expr) {
                    *expr = relation.columns[*position]
                        .default
                        .clone()
                        .unwrap_or(Expr::value(Value::Null));
                }
            }
        }
        if query.with.is_none()
            && query.order_by.is_none()
            && query.limit_clause.is_none()
            && query.fetch.is_none()
        {
            if let SetExpr::Values(values) = query.body.as_ref()
                && let Some(batch) = values::literals(values, relation, given)?
            {
                fit(given, batch.num_columns(), listed)?;
                return Ok(vec![batch]);
            }
            assign(&mut query, relation, given);
        }
    }
    let text = query.to_string();
    let mut statement = ast::Statement::Query(Box::new(query));
    let (plan, _) = select::bind(session, scope, &mut statement, &text, select::Purpose::Run)?;
    fit(given, plan.schema().fields().len(), listed)?;
    let mut instead = Providers::new();
    if relation.info.kind == RelationKind::Table && df(relations(&plan))?.contains(&relation.info.id) {
        instead.insert(relation.info.id, write.current().await?);
    }
    session.collect(plan, &instead).await
}

/// Cuts the given columns to those for which there are values.
fn fit(given: &mut Vec<usize>, columns: usize, listed: bool) -> SqlResult<()> {
    if columns > given.len() {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            "INSERT has more expressions than target columns",
        ));
    }
    if columns < given.len() {
        if listed {
            return Err(SqlError::new(
                SqlState::SyntaxError,
                "INSERT has more target columns than expressions",
            ));
        }
        given.truncate(columns);
    }
    Ok(())
}

/// Casts each cell to its column: the rows of VALUES need not have one type among themselves.
fn assign(query: &mut ast::Query, relation: &Relation, given: &[usize]) {
    let SetExpr::Values(values) = query.body.as_mut() else {
        return;
    };
    for row in &mut values.rows {
        for (expr, position) in row.content.iter_mut().zip(given) {
            let name = types::type_name(relation.schema().field(*position));
            *expr = rewrite::call(cast::NAME, vec![expr.clone(), rewrite::text(&name)]);
        }
    }
}

fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(name) if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
}

fn whole_rows(builder: &RowBuilder, batches: &[RecordBatch]) -> SqlResult<Vec<RecordBatch>> {
    batches
        .iter()
        .map(|batch| {
            let schema = batch.schema();
            let given: Vec<(Arc<Field>, _)> = schema
                .fields()
                .iter()
                .cloned()
                .zip(batch.columns().iter().cloned())
                .collect();
            builder
                .build(&given, batch.num_rows())
                .map_err(|failure| *failure.error)
        })
        .collect()
}

/// Rows that are all new.
pub(crate) fn insertions(rows: &[RecordBatch]) -> Vec<ChangeBatch> {
    rows.iter().cloned().map(ChangeBatch::insertions).collect()
}
