//! The profiles of the runs that were analysed last, for whoever asks later.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_clarity::Profile;
use parking_lot::Mutex;

use crate::clock::now_ns;
use crate::database::Database;

/// Profiles that are kept; the oldest goes first.
const PROFILES_MAX: usize = 32;

/// Monotasks that are kept of one of them; of a run with more, only the sums.
const MONOTASKS_MAX: usize = 8_192;

/// A run that was analysed.
#[derive(Debug)]
pub struct RecentProfile {
    pub id: u64,
    /// The query's text.
    pub query: String,
    pub profile: Profile,
    /// The session that ran it.
    pub session: i32,
    /// When, in nanoseconds since 1970-01-01 UTC.
    pub kept_at_ns: u64,
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
}

impl Profiles {
    /// Keeps a profile, as it returns it, under a number by which it is found.
    pub fn keep(&self, session: i32, query: String, mut profile: Profile) -> Arc<RecentProfile> {
        let tasks = || profile.stages.iter().flat_map(|stage| &stage.tasks);
        if tasks().map(|task| task.monotasks.len()).sum::<usize>() > MONOTASKS_MAX {
            let tasks = profile.stages.iter_mut().flat_map(|stage| &mut stage.tasks);
            tasks.for_each(|task| task.monotasks = vec![]);
        }
        let mut kept = self.kept.lock();
        kept.last_id += 1;
        let id = kept.last_id;
        if kept.recent.len() == PROFILES_MAX {
            kept.recent.pop_front();
        }
        let run = Arc::new(RecentProfile {
            id,
            query,
            profile,
            session,
            kept_at_ns: now_ns(),
        });
        kept.recent.push_back(Arc::clone(&run));
        run
    }

    /// Forgets those that there are.
    pub fn clear(&self) {
        self.kept.lock().recent.clear();
    }

    /// The profile with a number, if it is still there.
    pub fn get(&self, id: u64) -> Option<Arc<RecentProfile>> {
        let kept = self.kept.lock();
        kept.recent.iter().find(|recent| recent.id == id).cloned()
    }

    /// The last that a session ran, if it is still there.
    pub fn last_of(&self, session: i32) -> Option<Arc<RecentProfile>> {
        let kept = self.kept.lock();
        kept.recent
            .iter()
            .rev()
            .find(|recent| recent.session == session)
            .cloned()
    }

    /// All of them, the newest last.
    pub fn all(&self) -> Vec<Arc<RecentProfile>> {
        self.kept.lock().recent.iter().cloned().collect()
    }
}

impl Database {
    /// The runs that were analysed last.
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// Cores of all workers that there are now.
    pub fn cores(&self) -> usize {
        let workers = self.runtime().workers();
        workers.iter().map(|worker| worker.cores).sum::<usize>().max(1)
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
            },
            stages: vec![],
        };
        for number in 1..=PROFILES_MAX as u64 + 1 {
            let kept = profiles.keep(7, format!("SELECT {number}"), profile.clone());
            assert_eq!(kept.id, number);
        }
        assert!(profiles.get(1).is_none());
        assert_eq!(profiles.get(2).unwrap().query, "SELECT 2");
        assert_eq!(profiles.all().len(), PROFILES_MAX);
    }
}
