//! What others see of a session.

use std::sync::Arc;

use millrace_catalog::Object;
use millrace_database::running::CancelHandle;
use millrace_database::sessions::{
    Activity, CursorShown, Kept, Locking, PreparedShown, SessionInfo, SessionStatus, TransactionStatus,
};
use millrace_postgres::types;
use millrace_schedule::cpu::QueryClass;
use millrace_storage::ObjectId;

use crate::session::Session;
use crate::transaction::Transaction;

impl SessionStatus for Session {
    fn id(&self) -> i32 {
        Session::id(self)
    }

    fn info(&self) -> &SessionInfo {
        Session::info(self)
    }

    fn user(&self) -> ObjectId {
        self.user
    }

    fn defined(&self, id: ObjectId) -> Option<Arc<Object>> {
        self.definitions()?.catalog().object(id).cloned()
    }

    fn began_at_ms(&self) -> i64 {
        self.began_at_ms
    }

    fn activity(&self) -> Option<Activity> {
        self.activity.lock().clone()
    }

    fn setting(&self, name: &str) -> Option<String> {
        Session::setting(self, name)
    }

    fn query_class(&self) -> QueryClass {
        Session::query_class(self)
    }

    fn transaction_status(&self) -> TransactionStatus {
        Session::transaction_status(self)
    }

    fn locks(&self) -> Vec<Locking> {
        let mut locks: Vec<Locking> = match &*self.transaction.lock() {
            Transaction::Active(active) => active.locked.iter().map(|id| Locking::held(*id)).collect(),
            _ => vec![],
        };
        let now = *self.locking.lock();
        locks.extend(now.filter(|now| !locks.iter().any(|held| held.relation == now.relation)));
        locks
    }

    fn cursors(&self) -> Vec<CursorShown> {
        let cursors = self.cursors.lock();
        let shown = cursors.iter().map(|(name, cursor)| CursorShown {
            kept: Kept {
                name: name.clone(),
                statement: cursor.query.clone(),
                began_at_ms: cursor.began_at_ms,
            },
            is_holdable: cursor.hold,
            is_scrollable: cursor.scrolls,
        });
        shown.collect()
    }

    fn prepared_statements(&self) -> Vec<PreparedShown> {
        let prepared = self.prepared.lock();
        let shown = prepared.iter().map(|(name, prepared)| PreparedShown {
            kept: Kept {
                name: name.clone(),
                statement: prepared.said.clone(),
                began_at_ms: prepared.began_at_ms,
            },
            parameter_types: prepared.param_types.iter().map(types::pg_name).collect(),
        });
        shown.collect()
    }

    fn cancel_handle(&self) -> CancelHandle {
        Session::cancel_handle(self)
    }
}
