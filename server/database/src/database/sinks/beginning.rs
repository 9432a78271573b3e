//! How a subscription begins: with what there is by then, of which nothing is a change.
//!
//! It begins again where its outbox is gone, which no backup has: what was told since the backup, and to whom, is not known then. Whoever
//! wants to go on from before is told that it is not possible.

use std::sync::Arc;

use millrace_catalog::sink::SinkType;
use millrace_engine::Follower;
use millrace_planner::RelationId;
use millrace_postgres::error::SqlError;
use millrace_storage::ObjectKind;

use super::subscription_log::Form;
use super::writing::{Leave, Writing};
use super::{Committed, fact};
use crate::clock::now_ms;
use crate::database::subscriptions::log;
use crate::sink_files::encode::Encoder;
use crate::sink_files::outbox;

impl Writing {
    /// Whether this is a subscription that has not begun, or has lost what it needs to go on. Its log is there then.
    pub(super) async fn begins(&mut self) -> Result<bool, Leave> {
        let Some(kept) = self.kept.clone() else {
            return Ok(false);
        };
        let has_begun = self.db()?.store().catalog().fact(&fact(self.id))?.is_some();
        let (schema, is_stream) = {
            let catalog = self.db()?.catalog();
            let object = catalog.object(self.def.relation);
            let relation = object.and_then(|object| object.relation());
            let is_stream = object.is_some_and(|object| object.kind == ObjectKind::Stream);
            let schema = relation.map(|relation| self.def.log_schema(relation.schema()));
            (schema, is_stream)
        };
        let (data, id, known) = (self.data.clone(), self.id, self.committed);
        let (steps, sum) = (self.directory.clone(), self.sum());
        // Of a stream, what was delivered is not needed any more.
        let first = match is_stream {
            true => known.outbox.delivered,
            false => known.outbox.first,
        };
        let is_there = move || {
            let is_new = kept.open_log(schema)?;
            let there = outbox::of(&data, id).exists()
                && sum.is_none_or(|sum| sum.exists())
                && (first..known.next)
                    .all(|number| steps.file(number).exists() || steps.hidden(number).exists());
            Ok(!is_new && there)
        };
        let is_there = self.on_disk(is_there).await?;
        if has_begun && !is_there {
            tracing::warn!(
                subscription = self.name,
                "the changes that a subscription sent before are unknown: it starts over"
            );
        }
        if (!has_begun || !is_there)
            && let Some(shipping) = self.shipping.take()
        {
            shipping.stop().await;
        }
        Ok(!has_begun || !is_there)
    }

    /// What the steps of a subscription are like; none: what it follows is not there.
    pub(super) fn form(&self) -> Option<Form> {
        let catalog = self.db().ok()?.catalog();
        let relation = catalog.object(self.def.relation)?.relation()?;
        let columns = self.def.columns.len();
        let key = relation.info.key.clone();
        Some(Form {
            key: key.filter(|key| key.iter().all(|column| *column < columns)),
            is_changelog: self.def.sink_type == SinkType::Changelog,
        })
    }

    /// Begins. What is visible by now was taken then.
    pub(super) async fn begin(&mut self, encoder: &Arc<Encoder>, is_stream: bool) -> Result<Follower, Leave> {
        let mut follower = self.runtime.follow(RelationId(self.def.relation.0), 0);
        drop(follower.step().await?);
        let epoch = log::epoch_after(self.committed.outbox.epoch, self.runtime.now());
        let mut committed = Committed {
            offset: follower.offset(),
            at_ms: now_ms(),
            ..self.committed
        };
        committed.outbox.epoch = epoch;
        committed.outbox.since = epoch;
        committed.outbox.delivered = committed.next;
        committed.outbox.delivered_rows = committed.rows;
        let (sums, _) = outbox::sums(&self.def.target, &self.data, self.id);
        let (steps, bases) = (self.directory.clone(), self.bases.clone());
        let clear = move || {
            sums.remove(|_| false)?;
            steps.remove(|_| false)?;
            // What is noted with checkpoints is about steps that are gone.
            let removed = bases.remove();
            removed.map_err(|error| SqlError::internal(error.to_string()))
        };
        self.on_disk(clear).await?;
        if is_stream {
            let (db, fact) = (self.db()?, fact(self.id));
            committed.outbox.first = committed.next;
            let write = move || {
                let value =
                    serde_json::to_vec(&committed).map_err(|error| SqlError::internal(error.to_string()))?;
                Ok(db.store().catalog().put_fact(&fact, &value)?)
            };
            self.on_disk(write).await?;
            self.committed = committed;
        } else {
            self.add_up(encoder, &follower, committed).await?;
        }
        self.set_needed();
        self.tell();
        Ok(follower)
    }
}
