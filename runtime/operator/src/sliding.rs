//! Aggregates over overlapping windows, put together from panes.
//!
//! ```text
//!  partial states by (key, pane) --> panes of each key, in order of time --> the windows that a changed pane is in
//!                                                                       `--> the windows that have become final, once
//! ```
//! Only panes are kept. What a window showed before a change is told by its panes too, before they change; that it is told in
//! the same bits is why floating-point panes are added in their order there, and taken away only where a window is emitted
//! once.

mod image;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, SchemaRef, TimestampMicrosecondType};
use arrow::row::{RowConverter, SortField};
use datafusion::common::ScalarValue;
use futures::FutureExt;
use futures::future::BoxFuture;
use hashbrown::HashMap;
use millrace_planner::stage::aggregation::{AggregateCall, ExchangeForm};
use millrace_planner::stage::sliding::{Sliding, WindowColumn};
use millrace_planner::watermark::{Bound, Watermarks};
use millrace_resource::gate::Gate;
use millrace_storage::ChangeBatch;

use super::batches::{batch_of, chunks, concat, filter_changes, weights_of};
use super::expression::ErrorCounter;
use super::group_keys::GroupKeys;
use super::groups::{EMIT_GROUPS_STEP, Groups, SWEEP_GROUPS_MIN, changes, slide, touched};
use super::image::{Part, Parts};
use super::inputs::Inputs;
use super::instance::{Operator, OperatorInstance};
use super::output::{Output, push_all};
use crate::error::{OperatorError, Result};

type Bytes = Box<[u8]>;
/// Windows by key: where they begin, in order.
type Windows = BTreeMap<Bytes, Vec<i64>>;

/// See the module.
pub struct SlidingInstance {
    group_columns: usize,
    calls: Vec<AggregateCall>,
    exchange: ExchangeForm,
    input_schema: SchemaRef,
    schema: SchemaRef,
    windows: Vec<WindowColumn>,
    slide: i64,
    size: i64,
    offset: i64,
    once: bool,
    closes: Option<(i64, Bound)>,
    /// Group columns that do not tell of the window.
    key_columns: Vec<usize>,
    converter: RowConverter,
    /// By key and pane; the columns of windows all hold the pane.
    groups: Groups,
    /// The numbers of the groups of each key, by pane.
    panes: HashMap<Bytes, BTreeMap<i64, usize>>,
    /// Windows are still to be emitted that came while the view was filled.
    is_deferred: bool,
    /// The last window that is final: it and those before it are emitted, or forgotten.
    last_closed: Option<i64>,
    /// Groups that were left when it was last looked for those that nobody needs.
    kept: usize,
}

/// The values of windows, before or after a change.
struct Values {
    columns: Vec<ArrayRef>,
    is_alive: Vec<bool>,
}

impl Operator for SlidingInstance {
    fn run<'a>(
        &'a mut self,
        inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let batches = inputs[0].collect(epoch, gate, errors).await?;
            let (is_bulk, watermarks) = (epoch.is_bulk, &epoch.watermarks);
            let changes = self.advance(batches, is_bulk, watermarks, gate, errors).await?;
            push_all(output, changes).await
        }
        .boxed()
    }

    fn idle_without_input(&self, is_bulk: bool) -> bool {
        is_bulk || !self.is_deferred
    }

    /// Whether windows become final under these watermarks, and are to be emitted.
    fn is_closed(&self, watermarks: &Watermarks) -> bool {
        self.once
            && !self.panes.is_empty()
            && !matches!(self.closed(watermarks), Ok(last) if last <= self.last_closed)
    }

    fn state_bytes(&self) -> usize {
        let index = |(key, panes): (&Bytes, &BTreeMap<i64, usize>)| key.len() + 48 + panes.len() * 24;
        self.groups.memory_bytes() + self.panes.iter().map(index).sum::<usize>()
    }

    fn can_leave(&self) -> bool {
        // Watermarks let rows of it go.
        false
    }

    fn image(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        self.add_parts(parts)
    }

    fn restore(&mut self, parts: &mut Parts) -> Result<()> {
        self.take_parts(parts)
    }
}

impl SlidingInstance {
    pub fn new(plan: &Sliding) -> Result<Self> {
        let aggregation = &plan.aggregation;
        let input_schema = Arc::clone(aggregation.input.schema());
        let group_columns = aggregation.group_columns;
        let is_window = |column: &usize| plan.windows.iter().any(|window| window.column == *column);
        let key_columns: Vec<usize> = (0..group_columns).filter(|column| !is_window(column)).collect();
        let fields = key_columns
            .iter()
            .map(|column| SortField::new(input_schema.field(*column).data_type().clone()));
        Ok(SlidingInstance {
            group_columns,
            calls: aggregation.calls.clone(),
            exchange: aggregation.exchange,
            schema: Arc::clone(&aggregation.schema),
            windows: plan.windows.clone(),
            slide: plan.slide,
            size: plan.size,
            offset: plan.offset,
            once: plan.once,
            closes: plan.closes.clone(),
            converter: RowConverter::new(fields.collect())?,
            key_columns,
            groups: Groups::new(GroupKeys::kept(&input_schema, group_columns)?, &aggregation.calls)?,
            input_schema,
            panes: HashMap::new(),
            is_deferred: false,
            last_closed: None,
            kept: 0,
        })
    }

    /// Takes in an epoch's panes and returns what changes. `is_bulk`: the view is being filled.
    pub async fn advance(
        &mut self,
        batches: Vec<ChangeBatch>,
        is_bulk: bool,
        watermarks: &Watermarks,
        gate: &dyn Gate,
        errors: &ErrorCounter,
    ) -> Result<Vec<ChangeBatch>> {
        let mut output = vec![];
        if self.is_deferred && !is_bulk {
            self.is_deferred = false;
            if !self.once {
                let all = self.windows_between(None, None);
                self.put_out(all, gate, errors, &mut output).await?;
            }
        }
        if is_bulk {
            let mut changed = vec![];
            for batch in batches.iter().flat_map(chunks) {
                self.is_deferred = true;
                let ids = self.intern(&batch)?;
                self.merge(&batch, &ids)?;
                changed.extend(ids);
                gate.checkpoint().await;
            }
            // Not before: one that is empty may be filled by a later batch.
            self.reset(&changed);
            return Ok(output);
        }
        if let Some(input) = concat(batches)? {
            let ids = self.intern(&input)?;
            if self.once {
                self.merge(&input, &ids)?;
                self.reset(&ids);
            } else {
                self.change(&input, &ids, gate, errors, &mut output).await?;
            }
        }
        gate.checkpoint().await;
        let last = self.closed(watermarks)?;
        if last > self.last_closed {
            if self.once {
                let closed = self.windows_between(self.last_closed, last);
                self.put_out(closed, gate, errors, &mut output).await?;
            }
            self.last_closed = last;
        }
        self.forget()?;
        Ok(output)
    }

    /// What changes in the windows of the panes that change.
    async fn change(
        &mut self,
        input: &ChangeBatch,
        ids: &[usize],
        gate: &dyn Gate,
        errors: &ErrorCounter,
        output: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let changed = touched(ids);
        let touched = self.touched(&changed)?;
        let before = self.values(&touched, None)?;
        gate.checkpoint().await;
        self.merge(input, ids)?;
        self.reset(&changed);
        let after = self.values(&touched, Some(errors))?;
        let keys = self.keys(&touched)?;
        output.extend(changes(
            &self.schema,
            &keys,
            &before.columns,
            &after.columns,
            &before.is_alive,
            &after.is_alive,
        )?);
        Ok(())
    }

    /// The numbers of the groups of the rows, which are known by key and pane from here on.
    fn intern(&mut self, batch: &ChangeBatch) -> Result<Vec<usize>> {
        let known = self.groups.rows.len();
        let ids = self
            .groups
            .intern(&batch.rows.columns()[..self.group_columns], batch.num_rows())?;
        if self.groups.rows.len() > known {
            let new: Vec<usize> = (known..self.groups.rows.len()).collect();
            self.index(&new)?;
        }
        Ok(ids)
    }

    /// Puts groups into the order of their keys' panes.
    fn index(&mut self, groups: &[usize]) -> Result<()> {
        let keys = self.groups.keys.values(groups)?;
        let (bytes, panes) = (self.key_bytes(&keys, groups.len())?, self.panes_of(&keys)?);
        for ((bytes, pane), group) in bytes.into_iter().zip(panes).zip(groups) {
            self.panes.entry(bytes).or_default().insert(pane, *group);
        }
        Ok(())
    }

    fn merge(&mut self, input: &ChangeBatch, ids: &[usize]) -> Result<()> {
        match self.exchange {
            ExchangeForm::Partial => self.groups.merge(&input.rows, ids, self.group_columns),
            ExchangeForm::Rows => {
                let weights = weights_of(input);
                self.groups.apply(&input.rows, ids, weights.values(), &self.calls)
            }
        }
    }

    /// Leaves nothing of the panes that have no rows: rounding errors of sums would stay.
    fn reset(&mut self, groups: &[usize]) {
        for group in groups {
            if self.groups.rows[*group] == 0 {
                self.groups.reset(*group);
            }
        }
    }

    fn key_bytes(&self, columns: &[ArrayRef], rows: usize) -> Result<Vec<Bytes>> {
        if self.key_columns.is_empty() {
            return Ok(vec![Bytes::default(); rows]);
        }
        let keys: Vec<ArrayRef> = self
            .key_columns
            .iter()
            .map(|column| Arc::clone(&columns[*column]))
            .collect();
        let rows = self.converter.convert_columns(&keys)?;
        Ok(rows.iter().map(|row| row.data().into()).collect())
    }

    fn panes_of(&self, columns: &[ArrayRef]) -> Result<Vec<i64>> {
        let panes = &columns[self.windows[0].column];
        let panes = panes
            .as_primitive_opt::<TimestampMicrosecondType>()
            .ok_or_else(|| OperatorError::Internal("a pane is told by a time in microseconds".into()))?;
        Ok(panes.values().to_vec())
    }

    /// The last window that begins at this time or before.
    fn last_window(&self, time: i64) -> i64 {
        time.saturating_sub(self.offset)
            .div_euclid(self.slide)
            .saturating_mul(self.slide)
            .saturating_add(self.offset)
    }

    /// The first window that ends after this time.
    fn first_window(&self, time: i64) -> i64 {
        self.last_window(time.saturating_sub(self.size))
            .saturating_add(self.slide)
    }

    fn step(&self) -> usize {
        usize::try_from(self.slide).unwrap_or(usize::MAX)
    }

    /// The windows of the panes of these groups.
    fn touched(&self, groups: &[usize]) -> Result<Windows> {
        let columns = self.groups.keys.values(groups)?;
        let (keys, panes) = (self.key_bytes(&columns, groups.len())?, self.panes_of(&columns)?);
        let mut by_key: BTreeMap<Bytes, BTreeSet<i64>> = BTreeMap::new();
        for (key, pane) in keys.into_iter().zip(panes) {
            by_key.entry(key).or_default().insert(pane);
        }
        let windows = by_key.into_iter().map(|(key, panes)| {
            let windows = self.windows_of(panes.into_iter(), i64::MIN, i64::MAX);
            (key, windows)
        });
        Ok(windows.collect())
    }

    /// The windows from one on and up to another that these panes are in, which come in order.
    fn windows_of(&self, panes: impl Iterator<Item = i64>, from: i64, up_to: i64) -> Vec<i64> {
        let (mut windows, mut next) = (vec![], from);
        for pane in panes {
            let (first, last) = (
                self.first_window(pane).max(next),
                self.last_window(pane).min(up_to),
            );
            if first <= last {
                windows.extend((first..=last).step_by(self.step()));
                next = last.saturating_add(self.slide);
            }
        }
        windows
    }

    /// The windows that there are after one and up to another.
    fn windows_between(&self, after: Option<i64>, up_to: Option<i64>) -> Windows {
        let from = after.map_or(i64::MIN, |after| after.saturating_add(self.slide));
        let up_to = up_to.unwrap_or(i64::MAX);
        // Only these panes are in windows between the two.
        let between = from..=up_to.saturating_add(self.size);
        let mut found = Windows::new();
        for (key, panes) in &self.panes {
            let panes = panes.range(between.clone()).map(|(pane, _)| *pane);
            let windows = self.windows_of(panes, from, up_to);
            if !windows.is_empty() {
                found.insert(key.clone(), windows);
            }
        }
        found
    }

    /// Puts out the values of windows, none of which was seen yet.
    async fn put_out(
        &mut self,
        windows: Windows,
        gate: &dyn Gate,
        errors: &ErrorCounter,
        output: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let mut piece = Windows::new();
        let mut size = 0;
        let mut left = windows.into_iter().peekable();
        while let Some((key, of_key)) = left.next() {
            size += of_key.len();
            piece.insert(key, of_key);
            if size < EMIT_GROUPS_STEP && left.peek().is_some() {
                continue;
            }
            let values = self.values(&piece, Some(errors))?;
            let columns = self.keys(&piece)?.into_iter().chain(values.columns).collect();
            let rows = ChangeBatch::insertions(batch_of(&self.schema, columns, size)?);
            output.push(filter_changes(&rows, &BooleanArray::from(values.is_alive))?);
            piece.clear();
            size = 0;
            gate.checkpoint().await;
        }
        Ok(())
    }

    /// The values of windows as their panes are now.
    fn values(&mut self, windows: &Windows, errors: Option<&ErrorCounter>) -> Result<Values> {
        let (panes, ranges) = self.ranges(windows);
        let rows: Vec<i64> = slide(
            &ranges,
            |sum, pane| *sum += self.groups.rows[panes[pane]],
            |sum, pane| *sum -= self.groups.rows[panes[pane]],
        );
        let states = self.groups.states.iter_mut();
        let columns = states.map(|state| state.windows(&panes, &ranges, self.once, errors));
        Ok(Values {
            columns: columns.collect::<Result<_>>()?,
            is_alive: rows.into_iter().map(|rows| rows > 0).collect(),
        })
    }

    /// The groups of the panes of windows, and which of them are in each window.
    fn ranges(&self, windows: &Windows) -> (Vec<usize>, Vec<Range<usize>>) {
        let mut groups = vec![];
        let mut ranges = vec![];
        for (key, windows) in windows {
            let Some(panes) = self.panes.get(key) else {
                ranges.extend(windows.iter().map(|_| groups.len()..groups.len()));
                continue;
            };
            // Those that are in `groups` from `base` on, each with its time.
            let (base, mut times, mut begin) = (groups.len(), vec![], 0);
            let mut seen = i64::MIN;
            for window in windows {
                let end = window.saturating_add(self.size);
                for (time, group) in panes.range(seen.max(*window)..end.max(seen.max(*window))) {
                    times.push(*time);
                    groups.push(*group);
                }
                seen = seen.max(end);
                while times.get(begin).is_some_and(|time| time < window) {
                    begin += 1;
                }
                ranges.push(base + begin..groups.len());
            }
        }
        (groups, ranges)
    }

    /// The group columns of windows.
    fn keys(&self, windows: &Windows) -> Result<Vec<ArrayRef>> {
        let starts: Vec<i64> = windows.values().flatten().copied().collect();
        let parser = self.converter.parser();
        let rows = windows
            .iter()
            .flat_map(|(key, windows)| windows.iter().map(|_| parser.parse(key)));
        let keys = match self.key_columns.is_empty() {
            true => vec![],
            false => self.converter.convert_rows(rows)?,
        };
        let mut keys = keys.into_iter();
        (0..self.group_columns)
            .map(
                |column| match self.windows.iter().find(|window| window.column == column) {
                    Some(window) => {
                        let times = starts.iter().map(|start| start.saturating_add(window.shift));
                        let times = TimestampMicrosecondArray::from_iter_values(times);
                        let data_type = self.input_schema.field(column).data_type().clone();
                        Ok(Arc::new(times.with_data_type(data_type)) as ArrayRef)
                    }
                    None => keys
                        .next()
                        .ok_or_else(|| OperatorError::Internal("a key has too few columns".into())),
                },
            )
            .collect()
    }

    /// The last window that is final.
    fn closed(&self, watermarks: &Watermarks) -> Result<Option<i64>> {
        let Some((shift, bound)) = &self.closes else {
            return Ok(None);
        };
        let Some(bound) = bound.value(watermarks)? else {
            return Ok(None);
        };
        match bound.cast_to(&DataType::Int64)? {
            // Below the bound, not at it.
            ScalarValue::Int64(Some(bound)) => Ok(Some(
                self.last_window(bound.saturating_sub(*shift).saturating_sub(1)),
            )),
            _ => Ok(None),
        }
    }

    /// Forgets panes that only final windows need, and those without rows, when there are many.
    fn forget(&mut self) -> Result<()> {
        let many = self.groups.rows.len();
        if many < SWEEP_GROUPS_MIN || many < 2 * self.kept {
            return Ok(());
        }
        let all: Vec<usize> = (0..many).collect();
        let panes = self.panes_of(&self.groups.keys.values(&all)?)?;
        let last_closed = self.last_closed;
        let is_needed = |pane: i64| last_closed.is_none_or(|last| self.last_window(pane) > last);
        let needed: Vec<bool> = panes.into_iter().map(is_needed).collect();
        self.groups.keep(|group, rows| rows != 0 && needed[group])?;
        self.kept = self.groups.rows.len();
        self.panes.clear();
        let left: Vec<usize> = (0..self.kept).collect();
        self.index(&left)
    }
}
