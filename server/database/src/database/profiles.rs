//! What was seen of the queries that were analysed last, and of the views that were watched, for whoever asks later.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_clarity::{Profile, ViewProfile};
use millrace_storage::ObjectId;
use parking_lot::Mutex;

use crate::clock::now_ns;
use crate::database::Database;
use crate::database::forecasts::Forecasts;

/// Profiles that are kept; the oldest goes first.
const PROFILES_MAX: usize = 32;

/// Views that were watched, which take more each.
const VIEWS_MAX: usize = 8;

/// Monotasks that are kept of one of them; of a run with more, only the sums.
const MONOTASKS_MAX: usize = 8_192;

/// A run that was analysed.
#[derive(Debug)]
pub struct RecentProfile {
    pub id: u64,
    /// Whose run it was.
    pub role: ObjectId,
    /// The query's text.
    pub query: String,
    pub profile: Profile,
    /// The session that ran it.
    pub session: i32,
    /// When, in nanoseconds since 1970-01-01 UTC.
    pub kept_at_ns: u64,
}

/// A view that was watched.
#[derive(Debug)]
pub struct RecentView {
    pub id: u64,
    /// Who watched it.
    pub role: ObjectId,
    pub profile: ViewProfile,
}

/// What is kept under a number.
#[derive(Debug, Clone)]
pub enum Recent {
    Run(Arc<RecentProfile>),
    View(Arc<RecentView>),
}

impl Recent {
    /// Whose it is.
    pub fn role(&self) -> ObjectId {
        match self {
            Recent::Run(run) => run.role,
            Recent::View(view) => view.role,
        }
    }
}

/// The runs that were analysed last.
#[derive(Debug, Default)]
pub struct Profiles {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    last_id: u64,
    recent: VecDeque<Arc<RecentProfile>>,
    views: VecDeque<Arc<RecentView>>,
}

/// Adds one, for which the oldest goes.
fn push<T>(kept: &mut VecDeque<Arc<T>>, most: usize, new: &Arc<T>) {
    if kept.len() == most {
        kept.pop_front();
    }
    kept.push_back(Arc::clone(new));
}

impl Profiles {
    /// Keeps a profile, as it returns it, under a number by which it is found.
    pub fn keep(
        &self,
        (role, session): (ObjectId, i32),
        query: String,
        mut profile: Profile,
    ) -> Arc<RecentProfile> {
        let tasks = || profile.stages.iter().flat_map(|stage| &stage.tasks);
        if tasks().map(|task| task.monotasks.len()).sum::<usize>() > MONOTASKS_MAX {
            let tasks = profile.stages.iter_mut().flat_map(|stage| &mut stage.tasks);
            tasks.for_each(|task| task.monotasks = vec![]);
        }
        let mut kept = self.kept.lock();
        kept.last_id += 1;
        let id = kept.last_id;
        let run = Arc::new(RecentProfile {
            id,
            role,
            query,
            profile,
            session,
            kept_at_ns: now_ns(),
        });
        push(&mut kept.recent, PROFILES_MAX, &run);
        run
    }

    /// Keeps what was seen of a view, as it returns it, under a number of the same kind.
    pub fn keep_view(&self, role: ObjectId, profile: ViewProfile) -> Arc<RecentView> {
        let mut kept = self.kept.lock();
        kept.last_id += 1;
        let id = kept.last_id;
        let view = Arc::new(RecentView { id, role, profile });
        push(&mut kept.views, VIEWS_MAX, &view);
        view
    }

    /// Forgets those that there are.
    pub fn clear(&self) {
        let mut kept = self.kept.lock();
        kept.recent.clear();
        kept.views.clear();
    }

    /// What has a number, if it is still there.
    pub fn get(&self, id: u64) -> Option<Recent> {
        let kept = self.kept.lock();
        let run = kept.recent.iter().find(|run| run.id == id);
        let view = kept.views.iter().find(|view| view.id == id);
        run.cloned()
            .map(Recent::Run)
            .or_else(|| view.cloned().map(Recent::View))
    }

    /// The last that a session ran, if it is still there.
    pub fn last_of(&self, session: i32) -> Option<Arc<RecentProfile>> {
        let kept = self.kept.lock();
        let mut runs = kept.recent.iter().rev();
        runs.find(|run| run.session == session).cloned()
    }

    /// All runs of queries, the newest last.
    pub fn all(&self) -> Vec<Arc<RecentProfile>> {
        self.kept.lock().recent.iter().cloned().collect()
    }
}

impl Database {
    /// The runs that were analysed last.
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// What was forecast lately, and what became of it.
    pub fn forecasts(&self) -> &Forecasts {
        &self.forecasts
    }

    /// Cores that queries have: those of the workers in this process, as far as the machine has as many.
    pub fn cores(&self) -> usize {
        let workers = self.runtime().workers();
        let here = workers.iter().filter(|worker| worker.host.is_none());
        let slots = here.map(|worker| worker.cores).sum::<usize>();
        let machine = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
        // One worker may be given more slots than there are cores, for tests; several share what there is.
        let most = workers.iter().map(|worker| worker.cores).max().unwrap_or(1);
        slots.min(machine.max(most)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use millrace_clarity::profile::Machine;

    use super::*;

    #[test]
    fn the_oldest_goes_first() {
        let profiles = Profiles::default();
        let profile = Profile {
            planning: 0,
            end: 0,
            machine: Machine {
                cores: 1,
                disks: vec![],
                network: None,
                tasks_in_flight: 0,
                stolen: 0,
                memory: None,
            },
            stages: vec![],
        };
        for number in 1..=PROFILES_MAX as u64 + 1 {
            let kept = profiles.keep((ObjectId(1), 7), format!("SELECT {number}"), profile.clone());
            assert_eq!(kept.id, number);
        }
        assert!(profiles.get(1).is_none());
        assert!(matches!(profiles.get(2).unwrap(), Recent::Run(run) if run.query == "SELECT 2"));
        assert_eq!(profiles.all().len(), PROFILES_MAX);
    }
}
