//! Sessions: each row with the first and the last moment of its session.
//!
//! The rows of a key are kept in the order of their times. A change looks at the session that it falls into, and at those that
//! it joins or parts: from its time to either side, until a gap is longer than the session's. So it costs what these sessions
//! hold, and not what the key has ever had.
//!
//! ```text
//!  key a:   x x x .... x x ........ x      a row between the first two sessions makes them one: their rows are emitted again
//! ```

mod image;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, TimestampMicrosecondArray};
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion::common::ScalarValue;
use futures::FutureExt;
use futures::future::BoxFuture;
use hashbrown::HashMap;
use millrace_planner::stage::session::Session;
use millrace_planner::watermark::{Bound, Watermarks};
use millrace_resource::gate::Gate;
use millrace_schedule::cpu::CHUNK_ROWS;
use millrace_storage::ChangeBatch;

use super::batches::{batch_of, chunks, nullable};
use super::expression::ErrorCounter;
use super::image::{Part, Parts};
use super::inputs::Inputs;
use super::instance::{Operator, OperatorInstance};
use super::output::{Output, push_all};
use crate::error::{OperatorError, Result};

/// What a kept row takes beside its bytes.
const ENTRY_BYTES: usize = 56;
/// Sessions that are final are looked for when there are so many rows at least.
const SWEEP_ROWS_MIN: usize = 1_024;

/// Bytes that compare as the rows do.
type Bytes = Box<[u8]>;

/// The rows of one key by their times, each with how often it is there.
type Rows = BTreeMap<(i64, Bytes), i64>;

/// Rows with the session that they are in: what is emitted.
type Told = HashMap<(Bytes, i64, i64), i64>;

/// See the module.
pub struct SessionInstance {
    keys: Vec<usize>,
    time: usize,
    gap: i64,
    width: usize,
    schema: SchemaRef,
    key_converter: RowConverter,
    row_converter: RowConverter,
    state: HashMap<Bytes, Rows>,
    rows: usize,
    bytes: usize,
    closes: Option<Bound>,
    /// Rows that were left when final sessions were last forgotten.
    kept: usize,
}

impl Operator for SessionInstance {
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
            let changes = self.advance(batches, gate).await?;
            if !epoch.is_bulk {
                self.forget(&epoch.watermarks)?;
            }
            push_all(output, changes).await
        }
        .boxed()
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

impl SessionInstance {
    /// Sessions of no rows.
    ///
    /// # Errors
    /// A column's type has no order.
    pub fn new(plan: &Session) -> Result<Self> {
        let input = plan.input.schema();
        let field = |column: usize| SortField::new(input.field(column).data_type().clone());
        let converter = |fields: Vec<SortField>| RowConverter::new(fields).map_err(OperatorError::from);
        Ok(SessionInstance {
            keys: plan.keys.clone(),
            time: plan.time,
            gap: plan.gap,
            width: plan.width,
            schema: nullable(&plan.schema),
            key_converter: converter(plan.keys.iter().map(|column| field(*column)).collect())?,
            row_converter: converter((0..plan.width).map(field).collect())?,
            state: HashMap::new(),
            rows: 0,
            bytes: 0,
            closes: plan.closes.clone(),
            kept: 0,
        })
    }

    /// Applies what changed and emits how the rows' sessions differ.
    pub async fn advance(&mut self, batches: Vec<ChangeBatch>, gate: &dyn Gate) -> Result<Vec<ChangeBatch>> {
        let mut changes: HashMap<Bytes, Rows> = HashMap::new();
        for batch in &batches {
            for chunk in chunks(batch) {
                self.gather(&chunk, &mut changes)?;
                gate.checkpoint().await;
            }
        }
        let mut output = Told::new();
        let mut batches = vec![];
        for (key, changes) in changes {
            self.change(key, changes, &mut output);
            if output.len() >= CHUNK_ROWS {
                batches.extend(self.emit(&mut output)?);
                gate.checkpoint().await;
            }
        }
        batches.extend(self.emit(&mut output)?);
        Ok(batches)
    }

    /// The changes by key and time. A row without a time is in no session.
    fn gather(&self, batch: &ChangeBatch, changes: &mut HashMap<Bytes, Rows>) -> Result<()> {
        let columns = |of: &mut dyn Iterator<Item = usize>| -> Vec<ArrayRef> {
            of.map(|column| Arc::clone(batch.rows.column(column))).collect()
        };
        let keys = match self.keys.is_empty() {
            true => None,
            false => Some(
                self.key_converter
                    .convert_columns(&columns(&mut self.keys.iter().copied()))?,
            ),
        };
        let rows = self
            .row_converter
            .convert_columns(&columns(&mut (0..self.width)))?;
        let times = micros(batch.rows.column(self.time))?;
        for (row, bytes) in rows.iter().enumerate() {
            if times.is_null(row) {
                continue;
            }
            let key: Bytes = keys
                .as_ref()
                .map_or_else(Bytes::default, |keys| keys.row(row).data().into());
            let of_key = changes.entry(key).or_default();
            *of_key.entry((times.value(row), bytes.data().into())).or_default() += batch.weight(row);
        }
        Ok(())
    }

    /// Applies the changes of one key.
    fn change(&mut self, key: Bytes, changes: Rows, output: &mut Told) {
        let rows = self.state.entry(key.clone()).or_insert_with_key(|key| {
            self.bytes += key.len() + ENTRY_BYTES;
            Rows::new()
        });
        // What can have another session afterwards, as stretches of time.
        let mut stretches: Vec<(i64, i64)> = vec![];
        for (time, _) in changes.keys() {
            let reached = match stretches.last_mut() {
                Some(last) if time.saturating_sub(self.gap) <= last.1 => {
                    last.1 = last.1.max(*time);
                    last
                }
                _ => {
                    let first = reach_back(rows, *time, self.gap);
                    stretches.push((first, *time));
                    let Some(last) = stretches.last_mut() else {
                        continue;
                    };
                    last
                }
            };
            reached.1 = reach_on(rows, reached.1, self.gap);
        }
        for stretch in &stretches {
            tell(rows, *stretch, self.gap, -1, output);
        }
        for ((time, row), weight) in changes {
            let size = row.len() + ENTRY_BYTES;
            let is_new = !rows.contains_key(&(time, row.clone()));
            let held = rows.entry((time, row)).or_default();
            *held += weight;
            let is_gone = *held == 0;
            if is_new {
                self.rows += 1;
                self.bytes += size;
            }
            if is_gone {
                self.rows -= 1;
                self.bytes -= size;
            }
        }
        for (first, last) in &stretches {
            let gone: Vec<(i64, Bytes)> = range(rows, (*first, *last))
                .filter(|(_, weight)| **weight == 0)
                .map(|(row, _)| row.clone())
                .collect();
            for row in gone {
                rows.remove(&row);
            }
        }
        for stretch in stretches {
            tell(rows, stretch, self.gap, 1, output);
        }
        if rows.is_empty() {
            self.bytes -= key.len() + ENTRY_BYTES;
            self.state.remove(&key);
        }
    }

    fn emit(&self, output: &mut Told) -> Result<Option<ChangeBatch>> {
        output.retain(|_, weight| *weight != 0);
        if output.is_empty() {
            return Ok(None);
        }
        let mut told: Vec<((Bytes, i64, i64), i64)> = output.drain().collect();
        told.sort_unstable();
        let parser = self.row_converter.parser();
        let mut columns = self
            .row_converter
            .convert_rows(told.iter().map(|((row, ..), _)| parser.parse(row)))?;
        for (position, moments) in [
            told.iter().map(|((_, start, _), _)| *start).collect::<Vec<i64>>(),
            told.iter().map(|((_, _, end), _)| *end).collect(),
        ]
        .into_iter()
        .enumerate()
        {
            let moments = TimestampMicrosecondArray::from(moments);
            let data_type = self.schema.field(self.width + position).data_type();
            columns.push(Arc::new(moments.with_data_type(data_type.clone())));
        }
        let weights: Int64Array = told.iter().map(|(_, weight)| *weight).collect::<Vec<_>>().into();
        Ok(Some(ChangeBatch {
            rows: batch_of(&self.schema, columns, told.len())?,
            weights: Some(weights),
        }))
    }

    /// Forgets the sessions to which no row can come any more.
    pub fn forget(&mut self, watermarks: &Watermarks) -> Result<()> {
        if self.rows < SWEEP_ROWS_MIN || self.rows < 2 * self.kept {
            return Ok(());
        }
        let Some(bound) = &self.closes else { return Ok(()) };
        let Some(bound) = bound.value(watermarks)? else {
            return Ok(());
        };
        let bound = moment(&bound)?;
        let (gap, mut forgotten, mut bytes) = (self.gap, 0, 0);
        self.state.retain(|key, rows| {
            while let Some(((first, _), _)) = rows.first_key_value() {
                let last = reach_on(rows, *first, gap);
                if last.saturating_add(gap) >= bound {
                    break;
                }
                let open = rows.split_off(&(last.saturating_add(1), Bytes::default()));
                let closed = std::mem::replace(rows, open);
                forgotten += closed.len();
                bytes += closed
                    .keys()
                    .map(|(_, row)| row.len() + ENTRY_BYTES)
                    .sum::<usize>();
            }
            if rows.is_empty() {
                bytes += key.len() + ENTRY_BYTES;
            }
            !rows.is_empty()
        });
        self.rows -= forgotten;
        self.bytes -= bytes;
        self.kept = self.rows;
        Ok(())
    }
}

/// The rows of a stretch of time.
fn range(rows: &Rows, (first, last): (i64, i64)) -> impl Iterator<Item = (&(i64, Bytes), &i64)> {
    let from = (first, Bytes::default());
    rows.range(from..).take_while(move |((time, _), _)| *time <= last)
}

/// The earliest time that is reached from this one over rows that are no more than the gap apart.
fn reach_back(rows: &Rows, from: i64, gap: i64) -> i64 {
    let mut reached = from;
    let before = rows.range(..(from, Bytes::default())).rev();
    for ((time, _), _) in before {
        if reached.saturating_sub(*time) > gap {
            break;
        }
        reached = *time;
    }
    reached
}

/// As [`reach_back`], the latest.
fn reach_on(rows: &Rows, from: i64, gap: i64) -> i64 {
    let mut reached = from;
    for ((time, _), _) in rows.range((from, Bytes::default())..) {
        if time.saturating_sub(reached) > gap {
            break;
        }
        reached = *time;
    }
    reached
}

/// Puts out the rows of a stretch with their sessions, `times` over. The stretch begins and ends with a session.
fn tell(rows: &Rows, stretch: (i64, i64), gap: i64, times: i64, output: &mut Told) {
    let mut session: Vec<(&Bytes, i64)> = vec![];
    let (mut start, mut last) = (0, 0);
    let close = |session: &mut Vec<(&Bytes, i64)>, start: i64, last: i64, output: &mut Told| {
        for (row, weight) in session.drain(..) {
            let told = (row.clone(), start, last.saturating_add(gap));
            *output.entry(told).or_default() += times * weight;
        }
    };
    for ((time, row), weight) in range(rows, stretch) {
        if session.is_empty() || time.saturating_sub(last) > gap {
            close(&mut session, start, last, output);
            start = *time;
        }
        last = *time;
        session.push((row, *weight));
    }
    close(&mut session, start, last, output);
}

/// Times in microseconds as numbers.
fn micros(times: &ArrayRef) -> Result<Int64Array> {
    let numbers = arrow::compute::cast(times, &arrow::datatypes::DataType::Int64)?;
    Ok(numbers.as_primitive::<Int64Type>().clone())
}

/// A time in microseconds as a number.
fn moment(time: &ScalarValue) -> Result<i64> {
    match time {
        ScalarValue::TimestampMicrosecond(Some(micros), _) => Ok(*micros),
        other => Err(OperatorError::Internal(format!(
            "{other} is not a time in microseconds"
        ))),
    }
}
