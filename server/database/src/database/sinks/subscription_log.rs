//! The writer of a subscription: the steps of its outbox become rows of its log.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int8Array, Int64Array, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use millrace_connectors::source::ConnectorError;
use millrace_connectors::target::{Message, Reached, Said, Writer};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::from_internal;
use millrace_schedule::cpu::QueryClass;
use millrace_storage::{ChangeBatch, LogWrite};
use tokio::sync::watch;

use super::Committed;
use super::shipping::{of_runtime, of_sql};
use crate::database::subscriptions::changes::{Changed, Epoch, OPS, arranged};
use crate::database::subscriptions::log::SubscriptionLog;
use crate::sink_files::encode::{Op, parquet};

/// What of a subscription does not change while it is written.
#[derive(Debug, Clone)]
pub(super) struct Form {
    /// The columns that tell rows of the relation apart, if that is known.
    pub key: Option<Vec<usize>>,
    /// Whether the first column of a step says what happened.
    pub is_changelog: bool,
}

/// See the module.
pub(super) struct StepWriter {
    kept: Arc<SubscriptionLog>,
    form: Form,
    committed: watch::Receiver<Committed>,
    /// The step that the log had last.
    last: Option<u64>,
    /// The epoch of what was written last.
    epoch: u64,
}

impl StepWriter {
    /// Looks how far the log is.
    ///
    /// # Errors
    /// It is damaged.
    pub async fn open(
        kept: &Arc<SubscriptionLog>,
        form: Form,
        committed: watch::Receiver<Committed>,
    ) -> Result<StepWriter, ConnectorError> {
        let (log, place) = (Arc::clone(kept), kept.place());
        let last = kept.runtime().use_files(&place, move || log.last_row());
        let last = last.await.map_err(of_runtime)?.map_err(of_sql)?;
        Ok(StepWriter {
            kept: Arc::clone(kept),
            form,
            committed,
            last: last.map(|(_, step)| step),
            epoch: last.map_or(0, |(epoch, _)| epoch),
        })
    }
}

#[async_trait]
impl Writer for StepWriter {
    fn reached(&self) -> Said {
        // Retention may have taken all of it.
        Said::AtLeast(self.last.map(|step| Reached {
            next: step + 1,
            sum: 0,
        }))
    }

    async fn write(&mut self, reached: Reached, messages: Vec<Message>) -> Result<(), ConnectorError> {
        let committed = *self.committed.borrow();
        let epoch = committed.outbox.epoch;
        // A step of several files is in the log when the last of them is.
        let is_whole = reached.next == committed.next && epoch != self.epoch;
        self.epoch = epoch;
        let (form, kept) = (self.form.clone(), Arc::clone(&self.kept));
        let write = move || -> SqlResult<_> {
            let logs = kept.logs();
            let schema = logs.schema(kept.log())?;
            let mut changes = vec![];
            for content in messages.into_iter().filter_map(|message| message.value) {
                changes.extend(changes_of(&form, content)?);
            }
            let rows = rows_of(&schema, epoch, reached.next - 1, &changes)?;
            let write = LogWrite {
                relation: kept.log(),
                changes: ChangeBatch::insertions(rows),
            };
            let prepared = logs.prepare(vec![write], &[])?;
            Ok((logs.submit(prepared), Epoch::new(epoch, changes, kept.account())))
        };
        let written = self.kept.runtime().compute(QueryClass::Batch, write);
        let (receipt, step) = written
            .map_err(of_runtime)?
            .await
            .map_err(of_runtime)?
            .map_err(of_sql)?;
        receipt.await.map_err(|error| of_sql(error.into()))?;
        self.kept.remember(step, is_whole);
        Ok(())
    }

    async fn close(&self) {}
}

/// What happened, by a file of a step.
fn changes_of(form: &Form, content: Bytes) -> SqlResult<Vec<Changed>> {
    let batches = ParquetRecordBatchReaderBuilder::try_new(content)
        .and_then(|builder| builder.build())
        .map_err(parquet)?;
    let (mut gone, mut come) = (vec![], vec![]);
    for batch in batches {
        let batch = batch.map_err(from_internal::arrow)?;
        if !form.is_changelog {
            come.push(batch);
            continue;
        }
        let columns: Vec<usize> = (1..batch.num_columns()).collect();
        let rows = batch.project(&columns).map_err(from_internal::arrow)?;
        let ops = batch.column(0).as_string_opt::<i32>();
        let ops = ops.ok_or_else(|| SqlError::internal("a step without ops"))?;
        let of = |op: Op| {
            let is_it = BooleanArray::from_iter(ops.iter().map(|found| Some(found == Some(op.name()))));
            filter_record_batch(&rows, &is_it).map_err(from_internal::arrow)
        };
        gone.push(of(Op::Delete)?);
        come.push(of(Op::Insert)?);
    }
    for side in [&mut gone, &mut come] {
        side.retain(|rows| rows.num_rows() > 0);
    }
    arranged(gone, come, form.key.as_deref()).map_err(from_internal::arrow)
}

/// Changes as they are in the log.
fn rows_of(schema: &SchemaRef, epoch: u64, step: u64, changes: &[Changed]) -> SqlResult<RecordBatch> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let batches = changes.iter().map(|changed| {
        let count = changed.rows.num_rows();
        let code = |op: Option<&str>| {
            let code = OPS.iter().position(|known| Some(*known) == op);
            code.and_then(|code| i8::try_from(code).ok())
        };
        let ops: Int8Array = changed.ops.as_string::<i32>().iter().map(code).collect();
        let own: [ArrayRef; 3] = [
            Arc::new(Int64Array::from_value(number(epoch), count)),
            Arc::new(Int64Array::from_value(number(step), count)),
            Arc::new(ops),
        ];
        let columns = own.into_iter().chain(changed.rows.columns().iter().cloned());
        RecordBatch::try_new(Arc::clone(schema), columns.collect()).map_err(from_internal::arrow)
    });
    let batches = batches.collect::<SqlResult<Vec<_>>>()?;
    concat_batches(schema, &batches).map_err(from_internal::arrow)
}
