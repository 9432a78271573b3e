//! Rows that are held back: until they are final (EMIT ON WINDOW CLOSE), or until the time is a multiple of an interval (EMIT
//! EVERY).
//!
//! ```text
//!  changes --> held: rows with their weights, in the order of the value that makes them final --> final rows, once each
//! ```
//! A row that is final never changes, so what is emitted on close is only ever added.

mod image;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use arrow::array::Int64Array;
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use datafusion::common::ScalarValue;
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::stage::closing::Closing;
use millrace_planner::stage::emit::{EmitEvery, EmitOnClose};
use millrace_planner::watermark::Watermarks;
use millrace_resource::gate::Gate;
use millrace_schedule::cpu::CHUNK_ROWS;
use millrace_storage::ChangeBatch;

use super::batches::{batch_of, chunks};
use super::expression::{ErrorCounter, evaluate};
use super::image::{Part, Parts};
use super::inputs::Inputs;
use super::instance::{Operator, OperatorInstance};
use super::output::{Output, push_all};
use crate::error::{OperatorError, Result};

/// What a held row takes beside its bytes.
const ENTRY_BYTES: usize = 40;

/// When rows are let go.
enum When {
    Closed(Closing),
    Every {
        interval: i64,
        /// In microseconds since 1970-01-01 00:00 UTC; `None` before the first time.
        next: Option<i64>,
    },
}

/// See the module.
pub struct EmitInstance {
    when: When,
    schema: SchemaRef,
    /// The value that makes a row final, if there is one, then its columns.
    converter: RowConverter,
    /// The value alone.
    value_converter: Option<RowConverter>,
    held: BTreeMap<Box<[u8]>, i64>,
    bytes: usize,
}

/// Values that are NULL are never final: they come last.
fn value_field(schema: &SchemaRef, closing: &Closing) -> Result<SortField> {
    let options = SortOptions {
        descending: false,
        nulls_first: false,
    };
    let data_type = closing.value.data_type(schema)?;
    Ok(SortField::new_with_options(data_type, options))
}

impl Operator for EmitInstance {
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
            let changes = self.advance(batches, epoch, gate, errors).await?;
            push_all(output, changes).await
        }
        .boxed()
    }

    /// Whether an epoch without input leaves the output as it is, time and watermarks apart. Not so for the first one after
    /// the view was filled, which shows what it has.
    fn idle_without_input(&self, is_bulk: bool) -> bool {
        is_bulk || !matches!(self.when, When::Every { next: None, .. })
    }

    /// When held rows are let go by time. The first time they are when the view is filled.
    fn due(&self) -> Option<i64> {
        match &self.when {
            When::Every { next, .. } if !self.held.is_empty() => *next,
            _ => None,
        }
    }

    /// Whether rows are let go under these watermarks.
    fn is_closed(&self, watermarks: &Watermarks) -> bool {
        let (When::Closed(closing), Some((first, _))) = (&self.when, self.held.first_key_value()) else {
            return false;
        };
        let bound = closing.bound.value(watermarks);
        let prefix = bound.map(|bound| bound.map(|bound| self.prefix(&bound)).transpose());
        match prefix {
            Ok(Ok(prefix)) => prefix.is_some_and(|prefix| **first < *prefix),
            // The epoch tells of the error.
            _ => true,
        }
    }

    fn state_bytes(&self) -> usize {
        self.bytes
    }

    fn can_leave(&self) -> bool {
        // Watermarks let rows of it go.
        false
    }

    fn image(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        self.add_parts(parts);
        Ok(())
    }

    fn restore(&mut self, parts: &mut Parts) -> Result<()> {
        self.take_parts(parts)
    }
}

impl EmitInstance {
    pub fn on_close(plan: &EmitOnClose) -> Result<Self> {
        let value = value_field(&plan.schema, &plan.closing)?;
        let alone = RowConverter::new(vec![value.clone()])?;
        EmitInstance::new(
            When::Closed(plan.closing.clone()),
            &plan.schema,
            vec![value],
            Some(alone),
        )
    }

    pub fn every(plan: &EmitEvery) -> Result<Self> {
        let when = When::Every {
            interval: plan.every.max(1),
            next: None,
        };
        EmitInstance::new(when, &plan.schema, vec![], None)
    }

    fn new(
        when: When,
        schema: &SchemaRef,
        mut fields: Vec<SortField>,
        value_converter: Option<RowConverter>,
    ) -> Result<Self> {
        let columns = schema.fields().iter();
        fields.extend(columns.map(|field| SortField::new(field.data_type().clone())));
        Ok(EmitInstance {
            when,
            schema: Arc::clone(schema),
            converter: RowConverter::new(fields)?,
            value_converter,
            held: BTreeMap::new(),
            bytes: 0,
        })
    }

    /// The bytes with which the rows begin that have this value.
    fn prefix(&self, value: &ScalarValue) -> Result<Box<[u8]>> {
        let converter = self.value_converter.as_ref().ok_or_else(|| {
            OperatorError::Internal("rows that are emitted by time have no value to close by".into())
        })?;
        let rows = converter.convert_columns(&[value.to_array()?])?;
        Ok(rows.row(0).data().into())
    }

    /// Holds what changed and emits what is let go. EMIT EVERY shows the rows that there were and those written while
    /// they were brought to the view at once, before its first interval.
    pub async fn advance(
        &mut self,
        batches: Vec<ChangeBatch>,
        inputs: &Inputs,
        gate: &dyn Gate,
        errors: &ErrorCounter,
    ) -> Result<Vec<ChangeBatch>> {
        for batch in &batches {
            for chunk in chunks(batch) {
                self.hold(&chunk, errors)?;
                gate.checkpoint().await;
            }
        }
        if inputs.is_bulk {
            return Ok(vec![]);
        }
        match &mut self.when {
            When::Closed(closing) => match closing.bound.value(&inputs.watermarks)? {
                Some(bound) => {
                    let until = self.prefix(&bound)?;
                    self.let_go(Some(&until), gate).await
                }
                None => Ok(vec![]),
            },
            When::Every { interval, next } => {
                if inputs.is_filling || next.is_some_and(|next| inputs.now < next) {
                    return Ok(vec![]);
                }
                *next = Some((inputs.now.div_euclid(*interval) + 1).saturating_mul(*interval));
                self.let_go(None, gate).await
            }
        }
    }

    fn hold(&mut self, batch: &ChangeBatch, errors: &ErrorCounter) -> Result<()> {
        let mut columns = vec![];
        if let When::Closed(closing) = &self.when {
            let data_type = closing.value.data_type(&self.schema)?;
            columns.push(evaluate(&closing.value, &batch.rows, &data_type, errors)?);
        }
        columns.extend(batch.rows.columns().iter().cloned());
        if columns.is_empty() {
            return Err(OperatorError::Internal(
                "rows without columns cannot be held back".into(),
            ));
        }
        let rows = self.converter.convert_columns(&columns)?;
        for (position, row) in rows.iter().enumerate() {
            self.add(row.data().into(), batch.weight(position));
        }
        Ok(())
    }

    fn add(&mut self, row: Box<[u8]>, weight: i64) {
        let size = row.len() + ENTRY_BYTES;
        match self.held.entry(row) {
            Entry::Vacant(vacant) => {
                vacant.insert(weight);
                self.bytes += size;
            }
            Entry::Occupied(mut occupied) => {
                *occupied.get_mut() += weight;
                if *occupied.get() == 0 {
                    occupied.remove();
                    self.bytes -= size;
                }
            }
        }
    }

    /// The held rows that are before `until`, or all.
    async fn let_go(&mut self, until: Option<&[u8]>, gate: &dyn Gate) -> Result<Vec<ChangeBatch>> {
        let mut output = vec![];
        loop {
            let (mut rows, mut weights) = (vec![], vec![]);
            while rows.len() < CHUNK_ROWS
                && let Some(first) = self.held.first_entry()
                && until.is_none_or(|until| **first.key() < *until)
            {
                let (row, weight) = first.remove_entry();
                self.bytes -= row.len() + ENTRY_BYTES;
                rows.push(row);
                weights.push(weight);
            }
            if rows.is_empty() {
                return Ok(output);
            }
            output.push(self.decoded(&rows, weights)?);
            gate.checkpoint().await;
        }
    }

    fn decoded(&self, rows: &[Box<[u8]>], weights: Vec<i64>) -> Result<ChangeBatch> {
        let is_final = matches!(self.when, When::Closed(_));
        if is_final && weights.iter().any(|weight| *weight < 0) {
            return Err(OperatorError::Internal(
                "a row that was final was taken back".into(),
            ));
        }
        let parser = self.converter.parser();
        let mut columns = self
            .converter
            .convert_rows(rows.iter().map(|row| parser.parse(row)))?;
        if is_final {
            columns.remove(0);
        }
        let only_once = is_final && weights.iter().all(|weight| *weight == 1);
        Ok(ChangeBatch {
            rows: batch_of(&self.schema, columns, rows.len())?,
            weights: (!only_once).then(|| Int64Array::from(weights)),
        })
    }
}
