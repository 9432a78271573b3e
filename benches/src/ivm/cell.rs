//! One view over one size of base: its time and its memory.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::MemTable;
use datafusion::prelude::SessionContext;
use millrace_engine::worker::partition_hash;
use serde::{Deserialize, Serialize};

use super::bed::{self, Bed};
use super::views::{Remembers, View};
use super::workload::{Model, Table, Write};
use crate::error::BenchError;
use crate::machine::cores;
use crate::process;

/// Rows of a batch that plain DataFusion reads: its own default.
const BATCH_ROWS: usize = 8_192;

/// What a cell is asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    pub base_rows: usize,
    /// Transactions to apply: how many changes in each, and how many of them.
    pub writes: Vec<(usize, usize)>,
    /// How often the batch query is run.
    pub recomputations: usize,
    pub seed: u64,
}

/// How the view was changed by transactions of one size.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Applied {
    pub changes: usize,
    /// From the call until the change is visible in the view, milliseconds of each transaction.
    pub visible_ms: Vec<f64>,
    /// Processor time of a transaction, all threads together, on average.
    pub cpu_ms: f64,
    /// The same transactions where there is no view: each one's milliseconds until it is in the tables, and processor time.
    pub bare_ms: Vec<f64>,
    pub bare_cpu_ms: f64,
}

/// What the time of a view is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Times {
    /// Rows of all its tables that were inserted a second, the view following.
    pub load_rows_per_s: f64,
    pub applied: Vec<Applied>,
    /// The batch query over the same rows, milliseconds of each run.
    pub recompute_ms: Vec<f64>,
    /// Rows of the view at the end.
    pub view_rows: usize,
    /// State as the engine counts it, against the raw bytes of what it stands for, after loading and after all changes.
    pub state_ratio_loaded: f64,
    pub state_ratio_changed: f64,
}

/// What the memory of a view is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Memory {
    /// As the engine counts it.
    pub state_bytes: usize,
    /// What the process grew by with the view, beyond what it grew by without it.
    pub resident_bytes: i64,
    /// What the state stands for.
    pub raw_bytes: usize,
    /// Rows inserted a second without a view.
    pub load_rows_per_s: f64,
}

/// Measures the time; checks the view against the batch query.
///
/// # Errors
/// The engine failed, or the view is wrong.
pub async fn times(view: &View, task: &Task) -> Result<Times, BenchError> {
    let mut model = Model::new(view.tables, task.base_rows, task.seed);
    let bed = Bed::new(view.tables).await?;
    bed.create_view(view.select).await?;
    let start = Instant::now();
    bed.load(&model).await?;
    let load_rows_per_s = model.rows() as f64 / start.elapsed().as_secs_f64();
    let state_bytes = bed.state_bytes() as f64;
    let answer = answer(view, &plain(view, &model)?).await?;
    let state_ratio_loaded = state_bytes / raw_bytes(view, &model, &answer)? as f64;
    drop(answer);

    let bare = Bed::new(view.tables).await?;
    bare.load(&model).await?;
    let mut applied = Vec::new();
    for (changes, times) in &task.writes {
        let writes = (0..*times).map(|_| model.write(*changes));
        let writes = writes.collect::<Result<Vec<_>, _>>()?;
        let (bare_ms, bare_cpu_ms) = apply(&bare, writes.clone()).await?;
        let (visible_ms, cpu_ms) = apply(&bed, writes).await?;
        applied.push(Applied {
            changes: *changes,
            visible_ms,
            cpu_ms,
            bare_ms,
            bare_cpu_ms,
        });
    }
    bare.stop().await;

    let context = plain(view, &model)?;
    let mut recompute_ms = Vec::new();
    let mut expected = Vec::new();
    for _ in 0..task.recomputations {
        expected.clear();
        let start = Instant::now();
        expected = self::answer(view, &context).await?;
        recompute_ms.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let state_ratio_changed = bed.state_bytes() as f64 / raw_bytes(view, &model, &expected)? as f64;
    check(view, &bed, &expected).await?;
    bed.stop().await;
    Ok(Times {
        load_rows_per_s,
        applied,
        recompute_ms,
        view_rows: expected.iter().map(RecordBatch::num_rows).sum(),
        state_ratio_loaded,
        state_ratio_changed,
    })
}

/// Applies transactions, one after the other: the milliseconds of each until it is visible, and the processor time of one on
/// average.
async fn apply(bed: &Bed, writes: Vec<Write>) -> Result<(Vec<f64>, f64), BenchError> {
    let mut visible_ms = Vec::with_capacity(writes.len());
    let before = process::activity(std::process::id())?;
    for write in writes {
        let start = Instant::now();
        let written = bed.append(write).await?;
        bed.runtime.wait_for(&written).await.map_err(BenchError::engine)?;
        visible_ms.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let done = process::activity(std::process::id())?.since(before);
    let cpu_ms = done.cpu_ns as f64 / 1e6 / visible_ms.len() as f64;
    Ok((visible_ms, cpu_ms))
}

/// Measures the memory: the same tables are loaded without the view, then once more with it. The process must have done
/// nothing else.
///
/// # Errors
/// The engine failed.
pub async fn memory(view: &View, task: &Task) -> Result<Memory, BenchError> {
    let model = Model::new(view.tables, task.base_rows, task.seed);
    let resident = || process::memory(std::process::id()).map(|memory| memory.resident as i64);
    // The first engine of a process makes what all later ones share.
    Bed::new(view.tables).await?.stop().await;

    let at_first = resident()?;
    let without = Bed::new(view.tables).await?;
    let start = Instant::now();
    without.load(&model).await?;
    let load_rows_per_s = model.rows() as f64 / start.elapsed().as_secs_f64();
    let between = resident()?;
    let with = Bed::new(view.tables).await?;
    with.create_view(view.select).await?;
    with.load(&model).await?;
    let at_last = resident()?;
    let state_bytes = with.state_bytes();

    let answer = answer(view, &plain(view, &model)?).await?;
    let raw_bytes = raw_bytes(view, &model, &answer)?;
    with.stop().await;
    without.stop().await;
    Ok(Memory {
        state_bytes,
        resident_bytes: (at_last - between) - (between - at_first),
        raw_bytes,
        load_rows_per_s,
    })
}

/// Plain DataFusion over the rows of the model, on as many cores as the engine has.
fn plain(view: &View, model: &Model) -> Result<SessionContext, BenchError> {
    let context = bed::context(cores());
    for table in view.tables {
        let batches = model.batches(*table, BATCH_ROWS)?;
        let share = batches.len().div_ceil(cores()).max(1);
        let partitions = batches.chunks(share).map(<[RecordBatch]>::to_vec).collect();
        let provider = MemTable::try_new(table.schema(), partitions)?;
        context.register_table(table.name(), Arc::new(provider))?;
    }
    Ok(context)
}

async fn answer(view: &View, context: &SessionContext) -> Result<Vec<RecordBatch>, BenchError> {
    Ok(context.sql(view.select).await?.collect().await?)
}

/// Compares the view with the answer, as multisets of rows.
async fn check(view: &View, bed: &Bed, expected: &[RecordBatch]) -> Result<(), BenchError> {
    let provider = bed.view().await?;
    let schema = provider.schema();
    let shown = bed::context(1).read_table(provider)?.collect().await?;
    let (shown, expected) = (fingerprint(&shown, &schema)?, fingerprint(expected, &schema)?);
    if shown == expected {
        return Ok(());
    }
    Err(BenchError::Wrong(format!(
        "{} shows {} rows and the batch query answers {}, or their values differ",
        view.name, shown.0, expected.0
    )))
}

/// How many rows there are, and a sum over them in which every value of every row counts and their order does not.
fn fingerprint(batches: &[RecordBatch], schema: &SchemaRef) -> Result<(usize, u64), BenchError> {
    let (mut rows, mut sum) = (0, 0_u64);
    for batch in batches {
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| arrow::compute::cast(column, field.data_type()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let hashes = partition_hash(&columns, batch.num_rows()).map_err(BenchError::engine)?;
        rows += batch.num_rows();
        sum = hashes.iter().fold(sum, |sum, hash| sum.wrapping_add(*hash));
    }
    Ok((rows, sum))
}

/// The bytes of the values that the view has to keep: those of its contents, and those that its operators remember.
fn raw_bytes(view: &View, model: &Model, answer: &[RecordBatch]) -> Result<usize, BenchError> {
    let contents: usize = answer
        .iter()
        .flat_map(RecordBatch::columns)
        .map(value_bytes)
        .sum();
    let (tables, again) = match view.remembers {
        Remembers::Groups => (&[][..], contents),
        Remembers::Rows(tables) => (tables, 0),
        Remembers::RowsAndContents(tables) => (tables, contents),
    };
    let mut remembered = again;
    for (table, columns) in tables {
        remembered += table_bytes(model, *table, columns)?;
    }
    Ok(contents + remembered)
}

fn table_bytes(model: &Model, table: Table, columns: &[&str]) -> Result<usize, BenchError> {
    let batches = model.batches(table, BATCH_ROWS)?;
    let columns = batches
        .iter()
        .flat_map(|batch| columns.iter().filter_map(|column| batch.column_by_name(column)));
    Ok(columns.map(value_bytes).sum())
}

/// The bytes of the values alone: no offsets, no validity.
fn value_bytes(column: &Arc<dyn Array>) -> usize {
    match column.data_type() {
        DataType::Utf8 => {
            let strings = arrow::array::AsArray::as_string::<i32>(column);
            strings.iter().flatten().map(str::len).sum()
        }
        other => other.primitive_width().unwrap_or(1) * column.len(),
    }
}
