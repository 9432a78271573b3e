//! Changes and keys on their way into the files of a step.

use arrow::array::{RecordBatch, UInt32Array};
use millrace_engine::Changes;
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::from_internal;
use millrace_storage::ChangeBatch;

use super::writing::{Leave, Writing};
use crate::sink_files::draft::Draft;
use crate::sink_files::encode::Op;

impl Writing {
    /// Writes all changes: rows that go before rows that come.
    pub(super) async fn write(&self, mut changes: Changes, mut draft: Draft) -> Result<Draft, Leave> {
        if self.def.sink_type.has_deletions() {
            draft = self.write_of(Op::Delete, &mut changes, draft).await?;
            changes.rewind();
        }
        self.write_of(Op::Insert, &mut changes, draft).await
    }

    pub(super) async fn write_of(
        &self,
        op: Op,
        changes: &mut Changes,
        mut draft: Draft,
    ) -> Result<Draft, Leave> {
        while let Some(batch) = changes.next().await? {
            let encoder = draft.encoder();
            let rows = self.compute(move || match rows_of(op, &batch)? {
                Some(rows) => encoder.conform(&rows).map(Some),
                None => Ok(None),
            });
            let Some(rows) = rows.await? else { continue };
            let mut done = 0;
            while done < rows.num_rows() {
                draft = self.with_room(draft).await?;
                let piece = rows.slice(done, draft.room().min(rows.num_rows() - done));
                done += piece.num_rows();
                draft = self
                    .compute(move || draft.encode(op, &piece).map(|()| draft))
                    .await?;
            }
        }
        Ok(draft)
    }

    pub(super) async fn write_keys(
        &self,
        op: Op,
        mut keys: Vec<Box<[u8]>>,
        mut draft: Draft,
    ) -> Result<Draft, Leave> {
        keys.reverse();
        while !keys.is_empty() {
            draft = self.with_room(draft).await?;
            let piece: Vec<Box<[u8]>> = keys
                .drain(keys.len().saturating_sub(draft.room())..)
                .rev()
                .collect();
            draft = self
                .compute(move || draft.encode_keys(op, &piece).map(|()| draft))
                .await?;
        }
        Ok(draft)
    }

    /// The draft, once it has space for rows.
    async fn with_room(&self, mut draft: Draft) -> Result<Draft, Leave> {
        self.check_running()?;
        if draft.room() == 0 {
            draft = self.compute(move || draft.end_if_full().map(|()| draft)).await?;
            draft = self.on_disk(move || draft.proceed().map(|()| draft)).await?;
        }
        Ok(draft)
    }
}

pub(super) fn times(count: i64) -> usize {
    usize::try_from(count).unwrap_or(0)
}

/// The rows of changes that came or went, each as often as it did.
pub(crate) fn rows_of(op: Op, changes: &ChangeBatch) -> SqlResult<Option<RecordBatch>> {
    if changes.weights.is_none() {
        return Ok((op == Op::Insert).then(|| changes.rows.clone()));
    }
    let mut positions: Vec<u32> = vec![];
    for row in 0..changes.num_rows() {
        let weight = match op {
            Op::Insert => changes.weight(row),
            Op::Delete => -changes.weight(row),
        };
        let position = u32::try_from(row).map_err(|error| SqlError::internal(error.to_string()))?;
        positions.extend(std::iter::repeat_n(position, times(weight)));
    }
    if positions.is_empty() {
        return Ok(None);
    }
    let taken = arrow::compute::take_record_batch(&changes.rows, &UInt32Array::from(positions));
    taken.map(Some).map_err(from_internal::arrow)
}
