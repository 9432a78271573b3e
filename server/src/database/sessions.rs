//! The sessions that there are, and how one ends a statement of another.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::session::Session;

/// By their ids.
#[derive(Default)]
pub struct Sessions {
    by_id: Mutex<BTreeMap<i32, Weak<Session>>>,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_id.lock().keys()).finish()
    }
}

impl Sessions {
    /// Those that there are, by id.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.by_id.lock().values().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn add(&self, id: i32, session: &Arc<Session>) {
        self.by_id.lock().insert(id, Arc::downgrade(session));
    }

    pub(super) fn remove(&self, id: i32) {
        self.by_id.lock().remove(&id);
    }

    /// Ends a session: what it runs, if that can still be ended, and its connection; false: there is no such session.
    pub fn terminate(&self, id: i32) -> bool {
        let session = self.by_id.lock().get(&id).and_then(Weak::upgrade);
        if let Some(session) = &session {
            session.cancel_handle().terminate();
        }
        session.is_some()
    }

    /// Cancels what a session runs, paused or not; false: there is no such session.
    pub fn cancel(&self, id: i32) -> bool {
        let session = self.by_id.lock().get(&id).and_then(Weak::upgrade);
        if let Some(session) = &session {
            session.cancel_handle().cancel();
        }
        session.is_some()
    }
}
