//! The ASOF join: each left row with the nearest right row in time, of those with its key.
//!
//! ```text
//!  one key, l.ts >= r.ts, in the order of time:
//!      r1      l  l   r2   l     r3   l
//!      `-- r1 --'     `- r2 -'   `- r3 -'
//! ```
//! Both sides are kept by key, ordered by time. A right row stands for the left rows up to the next right row: when it comes
//! or goes, they alone change, to or from the one before it. Of right rows at one time the greatest counts, its columns
//! compared from the left, NULL the least; a row that is there twice counts once. For `<=` and `<` the order of time is
//! reversed.

mod image;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, new_null_array};
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::stage::asof_join::{AsofJoin, Nearest};
use millrace_resource::gate::Gate;
use millrace_schedule::cpu::CHUNK_ROWS;
use millrace_storage::ChangeBatch;

use super::batches::{batch_of, concat};
use super::consolidate::{consolidate, consolidate_parts};
use super::expression::ErrorCounter;
use super::image::{Part, Parts};
use super::inputs::Inputs;
use super::instance::{Operator, OperatorInstance};
use super::output::{Output, push_all};
use crate::error::Result;

type Bytes = Box<[u8]>;
/// A row's key and time.
type Place = (Bytes, Bytes);
/// Rows by time, then by all their columns, with how often each is there.
type InTime = BTreeMap<(Bytes, Bytes), i64>;

/// What a row takes beside its bytes.
const ENTRY_BYTES: usize = 56;

/// The join with both sides.
pub struct AsofJoinInstance {
    left: SideForm,
    right: SideForm,
    /// A right row at the very time of a left row is not its match.
    is_strict: bool,
    is_outer: bool,
    schema: SchemaRef,
    keys: HashMap<Bytes, OneKey>,
    bytes: usize,
}

/// How the rows of a side are read.
struct SideForm {
    keys: Vec<usize>,
    time: usize,
    width: usize,
    append_only: bool,
    key_form: RowConverter,
    time_form: RowConverter,
    row_form: RowConverter,
}

/// Both sides' rows of one key.
#[derive(Default)]
struct OneKey {
    left: InTime,
    right: InTime,
}

/// Pairs that come and go: a left row, its match, how often.
type Pairs = Vec<(Bytes, Option<Bytes>, i64)>;

impl SideForm {
    fn new(
        schema: &SchemaRef,
        keys: Vec<usize>,
        time: usize,
        width: usize,
        append_only: bool,
        reversed: bool,
    ) -> Result<Self> {
        let field = |column: usize| SortField::new(schema.field(column).data_type().clone());
        let order = SortOptions {
            descending: reversed,
            nulls_first: true,
        };
        let of_time = SortField::new_with_options(schema.field(time).data_type().clone(), order);
        Ok(SideForm {
            key_form: RowConverter::new(keys.iter().map(|key| field(*key)).collect())?,
            time_form: RowConverter::new(vec![of_time])?,
            row_form: RowConverter::new((0..width).map(field).collect())?,
            keys,
            time,
            width,
            append_only,
        })
    }

    /// Each row: its key and time, unless one of them is NULL, and the row itself.
    fn read(&self, rows: &RecordBatch) -> Result<Vec<(Option<Place>, Bytes)>> {
        let columns = |positions: &[usize]| -> Vec<ArrayRef> {
            positions
                .iter()
                .map(|column| Arc::clone(rows.column(*column)))
                .collect()
        };
        let deciding = [self.keys.as_slice(), &[self.time]].concat();
        let nulls: Vec<_> = deciding
            .iter()
            .filter_map(|column| rows.column(*column).logical_nulls())
            .collect();
        let times = self.time_form.convert_columns(&columns(&[self.time]))?;
        let keys = if self.keys.is_empty() {
            None
        } else {
            Some(self.key_form.convert_columns(&columns(&self.keys))?)
        };
        let all: Vec<usize> = (0..self.width).collect();
        let whole = if self.width == 0 {
            None
        } else {
            Some(self.row_form.convert_columns(&columns(&all))?)
        };
        let bytes = |rows: &Option<arrow::row::Rows>, row: usize| -> Bytes {
            rows.as_ref()
                .map_or_else(Bytes::default, |rows| rows.row(row).data().into())
        };
        Ok((0..rows.num_rows())
            .map(|row| {
                let is_decided = nulls.iter().all(|nulls| nulls.is_valid(row));
                let place = is_decided.then(|| (bytes(&keys, row), times.row(row).data().into()));
                (place, bytes(&whole, row))
            })
            .collect())
    }
}

impl Operator for AsofJoinInstance {
    fn run<'a>(
        &'a mut self,
        inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let left = inputs[0].collect(epoch, gate, errors).await?;
            let right = inputs[1].collect(epoch, gate, errors).await?;
            let changes = self.advance(left, right, gate).await?;
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

impl AsofJoinInstance {
    pub fn new(plan: &AsofJoin) -> Result<Self> {
        let (left_keys, right_keys) = plan.keys.iter().copied().unzip();
        let reversed = matches!(plan.nearest, Nearest::AtOrAfter | Nearest::After);
        let side = |schema: &SchemaRef, keys, time, width, append_only| {
            SideForm::new(schema, keys, time, width, append_only, reversed)
        };
        Ok(AsofJoinInstance {
            left: side(
                plan.left.schema(),
                left_keys,
                plan.times.0,
                plan.left_width,
                plan.left_append_only,
            )?,
            right: side(
                plan.right.schema(),
                right_keys,
                plan.times.1,
                plan.right_width,
                plan.right_append_only,
            )?,
            is_strict: matches!(plan.nearest, Nearest::Before | Nearest::After),
            is_outer: plan.is_outer,
            schema: Arc::clone(&plan.schema),
            keys: HashMap::new(),
            bytes: 0,
        })
    }

    /// Applies what changed on both sides and emits how the pairs differ.
    pub async fn advance(
        &mut self,
        left: Vec<ChangeBatch>,
        right: Vec<ChangeBatch>,
        gate: &dyn Gate,
    ) -> Result<Vec<ChangeBatch>> {
        let mut output = vec![];
        let mut pairs = Pairs::new();
        // Left rows that go need not be joined again with right rows that come, nor those that come with those that go.
        let merged = |batches, append_only: bool| {
            if append_only {
                concat(batches)
            } else {
                consolidate(batches)
            }
        };
        let (left, right) = (
            merged(left, self.left.append_only)?,
            merged(right, self.right.append_only)?,
        );
        for (batch, is_right, wanted) in [(&left, false, -1), (&right, true, 0), (&left, false, 1)] {
            let Some(batch) = batch else { continue };
            for start in (0..batch.num_rows()).step_by(CHUNK_ROWS) {
                let chunk = batch.slice(start, CHUNK_ROWS.min(batch.num_rows() - start));
                let side = if is_right { &self.right } else { &self.left };
                for (position, (place, row)) in side.read(&chunk.rows)?.into_iter().enumerate() {
                    let weight = chunk.weight(position);
                    if is_right {
                        self.change_right(place, row, weight, &mut pairs);
                    } else if weight.signum() == wanted {
                        self.change_left(place, row, weight, &mut pairs);
                    }
                    if pairs.len() >= CHUNK_ROWS {
                        output.push(self.emit(&mut pairs)?);
                        gate.checkpoint().await;
                    }
                }
                gate.checkpoint().await;
            }
        }
        if !pairs.is_empty() {
            output.push(self.emit(&mut pairs)?);
        }
        consolidate_parts(output)
    }

    fn change_left(&mut self, place: Option<Place>, row: Bytes, weight: i64, pairs: &mut Pairs) {
        let Some((key, time)) = place else {
            if self.is_outer {
                pairs.push((row, None, weight));
            }
            return;
        };
        let one = self.keys.entry(key.clone()).or_default();
        let found = one.nearest(&time, self.is_strict);
        if found.is_some() || self.is_outer {
            pairs.push((row.clone(), found, weight));
        }
        add(&mut one.left, (time, row), weight, &mut self.bytes);
        self.drop_if_empty(&key);
    }

    fn change_right(&mut self, place: Option<Place>, row: Bytes, weight: i64, pairs: &mut Pairs) {
        let Some((key, time)) = place else { return };
        let one = self.keys.entry(key.clone()).or_default();
        let entry = (time, row);
        let before = one.right.get(&entry).copied().unwrap_or(0);
        add(&mut one.right, entry.clone(), weight, &mut self.bytes);
        let after = before + weight;
        if (before > 0) != (after > 0) {
            one.pass_over(&entry, after > 0, self.is_strict, self.is_outer, pairs);
        }
        self.drop_if_empty(&key);
    }

    fn drop_if_empty(&mut self, key: &Bytes) {
        if self
            .keys
            .get(key)
            .is_some_and(|one| one.left.is_empty() && one.right.is_empty())
        {
            self.keys.remove(key);
        }
    }

    fn emit(&self, pairs: &mut Pairs) -> Result<ChangeBatch> {
        let count = pairs.len();
        let mut columns = vec![];
        if self.left.width > 0 {
            let parser = self.left.row_form.parser();
            let rows = pairs.iter().map(|(left, _, _)| parser.parse(left));
            columns.extend(self.left.row_form.convert_rows(rows)?);
        }
        let fields = &self.schema.fields()[self.left.width..];
        let matched: Vec<&Bytes> = pairs.iter().filter_map(|(_, right, _)| right.as_ref()).collect();
        if matched.is_empty() {
            columns.extend(
                fields
                    .iter()
                    .map(|field| new_null_array(field.data_type(), count)),
            );
        } else if !fields.is_empty() {
            let parser = self.right.row_form.parser();
            let rows = matched.into_iter().map(|row| parser.parse(row));
            let values = self.right.row_form.convert_rows(rows)?;
            let mut next = 0;
            let positions: arrow::array::UInt32Array = pairs
                .iter()
                .map(|(_, right, _)| {
                    right.as_ref().map(|_| {
                        next += 1;
                        next - 1
                    })
                })
                .collect();
            for value in values {
                columns.push(arrow::compute::take(&value, &positions, None)?);
            }
        }
        let weights = Int64Array::from_iter_values(pairs.iter().map(|(_, _, weight)| *weight));
        pairs.clear();
        Ok(ChangeBatch {
            rows: batch_of(&self.schema, columns, count)?,
            weights: Some(weights),
        })
    }
}

impl OneKey {
    /// The match of a left row at this time.
    fn nearest(&self, time: &Bytes, is_strict: bool) -> Option<Bytes> {
        if is_strict {
            last_before(&self.right, &(time.clone(), Bytes::default()))
        } else {
            // The least entry of any later time.
            last_before(&self.right, &(next_after(time), Bytes::default()))
        }
    }

    /// Changes the pairs of the left rows for which a right row stands, when it comes or goes.
    fn pass_over(
        &self,
        entry: &(Bytes, Bytes),
        comes: bool,
        is_strict: bool,
        is_outer: bool,
        pairs: &mut Pairs,
    ) {
        let later = (Bound::Excluded(entry), Bound::Unbounded);
        let end = self
            .right
            .range::<(Bytes, Bytes), _>(later)
            .next()
            .map(|((time, _), _)| time);
        if end == Some(&entry.0) {
            // A greater one at the same time stands before it.
            return;
        }
        let instead = last_before(&self.right, entry);
        let edge = |time: &Bytes| {
            let time = if is_strict { next_after(time) } else { time.clone() };
            (time, Bytes::default())
        };
        let start = edge(&entry.0);
        let affected: Box<dyn Iterator<Item = _>> = match end {
            Some(end) => Box::new(self.left.range(start..edge(end))),
            None => Box::new(self.left.range(start..)),
        };
        for ((_, left), count) in affected {
            let (sign, row) = (if comes { 1 } else { -1 }, Some(entry.1.clone()));
            pairs.push((left.clone(), row, sign * count));
            if instead.is_some() || is_outer {
                pairs.push((left.clone(), instead.clone(), -sign * count));
            }
        }
    }
}

/// The last right row that is there before an entry.
fn last_before(rows: &InTime, entry: &(Bytes, Bytes)) -> Option<Bytes> {
    let mut earlier = rows.range::<(Bytes, Bytes), _>((Bound::Unbounded, Bound::Excluded(entry)));
    earlier.next_back().map(|((_, row), _)| row.clone())
}

/// The least bytes greater than these. No time's bytes begin with another's.
fn next_after(time: &Bytes) -> Bytes {
    let mut next = time.to_vec();
    next.push(0);
    next.into()
}

fn add(rows: &mut InTime, entry: (Bytes, Bytes), weight: i64, bytes: &mut usize) {
    let size = entry.0.len() + entry.1.len() + ENTRY_BYTES;
    match rows.entry(entry) {
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
