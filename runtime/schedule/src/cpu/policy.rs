//! The scheduler policies LMA, LB, FIFO, FAIR and KILL: who runs next, who is paused for whom, and where a task goes. They are
//! Neptune's (section 4.3; LMA is locality- and memory-aware, LB balances load) and those that it is compared with, each a few pure rules.

use std::fmt;
use std::str::FromStr;

use super::{CLASSES, QueryClass};

/// How a worker's slots are shared between streams, interactive queries and batch work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchedulerPolicy {
    /// Streams first, batch tasks are paused for them; tasks go where their input is as long as there is memory, else to
    /// the worker with the least pressure. Partitions of views stay where their state is, as far as balance allows.
    #[default]
    Lma,
    /// As `lma` without regard to where input and state are: to the worker with the least to do.
    Lb,
    /// In the order of arrival, nothing is paused.
    Fifo,
    /// To whichever class has had the least time, nothing is paused.
    Fair,
    /// Streams first; a batch query is not paused for them but starts again.
    Kill,
}

impl SchedulerPolicy {
    /// All of them.
    pub const ALL: [SchedulerPolicy; 5] = [
        SchedulerPolicy::Lma,
        SchedulerPolicy::Lb,
        SchedulerPolicy::Fifo,
        SchedulerPolicy::Fair,
        SchedulerPolicy::Kill,
    ];

    /// What it decides.
    pub fn rules(self) -> &'static dyn Policy {
        match self {
            SchedulerPolicy::Lma => &Lma,
            SchedulerPolicy::Lb => &Lb,
            SchedulerPolicy::Fifo => &Fifo,
            SchedulerPolicy::Fair => &Fair,
            SchedulerPolicy::Kill => &Kill,
        }
    }

    /// Whether anything is ever paused.
    pub fn pauses(self) -> bool {
        self.rules().gives_way(QueryClass::Batch, QueryClass::Stream) != GiveWay::No
    }

    pub fn from_number(number: u8) -> SchedulerPolicy {
        SchedulerPolicy::ALL
            .into_iter()
            .find(|policy| *policy as u8 == number)
            .unwrap_or_default()
    }
}

impl fmt::Display for SchedulerPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SchedulerPolicy::Lma => "lma",
            SchedulerPolicy::Lb => "lb",
            SchedulerPolicy::Fifo => "fifo",
            SchedulerPolicy::Fair => "fair",
            SchedulerPolicy::Kill => "kill",
        })
    }
}

impl FromStr for SchedulerPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        SchedulerPolicy::ALL
            .into_iter()
            .find(|policy| policy.to_string() == text.to_ascii_lowercase())
            .ok_or_else(|| format!("{text} is not a scheduler policy: lma, lb, fifo, fair or kill"))
    }
}

/// What is first in a class's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Since when it waits, in nanoseconds.
    pub since_ns: u64,
    /// Time that slots have spent on its class, in nanoseconds.
    pub served_ns: u64,
}

/// What becomes of a task for which something more urgent waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveWay {
    /// It goes on.
    No,
    /// It is paused at its next suspension point.
    Pause,
    /// Its query starts again, if nobody has seen rows of it; else it is paused.
    Restart,
}

/// A worker as a place for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<W> {
    pub worker: W,
    /// Slots that have nothing to do.
    pub idle_slots: usize,
    /// Tasks that are ready, running or paused.
    pub tasks: usize,
    /// Tasks that were paused there and wait.
    pub paused: usize,
    /// How much of its memory is in use, in thousandths.
    pub memory_permille: u32,
}

/// A worker whose memory is fuller than this is no preferred place.
pub(crate) const MEMORY_PERMILLE_MAX: u32 = 800;

/// The rules of a policy. They read no clock and no lock.
pub trait Policy: Sync {
    /// The class that is served next; `None`: nothing waits.
    fn next(&self, heads: &[Option<Head>; CLASSES]) -> Option<QueryClass>;

    /// What becomes of a task of class `running` when one of the class `waiting` finds no slot.
    fn gives_way(&self, running: QueryClass, waiting: QueryClass) -> GiveWay;

    /// Which of the places a task goes to that would like to be at the first; `None`: there is no place.
    fn place(&self, preferred: Option<usize>, places: &[Place<u32>]) -> Option<usize>;
}

const BY_URGENCY: [QueryClass; CLASSES] = [QueryClass::Stream, QueryClass::Interactive, QueryClass::Batch];

fn most_urgent(heads: &[Option<Head>; CLASSES]) -> Option<QueryClass> {
    BY_URGENCY
        .into_iter()
        .find(|class| heads[*class as usize].is_some())
}

fn pauses_for(running: QueryClass, waiting: QueryClass) -> GiveWay {
    match waiting < running {
        true => GiveWay::Pause,
        false => GiveWay::No,
    }
}

fn least_busy(places: &[Place<u32>]) -> Option<usize> {
    (0..places.len()).min_by_key(|place| {
        let Place {
            worker,
            idle_slots,
            tasks,
            paused,
            ..
        } = places[*place];
        (idle_slots == 0, tasks + paused, worker)
    })
}

struct Lma;

impl Policy for Lma {
    fn next(&self, heads: &[Option<Head>; CLASSES]) -> Option<QueryClass> {
        most_urgent(heads)
    }

    fn gives_way(&self, running: QueryClass, waiting: QueryClass) -> GiveWay {
        pauses_for(running, waiting)
    }

    fn place(&self, preferred: Option<usize>, places: &[Place<u32>]) -> Option<usize> {
        if let Some(preferred) = preferred
            && (places.get(preferred)).is_some_and(|place| place.memory_permille <= MEMORY_PERMILLE_MAX)
        {
            return Some(preferred);
        }
        (0..places.len()).min_by_key(|place| {
            let Place {
                worker,
                idle_slots,
                tasks,
                paused,
                memory_permille,
            } = places[*place];
            // Pressure in steps of a tenth: a hair's breadth is no reason to pause somebody.
            (memory_permille / 100, idle_slots == 0, paused, tasks, worker)
        })
    }
}

struct Lb;

impl Policy for Lb {
    fn next(&self, heads: &[Option<Head>; CLASSES]) -> Option<QueryClass> {
        most_urgent(heads)
    }

    fn gives_way(&self, running: QueryClass, waiting: QueryClass) -> GiveWay {
        pauses_for(running, waiting)
    }

    fn place(&self, _: Option<usize>, places: &[Place<u32>]) -> Option<usize> {
        least_busy(places)
    }
}

struct Fifo;

impl Policy for Fifo {
    fn next(&self, heads: &[Option<Head>; CLASSES]) -> Option<QueryClass> {
        BY_URGENCY
            .into_iter()
            .filter_map(|class| Some((heads[class as usize]?.since_ns, class)))
            .min()
            .map(|(_, class)| class)
    }

    fn gives_way(&self, _: QueryClass, _: QueryClass) -> GiveWay {
        GiveWay::No
    }

    fn place(&self, _: Option<usize>, places: &[Place<u32>]) -> Option<usize> {
        least_busy(places)
    }
}

struct Fair;

impl Policy for Fair {
    fn next(&self, heads: &[Option<Head>; CLASSES]) -> Option<QueryClass> {
        BY_URGENCY
            .into_iter()
            .filter_map(|class| Some((heads[class as usize]?.served_ns, class)))
            .min()
            .map(|(_, class)| class)
    }

    fn gives_way(&self, _: QueryClass, _: QueryClass) -> GiveWay {
        GiveWay::No
    }

    fn place(&self, _: Option<usize>, places: &[Place<u32>]) -> Option<usize> {
        least_busy(places)
    }
}

struct Kill;

impl Policy for Kill {
    fn next(&self, heads: &[Option<Head>; CLASSES]) -> Option<QueryClass> {
        most_urgent(heads)
    }

    fn gives_way(&self, running: QueryClass, waiting: QueryClass) -> GiveWay {
        match (running, waiting) {
            (QueryClass::Batch, QueryClass::Stream) => GiveWay::Restart,
            _ => pauses_for(running, waiting),
        }
    }

    fn place(&self, _: Option<usize>, places: &[Place<u32>]) -> Option<usize> {
        least_busy(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(worker: u32, idle_slots: usize, paused: usize, memory_permille: u32) -> Place<u32> {
        Place {
            worker,
            idle_slots,
            tasks: 2,
            paused,
            memory_permille,
        }
    }

    #[test]
    fn lma_keeps_to_the_preferred_worker_while_it_has_memory() {
        let full = [place(1, 0, 3, 790), place(2, 2, 0, 100)];
        assert_eq!(SchedulerPolicy::Lma.rules().place(Some(0), &full), Some(0));
        assert_eq!(SchedulerPolicy::Lb.rules().place(Some(0), &full), Some(1));
        let fuller = [place(1, 0, 3, 810), place(2, 2, 0, 100)];
        assert_eq!(SchedulerPolicy::Lma.rules().place(Some(0), &fuller), Some(1));
    }

    #[test]
    fn lma_takes_the_least_pressure_then_an_idle_slot_then_the_fewest_paused() {
        let lma = SchedulerPolicy::Lma.rules();
        assert_eq!(
            lma.place(None, &[place(1, 1, 0, 500), place(2, 0, 9, 100)]),
            Some(1)
        );
        assert_eq!(
            lma.place(None, &[place(1, 0, 0, 110), place(2, 1, 9, 190)]),
            Some(1)
        );
        assert_eq!(
            lma.place(None, &[place(1, 0, 4, 110), place(2, 0, 3, 190)]),
            Some(1)
        );
        assert_eq!(lma.place(None, &[]), None);
    }

    /// Tasks that pause others are spread evenly.
    #[test]
    fn lma_balances_what_is_paused_over_workers() {
        let mut places: Vec<_> = (0..75).map(|worker| place(worker, 0, 0, 300)).collect();
        for _ in 0..75 * 4 {
            let chosen = SchedulerPolicy::Lma.rules().place(None, &places).unwrap();
            places[chosen].paused += 1;
        }
        assert!(places.iter().all(|place| place.paused == 4));
    }

    #[test]
    fn who_is_next_and_who_gives_way() {
        let head = |since_ns, served_ns| Some(Head { since_ns, served_ns });
        let heads = [head(30, 5), head(20, 9), head(10, 7)];
        let next = |policy: SchedulerPolicy| policy.rules().next(&heads).unwrap();
        assert_eq!(next(SchedulerPolicy::Lma), QueryClass::Stream);
        assert_eq!(next(SchedulerPolicy::Fifo), QueryClass::Batch);
        assert_eq!(next(SchedulerPolicy::Fair), QueryClass::Stream);
        let gives_way =
            |policy: SchedulerPolicy| policy.rules().gives_way(QueryClass::Batch, QueryClass::Stream);
        assert_eq!(gives_way(SchedulerPolicy::Lma), GiveWay::Pause);
        assert_eq!(gives_way(SchedulerPolicy::Kill), GiveWay::Restart);
        assert_eq!(gives_way(SchedulerPolicy::Fair), GiveWay::No);
        for policy in SchedulerPolicy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            let rules = policy.rules();
            assert_eq!(
                rules.gives_way(QueryClass::Stream, QueryClass::Batch),
                GiveWay::No
            );
        }
    }
}
