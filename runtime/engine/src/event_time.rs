//! Late rows and the watermark of a stream: which rows are late when they are written, and how far the watermark is.
//!
//! A row is judged when it is written, by the watermark of everything that was submitted before it. A late row never enters
//! the stream, so that a stream and all views over it agree on what is in it, at any time and after any restart: the
//! watermark is a function of the log. Rows of one write do not make each other late. Somebody may set a watermark back: then the rows
//! in front of that place in the log do not count.
//!
//! ```text
//!  write --> too far in the future? --> before the watermark? --> the log, the feed     watermark = max(watermark, rows')
//!                  |                          |
//!                  `--------- late -----------'--> counted, and dropped or kept in a stream of late rows
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, TimestampMicrosecondArray,
};
use arrow::compute::{cast, filter_record_batch, max, min, not};
use arrow::datatypes::{DataType, Int64Type, SchemaRef, TimeUnit};
use datafusion::physical_expr::PhysicalExpr;
use millrace_planner::RelationId;

use crate::error::{Result, RuntimeError};

/// So many of the rows that do not enter are told one by one.
const TOLD_MAX: usize = 10;
/// No row was submitted yet.
const NONE: i64 = i64::MIN;

/// What a stream says of its event time.
#[derive(Debug, Clone)]
pub struct EventTimeSpec {
    /// The column of the event time: a timestamp, with or without a zone.
    pub column: usize,
    /// The watermark that a row lets one assume: over the stream's columns, of the event time's type.
    pub watermark: Arc<dyn PhysicalExpr>,
    /// How far ahead of the clock an event time may be, in microseconds.
    pub future_skew_max: Option<i64>,
    /// The stream that keeps late rows: the columns of this one, and the watermark that they missed.
    pub late: Option<RelationId>,
    /// What the watermark was when rows were removed from the log, in microseconds.
    pub at_least: Option<i64>,
    /// Somebody has set the watermark back.
    pub set_back: Option<SetBack>,
    /// Tells the watermark that a write lets one assume by the note that it has in the log, in microseconds: the rows of the stream come
    /// from several places, of which others may be behind, so that they do not tell it themselves.
    pub of_note: Option<OfNote>,
}

/// See [`EventTimeSpec::of_note`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// The write lets one assume this.
    Watermark(Option<i64>),
    /// The note does not tell: its rows do.
    Untold,
}

/// Reads a note.
pub type OfNote = fn(&[u8]) -> Noted;

/// A watermark that was set by hand: rows before an offset do not count any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetBack {
    /// Where the stream's log ended then.
    pub offset: u64,
    /// In microseconds since 1970-01-01 00:00 UTC.
    pub watermark: i64,
}

impl EventTimeSpec {
    /// The watermark before any row of the log.
    fn beginning(&self) -> Option<i64> {
        self.at_least.max(self.set_back.map(|set| set.watermark))
    }

    /// What a checkpoint says of the watermark, which has the stream up to an offset.
    pub fn checkpointed(&self, end: u64, watermark: Option<i64>) -> Option<i64> {
        match self.set_back {
            // It may be of the time before.
            Some(set) if end <= set.offset => Some(set.watermark),
            _ => watermark,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct EventTime {
    pub spec: EventTimeSpec,
    /// The watermark of all rows that were submitted, in microseconds.
    submitted: AtomicI64,
    late_rows: AtomicU64,
    future_rows: AtomicU64,
}

/// A row that did not enter its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateRow {
    /// Its place among the rows that were written to the stream, from 0.
    pub position: usize,
    /// In microseconds since 1970-01-01 00:00 UTC.
    pub event_time: i64,
    /// The watermark before which it is; none: it is too far ahead of the clock.
    pub watermark: Option<i64>,
}

/// Rows of writes that did not enter their streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LateRows {
    pub rows: u64,
    /// How many of them are so because they are too far ahead of the clock.
    pub future_rows: u64,
    /// The first of them.
    pub first: Vec<LateRow>,
}

impl LateRows {
    /// Adds those of another write, before which came so many rows.
    pub fn add(&mut self, other: &LateRows, rows_before: usize) {
        self.rows += other.rows;
        self.future_rows += other.future_rows;
        let left = TOLD_MAX.saturating_sub(self.first.len());
        let more = other.first.iter().take(left).map(|row| LateRow {
            position: rows_before + row.position,
            ..*row
        });
        self.first.extend(more);
    }
}

/// What becomes of the rows of a write.
#[derive(Debug)]
pub struct Judged {
    pub accepted: RecordBatch,
    pub late: RecordBatch,
    /// Of the accepted rows: the earliest event time, and the watermark that they let one assume.
    pub earliest: Option<i64>,
    pub watermark: Option<i64>,
    /// The watermark by which they were judged.
    pub judged_by: Option<i64>,
    /// What there is to tell of the late ones.
    pub told: LateRows,
}

/// What a stream's event time looks like to operators of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatermarkStatus {
    pub relation: RelationId,
    /// In microseconds since 1970-01-01 00:00 UTC.
    pub watermark: Option<i64>,
    pub late_rows: u64,
    pub future_rows: u64,
}

impl EventTime {
    pub fn new(spec: EventTimeSpec) -> Self {
        EventTime {
            submitted: AtomicI64::new(spec.beginning().unwrap_or(NONE)),
            spec,
            late_rows: AtomicU64::new(0),
            future_rows: AtomicU64::new(0),
        }
    }

    pub fn status(&self, relation: RelationId) -> WatermarkStatus {
        WatermarkStatus {
            relation,
            watermark: self.watermark(),
            late_rows: self.late_rows.load(Ordering::Relaxed),
            future_rows: self.future_rows.load(Ordering::Relaxed),
        }
    }

    /// The watermark of all that was submitted.
    pub fn watermark(&self) -> Option<i64> {
        Some(self.submitted.load(Ordering::Acquire)).filter(|watermark| *watermark != NONE)
    }

    /// The watermark that a block of the log lets one assume: rows, of which the first is at this offset, and the note before them, which
    /// may be empty.
    ///
    /// # Errors
    /// The expression fails.
    pub fn assumed_of_log(&self, first_offset: u64, note: &[u8], rows: &RecordBatch) -> Result<Option<i64>> {
        // The log may have put what was written before and what was written after into one block.
        let before = match self.spec.set_back {
            Some(set) => set
                .offset
                .saturating_sub(first_offset)
                .min(rows.num_rows() as u64) as usize,
            None => 0,
        };
        if before == rows.num_rows() {
            return Ok(None);
        }
        match self.spec.of_note {
            // A block behind the first of its write.
            Some(_) if note.is_empty() => Ok(None),
            Some(of_note) => match of_note(note) {
                Noted::Watermark(watermark) => Ok(watermark),
                Noted::Untold => self.assumed(&rows.slice(before, rows.num_rows() - before)),
            },
            None => self.assumed(&rows.slice(before, rows.num_rows() - before)),
        }
    }

    /// The watermark that rows let one assume by the places that they come from, one for each row. What is too far ahead of the clock does
    /// not count.
    ///
    /// # Errors
    /// The expression fails.
    pub fn assumed_by_place<P: Ord + Copy>(
        &self,
        rows: &RecordBatch,
        places: impl Iterator<Item = P>,
        now: i64,
    ) -> Result<BTreeMap<P, i64>> {
        let assumed = micros(&self.spec.watermark.evaluate(rows)?.into_array(rows.num_rows())?)?;
        let times = micros(rows.column(self.spec.column))?;
        let horizon = self.horizon(now);
        let mut found = BTreeMap::new();
        for ((watermark, time), place) in assumed.iter().zip(times.iter()).zip(places) {
            let is_future = time.is_some_and(|time| horizon.is_some_and(|horizon| time > horizon));
            if let (Some(watermark), false) = (watermark, is_future) {
                let known = found.entry(place).or_insert(watermark);
                *known = watermark.max(*known);
            }
        }
        Ok(found)
    }

    /// Event times behind this are too far ahead of the clock.
    fn horizon(&self, now: i64) -> Option<i64> {
        self.spec.future_skew_max.map(|skew| now.saturating_add(skew))
    }

    /// The watermark is this from now on, although rows that were submitted let one assume a later one.
    pub fn set_back(&self, watermark: i64) {
        self.submitted.store(watermark, Ordering::Release);
    }

    /// The watermark that rows let one assume.
    ///
    /// # Errors
    /// The expression fails.
    pub fn assumed(&self, rows: &RecordBatch) -> Result<Option<i64>> {
        let values = self.spec.watermark.evaluate(rows)?.into_array(rows.num_rows())?;
        Ok(max(&micros(&values)?))
    }

    /// Takes rows into account that are in the log.
    pub fn advance(&self, watermark: Option<i64>) {
        if let Some(watermark) = watermark {
            self.submitted.fetch_max(watermark, Ordering::AcqRel);
        }
    }

    /// Tells rows apart that may enter and rows that are late, at this time.
    ///
    /// # Errors
    /// The expression of the watermark fails on a row.
    pub fn judge(&self, rows: &RecordBatch, now: i64) -> Result<Judged> {
        let judged_by = self.watermark();
        let times = micros(rows.column(self.spec.column))?;
        let horizon = self.horizon(now);
        let is_future = |time: i64| horizon.is_some_and(|horizon| time > horizon);
        let is_late = |time: i64| is_future(time) || judged_by.is_some_and(|watermark| time < watermark);
        let (accepted, late, told) = if times.iter().flatten().any(is_late) {
            // A row without an event time is in no window, and never late.
            let late: BooleanArray = times.iter().map(|time| Some(time.is_some_and(is_late))).collect();
            let told = LateRows {
                rows: late.true_count() as u64,
                future_rows: times.iter().flatten().filter(|time| is_future(*time)).count() as u64,
                first: (times.iter().enumerate())
                    .filter_map(|(position, time)| Some((position, time.filter(|time| is_late(*time))?)))
                    .map(|(position, event_time)| LateRow {
                        position,
                        event_time,
                        watermark: judged_by.filter(|_| !is_future(event_time)),
                    })
                    .take(TOLD_MAX)
                    .collect(),
            };
            let accepted = filter_record_batch(rows, &not(&late)?)?;
            let late = filter_record_batch(rows, &late)?;
            (accepted, late, told)
        } else {
            (rows.clone(), rows.slice(0, 0), LateRows::default())
        };
        Ok(Judged {
            earliest: min(&micros(accepted.column(self.spec.column))?),
            watermark: self.assumed(&accepted)?,
            judged_by,
            accepted,
            late,
            told,
        })
    }

    /// Whether rows that were judged before are still not late. Asked under the lock that orders submissions.
    pub fn is_valid(&self, judged: &Judged) -> bool {
        match (judged.earliest, self.watermark()) {
            (Some(earliest), Some(watermark)) => earliest >= watermark,
            _ => true,
        }
    }

    /// The rows count as submitted.
    pub fn submit(&self, judged: &Judged) {
        self.advance(judged.watermark);
        self.late_rows
            .fetch_add(judged.late.num_rows() as u64, Ordering::Relaxed);
        self.future_rows
            .fetch_add(judged.told.future_rows, Ordering::Relaxed);
    }
}

impl Judged {
    /// The late rows as those of the stream that keeps them.
    ///
    /// # Errors
    /// That stream has other columns.
    pub fn late_rows(&self, schema: &SchemaRef) -> Result<RecordBatch> {
        let watermark = TimestampMicrosecondArray::from(vec![self.judged_by; self.late.num_rows()]);
        // Columns that were added to the stream since are left out.
        let known = schema
            .fields()
            .len()
            .saturating_sub(1)
            .min(self.late.num_columns());
        let mut columns = self.late.columns()[..known].to_vec();
        let last = schema.fields().last().map(|field| field.data_type().clone());
        let watermark: ArrayRef = Arc::new(watermark.with_timezone("UTC"));
        columns.push(match last {
            Some(data_type) => cast(&watermark, &data_type)?,
            None => watermark,
        });
        RecordBatch::try_new(Arc::clone(schema), columns).map_err(RuntimeError::from)
    }
}

/// Times as microseconds.
fn micros(times: &ArrayRef) -> Result<Int64Array> {
    let zone = match times.data_type() {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    };
    let times = cast(times, &DataType::Timestamp(TimeUnit::Microsecond, zone))?;
    let numbers = cast(&times, &DataType::Int64)?;
    Ok(numbers.as_primitive::<Int64Type>().clone())
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion::physical_expr::expressions::Column;

    use super::*;

    #[test]
    fn of_a_block_that_reaches_over_where_the_watermark_was_set_back_the_rest_counts() {
        let watermark = 0;
        let event_time = EventTime::new(EventTimeSpec {
            column: 0,
            watermark: Arc::new(Column::new("t", 0)),
            future_skew_max: None,
            late: None,
            at_least: None,
            set_back: Some(SetBack {
                offset: 12,
                watermark,
            }),
            of_note: None,
        });
        let times = TimestampMicrosecondArray::from(vec![90, 80, 30, 40]);
        let field = Field::new("t", times.data_type().clone(), false);
        let schema = Arc::new(Schema::new(vec![field]));
        let rows = RecordBatch::try_new(schema, vec![Arc::new(times)]).unwrap();
        let assumed = |first_offset: u64| event_time.assumed_of_log(first_offset, &[], &rows).unwrap();
        assert_eq!(assumed(0), None);
        assert_eq!(assumed(8), None);
        assert_eq!(assumed(9), Some(40));
        assert_eq!(assumed(10), Some(40));
        assert_eq!(assumed(11), Some(80));
        assert_eq!(assumed(12), Some(90));
    }
}
