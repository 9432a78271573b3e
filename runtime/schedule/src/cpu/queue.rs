//! What waits for a slot, and who is next: a pure structure, told the time.
//!
//! Each class has, for each tenant, three queues: what was paused, what became ready, and what has had its quantum. What was paused goes
//! first, the oldest first: it holds memory. What has had its quantum comes last. What has waited too long goes before anything more urgent, once in a while and then undisturbed, so that
//! nothing starves whatever the load of the classes above it. Of several tenants that one is next who is furthest behind ([`Shares`]).

use std::collections::{BTreeMap, VecDeque};

use super::policy::{Head, SchedulerPolicy};
use super::shares::{Shares, Tenant};
use super::{CLASSES, QueryClass};

/// How long work may be kept waiting, and what it then gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// When tasks of a class wait and none has had a turn for so long, one runs before more urgent ones. Nanoseconds.
    pub wait_ns_max: u64,
    /// How long it then is not asked to pause. Nanoseconds.
    pub undisturbed_ns: u64,
    /// So often a task is paused before it runs undisturbed when its turn comes again.
    pub pauses_max: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            wait_ns_max: 1_000_000_000,
            undisturbed_ns: 10_000_000,
            pauses_max: 1_000,
        }
    }
}

/// What has had its quantum waits for what has not for so long at most, in nanoseconds.
const YIELDED_NS_MAX: u64 = 50_000_000;

/// Of the time of a slot, work that has waited too long takes at most this part from what is more urgent.
const OVERDUE_SHARE: u64 = 10;

/// Why a task waits for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It is new, or what it awaited has come.
    Ready,
    /// It gave way.
    Paused,
    /// It has had its quantum, and others of its class have not.
    Yielded,
}

/// Something that waits.
#[derive(Debug)]
pub struct Waiting<T> {
    pub item: T,
    /// For whom it works.
    pub tenant: Tenant,
    pub cause: Cause,
    /// Since when, in nanoseconds.
    pub since_ns: u64,
    /// How often it was paused since it last ran undisturbed.
    pub pauses: u32,
    /// It has had no turn yet.
    pub is_new: bool,
}

/// Something that is to run.
#[derive(Debug)]
pub struct Turn<T> {
    pub waited: Waiting<T>,
    pub class: QueryClass,
    /// Whose place it takes: its own class's, or the first's if it has waited too long.
    pub rank: QueryClass,
    /// Until when it is not asked to pause, in nanoseconds; 0: it may be asked at once.
    pub undisturbed_until_ns: u64,
}

/// What waits in a class: for each tenant, by why it waits. Each queue has the one first that waits longest.
#[derive(Debug)]
struct ClassQueue<T>(BTreeMap<u64, Queues<T>>);

type Queues<T> = [VecDeque<Waiting<T>>; 3];

impl<T> Default for ClassQueue<T> {
    fn default() -> Self {
        ClassQueue(BTreeMap::new())
    }
}

/// Tenant, queue, and position in it.
type At = (u64, usize, usize);

impl<T> ClassQueue<T> {
    fn get(&self, (tenant, queue, position): At) -> &Waiting<T> {
        &self.0[&tenant][queue][position]
    }

    fn push(&mut self, waiting: Waiting<T>) {
        let queues = self.0.entry(waiting.tenant.id).or_default();
        queues[waiting.cause as usize].push_back(waiting);
    }

    fn take(&mut self, (tenant, queue, position): At) -> Option<Waiting<T>> {
        let queues = self.0.get_mut(&tenant)?;
        let taken = queues[queue].remove(position);
        if queues.iter().all(VecDeque::is_empty) {
            self.0.remove(&tenant);
        }
        taken
    }

    /// The first of the tenant who is furthest behind, if it has one.
    fn head(&self, shares: &Shares, defers_new: bool, now_ns: u64) -> Option<At> {
        let heads = self.0.iter().filter_map(|(tenant, queues)| {
            let (queue, position) = first(queues, defers_new, now_ns)?;
            let since_ns = queues[queue][position].since_ns;
            Some((shares.passed_ns(*tenant), since_ns, (*tenant, queue, position)))
        });
        heads.min().map(|(.., at)| at)
    }

    /// The one that waits longest at all.
    fn oldest(&self) -> Option<At> {
        let fronts = self.0.iter().flat_map(|(tenant, queues)| {
            let fronts = queues.iter().enumerate();
            fronts.filter_map(|(queue, waiting)| Some((waiting.front()?.since_ns, (*tenant, queue, 0))))
        });
        fronts.min().map(|(_, at)| at)
    }
}

/// The one that waits longest of those that go first; none that is new, if those are deferred. What was paused goes
/// before what is ready, and what has had its quantum comes last, unless it has waited for long.
fn first<T>(queues: &Queues<T>, defers_new: bool, now_ns: u64) -> Option<(usize, usize)> {
    let [ready, paused, yielded] = [Cause::Ready, Cause::Paused, Cause::Yielded].map(|cause| cause as usize);
    let is_old = |waiting: &Waiting<T>| now_ns.saturating_sub(waiting.since_ns) >= YIELDED_NS_MAX;
    let order = match queues[yielded].front().is_some_and(is_old) {
        true => [paused, yielded, ready],
        false => [paused, ready, yielded],
    };
    order.into_iter().find_map(|queue| {
        let position = (queues[queue].iter()).position(|waiting| !(defers_new && waiting.is_new));
        Some((queue, position?))
    })
}

/// See the module.
#[derive(Debug)]
pub struct RunQueue<T> {
    classes: [ClassQueue<T>; CLASSES],
    pub patience: Patience,
    /// Batch tasks that have had no turn are left out, as long as there are others: memory is short, and each that begins
    /// holds more of it.
    pub defers_new: bool,
    /// Before then nothing goes ahead for having waited too long.
    next_overdue_ns: u64,
    /// When a task of each class last had a turn.
    last_turn_ns: [u64; CLASSES],
    /// Time that slots have spent on each class, for policies that share.
    served_ns: [u64; CLASSES],
    shares: Shares,
}

impl<T> Default for RunQueue<T> {
    fn default() -> Self {
        RunQueue {
            classes: Default::default(),
            patience: Patience::default(),
            defers_new: false,
            next_overdue_ns: 0,
            last_turn_ns: [0; CLASSES],
            served_ns: [0; CLASSES],
            shares: Shares::default(),
        }
    }
}

impl<T> RunQueue<T> {
    pub fn push(&mut self, class: QueryClass, waiting: Waiting<T>) {
        self.shares.arrives(waiting.tenant);
        self.classes[class as usize].push(waiting);
    }

    /// A slot was spent for so long on what had a turn, which does not run any more. If it waits again it is pushed again.
    pub fn served(&mut self, class: QueryClass, tenant: Tenant, time_ns: u64) {
        self.served_ns[class as usize] += time_ns;
        self.shares.served(tenant, time_ns);
        self.shares.leaves(tenant);
    }

    /// Takes out who runs next, of the classes for which there is `room`. Who has waited too long runs as soon as there is
    /// room for the last class, which is when a slot is free.
    pub fn next(&mut self, policy: SchedulerPolicy, room: [bool; CLASSES], now_ns: u64) -> Option<Turn<T>> {
        if room[QueryClass::Batch as usize]
            && let Some(turn) = self.overdue(now_ns)
        {
            return Some(turn);
        }
        let firsts = QueryClass::ALL.map(|class| {
            let defers_new = self.defers_new && class == QueryClass::Batch;
            let first = self.classes[class as usize].head(&self.shares, defers_new, now_ns)?;
            room[class as usize].then_some(first)
        });
        let heads = QueryClass::ALL.map(|class| {
            Some(Head {
                since_ns: self.classes[class as usize].get(firsts[class as usize]?).since_ns,
                served_ns: self.served_ns[class as usize],
            })
        });
        let class = policy.rules().next(&heads)?;
        let waited = self.classes[class as usize].take(firsts[class as usize]?)?;
        self.shares.turns_to(waited.tenant);
        self.last_turn_ns[class as usize] = now_ns;
        let was_paused_often = waited.pauses >= self.patience.pauses_max;
        Some(Turn {
            waited,
            class,
            rank: class,
            undisturbed_until_ns: match was_paused_often {
                true => now_ns + self.patience.undisturbed_ns,
                false => 0,
            },
        })
    }

    /// The first of a class that waits and has had no turn for too long, of those that others go before.
    fn overdue(&mut self, now_ns: u64) -> Option<Turn<T>> {
        if now_ns < self.next_overdue_ns {
            return None;
        }
        let class = [QueryClass::Interactive, QueryClass::Batch]
            .into_iter()
            .filter_map(|class| {
                let waiting_since = self.waiting_since(class)?;
                Some((waiting_since.max(self.last_turn_ns[class as usize]), class))
            })
            .min_by_key(|(since, _)| *since)
            .filter(|(since, _)| now_ns.saturating_sub(*since) >= self.patience.wait_ns_max)
            .map(|(_, class)| class)?;
        let oldest = self.classes[class as usize].oldest()?;
        let waited = self.classes[class as usize].take(oldest)?;
        self.last_turn_ns[class as usize] = now_ns;
        self.next_overdue_ns = now_ns + OVERDUE_SHARE * self.patience.undisturbed_ns;
        Some(Turn {
            waited,
            class,
            rank: QueryClass::Stream,
            undisturbed_until_ns: now_ns + self.patience.undisturbed_ns,
        })
    }

    /// Takes out whatever `is_wanted` says, with its class.
    pub fn remove(&mut self, is_wanted: impl Fn(&T) -> bool) -> Vec<(QueryClass, T)> {
        let mut removed = vec![];
        for class in QueryClass::ALL {
            let queues = &mut self.classes[class as usize].0;
            for queue in queues.values_mut().flatten() {
                let mut place = 0;
                while place < queue.len() {
                    if is_wanted(&queue[place].item) {
                        if let Some(waiting) = queue.remove(place) {
                            self.shares.leaves(waiting.tenant);
                            removed.push((class, waiting.item));
                        }
                    } else {
                        place += 1;
                    }
                }
            }
            queues.retain(|_, queues| !queues.iter().all(VecDeque::is_empty));
        }
        removed
    }

    /// Since when the one waits that waits longest in a class.
    pub fn waiting_since(&self, class: QueryClass) -> Option<u64> {
        let queue = &self.classes[class as usize];
        Some(queue.get(queue.oldest()?).since_ns)
    }

    /// What was paused and waits.
    pub fn paused(&self) -> impl Iterator<Item = &Waiting<T>> {
        let tenants = self.classes.iter().flat_map(|queue| queue.0.values());
        tenants.flat_map(|queues| &queues[Cause::Paused as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: [bool; CLASSES] = [true; CLASSES];

    fn ready<T>(item: T, since_ns: u64) -> Waiting<T> {
        Waiting {
            item,
            tenant: Tenant::default(),
            cause: Cause::Ready,
            since_ns,
            pauses: 0,
            is_new: true,
        }
    }

    fn paused<T>(item: T, since_ns: u64, pauses: u32) -> Waiting<T> {
        Waiting {
            item,
            tenant: Tenant::default(),
            cause: Cause::Paused,
            since_ns,
            pauses,
            is_new: false,
        }
    }

    /// What took long comes after what may be short, but not forever.
    #[test]
    fn what_has_had_its_quantum_is_last() {
        let mut queue = RunQueue::default();
        let yielded = |item, since_ns| Waiting {
            cause: Cause::Yielded,
            is_new: false,
            ..ready(item, since_ns)
        };
        queue.push(QueryClass::Stream, yielded("long", 1));
        queue.push(QueryClass::Stream, ready("short", 2));
        queue.push(QueryClass::Stream, paused("paused", 3, 1));
        let next = |queue: &mut RunQueue<_>, now| {
            let turn = queue.next(SchedulerPolicy::Lma, ANY, now);
            turn.map(|turn| turn.waited.item)
        };
        assert_eq!(next(&mut queue, 10), Some("paused"));
        assert_eq!(next(&mut queue, 10), Some("short"));
        queue.push(QueryClass::Stream, ready("short", 20));
        assert_eq!(next(&mut queue, YIELDED_NS_MAX + 1), Some("long"));
        assert_eq!(next(&mut queue, YIELDED_NS_MAX + 1), Some("short"));
        assert_eq!(next(&mut queue, YIELDED_NS_MAX + 1), None);
    }

    /// While memory is short nobody begins as long as there is somebody to go on.
    #[test]
    fn what_is_new_is_deferred() {
        let mut queue = RunQueue::default();
        queue.push(QueryClass::Batch, ready("new", 1));
        queue.push(
            QueryClass::Batch,
            Waiting {
                is_new: false,
                ..ready("woken", 2)
            },
        );
        queue.push(QueryClass::Stream, ready("stream", 3));
        queue.defers_new = true;
        let order: Vec<_> = std::iter::from_fn(|| queue.next(SchedulerPolicy::Lma, ANY, 10))
            .map(|turn| turn.waited.item)
            .collect();
        assert_eq!(order, ["stream", "woken"]);
        queue.defers_new = false;
        assert_eq!(
            queue.next(SchedulerPolicy::Lma, ANY, 10).unwrap().waited.item,
            "new"
        );
    }

    #[test]
    fn the_oldest_paused_goes_before_what_is_ready() {
        let mut queue = RunQueue::default();
        queue.push(QueryClass::Batch, ready("ready", 1));
        queue.push(QueryClass::Batch, paused("old", 5, 1));
        queue.push(QueryClass::Batch, paused("young", 6, 1));
        queue.push(QueryClass::Stream, ready("stream", 9));
        let order: Vec<_> = std::iter::from_fn(|| queue.next(SchedulerPolicy::Lma, ANY, 10))
            .map(|turn| turn.waited.item)
            .collect();
        assert_eq!(order, ["stream", "old", "young", "ready"]);
    }

    #[test]
    fn a_task_that_was_paused_too_often_runs_undisturbed() {
        let mut queue = RunQueue::default();
        let Patience {
            pauses_max,
            undisturbed_ns,
            ..
        } = queue.patience;
        queue.push(QueryClass::Batch, paused("often", 0, pauses_max));
        queue.push(QueryClass::Batch, paused("once", 0, 1));
        let turn = queue.next(SchedulerPolicy::Lma, ANY, 7).unwrap();
        assert_eq!(
            (turn.waited.item, turn.undisturbed_until_ns),
            ("often", 7 + undisturbed_ns)
        );
        assert_eq!(
            queue
                .next(SchedulerPolicy::Lma, ANY, 7)
                .unwrap()
                .undisturbed_until_ns,
            0
        );
    }

    #[test]
    fn without_room_a_class_waits_and_what_is_overdue_takes_a_stream_s_place() {
        let mut queue = RunQueue::default();
        let late = queue.patience.wait_ns_max + 1;
        queue.push(QueryClass::Batch, ready("batch", 1));
        queue.push(QueryClass::Stream, ready("stream", 1));
        let policy = SchedulerPolicy::Lma;
        assert!(queue.next(policy, [false; CLASSES], late).is_none());
        let turn = queue.next(policy, [true, true, false], late).unwrap();
        assert_eq!((turn.waited.item, turn.rank), ("stream", QueryClass::Stream));
        queue.push(QueryClass::Stream, ready("stream", 1));
        let turn = queue.next(policy, ANY, late).unwrap();
        assert_eq!((turn.waited.item, turn.rank), ("batch", QueryClass::Stream));
        assert!(turn.undisturbed_until_ns > late);
    }

    /// One slot, stream tasks without end, and batch tasks that give way whenever they are asked: every batch task ends,
    /// and the streams keep their share.
    #[test]
    fn nothing_starves_under_streams_without_end() {
        const STREAM_NS: u64 = 200_000;
        const BATCH_TASKS: usize = 8;
        const BATCH_NEEDS_NS: u64 = 50_000_000;
        let mut queue = RunQueue::default();
        let mut now = 0;
        let mut left = [BATCH_NEEDS_NS; BATCH_TASKS];
        for task in 0..BATCH_TASKS {
            queue.push(QueryClass::Batch, ready(Some(task), 0));
        }
        let mut stream_ns = 0;
        while left.iter().any(|left| *left > 0) {
            queue.push(QueryClass::Stream, ready(None, now));
            let turn = queue.next(SchedulerPolicy::Lma, ANY, now).unwrap();
            match turn.waited.item {
                None => {
                    now += STREAM_NS;
                    stream_ns += STREAM_NS;
                }
                Some(task) => {
                    // It gives way as soon as it is disturbed: a stream task always waits.
                    let ran = turn.undisturbed_until_ns.saturating_sub(now).min(left[task]);
                    assert!(ran > 0, "a batch task had a turn and could not use it");
                    now += ran;
                    left[task] -= ran;
                    if left[task] > 0 {
                        queue.push(QueryClass::Batch, paused(Some(task), now, turn.waited.pauses + 1));
                    }
                    // The stream task of this round still waits.
                    stream_ns += STREAM_NS;
                    now += STREAM_NS;
                    assert!(
                        queue
                            .next(SchedulerPolicy::Lma, ANY, now)
                            .unwrap()
                            .waited
                            .item
                            .is_none()
                    );
                }
            }
            assert!(now < 120_000_000_000, "starving: {left:?}");
        }
        let share = stream_ns as f64 / now as f64;
        assert!(share > 0.89, "streams had {share} of the slot");
    }

    /// One tenant floods a class, another comes now and then: it waits for the turn under way, whatever its causes, and over time each has
    /// its share.
    #[test]
    fn a_tenant_that_wants_all_does_not_keep_another_waiting() {
        let (hostile, other) = (Tenant { id: 1, share: 100 }, Tenant { id: 2, share: 100 });
        const TURN_NS: u64 = 2_000_000;
        let of = |tenant: Tenant, since_ns, cause| Waiting {
            tenant,
            cause,
            is_new: false,
            ..ready(tenant.id, since_ns)
        };
        for class in [QueryClass::Interactive, QueryClass::Batch] {
            let mut queue = RunQueue::default();
            let mut now = 0;
            for task in 0..1_000 {
                let cause = [Cause::Ready, Cause::Paused, Cause::Yielded][task % 3];
                queue.push(class, of(hostile, 0, cause));
            }
            let (mut turns, mut has_one) = ([0, 0], false);
            for round in 0..600 {
                // The other has a task each third turn, then as soon as the one before is done.
                if !has_one && (round % 3 == 0 || round > 300) {
                    queue.push(class, of(other, now, Cause::Ready));
                    has_one = true;
                }
                let turn = queue.next(SchedulerPolicy::Lma, ANY, now).unwrap();
                let tenant = turn.waited.tenant;
                now += TURN_NS;
                queue.served(class, tenant, TURN_NS);
                turns[tenant.id as usize - 1] += 1;
                if tenant == other {
                    has_one = false;
                    assert!(now - turn.waited.since_ns <= 2 * TURN_NS, "it waited");
                } else {
                    queue.push(class, of(hostile, now, Cause::Paused));
                }
            }
            assert!(turns[1] >= 200, "{turns:?}");
        }
    }

    /// Shares hold among tenants that always want more.
    #[test]
    fn shares_are_kept_within_a_class() {
        let tenants = [Tenant { id: 1, share: 300 }, Tenant { id: 2, share: 100 }];
        let mut queue = RunQueue::default();
        for tenant in tenants {
            for _ in 0..4 {
                queue.push(
                    QueryClass::Batch,
                    Waiting {
                        tenant,
                        ..ready(tenant.id, 0)
                    },
                );
            }
        }
        let mut served = [0, 0];
        for now in 0..400 {
            let turn = queue.next(SchedulerPolicy::Lma, ANY, now).unwrap();
            let tenant = turn.waited.tenant;
            queue.served(turn.class, tenant, 1_000);
            served[tenant.id as usize - 1] += 1;
            queue.push(
                QueryClass::Batch,
                Waiting {
                    since_ns: now,
                    ..turn.waited
                },
            );
        }
        assert!((298..=302).contains(&served[0]), "{served:?}");
    }
}
