//! The statements that run for HTTP requests, by id, so that another request can cancel them.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_database::running::CancelHandle;
use millrace_storage::ObjectId;
use parking_lot::Mutex;

/// The longest id that a client may choose.
const ID_BYTES_MAX: usize = 128;

/// The running statements.
#[derive(Default)]
pub struct QueryRegistry {
    running: Mutex<HashMap<String, (CancelHandle, ObjectId)>>,
}

impl QueryRegistry {
    /// Makes a request's session known until the guard is dropped; `None` if the id is malformed or in use.
    pub fn register(
        self: &Arc<Self>,
        id: String,
        handle: CancelHandle,
        user: ObjectId,
    ) -> Option<RunningQuery> {
        if id.is_empty() || id.len() > ID_BYTES_MAX || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let mut running = self.running.lock();
        if running.contains_key(&id) {
            return None;
        }
        running.insert(id.clone(), (handle, user));
        Some(RunningQuery {
            registry: Arc::clone(self),
            id,
        })
    }

    /// Who runs a statement.
    pub fn user_of(&self, id: &str) -> Option<ObjectId> {
        self.running.lock().get(id).map(|(_, user)| *user)
    }

    /// Cancels a statement; whether there was one.
    pub fn cancel(&self, id: &str) -> bool {
        match self.running.lock().get(id) {
            Some((handle, _)) => {
                handle.cancel();
                true
            }
            None => false,
        }
    }

    /// Cancels whatever runs.
    pub fn cancel_all(&self) {
        for (handle, _) in self.running.lock().values() {
            handle.cancel();
        }
    }
}

/// Keeps a statement in the registry.
pub struct RunningQuery {
    registry: Arc<QueryRegistry>,
    id: String,
}

impl RunningQuery {
    /// The id by which it can be cancelled.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl Drop for RunningQuery {
    fn drop(&mut self) {
        self.registry.running.lock().remove(&self.id);
    }
}
