//! The temporal filter: rows enter and leave as time goes by.
//!
//! ```text
//!          insert                 moment to enter            moment to leave
//!  row  ----------> pending  ------------------> present ------------------> gone
//!            \                                      ^
//!             `-- entered already ------------------'         (left already: never kept)
//! ```
//! Both sets are ordered by the moment at which their rows go on, so that an epoch costs what changes in it. A row's
//! moments are functions of the row: a retraction finds its row under the same moment.

mod image;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, Scalar, TimestampMicrosecondArray, UInt32Array,
};
use arrow::compute::kernels::cmp::{gt, gt_eq};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::row::{RowConverter, SortField};
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::stage::temporal_filter::{Passage, TemporalFilter, TimeBound};
use millrace_resource::gate::Gate;
use millrace_schedule::cpu::CHUNK_ROWS;
use millrace_storage::ChangeBatch;

use super::batches::{batch_of, chunks, weights_of};
use super::expression::{ErrorCounter, evaluate};
use super::image::{Part, Parts};
use super::inputs::Inputs;
use super::instance::{Operator, OperatorInstance};
use super::output::{Output, push_all};
use crate::error::{OperatorError, Result};

/// The moment that never comes.
const NEVER: i64 = i64::MAX;
/// Moments are looked for up to 2250-01-01: up to there nanoseconds are counted too.
const HORIZON: i64 = 8_835_955_200_000_000;
/// What a kept row takes beside its bytes.
const ENTRY_BYTES: usize = 48;

/// Rows, as comparable bytes, by the moment at which they go on.
type ByMoment<T> = BTreeMap<(i64, Box<[u8]>), T>;

/// See the module.
pub struct TemporalInstance {
    bounds: Vec<TimeBound>,
    schema: SchemaRef,
    converter: RowConverter,
    /// Rows that have not entered, each with how often it is there and the moment at which it leaves.
    pending: ByMoment<(i64, i64)>,
    /// Rows that have entered and will leave.
    present: ByMoment<i64>,
    bytes: usize,
}

/// When a row enters, if it is not there yet, and when it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stay {
    enters: Option<i64>,
    leaves: i64,
}

impl Operator for TemporalInstance {
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
            let changes = self.advance(batches, epoch.now, gate, errors).await?;
            push_all(output, changes).await
        }
        .boxed()
    }

    /// When the next row enters or leaves.
    fn due(&self) -> Option<i64> {
        let moments = [
            self.pending.first_key_value().map(|(key, _)| key.0),
            self.present.first_key_value().map(|(key, _)| key.0),
        ];
        moments.into_iter().flatten().min()
    }

    fn state_bytes(&self) -> usize {
        self.bytes
    }

    fn image(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        self.add_parts(parts);
        Ok(())
    }

    fn restore(&mut self, parts: &mut Parts) -> Result<()> {
        self.take_parts(parts)
    }
}

impl TemporalInstance {
    pub fn new(plan: &TemporalFilter) -> Result<Self> {
        let fields = plan.schema.fields().iter();
        let fields = fields
            .map(|field| SortField::new(field.data_type().clone()))
            .collect();
        Ok(TemporalInstance {
            bounds: plan.bounds.clone(),
            schema: Arc::clone(&plan.schema),
            converter: RowConverter::new(fields)?,
            pending: BTreeMap::new(),
            present: BTreeMap::new(),
            bytes: 0,
        })
    }

    /// Puts out what enters and leaves by `now`, and of what changed the rows whose time is now.
    pub async fn advance(
        &mut self,
        batches: Vec<ChangeBatch>,
        now: i64,
        gate: &dyn Gate,
        errors: &ErrorCounter,
    ) -> Result<Vec<ChangeBatch>> {
        let mut output = vec![];
        self.go_on(now, &mut output, gate).await?;
        for batch in batches {
            for chunk in chunks(&batch) {
                self.apply(&chunk, now, &mut output, errors)?;
                gate.checkpoint().await;
            }
        }
        Ok(output)
    }

    /// Moves on the rows whose moment has come.
    async fn go_on(&mut self, now: i64, output: &mut Vec<ChangeBatch>, gate: &dyn Gate) -> Result<()> {
        let mut changes: Vec<(Box<[u8]>, i64)> = vec![];
        loop {
            if changes.len() >= CHUNK_ROWS {
                self.emit(&mut changes, output)?;
                gate.checkpoint().await;
            }
            if let Some(entry) = self.pending.first_entry().filter(|entry| entry.key().0 <= now) {
                let ((_, row), (count, leaves)) = entry.remove_entry();
                self.bytes -= row.len() + ENTRY_BYTES;
                if leaves > now {
                    if leaves < NEVER {
                        add(&mut self.present, &mut self.bytes, leaves, row.clone(), count);
                    }
                    changes.push((row, count));
                }
            } else if let Some(entry) = self.present.first_entry().filter(|entry| entry.key().0 <= now) {
                let ((_, row), count) = entry.remove_entry();
                self.bytes -= row.len() + ENTRY_BYTES;
                changes.push((row, -count));
            } else {
                break;
            }
        }
        self.emit(&mut changes, output)
    }

    fn emit(&self, changes: &mut Vec<(Box<[u8]>, i64)>, output: &mut Vec<ChangeBatch>) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let parser = self.converter.parser();
        let columns = self
            .converter
            .convert_rows(changes.iter().map(|(row, _)| parser.parse(row)))?;
        output.push(ChangeBatch {
            rows: batch_of(&self.schema, columns, changes.len())?,
            weights: Some(Int64Array::from_iter_values(
                changes.iter().map(|(_, count)| *count),
            )),
        });
        changes.clear();
        Ok(())
    }

    fn apply(
        &mut self,
        batch: &ChangeBatch,
        now: i64,
        output: &mut Vec<ChangeBatch>,
        errors: &ErrorCounter,
    ) -> Result<()> {
        let stays = self.stays(&batch.rows, now, errors)?;
        let positions = |wanted: &dyn Fn(&Stay) -> bool| -> Vec<u32> {
            let stays = stays.iter().enumerate();
            let wanted = stays.filter(|(_, stay)| stay.as_ref().is_some_and(wanted));
            wanted.map(|(row, _)| row as u32).collect()
        };
        let visible = positions(&|stay| stay.enters.is_none());
        let kept = positions(&|stay| stay.enters.is_some() || stay.leaves < NEVER);
        if !kept.is_empty() {
            let taken = UInt32Array::from(kept.clone());
            let columns = batch
                .rows
                .columns()
                .iter()
                .map(|column| take(column, &taken, None));
            let columns = columns.collect::<Result<Vec<ArrayRef>, _>>()?;
            let rows = self.converter.convert_columns(&columns)?;
            for (row, position) in rows.iter().zip(kept) {
                let Some(stay) = stays[position as usize] else {
                    continue;
                };
                let (row, weight) = (row.data().into(), batch.weight(position as usize));
                match stay.enters {
                    Some(enters) => {
                        let value = (enters, row, weight, stay.leaves);
                        add_pending(&mut self.pending, &mut self.bytes, value);
                    }
                    None => add(&mut self.present, &mut self.bytes, stay.leaves, row, weight),
                }
            }
        }
        if visible.len() == batch.num_rows() {
            output.push(batch.clone());
        } else if !visible.is_empty() {
            let visible = UInt32Array::from(visible);
            let weights = take(&weights_of(batch), &visible, None)?;
            output.push(ChangeBatch {
                rows: arrow::compute::take_record_batch(&batch.rows, &visible)?,
                weights: batch
                    .weights
                    .is_some()
                    .then(|| Int64Array::from(weights.to_data())),
            });
        }
        Ok(())
    }

    /// When each row is there; `None`: not any more, or never.
    fn stays(&self, rows: &RecordBatch, now: i64, errors: &ErrorCounter) -> Result<Vec<Option<Stay>>> {
        let always = Stay {
            enters: None,
            leaves: NEVER,
        };
        let mut stays = vec![Some(always); rows.num_rows()];
        for bound in &self.bounds {
            let clock = ClockOf::new(bound)?;
            let values = evaluate(&bound.value, rows, &clock.data_type, errors)?;
            let moments = clock.moments(&values, now)?;
            for (row, moment) in moments.into_iter().enumerate() {
                let Some(stay) = stays[row] else { continue };
                stays[row] = match (bound.passage, moment) {
                    (_, Moment::Unknown) | (Passage::Leaves, Moment::Past) => None,
                    (Passage::Leaves, Moment::At(time)) => Some(Stay {
                        leaves: stay.leaves.min(time),
                        ..stay
                    }),
                    (Passage::Enters, Moment::At(NEVER)) => None,
                    (Passage::Enters, Moment::At(time)) => Some(Stay {
                        enters: stay.enters.max(Some(time)),
                        ..stay
                    }),
                    (Passage::Enters, Moment::Past) => Some(stay),
                };
            }
        }
        for stay in &mut stays {
            // It would leave before it enters.
            *stay = stay.filter(|stay| stay.enters.is_none_or(|enters| enters < stay.leaves));
        }
        Ok(stays)
    }
}

fn add(map: &mut ByMoment<i64>, bytes: &mut usize, moment: i64, row: Box<[u8]>, weight: i64) {
    let size = row.len() + ENTRY_BYTES;
    match map.entry((moment, row)) {
        Entry::Vacant(vacant) => {
            vacant.insert(weight);
            *bytes += size;
        }
        Entry::Occupied(mut occupied) => {
            *occupied.get_mut() += weight;
            if *occupied.get() == 0 {
                occupied.remove();
                *bytes -= size;
            }
        }
    }
}

fn add_pending(
    map: &mut ByMoment<(i64, i64)>,
    bytes: &mut usize,
    (enters, row, weight, leaves): (i64, Box<[u8]>, i64, i64),
) {
    let size = row.len() + ENTRY_BYTES;
    match map.entry((enters, row)) {
        Entry::Vacant(vacant) => {
            vacant.insert((weight, leaves));
            *bytes += size;
        }
        Entry::Occupied(mut occupied) => {
            occupied.get_mut().0 += weight;
            if occupied.get().0 == 0 {
                occupied.remove();
                *bytes -= size;
            }
        }
    }
}

/// When the clock of a bound reaches a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The value is NULL.
    Unknown,
    /// It has.
    Past,
    At(i64),
}

/// A function of the time that never goes back.
struct ClockOf<'a> {
    bound: &'a TimeBound,
    schema: SchemaRef,
    data_type: DataType,
    /// The function is asked about times that may never be: where it fails, it is not reached.
    ignored: ErrorCounter,
}

impl<'a> ClockOf<'a> {
    fn new(bound: &'a TimeBound) -> Result<Self> {
        let now = Field::new(
            "now",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            false,
        );
        let schema = Arc::new(Schema::new(vec![now]));
        Ok(ClockOf {
            bound,
            data_type: bound.clock.data_type(&schema)?,
            schema,
            ignored: ErrorCounter::default(),
        })
    }

    /// The function's values at these times.
    fn at(&self, times: Vec<i64>) -> Result<ArrayRef> {
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC"));
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), vec![times])?;
        evaluate(&self.bound.clock, &rows, &self.data_type, &self.ignored)
    }

    /// Whether the function has reached the values at these times, one for each.
    fn has_reached(&self, times: Vec<i64>, values: &ArrayRef) -> Result<BooleanArray> {
        let clock = self.at(times)?;
        let compare = if self.bound.is_strict { gt } else { gt_eq };
        compare(&clock, values).map_err(OperatorError::from)
    }

    fn moments(&self, values: &ArrayRef, now: i64) -> Result<Vec<Moment>> {
        let shown = Scalar::new(self.at(vec![now])?);
        let compare = if self.bound.is_strict { gt } else { gt_eq };
        let reached = compare(&shown, values)?;
        let mut moments: Vec<Moment> = reached
            .iter()
            .map(|reached| match reached {
                None => Moment::Unknown,
                Some(true) => Moment::Past,
                Some(false) => Moment::At(NEVER),
            })
            .collect();
        let open: Vec<u32> = (0..moments.len() as u32)
            .filter(|row| moments[*row as usize] == Moment::At(NEVER))
            .collect();
        if !open.is_empty() {
            let values = take(values, &UInt32Array::from(open.clone()), None)?;
            for (row, time) in open.iter().zip(self.search(&values, now, shown.into_inner())?) {
                moments[*row as usize] = Moment::At(time);
            }
        }
        Ok(moments)
    }

    /// The first times at which the function reaches values that it has not reached now.
    fn search(&self, values: &ArrayRef, now: i64, shown: ArrayRef) -> Result<Vec<i64>> {
        let rows = values.len();
        // Not reached at `before`, reached at `after`, or not at all.
        let mut before = vec![now; rows];
        let mut after = vec![NEVER; rows];
        // Most functions are the time plus a constant: then the first guess is right.
        if let Some(guesses) = guesses(values, now, &shown, self.bound.is_strict) {
            for (distance, is_after) in [(0, true), (1, false)] {
                let times = guesses.iter().map(|guess| guess - distance).collect();
                let reached = self.has_reached(times, values)?;
                for (row, guess) in guesses.iter().enumerate() {
                    let time = guess - distance;
                    let is_reached = reached.is_valid(row) && reached.value(row);
                    if is_reached && is_after {
                        after[row] = time;
                    } else if !is_reached && !is_after && after[row] < NEVER {
                        before[row] = time;
                    }
                }
            }
        }
        let horizon = self.has_reached(vec![HORIZON.max(now); rows], values)?;
        for (row, after) in after.iter_mut().enumerate() {
            if *after == NEVER && horizon.is_valid(row) && horizon.value(row) {
                *after = HORIZON.max(now);
            }
        }
        loop {
            let open: Vec<u32> = (0..rows as u32)
                .filter(|row| {
                    after[*row as usize] < NEVER && after[*row as usize] - before[*row as usize] > 1
                })
                .collect();
            if open.is_empty() {
                return Ok(after);
            }
            let middle: Vec<i64> = open
                .iter()
                .map(|row| before[*row as usize] + (after[*row as usize] - before[*row as usize]) / 2)
                .collect();
            let asked = take(values, &UInt32Array::from(open.clone()), None)?;
            let reached = self.has_reached(middle.clone(), &asked)?;
            for (position, (row, middle)) in open.iter().zip(middle).enumerate() {
                if reached.is_valid(position) && reached.value(position) {
                    after[*row as usize] = middle;
                } else {
                    before[*row as usize] = middle;
                }
            }
        }
    }
}

/// The times at which the clock would reach the values if it kept its distance from now; `None` where that means nothing.
fn guesses(values: &ArrayRef, now: i64, shown: &ArrayRef, is_strict: bool) -> Option<Vec<i64>> {
    if !matches!(values.data_type(), DataType::Timestamp(..)) {
        return None;
    }
    let micros = |array: &ArrayRef| -> Option<Int64Array> {
        let unit = match array.data_type() {
            DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
            _ => return None,
        };
        let numbers = cast(&cast(array, &unit).ok()?, &DataType::Int64).ok()?;
        Some(Int64Array::from(numbers.to_data()))
    };
    let (values, shown) = (micros(values)?, micros(shown)?);
    if shown.is_null(0) {
        return None;
    }
    let distance = now.checked_sub(shown.value(0))?;
    let guess = |value: i64| {
        let guess = value
            .saturating_add(distance)
            .saturating_add(i64::from(is_strict));
        guess.clamp(now + 1, HORIZON.max(now + 1))
    };
    Some(values.values().iter().map(|value| guess(*value)).collect())
}
