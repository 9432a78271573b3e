//! Who a session is, by identity: the names of roles may change, and become others'.

use millrace_storage::ObjectId;

/// Who a session is, and as whom it acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The user who logged in, or whom SET SESSION AUTHORIZATION named.
    pub session_user: ObjectId,
    /// The one of SET ROLE.
    pub role: Option<ObjectId>,
}

impl Identity {
    /// Somebody who acts as itself.
    pub fn of(session_user: ObjectId) -> Identity {
        Identity {
            session_user,
            role: None,
        }
    }

    /// As whom the session acts.
    pub fn current_user(self) -> ObjectId {
        self.role.unwrap_or(self.session_user)
    }
}

impl Default for Identity {
    /// Nobody, until somebody logs in.
    fn default() -> Self {
        Identity::of(ObjectId(0))
    }
}
