//! GROUP BY in two halves.
//!
//! ```text
//!  map stage                                 reduce stage
//!  PartialAggregate: this epoch's rows to    AggregateInstance: merges into keyed state, and for each group that was
//!  one row a group (the combiner)      ==>   touched emits the retraction of its old row and its new row
//! ```
//! While a view is filled nobody sees its rows: groups then are only merged, and put out once at the end.
//!
//! Both halves use the same [`GroupState`]s: an epoch's partial state is a group state that started empty.

mod approx_distinct;
mod combiner;
mod extremum;
mod float_sum;
mod image;
mod keys;
mod linear;
pub(super) mod multiset;
mod parts;
mod reduced;
mod registers;
mod sliding;
mod state;
mod values;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Int64Type, Schema, SchemaRef};
use hashbrown::HashSet;
use millrace_planner::stage::{AggregateCall, Aggregation, ExchangeForm};
use millrace_planner::watermark::Watermarks;
use millrace_storage::ChangeBatch;

use super::closing::Closer;
use super::{ErrorCounter, Gate, batch_of, chunks, concat, consolidate, weights_of};
use crate::error::Result;
use crate::state::row_table::arrow_error;
use crate::state::rows_equal;
pub use combiner::{Combiner, CombinerCounts};
pub(crate) use keys::GroupKeys;
pub(super) use parts::{Combining, Merging};
pub use sliding::SlidingInstance;
use state::{GroupState, group_state, resize};

/// Groups that are gone are swept when there are more of them than live ones, and at least this many.
const SWEEP_GROUPS_MIN: usize = 1_024;
/// Groups that are emitted in one stretch of work, where many are.
const EMIT_GROUPS_STEP: usize = 8_192;

/// The map half. It keeps nothing between epochs.
pub struct PartialAggregate {
    group_columns: usize,
    calls: Vec<AggregateCall>,
    exchange: ExchangeForm,
    schema: SchemaRef,
}

impl PartialAggregate {
    pub fn new(plan: &Aggregation) -> Self {
        PartialAggregate {
            group_columns: plan.group_columns,
            calls: plan.calls.clone(),
            exchange: plan.exchange,
            schema: Arc::clone(&plan.schema),
        }
    }

    /// One row a group, or the consolidated rows; or all of them, where that would be nearly as many.
    pub async fn run(
        &self,
        batches: Vec<ChangeBatch>,
        combiner: &Combiner,
        gate: &dyn Gate,
    ) -> Result<Vec<ChangeBatch>> {
        let arrived: usize = batches.iter().map(ChangeBatch::num_rows).sum();
        if arrived == 0 {
            return Ok(vec![]);
        }
        if self.group_columns > 0 && !combiner.combines(arrived) {
            combiner.passed(arrived);
            return self.pass(batches, gate).await;
        }
        if self.exchange == ExchangeForm::Rows {
            let output: Vec<ChangeBatch> = consolidate(batches)?.into_iter().collect();
            combiner.combined(arrived, output.iter().map(ChangeBatch::num_rows).sum());
            return Ok(output);
        }
        let input_schema = batches[0].schema();
        let keys = GroupKeys::passing(&input_schema, self.group_columns)?;
        let mut groups = Groups::new(keys, &self.calls)?;
        for batch in &batches {
            for chunk in chunks(batch) {
                groups.apply_rows(&chunk, &self.calls)?;
                gate.checkpoint().await;
            }
        }
        let mut columns = groups.keys.take_all()?;
        columns.push(Arc::new(Int64Array::from(std::mem::take(&mut groups.rows))));
        for state in &mut groups.states {
            columns.extend(state.partial()?);
        }
        let rows = columns[self.group_columns].len();
        combiner.combined(arrived, rows);
        Ok(vec![ChangeBatch::insertions(batch_of(
            &self.schema,
            columns,
            rows,
        )?)])
    }

    /// Every row as it is, or as a partial state of its own.
    async fn pass(&self, batches: Vec<ChangeBatch>, gate: &dyn Gate) -> Result<Vec<ChangeBatch>> {
        if self.exchange == ExchangeForm::Rows {
            return Ok(batches);
        }
        let mut output = vec![];
        for batch in &batches {
            for chunk in chunks(batch) {
                let rows = chunk.num_rows();
                if rows == 0 {
                    continue;
                }
                // A group a row: no key is looked at.
                let mut groups = Groups::new(GroupKeys::passing(&chunk.schema(), 0)?, &self.calls)?;
                groups.rows = vec![0; rows];
                for state in &mut groups.states {
                    state.resize(rows);
                }
                let ids: Vec<usize> = (0..rows).collect();
                groups.apply(&chunk.rows, &ids, weights_of(&chunk).values(), &self.calls)?;
                let mut columns = chunk.rows.columns()[..self.group_columns].to_vec();
                columns.push(Arc::new(Int64Array::from(groups.rows)));
                for state in &mut groups.states {
                    columns.extend(state.partial()?);
                }
                output.push(ChangeBatch::insertions(batch_of(&self.schema, columns, rows)?));
                gate.checkpoint().await;
            }
        }
        Ok(output)
    }
}

/// The reduce half, with the state of every group of its partition.
pub struct AggregateInstance {
    group_columns: usize,
    calls: Vec<AggregateCall>,
    exchange: ExchangeForm,
    input_schema: SchemaRef,
    schema: SchemaRef,
    groups: Option<Groups>,
    live_groups: usize,
    /// The one row of an aggregate without groups has been emitted.
    emitted_first: bool,
    /// There are groups that are still to be emitted.
    is_deferred: bool,
    /// What the parts of this epoch's input have changed so far.
    touched: Touched,
    closer: Option<Closer>,
    timer: Option<Timer>,
}

/// The groups that an epoch has touched, and what they were before it.
#[derive(Default)]
struct Touched {
    groups: Vec<usize>,
    seen: HashSet<usize>,
    was_alive: Vec<bool>,
    /// The old rows, part by part.
    old: Vec<Vec<ArrayRef>>,
}

impl Touched {
    /// Those of the groups that were not touched before.
    fn add(&mut self, ids: &[usize]) -> Vec<usize> {
        self.seen.reserve(ids.len());
        let added: Vec<usize> = ids
            .iter()
            .copied()
            .filter(|group| self.seen.insert(*group))
            .collect();
        self.groups.extend(&added);
        added
    }

    fn old(&mut self) -> Result<Vec<ArrayRef>> {
        if self.old.len() < 2 {
            return Ok(self.old.pop().unwrap_or_default());
        }
        let parts = std::mem::take(&mut self.old);
        (0..parts[0].len())
            .map(|column| {
                let part = parts.iter().map(|part| part[column].as_ref()).collect::<Vec<_>>();
                arrow::compute::concat(&part).map_err(arrow_error)
            })
            .collect()
    }
}

/// When reducers are told the time.
struct Timer {
    interval: i64,
    /// `None` before the first time.
    next: Option<i64>,
}

impl AggregateInstance {
    pub fn new(plan: &Aggregation, partition: usize) -> Self {
        AggregateInstance {
            group_columns: plan.group_columns,
            calls: plan.calls.clone(),
            exchange: plan.exchange,
            input_schema: Arc::clone(plan.input.schema()),
            schema: Arc::clone(&plan.schema),
            groups: None,
            live_groups: 0,
            // An aggregate without groups lives on partition 0.
            emitted_first: plan.group_columns > 0 || partition > 0,
            is_deferred: false,
            touched: Touched::default(),
            closer: Closer::new(plan.closes.as_ref()),
            timer: plan.timer.map(|interval| Timer {
                interval: interval.max(1),
                next: None,
            }),
        }
    }

    pub fn idle_without_input(&self) -> bool {
        self.emitted_first && !self.is_deferred
    }

    /// Whether there are groups that are still to be emitted.
    pub fn puts_off(&self) -> bool {
        self.is_deferred
    }

    /// There are.
    pub fn put_off(&mut self) {
        self.is_deferred = true;
    }

    pub fn state_bytes(&self) -> usize {
        self.groups.as_ref().map_or(0, Groups::memory_bytes)
    }

    /// Merges an epoch's input, or a part of it. With the last part it returns retractions and new rows of the groups that
    /// the epoch has changed. `is_bulk`: the view is being filled.
    pub async fn run(
        &mut self,
        batches: Vec<ChangeBatch>,
        is_bulk: bool,
        is_last: bool,
        gate: &dyn Gate,
        errors: &ErrorCounter,
    ) -> Result<Vec<ChangeBatch>> {
        if is_bulk {
            self.gather(batches, gate).await?;
            return Ok(vec![]);
        }
        let mut output = if self.is_deferred {
            self.emit_all(gate, errors).await?
        } else {
            vec![]
        };
        if !self.emitted_first {
            output.extend(self.emit_first()?);
        }
        if let Some(input) = concat(batches)? {
            self.merge(&input, gate).await?;
        }
        if is_last && !self.touched.groups.is_empty() {
            output.extend(self.emit_touched(errors)?);
        }
        Ok(output)
    }

    /// Merges a part of an epoch's input; remembers what the groups were that it is the first to touch.
    async fn merge(&mut self, input: &ChangeBatch, gate: &dyn Gate) -> Result<()> {
        let mut groups = self.take_groups()?;
        let ids = groups.intern(&input.rows.columns()[..self.group_columns], input.num_rows())?;
        let added = self.touched.add(&ids);
        let was_alive: Vec<bool> = (added.iter())
            .map(|group| self.is_alive(&groups, *group))
            .collect();
        self.touched.was_alive.extend(was_alive);
        if !added.is_empty() {
            self.touched.old.push(groups.evaluate(&added, None)?);
        }
        gate.checkpoint().await;
        match self.exchange {
            ExchangeForm::Partial => groups.merge(&input.rows, &ids, self.group_columns)?,
            ExchangeForm::Rows => {
                let weights = weights_of(input);
                groups.apply(&input.rows, &ids, weights.values(), &self.calls)?;
            }
        }
        gate.checkpoint().await;
        self.groups = Some(groups);
        Ok(())
    }

    /// What the epoch has changed.
    fn emit_touched(&mut self, errors: &ErrorCounter) -> Result<Vec<ChangeBatch>> {
        let mut groups = self.take_groups()?;
        let old = self.touched.old()?;
        let Touched {
            groups: touched,
            was_alive,
            ..
        } = std::mem::take(&mut self.touched);
        let is_alive: Vec<bool> = touched
            .iter()
            .map(|group| self.is_alive(&groups, *group))
            .collect();
        for (position, group) in touched.iter().enumerate() {
            match (was_alive[position], is_alive[position]) {
                (false, true) => self.live_groups += 1,
                (true, false) => self.live_groups -= 1,
                _ => {}
            }
            if !is_alive[position] {
                groups.reset(*group);
            }
        }
        let new = groups.evaluate(&touched, Some(errors))?;
        let keys = groups.keys.values(&touched)?;
        let output = changes(&self.schema, &keys, &old, &new, &was_alive, &is_alive)?;
        if groups.keys.len() > SWEEP_GROUPS_MIN && groups.keys.len() > 2 * self.live_groups {
            groups.sweep()?;
        }
        self.groups = Some(groups);
        Ok(output)
    }

    /// When reducers are told the time next.
    pub fn due(&self) -> Option<i64> {
        let timer = self.timer.as_ref().filter(|_| self.live_groups > 0)?;
        Some(timer.next.unwrap_or(i64::MIN))
    }

    /// Tells reducers of all groups the time, if it is time; returns what that changes.
    pub fn tell_time(&mut self, now: i64, is_bulk: bool, errors: &ErrorCounter) -> Result<Vec<ChangeBatch>> {
        let Some(timer) = self.timer.as_mut().filter(|_| !is_bulk) else {
            return Ok(vec![]);
        };
        if timer.next.is_some_and(|next| now < next) {
            return Ok(vec![]);
        }
        // The last multiple of the interval that has passed.
        let reached = now.div_euclid(timer.interval).saturating_mul(timer.interval);
        let is_first = timer.next.is_none();
        timer.next = Some(reached.saturating_add(timer.interval));
        if is_first {
            return Ok(vec![]);
        }
        let mut groups = self.take_groups()?;
        let live: Vec<usize> = (0..groups.rows.len())
            .filter(|group| self.is_alive(&groups, *group))
            .collect();
        let old = groups.evaluate(&live, None)?;
        for state in &mut groups.states {
            state.on_timer(&live, reached)?;
        }
        let new = groups.evaluate(&live, Some(errors))?;
        let keys = groups.keys.values(&live)?;
        let is_alive = vec![true; live.len()];
        let output = changes(&self.schema, &keys, &old, &new, &is_alive, &is_alive);
        self.groups = Some(groups);
        output
    }

    /// Forgets the groups to which nothing comes any more.
    pub fn forget(&mut self, is_bulk: bool, watermarks: &Watermarks) -> Result<()> {
        let (Some(closer), Some(groups), false) = (&mut self.closer, &mut self.groups, is_bulk) else {
            return Ok(());
        };
        let Some(bound) = closer.due(groups.keys.len(), watermarks)? else {
            return Ok(());
        };
        let all: Vec<usize> = (0..groups.rows.len()).collect();
        let fields = self.input_schema.fields()[..self.group_columns].to_vec();
        let keys = batch_of(
            &Arc::new(Schema::new(fields)),
            groups.keys.values(&all)?,
            all.len(),
        )?;
        let is_final = closer.is_final(&keys, &bound)?;
        groups.keep(|group, rows| rows > 0 && !is_final.value(group))?;
        self.live_groups = groups.rows.len();
        closer.swept(self.live_groups);
        Ok(())
    }

    fn take_groups(&mut self) -> Result<Groups> {
        match self.groups.take() {
            Some(groups) => Ok(groups),
            None => Groups::new(
                GroupKeys::kept(&self.input_schema, self.group_columns)?,
                &self.calls,
            ),
        }
    }

    /// Merges an epoch's input and emits nothing.
    async fn gather(&mut self, batches: Vec<ChangeBatch>, gate: &dyn Gate) -> Result<()> {
        let mut groups = self.take_groups()?;
        let mut emptied = vec![];
        for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
            self.is_deferred = true;
            let ids = groups.intern(&batch.rows.columns()[..self.group_columns], batch.num_rows())?;
            match self.exchange {
                ExchangeForm::Partial => groups.merge(&batch.rows, &ids, self.group_columns)?,
                ExchangeForm::Rows => {
                    groups.apply(&batch.rows, &ids, weights_of(batch).values(), &self.calls)?;
                }
            }
            emptied.extend(ids.into_iter().filter(|group| !self.is_alive(&groups, *group)));
            gate.checkpoint().await;
        }
        // One that a batch left empty may have been filled by a later one.
        emptied.retain(|group| !self.is_alive(&groups, *group));
        for group in emptied {
            groups.reset(group);
        }
        self.groups = Some(groups);
        Ok(())
    }

    /// The rows of all groups.
    async fn emit_all(&mut self, gate: &dyn Gate, errors: &ErrorCounter) -> Result<Vec<ChangeBatch>> {
        self.is_deferred = false;
        self.emitted_first = true;
        let mut groups = self.take_groups()?;
        let live: Vec<usize> = (0..groups.rows.len())
            .filter(|group| self.is_alive(&groups, *group))
            .collect();
        self.live_groups = live.len();
        let mut output = vec![];
        for live in live.chunks(EMIT_GROUPS_STEP) {
            let mut columns = groups.keys.values(live)?;
            columns.extend(groups.evaluate(live, Some(errors))?);
            output.push(ChangeBatch::insertions(batch_of(
                &self.schema,
                columns,
                live.len(),
            )?));
            gate.checkpoint().await;
        }
        if groups.keys.len() > SWEEP_GROUPS_MIN && groups.keys.len() > 2 * self.live_groups {
            groups.sweep()?;
        }
        self.groups = Some(groups);
        Ok(output)
    }

    fn is_alive(&self, groups: &Groups, group: usize) -> bool {
        self.group_columns == 0 || groups.rows[group] > 0
    }

    /// The row of an aggregate over nothing.
    fn emit_first(&mut self) -> Result<Vec<ChangeBatch>> {
        self.emitted_first = true;
        let mut groups = Groups::new(GroupKeys::kept(&self.input_schema, 0)?, &self.calls)?;
        groups.intern(&[], 1)?;
        let columns = groups.evaluate(&[0], None)?;
        self.groups = Some(groups);
        self.live_groups = 1;
        Ok(vec![ChangeBatch::insertions(batch_of(&self.schema, columns, 1)?)])
    }
}

/// What differs between the old and the new rows of groups.
fn changes(
    schema: &SchemaRef,
    keys: &[ArrayRef],
    old: &[ArrayRef],
    new: &[ArrayRef],
    was_alive: &[bool],
    is_alive: &[bool],
) -> Result<Vec<ChangeBatch>> {
    let count = was_alive.len();
    let same = rows_equal(old, new, count).map_err(arrow_error)?;
    let pick = |alive: &[bool], other: &[bool]| {
        let positions = (0..count).filter(|i| alive[*i] && !(other[*i] && same.value(*i)));
        UInt32Array::from_iter_values(positions.map(|i| i as u32))
    };
    let rows_at = |values: &[ArrayRef], positions: &UInt32Array| -> Result<RecordBatch> {
        let columns = keys
            .iter()
            .chain(values)
            .map(|column| take(column, positions, None).map_err(arrow_error))
            .collect::<Result<Vec<_>>>()?;
        batch_of(schema, columns, positions.len())
    };
    let mut changes = vec![];
    let retracted = pick(was_alive, is_alive);
    if !retracted.is_empty() {
        let rows = rows_at(old, &retracted)?;
        changes.push(ChangeBatch {
            weights: Some(Int64Array::from(vec![-1; rows.num_rows()])),
            rows,
        });
    }
    let inserted = pick(is_alive, was_alive);
    if !inserted.is_empty() {
        changes.push(ChangeBatch::insertions(rows_at(new, &inserted)?));
    }
    Ok(changes)
}

/// The groups that an epoch touches, each once.
fn touched(ids: &[usize]) -> Vec<usize> {
    let mut seen = HashSet::with_capacity(ids.len());
    ids.iter().copied().filter(|group| seen.insert(*group)).collect()
}

/// Keys, row counts and aggregate states of groups, by group number.
struct Groups {
    keys: GroupKeys,
    /// Rows in each group: the sum of weights.
    rows: Vec<i64>,
    states: Vec<Box<dyn GroupState>>,
}

impl Groups {
    fn new(keys: GroupKeys, calls: &[AggregateCall]) -> Result<Self> {
        Ok(Groups {
            keys,
            rows: vec![],
            states: calls.iter().map(group_state).collect::<Result<_>>()?,
        })
    }

    /// Group numbers of the rows; new groups get empty states.
    fn intern(&mut self, keys: &[ArrayRef], rows: usize) -> Result<Vec<usize>> {
        let ids = self.keys.intern(keys, rows)?;
        resize(&mut self.rows, self.keys.len(), || 0);
        for state in &mut self.states {
            state.resize(self.keys.len());
        }
        Ok(ids)
    }

    fn apply_rows(&mut self, batch: &ChangeBatch, calls: &[AggregateCall]) -> Result<()> {
        let group_columns = self.keys.columns();
        let ids = self.intern(&batch.rows.columns()[..group_columns], batch.num_rows())?;
        let weights = weights_of(batch);
        self.apply(&batch.rows, &ids, weights.values(), calls)
    }

    fn apply(
        &mut self,
        rows: &RecordBatch,
        ids: &[usize],
        weights: &[i64],
        calls: &[AggregateCall],
    ) -> Result<()> {
        for (id, weight) in ids.iter().zip(weights) {
            self.rows[*id] += weight;
        }
        for (state, call) in self.states.iter_mut().zip(calls) {
            match call.filter {
                None => state.apply(ids, rows, weights)?,
                Some(column) => {
                    let condition = rows.column(column).as_boolean();
                    let mask = match condition.nulls() {
                        Some(nulls) => BooleanArray::new(condition.values() & nulls.inner(), None),
                        None => condition.clone(),
                    };
                    let kept: Vec<usize> = mask.values().set_indices().collect();
                    let ids: Vec<usize> = kept.iter().map(|row| ids[*row]).collect();
                    let weights: Vec<i64> = kept.iter().map(|row| weights[*row]).collect();
                    let rows = arrow::compute::filter_record_batch(rows, &mask).map_err(arrow_error)?;
                    state.apply(&ids, &rows, &weights)?;
                }
            }
        }
        Ok(())
    }

    /// Merges partial states: group columns, row count, then each aggregate's state columns.
    fn merge(&mut self, rows: &RecordBatch, ids: &[usize], group_columns: usize) -> Result<()> {
        let counts = rows.column(group_columns).as_primitive::<Int64Type>();
        for (id, count) in ids.iter().zip(counts.values()) {
            self.rows[*id] += count;
        }
        let mut column = group_columns + 1;
        for state in &mut self.states {
            let width = state.partial_columns();
            state.merge(ids, &rows.columns()[column..column + width])?;
            column += width;
        }
        Ok(())
    }

    fn evaluate(&self, groups: &[usize], errors: Option<&ErrorCounter>) -> Result<Vec<ArrayRef>> {
        self.states
            .iter()
            .map(|state| state.evaluate(groups, errors))
            .collect()
    }

    fn reset(&mut self, group: usize) {
        for state in &mut self.states {
            state.reset(group);
        }
    }

    /// Forgets the groups without rows.
    fn sweep(&mut self) -> Result<()> {
        self.keep(|_, rows| rows > 0)
    }

    /// Forgets the groups that are not to be kept, told by their number and their rows.
    fn keep(&mut self, is_kept: impl Fn(usize, i64) -> bool) -> Result<()> {
        let live: Vec<usize> = (0..self.rows.len())
            .filter(|group| is_kept(*group, self.rows[*group]))
            .collect();
        self.keys.retain(&live)?;
        self.rows = live.iter().map(|group| self.rows[*group]).collect();
        for state in &mut self.states {
            state.retain(&live);
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes()
            + self.rows.capacity() * 8
            + self.states.iter().map(|s| s.memory_bytes()).sum::<usize>()
    }
}
