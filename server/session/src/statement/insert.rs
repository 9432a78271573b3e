//! INSERT: VALUES or a query, defaults, ON CONFLICT, RETURNING.

pub(crate) mod conflict;
mod values;

pub(crate) use values::literal_rows;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Field;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{self, Expr, Insert, OnInsert, SetExpr};
use millrace_catalog::scope::Scope;
use millrace_catalog::sequence::Takes;
use millrace_catalog::{Object, Relation};
use millrace_database::database::rows::{RowBuilder, positions};
use millrace_database::running::Running;
use millrace_functions::sql::{clock_words, set_places};
use millrace_functions::{cast, own, syntax};
use millrace_planner::RelationKind;
use millrace_planner::relation::relations;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_postgres::types;
use millrace_storage::{ChangeBatch, rows_bytes};

use crate::names;
use crate::outcome::{CommandTag, Outcome};
use crate::overriding::{self, Overriding};
use crate::sequences;
use crate::session::Session;
use crate::statement::returning::{self, Changed};
use crate::statement::select;
use crate::write::{WriteScope, takes_rows};

/// Executes INSERT.
pub async fn execute(session: &Arc<Session>, insert: Insert, running: Running) -> SqlResult<Outcome> {
    let changed = change(session, session.scope(), insert).await?;
    Ok(changed.outcome(session, running))
}

/// Makes the change of an INSERT.
///
/// # Errors
/// Whatever is wrong with it; nothing was changed then.
pub(crate) async fn change(session: &Arc<Session>, scope: Scope, mut insert: Insert) -> SqlResult<Changed> {
    let object = names::insert_target(session, &scope, &insert)?;
    let relation = takes_rows(&scope, &object, "insert into")?;
    if insert.or.is_some() || insert.replace_into || insert.ignore {
        return Err(
            SqlError::unsupported("INSERT OR .. and REPLACE are not supported")
                .with_hint("Use INSERT .. ON CONFLICT (key) DO UPDATE SET .."),
        );
    }
    let (listed, overrides) = overriding::listed(&insert.columns);
    // Without a list, values are those of the columns in their order, computed ones as well.
    let mut given = match listed.is_empty() {
        true => (0..relation.columns.len()).collect(),
        false => positions(relation, &listed)?,
    };
    if let Some(query) = &mut insert.source {
        rows_of_sets(query)?;
    }
    if let Some(query) = &mut insert.source
        && let SetExpr::Values(values) = query.body.as_mut()
    {
        without_computed(relation, values, &mut given);
    }
    let write = session.begin_write(relation).await?;
    let rows = match insert.source.take() {
        Some(query) => {
            let mut batches = source(
                session,
                &scope,
                relation,
                *query,
                &mut given,
                !listed.is_empty(),
                &write,
            )
            .await?;
            match overrides {
                None => check_identity(relation, &given)?,
                Some(Overriding::System) => {}
                Some(Overriding::User) => overriding::without_identities(relation, &mut given, &mut batches)?,
            }
            let builder = RowBuilder::new(session.database(), &scope, relation, &given)?;
            whole_rows(session, &builder, &batches)?
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
        None => conflict::of_rows(session, &scope, relation, &write, rows).await?,
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
    let items = insert.returning.as_deref();
    let returned = returning::evaluate(session, &scope, relation, &name, items, changes.rows, vec![]).await?;
    write.finish(changes.changes).await?;
    let tag = CommandTag::rows("INSERT 0", count);
    Ok(Changed { returned, tag })
}

/// `VALUES (1, generate_series(1, 3))` of one row is the SELECT of the same.
fn rows_of_sets(query: &mut ast::Query) -> SqlResult<()> {
    if let SetExpr::Values(values) = query.body.as_mut()
        && let [row] = values.rows.as_mut_slice()
        && set_places::has_sets(&row.content)
    {
        let cells = std::mem::take(&mut row.content);
        *query.body = *syntax::parsed_query("SELECT 1")?.body;
        if let SetExpr::Select(select) = query.body.as_mut() {
            select.projection = cells.into_iter().map(ast::SelectItem::UnnamedExpr).collect();
        }
    }
    Ok(())
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
    if fill_in(&mut query, relation, given, session, scope)? {
        if let SetExpr::Values(values) = query.body.as_ref()
            && let Some(batch) = values::literals(values, relation, given)?
        {
            fit(given, batch.num_columns(), listed)?;
            return Ok(vec![batch]);
        }
        assign(&mut query, relation, given);
    }
    let mut statement = ast::Statement::Query(Box::new(query));
    own::mark(&mut statement);
    let (plan, _) = select::bind(session, scope, &mut statement, select::Purpose::Run)?;
    fit(given, plan.schema().fields().len(), listed)?;
    check_assignable(&plan, relation, given)?;
    let mut instead = scope.before.clone();
    if !instead.contains_key(&relation.info.id)
        && relation.info.kind == RelationKind::Table
        && df(relations(&plan))?.contains(&relation.info.id)
    {
        instead.insert(relation.info.id, write.current().await?);
    }
    session.collect(plan, &instead).await
}

/// Puts the defaults of their columns in the place of DEFAULT in VALUES. Says whether the query is VALUES alone.
fn fill_in(
    query: &mut ast::Query,
    relation: &Relation,
    given: &[usize],
    session: &Session,
    scope: &Scope,
) -> SqlResult<bool> {
    let is_bare = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none();
    let SetExpr::Values(values) = query.body.as_mut() else {
        return Ok(false);
    };
    for row in &mut values.rows {
        for (expr, position) in row.content.iter_mut().zip(given) {
            if is_default(expr) {
                let column = &relation.columns[*position];
                *expr = sequences::default_of(session, scope, column, Some(session.id()))?;
            } else if let Some(now) = clock_words::in_column(expr, &relation.columns[*position].field) {
                *expr = now;
            }
        }
    }
    Ok(is_bare)
}

/// The relation of an INSERT, and the query for its rows; none of DEFAULT VALUES.
///
/// # Errors
/// Whatever is wrong with it.
pub(crate) fn query(
    session: &Session,
    scope: &Scope,
    mut insert: Insert,
) -> SqlResult<(Arc<Object>, Option<ast::Statement>)> {
    let object = names::insert_target(session, scope, &insert)?;
    let relation = takes_rows(scope, &object, "insert into")?;
    let (listed, _) = overriding::listed(&insert.columns);
    let mut given = match listed.is_empty() {
        true => (0..relation.columns.len()).collect(),
        false => positions(relation, &listed)?,
    };
    let filled = |mut query: Box<ast::Query>| -> SqlResult<ast::Statement> {
        if let SetExpr::Values(values) = query.body.as_mut() {
            without_computed(relation, values, &mut given);
        }
        if fill_in(&mut query, relation, &given, session, scope)? {
            assign(&mut query, relation, &given);
        }
        let mut statement = ast::Statement::Query(query);
        own::mark(&mut statement);
        Ok(statement)
    };
    let query = insert.source.take().map(filled).transpose()?;
    Ok((object, query))
}

/// Takes DEFAULT for computed columns out of VALUES: they are computed anyway.
fn without_computed(relation: &Relation, values: &mut ast::Values, given: &mut Vec<usize>) {
    let width = values.rows.iter().map(|row| row.content.len()).min().unwrap_or(0);
    let computed = |position: usize| {
        let column = &relation.columns[position];
        column.generated.is_some() || column.proctime || column.sequence.is_some()
    };
    let all = given.clone();
    let mut kept = vec![true; all.len()];
    for (index, position) in all.iter().enumerate().take(width) {
        kept[index] = !(computed(*position) && values.rows.iter().all(|row| is_default(&row.content[index])));
    }
    for row in &mut values.rows {
        let mut index = 0;
        row.content.retain(|_| {
            index += 1;
            kept.get(index - 1).copied().unwrap_or(true)
        });
    }
    *given = all
        .into_iter()
        .zip(kept)
        .filter(|(_, kept)| *kept)
        .map(|(position, _)| position)
        .collect();
}

/// Refuses values for columns whose values are always those of a sequence.
pub(crate) fn check_identity(relation: &Relation, given: &[usize]) -> SqlResult<()> {
    for position in given {
        let column = &relation.columns[*position];
        let name = column.field.name();
        if column
            .sequence
            .is_some_and(|sequence| sequence.takes == Takes::IdentityAlways)
        {
            return Err(SqlError::new(
                SqlState::GeneratedAlways,
                format!("cannot insert a non-DEFAULT value into column \"{name}\""),
            )
            .with_detail(format!(
                "Column \"{name}\" is an identity column defined as GENERATED ALWAYS."
            ))
            .with_hint("Use OVERRIDING SYSTEM VALUE to override."));
        }
    }
    Ok(())
}

/// Refuses expressions of types that their columns do not take. A quoted literal is read by the column's type.
fn check_assignable(plan: &LogicalPlan, relation: &Relation, given: &[usize]) -> SqlResult<()> {
    let expressions: &[datafusion::logical_expr::Expr] = match plan {
        LogicalPlan::Projection(projection) => &projection.expr,
        _ => &[],
    };
    for (index, position) in given.iter().enumerate() {
        let mut expression = expressions.get(index);
        while let Some(datafusion::logical_expr::Expr::Alias(alias)) = expression {
            expression = Some(&alias.expr);
        }
        if matches!(expression, Some(datafusion::logical_expr::Expr::Literal(..))) {
            continue;
        }
        let (from, to) = (plan.schema().field(index), relation.schema().field(*position));
        if !cast::assignable(from, to) {
            return Err(cast::not_assignable(to.name(), from, to));
        }
    }
    Ok(())
}

/// Cuts the given columns to those for which there are values.
pub(crate) fn fit(given: &mut Vec<usize>, columns: usize, listed: bool) -> SqlResult<()> {
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
            let name = types::sql_name(relation.schema().field(*position));
            let column = relation.schema().field(*position).name();
            *expr = syntax::assigned(expr, &name, column);
        }
    }
}

pub(crate) fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(name) if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
}

/// Rows of which a step makes whole rows: defaults may be wide.
const STEP_ROWS: usize = 1_024;

/// The rows with all columns of their relation.
///
/// # Errors
/// A value is none of its column, or there is not so much memory.
pub(crate) fn whole_rows(
    session: &Session,
    builder: &RowBuilder,
    batches: &[RecordBatch],
) -> SqlResult<Vec<RecordBatch>> {
    let mut whole = vec![];
    let mut kept = session.kept_rows();
    for batch in batches {
        let schema = batch.schema();
        for from in (0..batch.num_rows()).step_by(STEP_ROWS) {
            let step = batch.slice(from, STEP_ROWS.min(batch.num_rows() - from));
            let columns = step.columns().iter().cloned();
            let given: Vec<(Arc<Field>, _)> = schema.fields().iter().cloned().zip(columns).collect();
            let built = builder
                .build(&given, step.num_rows())
                .map_err(|failure| *failure.error)?;
            kept.add(rows_bytes(&built))?;
            whole.push(built);
        }
    }
    Ok(whole)
}

/// Rows that are all new.
pub fn insertions(rows: &[RecordBatch]) -> Vec<ChangeBatch> {
    rows.iter().cloned().map(ChangeBatch::insertions).collect()
}
