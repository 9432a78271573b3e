//! What a sink has delivered: from its files, or from those that came since a checkpoint; and what is lacking.

use std::io;
use std::sync::Arc;

use millrace_engine::{Changes, Checkpointed, Follower};
use millrace_planner::RelationId;
use millrace_postgres::error::SqlState;
use millrace_resource::memory::{Holder, Use};

use super::drafting::{rows_of, times};
use super::writing::{Leave, Writing};
use crate::sink_files::base::{Base, Counts};
use crate::sink_files::decode::Decoder;
use crate::sink_files::directory::io_error;
use crate::sink_files::draft::Draft;
use crate::sink_files::encode::{Encoder, Op};
use crate::sink_files::tally::{Differences, Tally};

/// Rows that are compared with what was delivered at once.
const KEYS_AT_ONCE: usize = 1_024;
/// What was delivered takes so much memory, or such a part of `memory_limit`, while it is compared with what there is. The rest is on
/// the disk meanwhile.
const TALLY_BYTES_MAX: usize = 64 << 20;
const TALLY_PART: usize = 16;

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

    /// Nothing, to which what was delivered is to be added.
    pub(super) fn tally(&self) -> Tally {
        let memory = self.runtime.memory();
        let account = memory.account(Holder::Relation(RelationId(self.id.0)), &self.name);
        let bytes_max = TALLY_BYTES_MAX.min(memory.limit() / TALLY_PART);
        Tally::new(self.bases.directory(), bytes_max, account.charge(Use::Query, 0))
    }

    /// What the committed files from `first` on say together: how often each row is there. None: all files, and what they were before.
    pub(super) async fn delivered(&self, encoder: &Arc<Encoder>, first: Option<u64>) -> Result<Tally, Leave> {
        let mut tally = self.tally();
        let begin = self.committed.outbox.first;
        let steps = first.map_or(begin, |first| first.max(begin))..self.committed.next;
        let sum = first
            .is_none_or(|first| first < begin)
            .then(|| self.sum())
            .flatten();
        for path in sum
            .into_iter()
            .chain(steps.map(|number| self.directory.file(number)))
        {
            let encoder = Arc::clone(encoder);
            let open = self.on_disk(move || Decoder::open(encoder, path)).await;
            let mut decoder = open.map_err(|left| match left {
                Leave::Failed(error) if error.code == SqlState::UndefinedFile => error
                    .with_detail("Without it, the rows that the sink has delivered are not known.")
                    .with_hint("Put it back, or drop the sink and create it again.")
                    .into(),
                left => left,
            })?;
            loop {
                self.check_running()?;
                let read = move || decoder.read().map(|has_more| (decoder, has_more));
                let has_more;
                (decoder, has_more) = self.on_disk(read).await?;
                if !has_more {
                    break;
                }
                let count = move || {
                    decoder.decode(&mut |op, key| tally.add(key, if op == Op::Insert { 1 } else { -1 }))?;
                    Ok((decoder, tally))
                };
                (decoder, tally) = self.compute(count).await?;
                tally = self.with_memory(tally).await?;
            }
        }
        Ok(tally)
    }

    /// The tally, once there is room in memory for more.
    pub(super) async fn with_memory(&self, mut tally: Tally) -> Result<Tally, Leave> {
        let (run, mut tally) = self.compute(move || Ok((tally.take_full(), tally))).await?;
        let Some(run) = run else { return Ok(tally) };
        let place = self.bases.file(0);
        self.on_disk(move || {
            let written = tally.write(&run);
            written.map_err(|error| io_error("write next to", &place, &error))?;
            Ok(tally)
        })
        .await
    }

    /// Writes what it takes from what was delivered to what there is, of which `changes` are all rows, or, as what was delivered, the
    /// changes since a checkpoint.
    pub(super) async fn write_difference(
        &self,
        encoder: &Arc<Encoder>,
        mut changes: Changes,
        mut tally: Tally,
        mut draft: Draft,
    ) -> Result<Draft, Leave> {
        while let Some(batch) = changes.next().await? {
            for (op, times) in [(Op::Delete, 1), (Op::Insert, -1)] {
                let Some(rows) = rows_of(op, &batch)? else {
                    continue;
                };
                for from in (0..rows.num_rows()).step_by(KEYS_AT_ONCE) {
                    self.check_running()?;
                    let encoder = Arc::clone(encoder);
                    let piece = rows.slice(from, KEYS_AT_ONCE.min(rows.num_rows() - from));
                    let count = move || {
                        let keys = encoder.keys(&encoder.conform(&piece)?)?;
                        keys.iter().for_each(|key| tally.add(key, times));
                        Ok(tally)
                    };
                    tally = self.compute(count).await?;
                    tally = self.with_memory(tally).await?;
                }
            }
        }
        // What was delivered once too often goes, what is lacking comes.
        let differences = self.compute(move || Ok(tally.differences())).await?;
        if self.def.sink_type.has_deletions() {
            draft = self.write_differences(Op::Delete, 1, &differences, draft).await?;
        }
        self.write_differences(Op::Insert, -1, &differences, draft).await
    }

    /// Writes the rows that were counted with this sign, so often as they were.
    async fn write_differences(
        &self,
        op: Op,
        sign: i64,
        differences: &Arc<Differences>,
        mut draft: Draft,
    ) -> Result<Draft, Leave> {
        let place = self.bases.file(0);
        let failed = move |error: io::Error| io_error("read next to", &place, &error);
        let (all, begun) = (Arc::clone(differences), failed.clone());
        let mut merge = self.on_disk(move || all.iter().map_err(begun)).await?;
        loop {
            let failed = failed.clone();
            let take = move || {
                let rows = merge.take(KEYS_AT_ONCE).map_err(failed)?;
                Ok((rows, merge))
            };
            let rows;
            (rows, merge) = self.on_disk(take).await?;
            if rows.is_empty() {
                return Ok(draft);
            }
            let rows = rows.into_iter();
            let keys = rows.flat_map(|(key, count)| std::iter::repeat_n(key, times(sign * count)));
            draft = self.write_keys(op, keys.collect(), draft).await?;
        }
    }
}
