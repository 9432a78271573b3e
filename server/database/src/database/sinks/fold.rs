//! What was delivered to another system does not stay as it was sent: the steps of a stream go, those of a table or view are added up.
//!
//! What they add up to is what the relation had when the last of them was taken, so it is written from there. At a start it says what was
//! delivered, together with the steps that came since.

use std::path::PathBuf;
use std::sync::Arc;

use millrace_engine::Follower;
use millrace_postgres::error::SqlError;

use super::writing::{Leave, Writing};
use super::{Committed, fact};
use crate::sink_files::draft::Draft;
use crate::sink_files::encode::{Encoder, Op};
use crate::sink_files::outbox;

/// Steps are added up when they are larger than what they added up to before, and than this ..
const STEPS_BYTES_MIN: u64 = 1 << 20;
/// .. or when there are so many.
const STEPS_MAX: u64 = 16_384;

impl Writing {
    /// What the steps before the first add up to; none: nothing.
    pub(super) fn sum(&self) -> Option<PathBuf> {
        let known = self.committed.outbox;
        let (sums, _) = outbox::sums(&self.def.target, &self.data, self.id);
        (known.sum_bytes > 0).then(|| sums.file(known.first))
    }

    /// Makes room in the outbox, all of which was delivered. Nothing was taken of the relation since.
    pub(super) async fn fold(
        &mut self,
        encoder: &Arc<Encoder>,
        follower: &Follower,
        is_stream: bool,
    ) -> Result<(), Leave> {
        let (known, next) = (self.committed.outbox, self.committed.next);
        let steps = self.directory.clone();
        if is_stream {
            // A target that does not say how far it is gets again what is not written down: of a step of several files all of them.
            let (db, fact, mut committed) = (self.db()?, fact(self.id), self.committed);
            committed.outbox.delivered = next;
            let is_known = known.delivered + 1 >= next;
            let remove = move || {
                if !is_known {
                    let value = serde_json::to_vec(&committed)
                        .map_err(|error| SqlError::internal(error.to_string()))?;
                    db.store().catalog().put_fact(&fact, &value)?;
                }
                // The last one stays: the target may have to be compared with it.
                steps.remove(|number| number + 1 >= next)
            };
            self.on_disk(remove).await?;
            if !is_known {
                self.committed = committed;
            }
            return Ok(());
        }
        let since = self.committed.bytes - known.summed_bytes;
        if since <= known.sum_bytes.max(STEPS_BYTES_MIN) && next - known.first <= STEPS_MAX {
            return Ok(());
        }
        let (sums, _) = outbox::sums(&self.def.target, &self.data, self.id);
        self.on_disk(move || sums.remove(|number| number == known.first))
            .await?;
        self.add_up(encoder, follower, self.committed).await
    }

    /// Writes all rows as of the step that was taken last in the place of the steps; `committed`: what is to be written down besides.
    pub(super) async fn add_up(
        &mut self,
        encoder: &Arc<Encoder>,
        follower: &Follower,
        mut committed: Committed,
    ) -> Result<(), Leave> {
        let (sums, limits) = outbox::sums(&self.def.target, &self.data, self.id);
        let (steps, next) = (self.directory.clone(), committed.next);
        let mut rows = follower.everything()?;
        let draft = Draft::new(&sums, encoder, limits, next);
        let mut draft = self.write_of(Op::Insert, &mut rows, draft).await?;
        let draft = self.compute(move || draft.end().map(|()| draft)).await?;
        let (db, fact) = (self.db()?, fact(self.id));
        let finish = move || {
            let (numbers, _, bytes) = draft.finish()?;
            sums.publish(numbers)?;
            committed.outbox.first = next;
            committed.outbox.sum_bytes = bytes;
            committed.outbox.summed_bytes = committed.bytes;
            committed.outbox.delivered = next;
            let value =
                serde_json::to_vec(&committed).map_err(|error| SqlError::internal(error.to_string()))?;
            db.store().catalog().put_fact(&fact, &value)?;
            sums.remove(|number| number == next)?;
            steps.remove(|number| number >= next)?;
            Ok(committed)
        };
        self.committed = self.on_disk(finish).await?;
        Ok(())
    }
}
