//! The sessions of a database: their numbers, and what is forgotten when they end.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::database::Database;
use crate::database::sequences::Sequences;
use crate::sessions::SessionStatus;
use crate::sessions::advisory::AdvisoryLocks;
use crate::sessions::news::News;

impl Database {
    /// The sessions that there are, by id.
    pub fn sessions(&self) -> Vec<Arc<dyn SessionStatus>> {
        self.sessions.all()
    }

    /// The values of sequences.
    pub fn sequences(&self) -> &Arc<Sequences> {
        &self.sequences
    }

    /// The advisory locks of sessions.
    pub fn advisory_locks(&self) -> &Arc<AdvisoryLocks> {
        &self.sessions.advisory
    }

    /// What sessions tell each other.
    pub fn news(&self) -> &News {
        &self.sessions.news
    }

    pub fn next_session_id(&self) -> i32 {
        self.next_session.fetch_add(1, Ordering::Relaxed)
    }

    pub fn register(&self, id: i32, session: Weak<dyn SessionStatus>) {
        self.sessions.add(id, session);
    }

    pub fn unregister(&self, id: i32) {
        self.sessions.remove(id);
        self.sessions.advisory.unlock_all(id);
        self.sessions.news.forget(id);
        self.sequences.forget_session(id);
    }
}
