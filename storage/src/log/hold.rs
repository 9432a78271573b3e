//! Holds: who still reads a log, and from where. Retention removes nothing at or behind the lowest.

use std::sync::Arc;

use crate::log::relation::RelationLog;

/// Keeps the rows of a log from an offset on until it is dropped.
#[derive(Debug)]
pub struct LogHold {
    relation: Arc<RelationLog>,
    id: u64,
    offset: u64,
}

impl LogHold {
    /// From `offset` on, or from where the log begins if that is later.
    pub(super) fn new(relation: Arc<RelationLog>, offset: u64) -> LogHold {
        let mut index = relation.index.write();
        let offset = offset.max(index.first);
        let id = index.next_hold;
        index.next_hold += 1;
        index.holds.insert(id, offset);
        drop(index);
        LogHold { relation, id, offset }
    }

    pub(super) fn relation(&self) -> &Arc<RelationLog> {
        &self.relation
    }

    /// Whose log it is.
    pub(crate) fn relation_id(&self) -> u64 {
        self.relation.id
    }

    /// The first offset that is held.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Lets go of what is before `offset`. It never goes back.
    pub fn advance(&mut self, offset: u64) {
        if offset > self.offset {
            self.offset = offset;
            self.relation.index.write().holds.insert(self.id, offset);
        }
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        self.relation.index.write().holds.remove(&self.id);
    }
}
