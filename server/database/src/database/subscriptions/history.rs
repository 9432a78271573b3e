//! The rows of a relation as they were at an epoch: those that there are, less what came since, and what went since.
//!
//! ```text
//!  rows as of the newest step --> without those that came in the steps behind the epoch --> and those that went in them
//! ```
//! What changed since is added up by rows first, so that memory has the changes, and once the answer.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, Rows, SortField};
use millrace_catalog::Object;
use millrace_engine::{Changes, RuntimeError, WriteToken};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::from_internal;
use millrace_resource::memory::{Charge, Use};
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::shares::Tenant;
use millrace_storage::rows_bytes;

use super::changes::OPS;
use super::durable::Begin;
use super::log::{Newest, Reader, SubscriptionLog};
use super::queue::Event;
use super::stopping;
use crate::database::Database;

/// What a row takes in memory besides its bytes, about.
const ROW_BYTES: usize = 64;

/// Rows as they were.
pub struct AsOf {
    /// The epoch as of which they are: the last one that is not behind what was asked for.
    pub epoch: u64,
    pub batches: Vec<RecordBatch>,
    /// For them, as long as they are needed.
    pub charge: Charge,
}

impl Database {
    /// All rows of what a subscription follows, as of an epoch or a time; none: as of now, with these writes.
    ///
    /// # Errors
    /// 72000: what changed since is not kept any more; it does not go on; there is no memory for them.
    pub async fn rows_as_of(
        self: &Arc<Self>,
        object: &Object,
        epoch: Option<u64>,
        after: Option<&WriteToken>,
    ) -> SqlResult<AsOf> {
        let kept = self.subscriptions.kept(object.id).ok_or_else(stopping)?;
        self.visible(object, after).await?;
        let is_known = |newest: Newest| epoch.is_some_and(|epoch| epoch < newest.epoch);
        if !kept.newest().is_some_and(is_known) {
            // What is visible now may belong to it.
            self.sinks().flush_one(object.id).await;
        }
        let begin = epoch.map_or(Begin::Now, Begin::Epoch);
        let epoch = self.place(&kept, object, begin).await?;
        let (newest, rows) = self.sinks().rows_of(object).await?;
        let reader = kept.reader(epoch);
        let work = async move {
            let net = match epoch < newest {
                true => Some(Net::read(&kept, reader, newest).await?),
                false => None,
            };
            let (batches, charge) = undone(&kept, rows, net).await?;
            Ok(AsOf {
                epoch,
                batches,
                charge,
            })
        };
        let done = self
            .runtime()
            .compute_async(QueryClass::Interactive, Tenant::default(), work)?;
        done.await?
    }
}

/// How often each row came and did not go again, in some steps.
struct Net {
    converter: RowConverter,
    schema: SchemaRef,
    counts: HashMap<Box<[u8]>, i64>,
    charge: Charge,
}

impl Net {
    /// Adds up the steps of a reader up to an epoch.
    async fn read(kept: &SubscriptionLog, mut reader: Reader, to: u64) -> SqlResult<Net> {
        let mut net: Option<Net> = None;
        loop {
            match reader.next().await? {
                Event::Complete { epoch } if epoch >= to => break,
                Event::Complete { .. } => {}
                Event::Changes { ops, rows, .. } => {
                    let net = match &mut net {
                        Some(net) => net,
                        none => none.insert(Net::new(kept, rows.schema())?),
                    };
                    net.add(kept, &ops, &rows)?;
                }
            }
        }
        net.ok_or_else(|| SqlError::internal("steps without a change"))
    }

    fn new(kept: &SubscriptionLog, schema: SchemaRef) -> SqlResult<Net> {
        let fields = schema.fields().iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        Ok(Net {
            converter: RowConverter::new(fields.collect()).map_err(from_internal::arrow)?,
            schema,
            counts: HashMap::new(),
            charge: kept.account().charge(Use::Query, 0),
        })
    }

    fn keys(&self, rows: &RecordBatch) -> SqlResult<Rows> {
        let keys = self.converter.convert_columns(rows.columns());
        keys.map_err(from_internal::arrow)
    }

    fn add(&mut self, kept: &SubscriptionLog, ops: &ArrayRef, rows: &RecordBatch) -> SqlResult<()> {
        let keys = self.keys(rows)?;
        let mut bytes = 0;
        for (key, op) in keys.iter().zip(ops.as_string::<i32>()) {
            // The first and the last of the four come.
            let by = if op == Some(OPS[0]) || op == Some(OPS[3]) {
                1
            } else {
                -1
            };
            match self.counts.get_mut(key.as_ref()) {
                Some(count) => *count += by,
                None => {
                    bytes += key.as_ref().len() + ROW_BYTES;
                    self.counts.insert(Box::from(key.as_ref()), by);
                }
            }
        }
        kept.account().room(bytes).map_err(RuntimeError::from)?;
        self.charge.resize(self.charge.bytes() + bytes);
        Ok(())
    }

    /// The rows without those that came since.
    fn without_new(&mut self, rows: &RecordBatch) -> SqlResult<RecordBatch> {
        let keys = self.keys(rows)?;
        let stays = BooleanArray::from_iter(keys.iter().map(|key| match self.counts.get_mut(key.as_ref()) {
            Some(count) if *count > 0 => {
                *count -= 1;
                Some(false)
            }
            _ => Some(true),
        }));
        filter_record_batch(rows, &stays).map_err(from_internal::arrow)
    }

    /// The rows that went since.
    ///
    /// # Errors
    /// Some of those that came since are not there: an internal one.
    fn gone(&self) -> SqlResult<RecordBatch> {
        if self.counts.values().any(|count| *count > 0) {
            return Err(SqlError::internal(
                "rows that a subscription was told of are not there",
            ));
        }
        let parser = self.converter.parser();
        let gone = self.counts.iter().flat_map(|(key, count)| {
            let times = usize::try_from(-count).unwrap_or(0);
            std::iter::repeat_n(parser.parse(key), times)
        });
        let columns = self.converter.convert_rows(gone).map_err(from_internal::arrow)?;
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(from_internal::arrow)
    }
}

/// The rows with changes taken back.
async fn undone(
    kept: &SubscriptionLog,
    mut rows: Changes,
    mut net: Option<Net>,
) -> SqlResult<(Vec<RecordBatch>, Charge)> {
    let mut batches = vec![];
    let mut charge = kept.account().charge(Use::Query, 0);
    let mut keep = |batch: RecordBatch, charge: &mut Charge| -> SqlResult<()> {
        let bytes = rows_bytes(&batch);
        kept.account().room(bytes).map_err(RuntimeError::from)?;
        charge.resize(charge.bytes() + bytes);
        if batch.num_rows() > 0 {
            batches.push(batch);
        }
        Ok(())
    };
    let columns: Vec<usize> = (0..kept.columns()).collect();
    while let Some(batch) = rows.next().await? {
        // Columns that came later are not known.
        let batch = batch.rows.project(&columns).map_err(from_internal::arrow)?;
        let batch = match &mut net {
            Some(net) => net.without_new(&batch)?,
            None => batch,
        };
        keep(batch, &mut charge)?;
    }
    if let Some(net) = &net {
        keep(net.gone()?, &mut charge)?;
    }
    Ok((batches, charge))
}
