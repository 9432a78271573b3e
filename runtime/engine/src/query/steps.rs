//! Projections and window functions over wide rows. DataFusion makes a whole batch of values at once, and of window functions over
//! whole partitions all values of all rows: 8,192 texts of a megabyte are 8 GB.
//!
//! ```text
//!  input --[steps, by how wide the rows were that came out last]--> operator --[looks at the rows]-->
//! ```
//! Where an operator goes along with its input, that comes in steps of which it makes a few megabytes. Where it needs all of its
//! input first, room for what it will make is taken before it begins, and the query is refused if there is none. What window
//! functions hold of their input is charged as well: DataFusion does not.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::partition;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, InputOrderMode, ReplaceChildrenOptions, SendableRecordBatchStream,
};
use futures::{StreamExt, TryStreamExt};
use millrace_operator::windows::{Sizes, WideFunction};
use millrace_state::steps::Steps;
use millrace_state::width::{COPIED_BYTES_MAX, differs_in_size, largest};
use millrace_storage::rows_bytes;
use parking_lot::Mutex;

use super::gate::give_way;
use super::wrap::{Wrap, Wrapped};

/// Rows of the first step, when nothing has come out yet: one constant of a subquery may be as large as memory.
const FIRST_ROWS: usize = 1;
/// Constants of more than this in a row make it wide.
const WIDE_BYTES: usize = 1 << 10;

/// Copies of what window functions keep of their input that are there at a time: batch by batch, and together.
const COPIES: usize = 2;

/// An operator whose input comes in steps; none if it is another one, or makes nothing that is wide.
///
/// # Errors
/// The operator refuses its new input, which only a wrong one brings about.
pub fn stepped(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let schema = node.schema();
    let is_wide = |column: &usize| is_made_wide(schema.field(*column).data_type());
    let mut is_in_order = true;
    let (made, windows, needs_all) = if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        // Constants count if they take much in each row.
        let constants = projection.expr().iter().filter_map(|projected| {
            let constant = projected.expr.downcast_ref::<Literal>()?;
            Some(constant.value().size())
        });
        let constant_bytes: usize = constants.sum();
        let is_made = |expr: &Arc<dyn PhysicalExpr>| {
            !expr.is::<Column>() && (!expr.is::<Literal>() || constant_bytes > WIDE_BYTES)
        };
        let exprs = projection.expr().iter().enumerate();
        let made = exprs.filter(|(_, projected)| is_made(&projected.expr));
        let made: Vec<usize> = made.map(|(column, _)| column).filter(is_wide).collect();
        if made.is_empty() {
            return Ok(None);
        }
        (made, &[][..], false)
    } else if let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() {
        is_in_order = matches!(window.input_order_mode, InputOrderMode::Sorted);
        (vec![], window.window_expr(), false)
    } else if let Some(window) = node.downcast_ref::<WindowAggExec>() {
        (vec![], window.window_expr(), true)
    } else {
        return Ok(None);
    };
    let functions = WideFunction::of(windows, &schema);
    // Partitions that come in no order all have rows that wait, and count as one.
    let wait_together = !is_in_order && functions.iter().any(WideFunction::looks_ahead);
    let needs_all = needs_all || wait_together || functions.iter().any(WideFunction::waits);
    let made = match windows.is_empty() {
        true => made,
        false => functions.iter().map(|function| function.column).collect(),
    };
    let shared = Arc::new(Mutex::new(State::new(made)));
    let below = Below {
        keeps: !windows.is_empty(),
        needs_all,
        keys: match windows.first() {
            Some(window) if is_in_order => window.partition_by().to_vec(),
            _ => vec![],
        },
        functions: functions.into(),
        shared: Arc::clone(&shared),
    };
    let inputs = node.children().into_iter();
    let inputs = inputs
        .map(|input| Wrapped::around(input, below.clone()))
        .collect();
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    let node = Arc::clone(node).replace_children(inputs, options)?;
    Ok(Some(Wrapped::around(&node, Above { shared })))
}

/// Whether values that are made may be large, views of them among others.
fn is_made_wide(data_type: &DataType) -> bool {
    differs_in_size(data_type) || matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

/// What both sides of an operator know. Its partitions share it.
struct State {
    /// Columns that the operator makes and whose values differ in size.
    made: Vec<usize>,
    /// Bytes of the widest row of these that came out last, once one has.
    row_bytes: Option<usize>,
    /// Of how many rows something is made at a time.
    steps: Steps,
    /// Rows that went in and have not come out, and their bytes.
    rows: usize,
    bytes: usize,
    /// What the operator will take to make something of those, where it needs all of them, or rows behind them, first.
    made_bytes: usize,
    /// How often all had come out.
    emptied: usize,
    room: Option<MemoryReservation>,
}

impl State {
    fn new(made: Vec<usize>) -> State {
        State {
            made,
            row_bytes: None,
            steps: Steps::new(FIRST_ROWS, usize::MAX, COPIED_BYTES_MAX),
            rows: 0,
            bytes: 0,
            made_bytes: 0,
            emptied: 0,
            room: None,
        }
    }

    fn room_wanted(&self) -> usize {
        self.bytes.saturating_mul(COPIES).saturating_add(self.made_bytes)
    }

    fn take_room(&mut self, pool: &Arc<dyn MemoryPool>) -> Result<()> {
        let bytes = self.room_wanted();
        let room = self
            .room
            .get_or_insert_with(|| MemoryConsumer::new("A window function").register(pool));
        room.try_resize(bytes)
    }

    /// Some rows came out.
    fn came_out(&mut self, batch: &RecordBatch) {
        let widths = self.made.iter().map(|column| largest(batch.column(*column)));
        let row_bytes = widths.sum();
        self.row_bytes = Some(row_bytes);
        self.steps.made(batch.num_rows(), row_bytes);
        let rows = batch.num_rows().min(self.rows);
        // Wide: bytes times rows.
        let gone = self.bytes as u128 * rows as u128 / self.rows.max(1) as u128;
        self.bytes -= gone as usize;
        self.rows -= rows;
        if self.rows == 0 {
            self.made_bytes = 0;
            self.emptied += 1;
        }
        let wanted = self.room_wanted();
        if let Some(room) = &mut self.room {
            room.shrink(room.size().saturating_sub(wanted));
        }
    }
}

/// The input of an operator.
#[derive(Clone)]
struct Below {
    /// The operator keeps rows, and does not say so.
    keeps: bool,
    needs_all: bool,
    /// What the partitions of its windows have in common.
    keys: Vec<Arc<dyn PhysicalExpr>>,
    functions: Arc<[WideFunction]>,
    shared: Arc<Mutex<State>>,
}

impl Below {
    /// How many of these rows go in now.
    fn step(&self, batch: &RecordBatch) -> Result<usize> {
        let state = self.shared.lock();
        if self.keeps {
            let out = state.row_bytes.unwrap_or(0);
            drop(state);
            return self.running_step(batch, out);
        }
        Ok(state.steps.next(batch.num_rows()))
    }

    /// The same for window functions, which have made values of so many bytes.
    fn running_step(&self, batch: &RecordBatch, made_bytes: usize) -> Result<usize> {
        let mut rows = batch.num_rows();
        for function in self.functions.iter() {
            let read = Sizes::of(&function.reads(batch)?, 0..batch.num_rows())?;
            let makes = |rows| function.next_bytes(rows, batch.num_rows(), read, made_bytes);
            while rows > 1 && makes(rows) > COPIED_BYTES_MAX {
                rows /= 2;
            }
        }
        Ok(rows)
    }

    /// Reserves space for rows that go in, and for what is made of them once it is known.
    fn charge(&self, batch: &RecordBatch, windows: &mut Windows, pool: &Arc<dyn MemoryPool>) -> Result<()> {
        let made_bytes = windows.add(self, batch)?;
        let mut state = self.shared.lock();
        state.rows += batch.num_rows();
        state.bytes += rows_bytes(batch);
        state.made_bytes = state.made_bytes.saturating_add(made_bytes);
        state.take_room(pool)
    }
}

impl Wrap for Below {
    fn wrap(
        &self,
        rows: SendableRecordBatchStream,
        schema: SchemaRef,
        context: &TaskContext,
    ) -> Result<SendableRecordBatchStream> {
        let pool = Arc::clone(context.memory_pool());
        let below = self.clone();
        if self.needs_all {
            let mut windows = Windows::default();
            let charged = rows.map(move |batch| {
                let batch = batch?;
                below.charge(&batch, &mut windows, &pool)?;
                Ok(batch)
            });
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, charged)));
        }
        let windows = Mutex::new(Windows::default());
        let step = move |batch: &RecordBatch| {
            let now = batch.slice(0, below.step(batch)?.min(batch.num_rows()));
            if below.keeps {
                below.charge(&now, &mut windows.lock(), &pool)?;
            }
            Ok(now)
        };
        Ok(in_steps(rows, schema, step))
    }
}

/// Rows in steps: `next` takes the first rows of those that are left of a batch.
pub(super) fn in_steps(
    rows: SendableRecordBatchStream,
    schema: SchemaRef,
    next: impl Fn(&RecordBatch) -> Result<RecordBatch> + Send + 'static,
) -> SendableRecordBatchStream {
    let begin = (rows, None::<RecordBatch>, next);
    let steps = futures::stream::try_unfold(begin, |(mut rows, rest, next)| async move {
        let batch = match rest {
            Some(rest) => rest,
            None => match rows.try_next().await? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        let now = next(&batch)?;
        let left = batch.num_rows() - now.num_rows();
        let rest = (left > 0).then(|| batch.slice(now.num_rows(), left));
        if rest.is_some() {
            give_way().await;
        }
        Ok::<_, DataFusionError>(Some((now, (rows, rest, next))))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, steps))
}

/// What window functions will make at once: where they need all rows, of all of a partition, since each row has a value of that; else of
/// the rows that wait for others behind them.
#[derive(Default)]
struct Windows {
    /// Of the partition that is coming in.
    key: Vec<ScalarValue>,
    rows: usize,
    /// By function.
    read: Vec<Sizes>,
    /// What they make for it; where rows wait, for the one for which they make most.
    bytes: usize,
    /// How often all rows had come out when that was counted.
    emptied: usize,
}

impl Windows {
    /// Adds rows, which are in the order of their partitions. Returns by how much the bytes have grown that will be made.
    fn add(&mut self, below: &Below, batch: &RecordBatch) -> Result<usize> {
        let waits = |function: &WideFunction| below.needs_all || function.looks_ahead();
        if !below.functions.iter().any(waits) || batch.num_rows() == 0 {
            return Ok(0);
        }
        let emptied = below.shared.lock().emptied;
        if self.emptied != emptied {
            (self.emptied, self.bytes) = (emptied, 0);
        }
        let keys = below.keys.iter();
        let keys = keys.map(|key| key.evaluate(batch)?.into_array(batch.num_rows()));
        let keys = keys.collect::<Result<Vec<ArrayRef>>>()?;
        let functions = below.functions.iter();
        let values = functions.map(|function| function.reads(batch));
        let values = values.collect::<Result<Vec<_>>>()?;
        let ranges = match keys.is_empty() {
            true => std::iter::once(0..batch.num_rows()).collect(),
            false => partition(&keys)?.ranges(),
        };
        let mut grown = 0_usize;
        for range in ranges {
            let key = keys
                .iter()
                .map(|key| ScalarValue::try_from_array(key, range.start));
            let key = key.collect::<Result<Vec<_>>>()?;
            if self.rows == 0 || self.key != key {
                *self = Windows {
                    key,
                    rows: 0,
                    read: vec![Sizes::default(); below.functions.len()],
                    bytes: if below.needs_all { 0 } else { self.bytes },
                    emptied,
                };
            }
            self.rows += range.len();
            let mut bytes = 0_usize;
            let functions = below.functions.iter().zip(&values).zip(&mut self.read);
            for ((function, values), read) in functions {
                read.add(Sizes::of(values, range.clone())?);
                bytes = bytes.saturating_add(match below.needs_all {
                    true => function.bytes(self.rows, *read),
                    false => function.waiting_bytes(self.rows, *read),
                });
            }
            grown = grown.saturating_add(bytes.saturating_sub(self.bytes));
            self.bytes = self.bytes.max(bytes);
        }
        Ok(grown)
    }
}

/// The output of an operator, in batches of the usual number of rows.
struct Above {
    shared: Arc<Mutex<State>>,
}

impl Wrap for Above {
    fn wrap(
        &self,
        rows: SendableRecordBatchStream,
        schema: SchemaRef,
        context: &TaskContext,
    ) -> Result<SendableRecordBatchStream> {
        let shared = Arc::clone(&self.shared);
        let rows_max = context.session_config().batch_size();
        let seen = rows.map_ok(move |batch| {
            let starts = (0..batch.num_rows()).step_by(rows_max);
            let shared = Arc::clone(&shared);
            let pieces = starts.map(move |start| {
                let piece = batch.slice(start, rows_max.min(batch.num_rows() - start));
                shared.lock().came_out(&piece);
                Ok(piece)
            });
            futures::stream::iter(pieces)
        });
        let pieces = seen.try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, pieces)))
    }
}

#[cfg(test)]
mod tests;
