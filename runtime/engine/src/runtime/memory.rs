//! Memory as relations see it: what is charged to whom, and the watcher.
//!
//! The watcher looks at the resident size, and is the last resort: views that grow while nothing is left fail by themselves
//! ([`Account::check`]); if nothing is left for a while all the same, the view goes whose task goes on taking, or that holds most.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use millrace_planner::RelationId;
use millrace_resource::memory::{Account, Charge, Holder, Memory, Use};
use millrace_schedule::cpu::QueryClass;
use millrace_storage::{ChangeBatch, rows_bytes};

use super::{Engine, Runtime};
use crate::relation::Relation;
use crate::worker::ViewInstance;

/// How often the resident size is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// After so many looks in a row at which nothing was left the view goes that holds most. What was freed may take a while to go
/// back to the operating system.
const EXHAUSTED_LOOKS: u32 = 60;
/// After so many, and while more is taken all the same, the view of the task goes that has been running for the longest: what
/// operators hold in the middle of their work is in no account.
const GROWING_LOOKS: u32 = 20;

/// What the watcher is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Nothing,
    FailRunning,
    FailLargest,
}

/// Looks in a row at which nothing was left.
#[derive(Debug, Default)]
struct Watch {
    looks: u32,
    /// What was used at the first of them, or when it was last asked whether more is taken.
    used: usize,
}

impl Watch {
    /// One look; `used`: so much, and that is all or more.
    fn step(&mut self, used: Option<usize>) -> Verdict {
        let Some(used) = used else {
            *self = Watch::default();
            return Verdict::Nothing;
        };
        if self.looks == 0 {
            self.used = used;
        }
        self.looks += 1;
        if self.looks == EXHAUSTED_LOOKS {
            *self = Watch::default();
            return Verdict::FailLargest;
        }
        if self.looks.is_multiple_of(GROWING_LOOKS) && used > std::mem::replace(&mut self.used, used) {
            return Verdict::FailRunning;
        }
        Verdict::Nothing
    }
}

impl Runtime {
    /// The memory of the process.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.engine.machine.memory
    }
}

impl Engine {
    /// The account of a relation.
    pub fn account_of(&self, relation: RelationId, name: &str) -> Arc<Account> {
        self.machine.memory.account(Holder::Relation(relation), name)
    }

    /// The charge for rows that were written to a relation, or are fed again.
    pub fn charge_input(&self, relation: &Relation, changes: &ChangeBatch) -> Arc<Charge> {
        let account = self.account_of(relation.id(), &relation.described());
        Arc::new(account.charge(Use::Input, rows_bytes(&changes.rows)))
    }

    /// Looks at the memory, while the runtime lives.
    pub(super) fn watch_memory(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.machine.io.spawn(async move {
            let mut interval = tokio::time::interval(LOOK_EVERY);
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut watch = Watch::default();
            loop {
                interval.tick().await;
                let Some(engine) = weak.upgrade() else { return };
                let memory = &engine.machine.memory;
                memory.look();
                match watch.step(memory.is_exhausted().then(|| memory.used())) {
                    Verdict::Nothing => {}
                    Verdict::FailRunning => engine.fail_running(),
                    Verdict::FailLargest => engine.fail_largest(),
                }
                engine.divide_large();
                if memory.is_crowded() {
                    engine.relieve();
                }
            }
        });
    }

    /// Spills parts of the views that use the most memory. Their tasks see to it too, but not those of a view at rest.
    fn relieve(&self) {
        if self.machine.spill.is_none() {
            return;
        }
        let views = self.going_views().into_iter();
        for view in views.filter(|view| view.account.leaves()) {
            // No task may tell a view at rest what is still read of it.
            view.set_low_water(self.versions.low_water(view.id, false));
            let relieving = self.workers.spawn(QueryClass::Stream, move |_| {
                async move {
                    view.relieve().await;
                    Ok(())
                }
                .boxed()
            });
            if let Ok(relieving) = relieving {
                relieving.detach();
            }
        }
    }

    /// Has views rebuilt with more partitions whose parts are too large to come and go.
    pub(crate) fn divide_large(self: &Arc<Self>) {
        let mut views = vec![];
        {
            let relations = self.relations.read();
            for relation in relations.values() {
                let Relation::View(view) = relation.as_ref() else {
                    continue;
                };
                if view.take_to_divide() {
                    // Also one that goes on: it may run out of memory before it is rebuilt, which is no failure that readers are to see.
                    self.versions.suspend(view.id);
                    views.push(Arc::clone(view));
                }
            }
        }
        for view in views {
            let engine = Arc::clone(self);
            self.machine.io.spawn(async move { engine.divide(&view).await });
        }
    }

    /// The views that there are, those included that are being made.
    fn going_views(&self) -> Vec<Arc<ViewInstance>> {
        let mut views = self.workers.views();
        views.retain(|view| view.failure().is_none());
        views
    }

    /// Fails the view whose task has been running for the longest, while memory use grew. Not a view that is spilled: its tasks take
    /// long because they wait for memory.
    fn fail_running(&self) {
        let views = self.going_views().into_iter();
        let running = views.filter(|view| !view.is_divided()).filter_map(|view| {
            let (_, since) = view.longest_task()?;
            (since.elapsed() >= LOOK_EVERY * GROWING_LOOKS).then_some((since, view))
        });
        if let Some((_, view)) = running.min_by_key(|(since, _)| *since) {
            self.fail_view(&view);
        }
    }

    /// Fails the view that uses the most memory, if that is enough to matter.
    fn fail_largest(&self) {
        let mut views = self.going_views();
        // What those hold that go on from the disk is on its way there.
        let all = views.len();
        views.retain(|view| !view.is_divided() || self.machine.memory.is_overdrawn());
        let divided = all - views.len();
        let largest = views.iter().max_by_key(|view| view.account.total());
        match largest.filter(|view| view.account.is_large()) {
            Some(view) => self.fail_view(view),
            None => {
                let memory = self.machine.memory.shown();
                tracing::warn!(memory, "{}", no_view_to_fail(divided));
            }
        }
    }

    fn fail_view(&self, view: &ViewInstance) {
        let error = view.account.out_of_memory();
        tracing::error!(view = %view.name, %error, "out of memory: a view failed, and the others continue");
        view.set_aside(error.to_string(), true);
        self.tell_failed(view);
        self.checkpoints.store.remove(view.id);
    }
}

/// The warning where memory ran out and no view is stopped for it; `divided`: how many views are spilled already.
fn no_view_to_fail(divided: usize) -> String {
    let views = match divided {
        0 => "no view uses enough of it to matter".to_owned(),
        1 => "the view that is larger than it is spilled already".to_owned(),
        _ => format!("the {divided} views that are larger than it are spilled already"),
    };
    format!(
        "memory_limit is used up, and {views}: writes wait, and no view is stopped; if this lasts, raise memory_limit \
         (ALTER SYSTEM SET memory_limit), cancel queries, or drop the largest tables and views"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_names_what_holds_the_memory() {
        let none = no_view_to_fail(0);
        assert!(
            none.contains("no view uses enough") && none.contains("raise memory_limit"),
            "{none}"
        );
        let several = no_view_to_fail(3);
        assert!(several.contains("the 3 views that are larger"), "{several}");
    }

    fn verdicts(watch: &mut Watch, looks: u32, used: impl Fn(u32) -> Option<usize>) -> Vec<(u32, Verdict)> {
        let steps = (1..=looks).map(|look| (look, watch.step(used(look))));
        steps
            .filter(|(_, verdict)| *verdict != Verdict::Nothing)
            .collect()
    }

    #[test]
    fn what_grows_goes_before_what_is_large() {
        let mut watch = Watch::default();
        let growing = verdicts(&mut watch, 60, |look| Some(look as usize));
        let (running, largest) = (Verdict::FailRunning, Verdict::FailLargest);
        assert_eq!(growing, [(20, running), (40, running), (60, largest)]);
        assert_eq!(verdicts(&mut watch, 60, |_| Some(7)), [(60, largest)]);
        // A look at which there is some starts again.
        let with_a_gap = |look| (look != 19).then_some(look as usize);
        assert_eq!(verdicts(&mut watch, 40, with_a_gap), [(39, running)]);
    }
}
