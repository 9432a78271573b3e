//! What a sink has delivered: from its files, or from those that came since a checkpoint; and what is lacking.

use std::sync::Arc;

use millrace_engine::{Changes, Checkpointed, Follower};
use millrace_postgres::error::SqlState;

use super::writing::{Leave, Writing, rows_of, times};
use crate::sink_files::base::{Base, Counts};
use crate::sink_files::decode::Decoder;
use crate::sink_files::directory::io_error;
use crate::sink_files::draft::Draft;
use crate::sink_files::encode::{Encoder, Op};

/// Rows that are compared with what was delivered at once.
const KEYS_AT_ONCE: usize = 1_024;

impl Writing {
    /// What was noted with the checkpoint that its relation was restored from; none: all files have to be read.
    pub(super) async fn base_of<'a>(
        &self,
        restored: Option<&'a Checkpointed>,
    ) -> Result<Option<(&'a Checkpointed, Base)>, Leave> {
        let Some(restored) = restored else { return Ok(None) };
        let (bases, number) = (self.bases.clone(), restored.number);
        let read = move || bases.read(number);
        let base = self.runtime.use_files(&self.bases.file(number), read).await?;
        // Steps that are told by a sum are not there any more.
        let there = self.committed.outbox.first..=self.committed.next;
        let base = base.filter(|base| there.contains(&base.next));
        Ok(base.map(|base| (restored, base)))
    }

    /// Notes how the files differ from a checkpoint of what it reads. False: by more rows than these.
    pub(super) async fn note(
        &self,
        encoder: &Arc<Encoder>,
        follower: &Follower,
        checkpoint: &Checkpointed,
        rows_max: usize,
    ) -> Result<bool, Leave> {
        // Nothing is known of other tables: the next checkpoint is one of those that are followed.
        let Some(mut between) = follower.between(checkpoint) else {
            return Ok(true);
        };
        let (mut ahead, mut rows) = (Counts::new(), 0);
        while let Some(changes) = between.changes.next().await? {
            rows += changes.num_rows();
            if rows > rows_max {
                return Ok(false);
            }
            let encoder = Arc::clone(encoder);
            let sign = if between.is_ahead { 1 } else { -1 };
            let count = move || {
                let keys = encoder.keys(&encoder.conform(&changes.rows)?)?;
                for (row, key) in keys.into_iter().enumerate() {
                    *ahead.entry(key).or_default() += sign * changes.weight(row);
                }
                Ok(ahead)
            };
            ahead = self.compute(count).await?;
        }
        ahead.retain(|_, count| *count != 0);
        let base = Base {
            checkpoint: checkpoint.number,
            next: self.committed.next,
            ahead,
        };
        // The one that counts now is what the next start finds if this one does not come to count.
        let manifests = self.db()?.store().checkpoints().manifests();
        let has = |id: u64| id == self.def.relation.0;
        let mut newest = manifests.iter().rev();
        let newest = newest.find(|manifest| manifest.relations().any(has));
        let first = newest.map_or(0, |manifest| manifest.number);
        let bases = self.bases.clone();
        let write = move || bases.write(&base, first);
        let place = self.bases.file(checkpoint.number);
        if let Err(error) = self.runtime.use_files(&place, write).await? {
            let sink = self.id.0;
            tracing::warn!(sink, %error, "a start from this checkpoint will read all files of the sink");
        }
        Ok(true)
    }

    /// What the committed files from `first` on say together: how often each row is there.
    pub(super) async fn delivered(&self, encoder: &Arc<Encoder>, first: u64) -> Result<Counts, Leave> {
        let mut counts = Counts::new();
        let steps = self.committed.outbox.first.max(first)..self.committed.next;
        let sum = (first < steps.start).then(|| self.sum()).flatten();
        for path in sum
            .into_iter()
            .chain(steps.map(|number| self.directory.file(number)))
        {
            self.check_running()?;
            let content = self.runtime.read_file(&path).await?;
            let content = content.map_err(|error| {
                let error = io_error("read", &path, &error);
                match error.code {
                    SqlState::UndefinedFile => error
                        .with_detail("Without it, the rows that the sink has delivered are not known.")
                        .with_hint("Put it back, or drop the sink and create it again."),
                    _ => error,
                }
            })?;
            let encoder = Arc::clone(encoder);
            let decoder = self.compute(move || Decoder::new(encoder, path, content));
            let (mut decoder, mut has_more) = (decoder.await?, true);
            while has_more {
                self.check_running()?;
                let count = move || {
                    let has_more = decoder.piece(&mut |op, key| {
                        let change = if op == Op::Insert { 1 } else { -1 };
                        match counts.get_mut(key) {
                            Some(count) => *count += change,
                            None => {
                                counts.insert(Box::from(key), change);
                            }
                        }
                    })?;
                    Ok((decoder, counts, has_more))
                };
                (decoder, counts, has_more) = self.compute(count).await?;
            }
        }
        counts.retain(|_, count| *count != 0);
        Ok(counts)
    }

    /// Writes what it takes from what was delivered to what there is, of which `changes` are all rows, or, as what was delivered, the
    /// changes since a checkpoint.
    pub(super) async fn write_difference(
        &self,
        encoder: &Arc<Encoder>,
        mut changes: Changes,
        mut delivered: Counts,
        mut draft: Draft,
    ) -> Result<Draft, Leave> {
        // Rows that come have to wait until it is known which go.
        let mut missing: Vec<Box<[u8]>> = vec![];
        let ops: &[Op] = match changes.has_deletions() {
            true => &[Op::Delete, Op::Insert],
            false => &[Op::Insert],
        };
        for &op in ops {
            while let Some(batch) = changes.next().await? {
                self.check_running()?;
                let Some(rows) = rows_of(op, &batch)? else {
                    continue;
                };
                for from in (0..rows.num_rows()).step_by(KEYS_AT_ONCE) {
                    let encoder = Arc::clone(encoder);
                    let piece = rows.slice(from, KEYS_AT_ONCE.min(rows.num_rows() - from));
                    let compare = move || {
                        for key in encoder.keys(&encoder.conform(&piece)?)? {
                            match (op, delivered.get_mut(&key)) {
                                (Op::Delete, Some(count)) => *count += 1,
                                (Op::Delete, None) => {
                                    delivered.insert(key, 1);
                                }
                                (Op::Insert, Some(count)) if *count > 0 => *count -= 1,
                                (Op::Insert, _) => missing.push(key),
                            }
                        }
                        Ok((delivered, missing))
                    };
                    (delivered, missing) = self.compute(compare).await?;
                }
            }
            changes.rewind();
        }
        // What the checkpoint has and the files have not.
        let lacking = delivered.iter().filter(|(_, count)| **count < 0);
        for (key, count) in lacking {
            missing.extend(std::iter::repeat_n(key.clone(), times(-*count)));
        }
        if self.def.sink_type.has_deletions() {
            let mut gone: Vec<(Box<[u8]>, i64)> =
                delivered.into_iter().filter(|(_, count)| *count > 0).collect();
            gone.sort_unstable();
            let gone = gone
                .into_iter()
                .flat_map(|(key, count)| std::iter::repeat_n(key, times(count)));
            draft = self.write_keys(Op::Delete, gone.collect(), draft).await?;
        }
        self.write_keys(Op::Insert, missing, draft).await
    }
}
