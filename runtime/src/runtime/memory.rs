//! Memory as relations see it: what is charged to whom, and the watcher.
//!
//! The watcher looks at the resident size, and is the last resort: views that grow while nothing is left fail by themselves
//! ([`Account::check`]); if nothing is left for a while all the same, the view goes that holds most.

use std::sync::Arc;
use std::time::Duration;

use millrace_planner::RelationId;
use millrace_storage::{ChangeBatch, rows_bytes};

use super::{Inner, Runtime};
use crate::memory::{Account, Charge, Holder, Memory, Use};
use crate::relation::Relation;
use crate::worker::ViewInstance;

/// How often the resident size is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Looks in a row at which nothing was left, before a view is set aside that does not grow. What was freed may take a while
/// to go back to the operating system.
const EXHAUSTED_LOOKS: u32 = 60;

impl Runtime {
    /// The memory of the process.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.inner.options.memory
    }
}

impl Inner {
    /// The account of a relation.
    pub fn account_of(&self, relation: RelationId, name: &str) -> Arc<Account> {
        self.options.memory.account(Holder::Relation(relation), name)
    }

    /// The charge for rows that were written to a relation, or are fed again.
    pub fn charge_input(&self, relation: &Relation, changes: &ChangeBatch) -> Arc<Charge> {
        let account = self.account_of(relation.id(), &relation.described());
        Arc::new(account.charge(Use::Input, rows_bytes(&changes.rows)))
    }

    /// Looks at the memory, while the runtime lives.
    pub(super) fn watch_memory(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.io.spawn(async move {
            let mut interval = tokio::time::interval(LOOK_EVERY);
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut exhausted_looks = 0;
            loop {
                interval.tick().await;
                let Some(inner) = weak.upgrade() else { return };
                let memory = &inner.options.memory;
                memory.look();
                exhausted_looks = if memory.is_exhausted() {
                    exhausted_looks + 1
                } else {
                    0
                };
                if exhausted_looks >= EXHAUSTED_LOOKS {
                    inner.set_largest_aside();
                    exhausted_looks = 0;
                }
            }
        });
    }

    /// Sets the view aside that holds most, if that is enough to matter.
    fn set_largest_aside(&self) {
        let views: Vec<Arc<ViewInstance>> = (self.relations.read().values())
            .filter_map(|relation| match relation.as_ref() {
                Relation::View(view) if view.failure().is_none() => Some(Arc::clone(view)),
                _ => None,
            })
            .collect();
        let largest = views.iter().max_by_key(|view| view.account.total());
        let Some(view) = largest.filter(|view| view.account.is_large()) else {
            tracing::warn!(
                memory = self.options.memory.shown(),
                "no memory is left, and no view is large"
            );
            return;
        };
        let error = view.account.out_of_memory();
        tracing::error!(view = %view.name, %error, "a view is set aside, and the others go on");
        view.set_aside(error.to_string(), true);
        self.checkpoints.remove(view.id);
    }
}
