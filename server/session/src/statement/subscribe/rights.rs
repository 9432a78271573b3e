//! Whether what is followed may still be read. A SELECT is over soon; what is followed goes on, so that whoever follows is asked again:
//! at each change, at each FETCH, and once a second where nothing changes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use millrace_catalog::access::denied;
use millrace_postgres::error::SqlResult;
use millrace_storage::ObjectId;
use parking_lot::Mutex;

use crate::session::Session;

/// How often it is looked while nothing changes.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// What is read, and who reads it.
#[derive(Clone)]
pub(crate) struct Rights {
    /// The cursors of a session have these: it must not be held by them.
    session: Weak<Session>,
    /// As whom the session acted when it began.
    role: ObjectId,
    /// What is named in what is followed.
    reads: Vec<ObjectId>,
    /// What it was that allowed it last.
    allowed: Arc<Mutex<Option<Seen>>>,
}

/// What rights depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    catalog: u64,
    /// Whether the catalog is one that only a transaction knows.
    is_own: bool,
    is_checked: bool,
}

impl Rights {
    pub(super) fn new(session: &Arc<Session>, reads: Vec<ObjectId>) -> Rights {
        Rights {
            session: Arc::downgrade(session),
            role: session.scope().acting.role,
            reads,
            allowed: Arc::default(),
        }
    }

    /// Refuses to go on.
    ///
    /// # Errors
    /// 42501: the role that logged in is gone or may not log in any more, or who began may not read what is followed any more.
    pub(crate) fn check(&self) -> SqlResult<()> {
        let Some(session) = self.session.upgrade() else {
            return Ok(());
        };
        let catalog = session.catalog();
        let seen = Seen {
            catalog: catalog.version,
            is_own: session.definitions().is_some(),
            is_checked: session.database().tuning().access_control,
        };
        if *self.allowed.lock() == Some(seen) {
            return Ok(());
        }
        match catalog.role_by_id(session.user) {
            Some(role) if role.role().is_some_and(|role| role.login) => {}
            Some(role) => {
                return Err(denied(format!(
                    "role \"{}\" is not permitted to log in",
                    role.name
                )));
            }
            None => return Err(denied("the role that logged in does not exist any more")),
        }
        let mut scope = session.scope();
        scope.acting.role = self.role;
        for id in &self.reads {
            if let Some(object) = scope.catalog.object(*id) {
                scope.check_read(object)?;
            }
        }
        *self.allowed.lock() = Some(seen);
        Ok(())
    }
}
