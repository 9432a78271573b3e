//! GROUP BY in two halves.
//!
//! ```text
//!  map stage                                 reduce stage
//!  PartialAggregate: this epoch's rows to    AggregateInstance: merges into keyed state, and for each group that was
//!  one row a group (the combiner)      ==>   touched emits the retraction of its old row and its new row
//! ```
//! While a view is filled nobody sees its rows: groups then are only merged, and emitted once at the end.
//!
//! Both halves use the same [`super::groups`]: an epoch's partial state is a group state that started empty.

mod image;
mod merging;

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Schema, SchemaRef};
use futures::FutureExt;
use futures::future::BoxFuture;
use hashbrown::HashSet;
use millrace_planner::stage::aggregation::{AggregateCall, Aggregation, ExchangeForm};
use millrace_planner::watermark::Watermarks;
use millrace_resource::gate::Gate;
use millrace_state::steps::Steps;
use millrace_state::width::{COPIED_BYTES_MAX, differs_in_size};
use millrace_storage::{ChangeBatch, column_bytes, rows_bytes};

use super::batches::{batch_of, concat, weights_of};
use super::closing::Closer;
use super::expression::ErrorCounter;
use super::group_keys::GroupKeys;
use super::groups::{EMIT_GROUPS_STEP, Groups, SWEEP_GROUPS_MIN, changes};
use super::image::{Part, Parts};
use super::inputs::Inputs;
use super::instance::{Operator, OperatorInstance};
use super::output::{HELD_BYTES_MIN, Output, push_all};
use crate::error::Result;
use merging::Merging;

/// Groups of the first step where their values may be large.
const FIRST_GROUPS: usize = 64;

fn steps_of(schema: &SchemaRef) -> Steps {
    let is_wide = schema
        .fields()
        .iter()
        .any(|field| differs_in_size(field.data_type()));
    let first = if is_wide { FIRST_GROUPS } else { EMIT_GROUPS_STEP };
    Steps::new(first, EMIT_GROUPS_STEP, COPIED_BYTES_MAX)
}

fn columns_bytes(columns: &[ArrayRef]) -> usize {
    columns.iter().map(|column| column_bytes(column)).sum()
}

/// Tells the gate of what is held, unless it is little.
async fn hold(bytes: usize, gate: &dyn Gate) -> Result<()> {
    if bytes > HELD_BYTES_MIN {
        gate.hold(bytes).await?;
    }
    Ok(())
}

/// Batches to be put together, each no larger than copies may be, unless one batch is.
fn pieces(batches: Vec<ChangeBatch>) -> Vec<Vec<ChangeBatch>> {
    let (mut pieces, mut piece, mut bytes) = (vec![], vec![], 0);
    for batch in batches {
        let more = rows_bytes(&batch.rows);
        if bytes + more > COPIED_BYTES_MAX && !piece.is_empty() {
            pieces.push(std::mem::take(&mut piece));
            bytes = 0;
        }
        bytes += more;
        piece.push(batch);
    }
    pieces.push(piece);
    pieces
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
    /// Of how many groups rows are made at a time.
    steps: Steps,
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
}

/// When reducers are told the time.
struct Timer {
    interval: i64,
    /// `None` before the first time.
    next: Option<i64>,
}

impl Operator for AggregateInstance {
    fn run<'a>(
        &'a mut self,
        inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let (is_bulk, is_last) = (epoch.is_bulk, !epoch.has_more);
            let input = &mut inputs[0];
            let batches = if input.is_lazy() {
                let mut merging = Merging::new(self, is_bulk, gate, errors, output);
                input.run(epoch, gate, errors, &mut merging).await?;
                vec![]
            } else {
                input.collect(epoch, gate, errors).await?
            };
            self.advance(batches, is_bulk, is_last, gate, errors, output)
                .await?;
            if is_last {
                push_all(output, self.tell_time(epoch.now, is_bulk, errors)?).await?;
                self.forget(is_bulk, &epoch.watermarks)?;
            }
            Ok(())
        }
        .boxed()
    }

    fn idle_without_input(&self, is_bulk: bool) -> bool {
        is_bulk || (self.emitted_first && !self.is_deferred)
    }

    fn due(&self) -> Option<i64> {
        let timer = self.timer.as_ref().filter(|_| self.live_groups > 0)?;
        Some(timer.next.unwrap_or(i64::MIN))
    }

    fn state_bytes(&self) -> usize {
        self.groups.as_ref().map_or(0, Groups::memory_bytes)
    }

    fn puts_off(&self) -> bool {
        self.is_deferred
    }

    fn put_off(&mut self) {
        self.is_deferred = true;
    }

    fn image(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        self.add_parts(parts)
    }

    fn restore(&mut self, parts: &mut Parts) -> Result<()> {
        self.take_parts(parts)
    }
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
            steps: steps_of(&plan.schema),
            touched: Touched::default(),
            closer: Closer::new(plan.closes.as_ref()),
            timer: plan.timer.map(|interval| Timer {
                interval: interval.max(1),
                next: None,
            }),
        }
    }

    /// Merges an epoch's input, or a part of it. With the last part it emits retractions and new rows of the groups that
    /// the epoch has changed. `is_bulk`: the view is being filled.
    pub async fn advance(
        &mut self,
        batches: Vec<ChangeBatch>,
        is_bulk: bool,
        is_last: bool,
        gate: &dyn Gate,
        errors: &ErrorCounter,
        output: &mut dyn Output,
    ) -> Result<()> {
        if is_bulk {
            return self.gather(batches, gate).await;
        }
        if self.is_deferred {
            self.emit_all(gate, errors, output).await?;
        }
        if !self.emitted_first {
            output.push(self.emit_first()?).await?;
        }
        for input in pieces(batches) {
            if let Some(input) = concat(input)? {
                self.merge(&input, gate).await?;
            }
        }
        if is_last && !self.touched.groups.is_empty() {
            self.emit_touched(gate, errors, output).await?;
        }
        Ok(())
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
        let mut added = &added[..];
        while !added.is_empty() {
            let groups_now = self.steps.next(added.len());
            let old = groups.evaluate(&added[..groups_now], None)?;
            let bytes = columns_bytes(&old);
            self.steps.made(groups_now, bytes.div_ceil(groups_now));
            self.touched.old.push(old);
            added = &added[groups_now..];
            hold(bytes, gate).await?;
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
        // It is taken to stay.
        hold(rows_bytes(&input.rows), gate).await
    }

    /// What the epoch has changed.
    async fn emit_touched(
        &mut self,
        gate: &dyn Gate,
        errors: &ErrorCounter,
        output: &mut dyn Output,
    ) -> Result<()> {
        let mut groups = self.take_groups()?;
        let Touched {
            groups: touched,
            was_alive,
            old: parts,
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
        let mut first = 0;
        for old in parts {
            let end = first + old.first().map_or(touched.len() - first, |column| column.len());
            let part = first..end;
            first = end;
            if part.is_empty() {
                continue;
            }
            let new = groups.evaluate(&touched[part.clone()], Some(errors))?;
            let keys = groups.keys.values(&touched[part.clone()])?;
            let (was_alive, is_alive) = (&was_alive[part.clone()], &is_alive[part]);
            let changes = changes(&self.schema, &keys, &old, &new, was_alive, is_alive)?;
            push_all(output, changes).await?;
            gate.checkpoint().await;
        }
        if groups.keys.len() > SWEEP_GROUPS_MIN && groups.keys.len() > 2 * self.live_groups {
            groups.sweep()?;
        }
        self.groups = Some(groups);
        Ok(())
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
            hold(rows_bytes(&batch.rows), gate).await?;
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
    async fn emit_all(
        &mut self,
        gate: &dyn Gate,
        errors: &ErrorCounter,
        output: &mut dyn Output,
    ) -> Result<()> {
        self.is_deferred = false;
        self.emitted_first = true;
        let mut groups = self.take_groups()?;
        let live: Vec<usize> = (0..groups.rows.len())
            .filter(|group| self.is_alive(&groups, *group))
            .collect();
        self.live_groups = live.len();
        let mut left = &live[..];
        while !left.is_empty() {
            let groups_now = self.steps.next(left.len());
            let (now, later) = left.split_at(groups_now);
            left = later;
            let mut columns = groups.keys.values(now)?;
            columns.extend(groups.evaluate(now, Some(errors))?);
            self.steps
                .made(groups_now, columns_bytes(&columns).div_ceil(groups_now));
            let rows = batch_of(&self.schema, columns, groups_now)?;
            output.push(ChangeBatch::insertions(rows)).await?;
            gate.checkpoint().await;
        }
        if groups.keys.len() > SWEEP_GROUPS_MIN && groups.keys.len() > 2 * self.live_groups {
            groups.sweep()?;
        }
        self.groups = Some(groups);
        Ok(())
    }

    fn is_alive(&self, groups: &Groups, group: usize) -> bool {
        self.group_columns == 0 || groups.rows[group] > 0
    }

    /// The row of an aggregate over nothing.
    fn emit_first(&mut self) -> Result<ChangeBatch> {
        self.emitted_first = true;
        let mut groups = Groups::new(GroupKeys::kept(&self.input_schema, 0)?, &self.calls)?;
        groups.intern(&[], 1)?;
        let columns = groups.evaluate(&[0], None)?;
        self.groups = Some(groups);
        self.live_groups = 1;
        Ok(ChangeBatch::insertions(batch_of(&self.schema, columns, 1)?))
    }
}
