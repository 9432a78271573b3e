//! A table as a transaction sees it: what is committed, and the transaction's own changes over it.
//!
//! The result is put together in memory. That costs a scan of the table for each statement that reads a table which its
//! transaction has changed, and nothing for any other.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt64Array};
use arrow::datatypes::SchemaRef;
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::Column;
use datafusion::common::metadata::FieldMetadata;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use millrace_database::database::definitions::Widening;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal::{self, df};
use millrace_storage::ChangeBatch;

use crate::session::Session;

/// `base` with these changes; `base` itself when there are none.
///
/// # Errors
/// The scan of `base` failed.
pub async fn provider(
    session: &Session,
    base: Arc<dyn TableProvider>,
    changes: &[ChangeBatch],
) -> SqlResult<Arc<dyn TableProvider>> {
    if changes.is_empty() {
        return Ok(base);
    }
    let schema = base.schema();
    let scan =
        df(LogicalPlanBuilder::scan("base", provider_as_source(base), None)
            .and_then(LogicalPlanBuilder::build))?;
    let state = session.database().statement_state();
    let physical = df(state.create_physical_plan(&scan).await)?;
    let rows = session.collect_physical(physical).await?;
    let merged = apply(rows, changes).map_err(from_internal::arrow)?;
    // A column may have been renamed since they were made.
    let merged = merged
        .into_iter()
        .map(|batch| RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec()))
        .collect::<Result<_, _>>()
        .map_err(from_internal::arrow)?;
    Ok(Arc::new(df(MemTable::try_new(schema, vec![merged]))?))
}

/// The rows after some changes. Each removal takes away one equal row.
fn apply(
    rows: Vec<RecordBatch>,
    changes: &[ChangeBatch],
) -> Result<Vec<RecordBatch>, arrow::error::ArrowError> {
    let Some(schema) = changes.first().map(ChangeBatch::schema) else {
        return Ok(rows);
    };
    let mut batches = rows;
    let fields = schema
        .fields()
        .iter()
        .map(|field| SortField::new(field.data_type().clone()))
        .collect();
    let converter = RowConverter::new(fields)?;
    // Insertions are appended; then every removal is looked for from the end, where the transaction's own rows are.
    let mut removals: HashMap<OwnedRow, i64> = HashMap::new();
    for change in changes {
        let converted = converter.convert_columns(change.rows.columns())?;
        let mut inserted = vec![];
        for (row, index) in converted.iter().zip(0_u64..) {
            let at = usize::try_from(index).expect("rows of a batch are counted by usize");
            let weight = change.weight(at);
            if weight < 0 {
                *removals.entry(row.owned()).or_default() += -weight;
            } else {
                inserted.extend(std::iter::repeat_n(
                    index,
                    usize::try_from(weight).unwrap_or_default(),
                ));
            }
        }
        batches.push(take(&change.rows, inserted)?);
    }
    if removals.is_empty() {
        return Ok(batches);
    }
    for batch in batches.iter_mut().rev() {
        let converted = converter.convert_columns(batch.columns())?;
        let mut kept = vec![];
        for (row, index) in converted.iter().zip(0_u64..) {
            match removals.get_mut(&row.owned()) {
                Some(count) if *count > 0 => *count -= 1,
                _ => kept.push(index),
            }
        }
        if kept.len() < batch.num_rows() {
            *batch = take(batch, kept)?;
        }
    }
    Ok(batches)
}

/// A table that the transaction has made, before its own rows.
///
/// # Errors
/// None, in effect: there are no rows that could have another schema.
pub fn nothing(schema: &SchemaRef) -> SqlResult<Arc<dyn TableProvider>> {
    Ok(Arc::new(df(MemTable::try_new(Arc::clone(schema), vec![vec![]]))?))
}

/// `base`, which has the columns of before, with those that the transaction has added.
///
/// # Errors
/// The columns do not fit.
pub fn widened(
    base: Arc<dyn TableProvider>,
    widening: &Widening,
    schema: &SchemaRef,
) -> SqlResult<Arc<dyn TableProvider>> {
    let known = widening.before.fields().len();
    let mut columns: Vec<Expr> = vec![];
    for (index, field) in schema.fields().iter().enumerate() {
        let column = match index
            .checked_sub(known)
            .and_then(|added| widening.values.get(added))
        {
            Some(value) => Expr::Literal(df(value.cast_to(field.data_type()))?, None),
            None => Expr::Column(Column::new_unqualified(widening.before.field(index).name())),
        };
        columns.push(
            column.alias_with_metadata(field.name(), Some(FieldMetadata::from(field.metadata().clone()))),
        );
    }
    let plan = df(LogicalPlanBuilder::scan("base", provider_as_source(base), None)
        .and_then(|plan| plan.project(columns))
        .and_then(LogicalPlanBuilder::build))?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}

fn take(batch: &RecordBatch, rows: Vec<u64>) -> Result<RecordBatch, arrow::error::ArrowError> {
    if rows.len() == batch.num_rows() {
        return Ok(batch.clone());
    }
    arrow::compute::take_record_batch(batch, &UInt64Array::from(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array};
    use arrow::datatypes::Int32Type;

    fn batch(values: &[i32]) -> RecordBatch {
        let array: ArrayRef = Arc::new(Int32Array::from(values.to_vec()));
        RecordBatch::try_from_iter([("v", array)]).unwrap()
    }

    fn values(batches: &[RecordBatch]) -> Vec<i32> {
        let mut all: Vec<i32> = batches
            .iter()
            .flat_map(|batch| batch.column(0).as_primitive::<Int32Type>().values().to_vec())
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn updates_of_updates_leave_the_last_row() {
        let first = ChangeBatch::new(batch(&[1, 10]), Some(Int64Array::from(vec![-1, 1]))).unwrap();
        let second = ChangeBatch::new(batch(&[10, 11]), Some(Int64Array::from(vec![-1, 1]))).unwrap();
        let out = apply(vec![batch(&[1, 2, 2])], &[first, second]).unwrap();
        assert_eq!(values(&out), [2, 2, 11]);
    }

    #[test]
    fn a_removal_takes_one_of_equal_rows() {
        let change = ChangeBatch::new(batch(&[2]), Some(Int64Array::from(vec![-1]))).unwrap();
        let out = apply(vec![batch(&[1, 2, 2])], &[change]).unwrap();
        assert_eq!(values(&out), [1, 2]);
    }
}
