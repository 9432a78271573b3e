//! The tables of TPC-H as `tpchgen` makes them, with texts as plain strings.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::{cast, concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::error::ArrowError;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

use crate::Failure;

/// Orders at scale factor 1.
const ORDERS: f64 = 1_500_000.0;
/// Orders of one chunk, about.
const CHUNK_ORDERS: f64 = 15_000.0;

/// A table that refreshes leave alone.
pub(super) struct Table {
    pub name: &'static str,
    /// The columns of its primary key.
    pub key: Vec<usize>,
    pub rows: RecordBatch,
}

/// Some orders and their line items.
pub(super) struct OrderChunk {
    pub orders: RecordBatch,
    pub lines: RecordBatch,
    /// For each line item the place of its order in `orders`.
    pub order_of_line: Vec<usize>,
}

impl OrderChunk {
    /// The rows of these orders.
    pub fn orders_of(&self, orders: &HashSet<usize>) -> Result<RecordBatch, ArrowError> {
        let chosen: BooleanArray = (0..self.orders.num_rows())
            .map(|order| Some(orders.contains(&order)))
            .collect();
        filter_record_batch(&self.orders, &chosen)
    }

    /// The line items of these orders.
    pub fn lines_of(&self, orders: &HashSet<usize>) -> Result<RecordBatch, ArrowError> {
        let places = self.order_of_line.iter();
        let chosen: BooleanArray = places.map(|order| Some(orders.contains(order))).collect();
        filter_record_batch(&self.lines, &chosen)
    }
}

/// All tables but orders and line items.
pub(super) fn dimensions(scale: f64) -> Result<Vec<Table>, Failure> {
    let table = |name, key: &[usize], rows: Result<RecordBatch, Failure>| {
        rows.map(|rows| Table {
            name,
            key: key.to_vec(),
            rows,
        })
    };
    Ok(vec![
        table(
            "region",
            &[0],
            whole(RegionArrow::new(RegionGenerator::new(scale, 1, 1))),
        )?,
        table(
            "nation",
            &[0],
            whole(NationArrow::new(NationGenerator::new(scale, 1, 1))),
        )?,
        table(
            "supplier",
            &[0],
            whole(SupplierArrow::new(SupplierGenerator::new(scale, 1, 1))),
        )?,
        table(
            "customer",
            &[0],
            whole(CustomerArrow::new(CustomerGenerator::new(scale, 1, 1))),
        )?,
        table(
            "part",
            &[0],
            whole(PartArrow::new(PartGenerator::new(scale, 1, 1))),
        )?,
        table(
            "partsupp",
            &[0, 1],
            whole(PartSuppArrow::new(PartSuppGenerator::new(scale, 1, 1))),
        )?,
    ])
}

/// Orders and line items, in chunks.
pub(super) fn orders(scale: f64) -> Result<Vec<OrderChunk>, Failure> {
    let chunks = (ORDERS * scale / CHUNK_ORDERS).ceil().max(1.0) as i32;
    (1..=chunks)
        .map(|chunk| {
            let orders = whole(OrderArrow::new(OrderGenerator::new(scale, chunk, chunks)))?;
            let lines = whole(LineItemArrow::new(LineItemGenerator::new(scale, chunk, chunks)))?;
            let keys = |rows: &RecordBatch| rows.column(0).as_primitive::<Int64Type>().values().to_vec();
            let order_keys = keys(&orders);
            // Both are in the order of their keys.
            let mut place = 0;
            let mut order_of_line = Vec::with_capacity(lines.num_rows());
            for key in keys(&lines) {
                while order_keys.get(place).is_some_and(|order| *order < key) {
                    place += 1;
                }
                if order_keys.get(place) != Some(&key) {
                    return Err(format!("line items of order {key} are not beside their order").into());
                }
                order_of_line.push(place);
            }
            Ok(OrderChunk {
                orders,
                lines,
                order_of_line,
            })
        })
        .collect()
}

/// All rows of a generator as one batch.
fn whole(batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>) -> Result<RecordBatch, Failure> {
    let batches = batches
        .map(|batch| plain(&batch?))
        .collect::<Result<Vec<_>, _>>()?;
    let schema = batches.first().ok_or("a generator gave no rows")?.schema();
    Ok(concat_batches(&schema, &batches)?)
}

/// The batch with plain strings in place of views of strings.
fn plain(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let (mut fields, mut columns) = (vec![], vec![]);
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let is_view = field.data_type() == &DataType::Utf8View;
        let data_type = if is_view {
            DataType::Utf8
        } else {
            field.data_type().clone()
        };
        columns.push(cast(column, &data_type)?);
        fields.push(Field::new(field.name(), data_type, field.is_nullable()));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}
