//! Joins of wide rows. A join's step is so many pairs, however wide they are: 8,192 copies of a text of a megabyte are 8 GB.
//!
//! ```text
//!  input --[texts as views]--> join: pairs of views --[copies, a few megabytes at a time]-->
//! ```
//! A view is 16 bytes and refers to its text, so that the join copies none; what goes on is made of its pairs when it is asked for.
//! What a join compares stays as it is, and so do lists and structs: of those, room for as many copies of the largest as a step may
//! make is taken before the join sees it, and the query is refused if there is none.
//!
//! A join collects the batches of its left side. Those without columns take nothing by DataFusion's account, so that nothing ends a
//! join of joins that collects more and more of them; they become one batch, which is what the join makes of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait, RecordBatch, RecordBatchOptions};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::{JoinSide, JoinType};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, PlanProperties, ReplaceChildrenOptions,
    SendableRecordBatchStream,
};
use futures::{StreamExt, TryStreamExt};
use millrace_state::width::{COPIED_BYTES_MAX, differs_in_size, largest, view_of};
use parking_lot::Mutex;

use super::gate::give_way;
use super::wrap::{Wrap, Wrapped};

/// Pairs of a step of a join that copies lists or structs.
const COPYING_PAIRS_MAX: usize = 1_024;

/// A join whose texts are views meanwhile; none if the node is no join, or has nothing that is wide.
///
/// # Errors
/// The join refuses its new inputs, which only a wrong one brings about.
pub fn carried(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(uses) = Uses::of(node.as_ref()) else {
        return Ok(None);
    };
    let mut inputs: Vec<Arc<dyn ExecutionPlan>> = vec![];
    let (mut is_changed, mut copies) = (false, false);
    for (side, input) in node.children().into_iter().enumerate() {
        if side == 0 && input.schema().fields().is_empty() {
            is_changed = true;
            inputs.push(Wrapped::around(input, Counted));
            continue;
        }
        let carrying = Carrying::of(&input.schema(), &uses, side);
        copies |= carrying.copies;
        inputs.push(match carrying.changes(&input.schema()) {
            true => {
                is_changed = true;
                carrying.over(input)
            }
            false => Arc::clone(input),
        });
    }
    if !is_changed {
        return Ok(None);
    }
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    let join = Arc::clone(node).replace_children(inputs, options)?;
    let properties = Arc::clone(node.properties());
    Ok(Some(Wrapped::with_properties(
        join,
        properties,
        OutOfJoin { copies },
    )))
}

/// What a join does with the columns of its inputs.
struct Uses {
    /// A row can be in several rows of the output.
    multiplies: bool,
    keys: [BTreeSet<usize>; 2],
    filtered: [BTreeSet<usize>; 2],
}

impl Uses {
    fn of(node: &dyn ExecutionPlan) -> Option<Uses> {
        if node.is::<CrossJoinExec>() {
            return Some(Uses::by(JoinType::Inner, None));
        }
        if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
            return Some(Uses::by(*join.join_type(), join.filter()));
        }
        let join = node.downcast_ref::<HashJoinExec>()?;
        let mut uses = Uses::by(*join.join_type(), join.filter());
        for (left, right) in join.on() {
            for (side, key) in [left, right].into_iter().enumerate() {
                uses.keys[side].extend(collect_columns(key).iter().map(|column| column.index()));
            }
        }
        Some(uses)
    }

    fn by(join_type: JoinType, filter: Option<&JoinFilter>) -> Uses {
        let mut filtered = [BTreeSet::new(), BTreeSet::new()];
        for column in filter.iter().flat_map(|filter| filter.column_indices()) {
            match column.side {
                JoinSide::Left => filtered[0].insert(column.index),
                JoinSide::Right => filtered[1].insert(column.index),
                JoinSide::None => false,
            };
        }
        Uses {
            multiplies: matches!(
                join_type,
                JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full
            ),
            keys: Default::default(),
            filtered,
        }
    }
}

/// How the columns of an input go into a join.
struct Carrying {
    schema: SchemaRef,
    /// Columns whose values the join may copy.
    watched: Vec<usize>,
    /// Whether there are lists or structs among them, and not only keys.
    copies: bool,
}

impl Carrying {
    fn of(schema: &SchemaRef, uses: &Uses, side: usize) -> Carrying {
        let (mut fields, mut watched, mut copies) = (vec![], vec![], false);
        for (column, field) in schema.fields().iter().enumerate() {
            let mut field = Arc::clone(field);
            let is_key = uses.keys[side].contains(&column);
            let is_filtered = uses.filtered[side].contains(&column);
            let view = view_of(field.data_type()).filter(|_| !is_key && !is_filtered);
            if let Some(view) = view.filter(|_| uses.multiplies) {
                field = Arc::new(field.as_ref().clone().with_data_type(view));
            } else if differs_in_size(field.data_type()) && (uses.multiplies || is_filtered) {
                watched.push(column);
                copies |= field.data_type().is_nested() && (!is_key || is_filtered);
            }
            fields.push(field);
        }
        Carrying {
            schema: Arc::new(Schema::new(fields).with_metadata(schema.metadata().clone())),
            watched,
            copies,
        }
    }

    fn changes(&self, input: &SchemaRef) -> bool {
        !self.watched.is_empty() || &self.schema != input
    }

    fn over(self, input: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let mut same = EquivalenceProperties::new(self.schema);
        same.add_orderings(input.output_ordering().cloned());
        let properties = PlanProperties::clone(input.properties()).with_eq_properties(same);
        let into = IntoJoin {
            watched: self.watched.into(),
            room: Arc::default(),
        };
        Wrapped::with_properties(Arc::clone(input), Arc::new(properties), into)
    }
}

/// Below a join: texts become views, and of other columns whose values it may copy room for as many copies of the largest is taken.
struct IntoJoin {
    watched: Arc<[usize]>,
    /// For copies of the largest values that were seen.
    room: Arc<Mutex<Option<MemoryReservation>>>,
}

impl Wrap for IntoJoin {
    fn wrap(
        &self,
        rows: SendableRecordBatchStream,
        schema: SchemaRef,
        context: &TaskContext,
    ) -> Result<SendableRecordBatchStream> {
        let pairs_max = context.session_config().batch_size();
        let (watched, room) = (Arc::clone(&self.watched), Arc::clone(&self.room));
        let (pool, as_schema) = (Arc::clone(context.memory_pool()), Arc::clone(&schema));
        let carried = rows.map(move |batch| {
            let batch = batch?;
            let widest = watched.iter().map(|column| largest(batch.column(*column)));
            let bytes = widest.sum::<usize>().saturating_mul(pairs_max);
            take_room(&room, &pool, bytes)?;
            converted(&batch, &as_schema)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, carried)))
    }
}

/// Below a join: of rows without columns there is only their number.
struct Counted;

impl Wrap for Counted {
    fn wrap(
        &self,
        rows: SendableRecordBatchStream,
        schema: SchemaRef,
        _: &TaskContext,
    ) -> Result<SendableRecordBatchStream> {
        let as_schema = Arc::clone(&schema);
        let counted = async move {
            let sum =
                |sum: usize, batch: RecordBatch| async move { Ok(sum.saturating_add(batch.num_rows())) };
            let count = rows.try_fold(0, sum).await?;
            let options = RecordBatchOptions::new().with_row_count(Some(count));
            Ok(RecordBatch::try_new_with_options(as_schema, vec![], &options)?)
        };
        let counted = futures::stream::once(counted);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, counted)))
    }
}

/// Above a join: views become copies again, a few megabytes at a time.
struct OutOfJoin {
    /// The join makes copies of lists or structs.
    copies: bool,
}

impl Wrap for OutOfJoin {
    fn context(&self, context: Arc<TaskContext>) -> Arc<TaskContext> {
        match self.copies {
            true => with_fewer_pairs(&context),
            false => context,
        }
    }

    fn wrap(
        &self,
        rows: SendableRecordBatchStream,
        schema: SchemaRef,
        _: &TaskContext,
    ) -> Result<SendableRecordBatchStream> {
        let pairs = Pairs {
            rows,
            schema: Arc::clone(&schema),
            rest: None,
        };
        let rows = futures::stream::try_unfold(pairs, |mut pairs| async move {
            let rows = pairs.next().await?;
            Ok::<_, DataFusionError>(rows.map(|rows| (rows, pairs)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The context of a join that copies by itself, and of what is below it.
fn with_fewer_pairs(context: &Arc<TaskContext>) -> Arc<TaskContext> {
    let config = context.session_config();
    let pairs_max = config.batch_size().min(COPYING_PAIRS_MAX);
    let config = config.clone().with_batch_size(pairs_max);
    Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        config,
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        context.runtime_env(),
    ))
}

/// Room for copies of so many bytes, unless they are few.
fn take_room(
    room: &Mutex<Option<MemoryReservation>>,
    pool: &Arc<dyn MemoryPool>,
    bytes: usize,
) -> Result<()> {
    if bytes <= COPIED_BYTES_MAX {
        return Ok(());
    }
    let mut room = room.lock();
    let room =
        room.get_or_insert_with(|| MemoryConsumer::new("Copies of wide rows in a join").register(pool));
    match bytes > room.size() {
        true => room.try_resize(bytes),
        false => Ok(()),
    }
}

/// Rows of a join that have not been emitted.
struct Pairs {
    rows: SendableRecordBatchStream,
    schema: SchemaRef,
    rest: Option<RecordBatch>,
}

impl Pairs {
    /// The next rows, as copies; none when there are no more.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        give_way().await;
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match self.rows.try_next().await? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        let fit = rows_that_fit(&batch);
        if fit < batch.num_rows() {
            self.rest = Some(batch.slice(fit, batch.num_rows() - fit));
        }
        converted(&batch.slice(0, fit), &self.schema).map(Some)
    }
}

/// How many of the first rows are copied at a time.
fn rows_that_fit(batch: &RecordBatch) -> usize {
    let mut bytes = vec![0_usize; batch.num_rows()];
    let mut add = |lengths: &mut dyn Iterator<Item = u32>| {
        for (bytes, length) in bytes.iter_mut().zip(lengths) {
            *bytes += length as usize;
        }
    };
    for column in batch.columns() {
        match column.data_type() {
            DataType::Utf8View => add(&mut column.as_string_view().lengths()),
            DataType::BinaryView => add(&mut column.as_binary_view().lengths()),
            _ => {}
        }
    }
    let mut total = 0;
    let fit = bytes.iter().take_while(|bytes| {
        total += **bytes;
        total <= COPIED_BYTES_MAX
    });
    fit.count().max(1).min(batch.num_rows())
}

/// The rows, in columns of these types.
fn converted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => Ok(cast(&compact(column), field.data_type())?),
    });
    let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}

/// The column, with bytes of its own if it has less than half of those that it refers to: views would keep all of them.
fn compact(column: &ArrayRef) -> ArrayRef {
    let is_part = |own: usize, all: usize| own < all / 2;
    match column.data_type() {
        DataType::Utf8 => {
            let texts = column.as_string::<i32>();
            match is_part(bytes_of(texts.offsets()), texts.values().len()) {
                true => Arc::new(texts.iter().collect::<arrow::array::StringArray>()),
                false => Arc::clone(column),
            }
        }
        DataType::Binary => {
            let values = column.as_binary::<i32>();
            match is_part(bytes_of(values.offsets()), values.values().len()) {
                true => Arc::new(values.iter().collect::<arrow::array::BinaryArray>()),
                false => Arc::clone(column),
            }
        }
        _ => Arc::clone(column),
    }
}

fn bytes_of<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> usize {
    let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
    (last - first).as_usize()
}

#[cfg(test)]
mod tests;
