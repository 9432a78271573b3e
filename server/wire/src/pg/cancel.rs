//! Who may cancel what: a cancel request comes over a connection of its own and names a session by number and secret.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_database::running::CancelHandle;
use parking_lot::Mutex;
use pgwire::messages::ProtocolVersion;
use pgwire::messages::startup::SecretKey;
use uuid::Uuid;

/// The sessions that can be cancelled.
#[derive(Default)]
pub struct CancelRegistry {
    sessions: Mutex<HashMap<i32, (SecretKey, CancelHandle)>>,
}

impl CancelRegistry {
    /// Makes a session known until the guard is dropped.
    pub fn register(self: &Arc<Self>, id: i32, secret: SecretKey, handle: CancelHandle) -> Registration {
        self.sessions.lock().insert(id, (secret, handle));
        Registration {
            registry: Arc::clone(self),
            id,
        }
    }

    /// Cancels the running statement of a session, if number and secret are right. Nobody is told whether they were.
    pub fn cancel(&self, id: i32, secret: &SecretKey) {
        let sessions = self.sessions.lock();
        if let Some((expected, handle)) = sessions.get(&id)
            && expected.eq_value(secret)
        {
            handle.cancel();
        }
    }

    /// Cancels whatever runs, in all sessions.
    pub fn cancel_all(&self) {
        for (_, handle) in self.sessions.lock().values() {
            handle.cancel();
        }
    }
}

/// Keeps a session in the registry.
pub struct Registration {
    registry: Arc<CancelRegistry>,
    id: i32,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.sessions.lock().remove(&self.id);
    }
}

/// A secret of the length that the protocol version has space for.
pub fn new_secret(version: ProtocolVersion) -> SecretKey {
    // The first four bytes of a random uuid are all random.
    let random = Uuid::new_v4().into_bytes();
    match version {
        ProtocolVersion::PROTOCOL3_0 => {
            SecretKey::I32(i32::from_be_bytes([random[0], random[1], random[2], random[3]]))
        }
        _ => SecretKey::Bytes([random, Uuid::new_v4().into_bytes()].concat().into()),
    }
}
