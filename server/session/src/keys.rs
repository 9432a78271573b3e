//! Keys of a table that exist already: how they are found, and the check that there is none.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::datasource::provider_as_source;
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::scalar::ScalarValue;
use millrace_catalog::{CatalogSnapshot, Object, Relation};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::{self, df};
use millrace_postgres::types::output;
use millrace_storage::{ChangeBatch, ObjectId};

use crate::query::Providers;
use crate::session::Session;

/// Up to this many keys are looked up one by one, through the key's index; more are joined with the table.
const LOOKUP_KEYS_MAX: usize = 64;

/// Keys of rows in a form that compares.
pub(crate) struct Keys {
    converter: RowConverter,
    columns: Vec<usize>,
}

impl Keys {
    pub fn new(relation: &Relation, columns: &[usize]) -> SqlResult<Self> {
        let columns = columns.to_vec();
        let schema = relation.schema();
        let fields = columns
            .iter()
            .map(|column| SortField::new(schema.field(*column).data_type().clone()))
            .collect();
        let converter = RowConverter::new(fields).map_err(from_internal::arrow)?;
        Ok(Keys { converter, columns })
    }

    fn arrays(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        self.columns
            .iter()
            .map(|column| ArrayRef::clone(batch.column(*column)))
            .collect()
    }

    pub fn of(&self, batch: &RecordBatch) -> SqlResult<Rows> {
        self.converter
            .convert_columns(&self.arrays(batch))
            .map_err(from_internal::arrow)
    }

    pub fn all(&self, batches: &[RecordBatch]) -> SqlResult<HashSet<OwnedRow>> {
        let mut all = HashSet::new();
        for batch in batches {
            all.extend(self.of(batch)?.iter().map(|row| row.owned()));
        }
        Ok(all)
    }
}

/// A key that exists already, with the name of its constraint.
pub(crate) fn duplicate_key(catalog: &CatalogSnapshot, relation: RelationId, key: &str) -> SqlError {
    let object = catalog.object(ObjectId(relation.0));
    let name = object.and_then(|object| object.relation()?.key_name.clone());
    match name {
        Some(name) => duplicate(object, &name, key),
        None => from_internal::duplicate_key(key),
    }
}

/// Values that exist already, of a constraint or an index of a relation.
fn duplicate(object: Option<&Arc<Object>>, name: &str, values: &str) -> SqlError {
    let mut error = from_internal::duplicate_key(values);
    error.message = format!("duplicate key value violates unique constraint \"{name}\"");
    match object {
        Some(object) => error.about_constraint(&object.schema, &object.name, name),
        None => error,
    }
}

/// `(id)=(1)`.
fn key_text(relation: &Relation, columns: &[usize], batch: &RecordBatch, row: usize) -> String {
    let schema = relation.schema();
    let names: Vec<&str> = columns
        .iter()
        .map(|column| schema.field(*column).name().as_str())
        .collect();
    let values: Vec<String> = columns
        .iter()
        .map(|column| output::text(schema.field(*column), batch.column(*column), row))
        .collect();
    format!("({})=({})", names.join(", "), values.join(", "))
}

/// Checks that no key of `rows` exists, or comes twice. `gone` are rows that the same statement takes away.
///
/// # Errors
/// 23505 with the key.
pub(crate) async fn check_unique(
    session: &Arc<Session>,
    relation: &Relation,
    current: Arc<dyn TableProvider>,
    rows: &[RecordBatch],
    gone: &[RecordBatch],
) -> SqlResult<()> {
    let columns = relation.key();
    let keys = Keys::new(relation, columns)?;
    let mut taken: HashSet<OwnedRow> =
        keys.all(&existing(session, relation, columns, current, rows).await?)?;
    for key in keys.all(gone)? {
        taken.remove(&key);
    }
    for batch in rows {
        for (row, key) in keys.of(batch)?.iter().enumerate() {
            if !taken.insert(key.owned()) {
                let catalog = session.catalog();
                return Err(duplicate_key(
                    &catalog,
                    relation.info.id,
                    &key_text(relation, columns, batch, row),
                ));
            }
        }
    }
    Ok(())
}

/// Checks that no values exist twice after `changes` in the columns of an index whose values are unique. NULLs are equal to
/// nothing.
///
/// # Errors
/// 23505 with the values.
pub(crate) async fn check_index(
    session: &Arc<Session>,
    relation: &Relation,
    (name, columns): (&str, &[usize]),
    current: Arc<dyn TableProvider>,
    changes: &[ChangeBatch],
) -> SqlResult<()> {
    let keys = Keys::new(relation, columns)?;
    let (mut new, mut gone) = (vec![], vec![]);
    for change in changes {
        let weights = (0..change.num_rows()).map(|row| change.weight(row));
        let is_there = BooleanArray::from(is_complete(&change.rows, columns));
        let is_new: BooleanArray = weights.clone().map(|weight| Some(weight > 0)).collect();
        let is_gone: BooleanArray = weights.map(|weight| Some(weight < 0)).collect();
        for (which, into) in [(is_new, &mut new), (is_gone, &mut gone)] {
            let which = arrow::compute::and(&which, &is_there).map_err(from_internal::arrow)?;
            into.push(filter_record_batch(&change.rows, &which).map_err(from_internal::arrow)?);
        }
    }
    let mut taken = keys.all(&existing(session, relation, columns, current, &new).await?)?;
    for key in keys.all(&gone)? {
        taken.remove(&key);
    }
    for batch in &new {
        for (row, key) in keys.of(batch)?.iter().enumerate() {
            if !taken.insert(key.owned()) {
                let catalog = session.catalog();
                let object = catalog.object(ObjectId(relation.info.id.0));
                let values = key_text(relation, columns, batch, row);
                return Err(duplicate(object, name, &values));
            }
        }
    }
    Ok(())
}

/// Refuses rows that have the same values in these columns, which are to be unique. NULLs are equal to nothing.
///
/// # Errors
/// 23505 with the values.
pub(crate) fn check_distinct(
    relation: &Relation,
    name: &str,
    columns: &[usize],
    rows: &[RecordBatch],
) -> SqlResult<()> {
    let keys = Keys::new(relation, columns)?;
    let mut seen = HashSet::new();
    for batch in rows {
        let complete = is_complete(batch, columns);
        for (row, key) in keys.of(batch)?.iter().enumerate() {
            if complete[row] && !seen.insert(key.owned()) {
                return Err(SqlError::new(
                    SqlState::UniqueViolation,
                    format!("could not create unique index \"{name}\""),
                )
                .with_detail(format!(
                    "Key {} is duplicated.",
                    key_text(relation, columns, batch, row)
                )));
            }
        }
    }
    Ok(())
}

/// Which rows have no NULL in these columns.
pub(crate) fn is_complete(rows: &RecordBatch, columns: &[usize]) -> Vec<bool> {
    (0..rows.num_rows())
        .map(|row| columns.iter().all(|column| rows.column(*column).is_valid(row)))
        .collect()
}

/// The rows of the table whose values in `columns` are among those of `rows`.
pub(crate) async fn existing(
    session: &Arc<Session>,
    relation: &Relation,
    columns: &[usize],
    current: Arc<dyn TableProvider>,
    rows: &[RecordBatch],
) -> SqlResult<Vec<RecordBatch>> {
    let names: Vec<String> = columns
        .iter()
        .map(|column| relation.schema().field(*column).name().clone())
        .collect();
    let keys = rows
        .iter()
        .map(|batch| batch.project(columns).map_err(from_internal::arrow))
        .collect::<SqlResult<Vec<_>>>()?;
    having(session, &names, current, &keys).await
}

/// The rows of the table whose values in the columns of these names are among `keys`.
pub(crate) async fn having(
    session: &Arc<Session>,
    names: &[String],
    current: Arc<dyn TableProvider>,
    keys: &[RecordBatch],
) -> SqlResult<Vec<RecordBatch>> {
    let count: usize = keys.iter().map(RecordBatch::num_rows).sum();
    if count == 0 {
        return Ok(vec![]);
    }
    if count <= LOOKUP_KEYS_MAX {
        return look_up(session, names, current, keys).await;
    }
    let table = df(LogicalPlanBuilder::scan(
        "existing",
        provider_as_source(current),
        None,
    ))?;
    let plan = join_keys(table, names, keys)?;
    session.collect(plan, &Providers::new()).await
}

/// The same of a few keys, without what it takes to plan a query.
async fn look_up(
    session: &Arc<Session>,
    names: &[String],
    current: Arc<dyn TableProvider>,
    keys: &[RecordBatch],
) -> SqlResult<Vec<RecordBatch>> {
    let mut condition: Option<Expr> = None;
    for batch in keys {
        for row in 0..batch.num_rows() {
            let equal = one_key(names, batch, row)?;
            condition = Some(match condition {
                Some(before) => before.or(equal),
                None => equal,
            });
        }
    }
    let Some(condition) = condition else {
        return Ok(vec![]);
    };
    let state = session.database().statement_state();
    let schema = df(DFSchema::try_from_qualified_schema("existing", &current.schema()))?;
    let filters = [condition];
    let scan = df(current.scan(&state, None, &filters, None).await)?;
    let [condition] = filters;
    let condition = df(state.create_physical_expr(condition, &schema))?;
    let is_small = df(is_looked_up(&scan))?;
    let plan = Arc::new(df(FilterExec::try_new(condition, scan))?);
    match is_small {
        true => df(datafusion::physical_plan::collect(plan, state.task_ctx()).await),
        false => session.collect_physical(plan).await,
    }
}

/// Whether a plan reads nothing but rows that are in its hands.
fn is_looked_up(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let reads = plan.exists(|node| {
        let is_leaf = node.children().is_empty();
        Ok(is_leaf && !node.is::<DataSourceExec>())
    })?;
    Ok(!reads)
}

fn one_key(names: &[String], keys: &RecordBatch, row: usize) -> SqlResult<Expr> {
    let mut all: Option<Expr> = None;
    for (name, values) in names.iter().zip(keys.columns()) {
        let value = df(ScalarValue::try_from_array(values, row))?;
        let equal = Expr::Column(Column::new(Some("existing"), name)).eq(Expr::Literal(value, None));
        all = Some(match all {
            Some(before) => before.and(equal),
            None => equal,
        });
    }
    all.ok_or_else(|| SqlError::internal("a key without columns was looked up"))
}

fn join_keys(table: LogicalPlanBuilder, names: &[String], keys: &[RecordBatch]) -> SqlResult<LogicalPlan> {
    let schema = keys
        .first()
        .map(RecordBatch::schema)
        .ok_or_else(|| SqlError::internal("no keys to join"))?;
    // The columns may have other names in the table.
    let of_keys: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    let keys = Arc::new(df(MemTable::try_new(schema, vec![keys.to_vec()]))?);
    let keys =
        df(LogicalPlanBuilder::scan("keys", provider_as_source(keys), None)
            .and_then(LogicalPlanBuilder::build))?;
    let column = |table: &str, name: &String| Column::new(Some(table), name);
    let left: Vec<Column> = names.iter().map(|name| column("existing", name)).collect();
    let right: Vec<Column> = of_keys.iter().map(|name| column("keys", name)).collect();
    df(table
        .join(keys, JoinType::LeftSemi, (left, right), None)
        .and_then(LogicalPlanBuilder::build))
}
