//! The accumulator of a reducer whose states do not merge, or whose values have an order: it keeps the rows, and reduces them at the end.
//!
//! The order is that of ORDER BY, and among equals that of the values, as a view keeps them (`groups/values` of the operators): so that a
//! SELECT and a view give a reducer the same rows in the same order.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{SortOptions, concat, take};
use arrow::datatypes::{Field, Schema};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow::row::{RowConverter, SortField};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;

use super::Reducer;

/// See the module.
pub struct Rows {
    reducer: Arc<dyn Reducer>,
    /// Columns before those of ORDER BY.
    arguments: usize,
    order_by: Vec<SortOptions>,
    is_distinct: bool,
    batches: Vec<Vec<ArrayRef>>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rows of {}", self.reducer.name())
    }
}

impl Rows {
    pub fn new(reducer: Arc<dyn Reducer>, args: &AccumulatorArgs<'_>) -> Rows {
        Rows {
            reducer,
            arguments: args.exprs.len(),
            order_by: args.order_bys.iter().map(|order| order.options).collect(),
            is_distinct: args.is_distinct,
            batches: vec![],
        }
    }

    /// All rows, a column each.
    fn columns(&self) -> Result<Vec<ArrayRef>> {
        let Some(first) = self.batches.first() else {
            return Ok(vec![]);
        };
        let all = (0..first.len()).map(|column| {
            let parts: Vec<&dyn Array> = self.batches.iter().map(|batch| batch[column].as_ref()).collect();
            Ok(concat(&parts)?)
        });
        all.collect()
    }

    /// The arguments of all rows, in order.
    fn in_order(&self) -> Result<Vec<ArrayRef>> {
        let columns = self.columns()?;
        let (arguments, keys) = columns.split_at(self.arguments.min(columns.len()));
        let last = SortOptions {
            descending: false,
            nulls_first: false,
        };
        let directions = self.order_by.iter().copied().chain(std::iter::repeat(last));
        let sorted: Vec<ArrayRef> = keys.iter().chain(arguments).cloned().collect();
        if sorted.is_empty() {
            return Ok(vec![]);
        }
        let fields = sorted.iter().zip(directions);
        let fields =
            fields.map(|(column, options)| SortField::new_with_options(column.data_type().clone(), options));
        let rows = RowConverter::new(fields.collect())?.convert_columns(&sorted)?;
        let mut places: Vec<u32> = (0..rows.num_rows() as u32).collect();
        places.sort_by(|a, b| rows.row(*a as usize).cmp(&rows.row(*b as usize)));
        if self.is_distinct {
            places.dedup_by(|a, b| rows.row(*a as usize) == rows.row(*b as usize));
        }
        let places = UInt32Array::from(places);
        Ok((arguments.iter())
            .map(|column| take(column, &places, None))
            .collect::<Result<_, _>>()?)
    }
}

impl Accumulator for Rows {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.batches.push(values.to_vec());
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let values = self.in_order()?;
        let mut state = self.reducer.init();
        if values.first().is_some_and(|column| !column.is_empty()) {
            state.reduce(&values)?;
        }
        state.value()
    }

    fn size(&self) -> usize {
        let bytes = self
            .batches
            .iter()
            .flatten()
            .map(|column| column.get_array_memory_size());
        size_of::<Self>() + bytes.sum::<usize>()
    }

    /// The rows, as a stream of Arrow.
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let columns = self.columns()?;
        let fields = columns.iter().enumerate();
        let fields = fields.map(|(at, column)| Field::new(at.to_string(), column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let options =
            RecordBatchOptions::new().with_row_count(Some(columns.first().map_or(0, |column| column.len())));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?;
        let mut bytes = vec![];
        let mut writer = StreamWriter::try_new(&mut bytes, &schema)?;
        writer.write(&batch)?;
        writer.finish()?;
        drop(writer);
        Ok(vec![ScalarValue::Binary(Some(bytes))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for state in states[0].as_binary::<i32>().iter().flatten() {
            for batch in StreamReader::try_new(state, None)? {
                let batch = batch?;
                if batch.num_columns() > 0 {
                    self.batches.push(batch.columns().to_vec());
                }
            }
        }
        Ok(())
    }
}
