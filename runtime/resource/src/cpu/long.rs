//! Polls that take long, and what is done about them: a pure table, told the time.
//!
//! A poll cannot be interrupted: one call of a function over a large value, or the planning of a large statement, has no
//! suspension point inside. While it lasts its class would have a slot less, and two of them would be the end of a class on two
//! cores. So whoever waits for a slot is not kept waiting by them:
//!
//! ```text
//!   interactive poll --20 ms--> counts as batch work, and its thread as less urgent     (as its query would, after the poll)
//!   any poll         --1 s----> set apart: it counts no more, its place is free
//! ```
//! Its lane gets another thread at once, and the one that polls ends with the poll. There are at most [`EXTRA_MAX`] of these.

use millrace_schedule::cpu::QueryClass;

use super::slots::Lane;

/// After so long an interactive poll counts as batch work, in nanoseconds: as the processor time after which a query does.
const DEMOTED_AFTER_NS: u64 = 20_000_000;

/// After so long a poll takes no place of its class any more, in nanoseconds.
const APART_AFTER_NS: u64 = 1_000_000_000;

/// Threads beside the usual ones at most.
pub const EXTRA_MAX: usize = 64;

/// A thread, by its number in this scheduler.
pub type ThreadNumber = usize;

/// A poll under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongPoll {
    since_ns: u64,
    lane: Lane,
    /// Whose place it takes; `None`: it is set apart.
    pub place: Option<QueryClass>,
    /// Its lane has another thread instead of the one that polls.
    pub is_replaced: bool,
}

/// Something that has to be done about a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub thread: ThreadNumber,
    pub lane: Lane,
    /// Whose place it took until now, and takes from now on.
    pub from: QueryClass,
    pub to: Option<QueryClass>,
    /// The lane needs another thread.
    pub needs_thread: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Polls {
    under_way: Vec<Option<LongPoll>>,
    /// Threads that will end with their poll.
    replaced: usize,
}

impl Polls {
    /// A thread begins a poll that takes a place of `rank`.
    pub fn begin(&mut self, thread: ThreadNumber, lane: Lane, rank: QueryClass, now_ns: u64) {
        if self.under_way.len() <= thread {
            self.under_way.resize(thread + 1, None);
        }
        self.under_way[thread] = Some(LongPoll {
            since_ns: now_ns,
            lane,
            place: Some(rank),
            is_replaced: false,
        });
    }

    /// The poll of a thread is over.
    pub fn end(&mut self, thread: ThreadNumber) -> Option<LongPoll> {
        let ended = self.under_way.get_mut(thread)?.take()?;
        self.replaced -= usize::from(ended.is_replaced);
        Some(ended)
    }

    /// The lane got no other thread: the one that polls goes on after it.
    pub fn keep_thread(&mut self, thread: ThreadNumber) {
        if let Some(Some(poll)) = self.under_way.get_mut(thread)
            && std::mem::take(&mut poll.is_replaced)
        {
            self.replaced -= 1;
        }
    }

    /// What has to be done about polls that have taken long by now. `demotes`: interactive ones count as batch work after a
    /// while.
    pub fn overdue(&mut self, demotes: bool, now_ns: u64) -> Vec<Change> {
        let mut changes = vec![];
        for (thread, poll) in self.under_way.iter_mut().enumerate() {
            let Some(poll) = poll else { continue };
            let Some(from) = poll.place else { continue };
            let held_ns = now_ns.saturating_sub(poll.since_ns);
            let to = if held_ns >= APART_AFTER_NS {
                None
            } else if demotes && from == QueryClass::Interactive && held_ns >= DEMOTED_AFTER_NS {
                Some(QueryClass::Batch)
            } else {
                continue;
            };
            let needs_thread = !poll.is_replaced;
            if needs_thread && self.replaced >= EXTRA_MAX {
                continue;
            }
            self.replaced += usize::from(needs_thread);
            poll.is_replaced = true;
            poll.place = to;
            changes.push(Change {
                thread,
                lane: poll.lane,
                from,
                to,
                needs_thread,
            });
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn an_interactive_poll_becomes_batch_work_and_then_takes_no_place() {
        let mut polls = Polls::default();
        polls.begin(3, Lane::Interactive, QueryClass::Interactive, 5 * MS);
        assert_eq!(polls.overdue(true, 20 * MS), []);
        let demoted = Change {
            thread: 3,
            lane: Lane::Interactive,
            from: QueryClass::Interactive,
            to: Some(QueryClass::Batch),
            needs_thread: true,
        };
        assert_eq!(polls.overdue(true, 25 * MS), [demoted]);
        assert_eq!(polls.overdue(true, 900 * MS), []);
        let apart = Change {
            from: QueryClass::Batch,
            to: None,
            needs_thread: false,
            ..demoted
        };
        assert_eq!(polls.overdue(true, 1_005 * MS), [apart]);
        let ended = polls.end(3).unwrap();
        assert_eq!((ended.place, ended.is_replaced), (None, true));
        assert!(polls.end(3).is_none());
    }

    #[test]
    fn without_pauses_only_what_takes_a_second_is_set_apart() {
        let mut polls = Polls::default();
        polls.begin(0, Lane::Stream, QueryClass::Interactive, 0);
        assert_eq!(polls.overdue(false, 999 * MS), []);
        assert_eq!(polls.overdue(false, 1_000 * MS)[0].to, None);
    }

    #[test]
    fn there_are_so_many_threads_more_and_no_more() {
        let mut polls = Polls::default();
        for thread in 0..EXTRA_MAX + 2 {
            polls.begin(thread, Lane::Batch, QueryClass::Batch, 0);
        }
        assert_eq!(polls.overdue(true, 2_000 * MS).len(), EXTRA_MAX);
        assert_eq!(polls.overdue(true, 2_000 * MS), []);
        polls.end(0).unwrap();
        assert_eq!(polls.overdue(true, 2_000 * MS).len(), 1);
    }
}
