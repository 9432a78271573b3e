//! The memory of the process: who holds how much of it, and who gives way when it is short.
//!
//! Everything that grows with the data is charged to the *account* of its relation, query or client. What the process holds
//! beyond that (buffers of the allocator, of libraries, what an account does not know of) is seen by the operating system:
//! a watcher looks at the resident size ([`Resident`]) and adds what is missing.
//!
//! ```text
//!  used = charged by accounts + unseen (resident size less what was charged, at the last look)
//!
//!  0 ------------------ 75 % ---------- 80 % ------------ 90 % ----------- 100 % of the limit
//!   everybody goes on    state of        queries spill     writes wait      the view that grows
//!                        views leaves    or are refused,   for room         fails
//!                                        caches are emptied
//! ```
//! 1. An account charges what it has already: a [`Charge`] is a fact, and is never refused.
//! 2. Queries ask before they take ([`crate::query_memory`], DataFusion's memory pool over this one), and get what others leave.
//! 3. Whoever brings rows in waits ([`Memory::room`]). Relations of pipelines that hold less than their even share wait only
//!    when nothing is left.
//! 4. Parts of the state of the views that hold most leave for the disk from the first mark on ([`crate::spill::state`]), if there is
//!    a directory for them, and come back when their tasks run.
//! 5. A view asks while it grows ([`Account::check`]). It fails by itself, and what it held is free.

mod account;
mod resident;
mod shares;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use millrace_planner::RelationId;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

pub use account::{Account, Charge, OnDisk, StateCharge, Use};
pub use resident::{Resident, machine_bytes};
use shares::Shares;

/// From this share of the limit on, in percent, state of views leaves for the disk.
const CROWDED_PERCENT: usize = 75;
/// From this share on queries spill or are refused, and caches are emptied.
pub(crate) const SHORT_PERCENT: usize = 80;
/// From this share on writes wait.
const FULL_PERCENT: usize = 90;
/// A part of a view's state that takes this share of the limit is too large to come and go.
const LARGE_PART: usize = 32;
/// Of the views that hold half of what the largest does, and such a share of the limit, state leaves.
const LEAVING_PART: usize = 256;
/// The rows of an epoch take such a share of the limit.
const CUT_PART: usize = 64;
/// They do when views have more of their state on disk than the limit: an epoch then has most parts come and go, whatever its rows.
/// Fewer epochs are under way at once then, see [`Memory::is_mostly_on_disk`].
const CUT_PART_ON_DISK: usize = 16;
/// So many of those who hold most are named in an error.
const NAMED_MAX: usize = 4;

/// Who holds memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A view, with its state and rows under way, or a stream or table, with its rows that wait for their epoch.
    Relation(RelationId),
    /// A query, by the number of its account.
    Query(u64),
    /// What clients sent that is not a write yet, and changes that wait for those who follow a relation.
    Clients,
}

/// An account at one moment.
#[derive(Debug, Clone)]
pub struct AccountStatus {
    pub holder: Holder,
    pub name: String,
    /// By [`Use`], in bytes.
    pub bytes: [usize; Use::ALL.len()],
    /// Of a view, bytes of its state that are on disk because memory is short. They are not in `bytes`.
    pub on_disk: usize,
}

impl AccountStatus {
    pub fn total(&self) -> usize {
        self.bytes.iter().sum()
    }
}

/// The whole at one moment, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryStatus {
    /// None: no limit.
    pub limit: Option<usize>,
    /// What accounts hold, and what else the operating system sees.
    pub used: usize,
    pub charged: usize,
    /// As of the last look.
    pub resident: usize,
    /// Requests of queries that were refused or made them spill.
    pub queries_refused: u64,
    /// Writes that had to wait for space.
    pub writes_waited: u64,
    /// Views that failed because memory ran out.
    pub views_failed: u64,
    /// Views that were rebuilt with more partitions, so that their state can be on disk in part.
    pub views_divided: u64,
    /// Bytes of views' state that were written to disk and read again because memory was short.
    pub spilled: u64,
    pub brought_back: u64,
}

impl MemoryStatus {
    /// How much is in use, in thousandths of the limit; 0 without one.
    pub fn permille(&self) -> u32 {
        let of = |limit: usize| (self.used.saturating_mul(1_000) / limit.max(1)).min(1_000);
        self.limit.map_or(0, |limit| of(limit) as u32)
    }
}

/// See the module.
pub struct Memory {
    /// `usize::MAX`: none.
    limit: AtomicUsize,
    charged: AtomicUsize,
    /// Of the state of all views, those that are on disk because memory is short.
    on_disk_bytes: AtomicUsize,
    unseen: AtomicUsize,
    resident_bytes: AtomicUsize,
    resident: Resident,
    accounts: Mutex<BTreeMap<Holder, Weak<Account>>>,
    next_query: AtomicU64,
    pub(crate) shares: Mutex<Shares>,
    freed: Notify,
    pub(crate) queries_refused: AtomicU64,
    writes_waited: AtomicU64,
    views_failed: AtomicU64,
    views_divided: AtomicU64,
    spilled: AtomicU64,
    brought_back: AtomicU64,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Memory").field(&self.status()).finish()
    }
}

impl Memory {
    /// With a limit in bytes, if there is one.
    pub fn new(limit: Option<usize>, resident: Resident) -> Arc<Memory> {
        Arc::new(Memory {
            limit: AtomicUsize::new(limit.unwrap_or(usize::MAX)),
            charged: AtomicUsize::new(0),
            on_disk_bytes: AtomicUsize::new(0),
            unseen: AtomicUsize::new(0),
            resident_bytes: AtomicUsize::new(0),
            resident,
            accounts: Mutex::default(),
            next_query: AtomicU64::new(1),
            shares: Mutex::default(),
            freed: Notify::new(),
            queries_refused: AtomicU64::new(0),
            writes_waited: AtomicU64::new(0),
            views_failed: AtomicU64::new(0),
            views_divided: AtomicU64::new(0),
            spilled: AtomicU64::new(0),
            brought_back: AtomicU64::new(0),
        })
    }

    /// A part of a view's state of so many bytes is so large that memory is not enough for a few of them.
    pub fn is_large_part(&self, bytes: usize) -> bool {
        bytes >= self.limit() / LARGE_PART
    }

    /// Another limit from now on; `None`: no limit.
    pub fn set_limit(&self, limit: Option<usize>) {
        self.limit.store(limit.unwrap_or(usize::MAX), Ordering::Relaxed);
        self.tell();
    }

    /// In bytes; `usize::MAX`: none.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn percent(&self, percent: usize) -> usize {
        self.limit() / 100 * percent
    }

    /// What accounts hold, and what else the operating system sees.
    pub fn used(&self) -> usize {
        self.charged.load(Ordering::Relaxed) + self.unseen.load(Ordering::Relaxed)
    }

    /// Bytes after which the rows of an epoch are enough: its rows are there several times while it runs, and several epochs are under way.
    pub fn cut_bytes_max(&self) -> usize {
        let part = match self.is_mostly_on_disk() {
            true => CUT_PART_ON_DISK,
            false => CUT_PART,
        };
        self.limit() / part
    }

    /// Whether views have more of their state on disk than the limit.
    pub fn is_mostly_on_disk(&self) -> bool {
        self.on_disk_bytes.load(Ordering::Relaxed) > self.limit()
    }

    /// State of views is to leave.
    pub fn is_crowded(&self) -> bool {
        self.used() > self.percent(CROWDED_PERCENT)
    }

    /// Queries give way, and what is kept only to be fast goes.
    pub fn is_short(&self) -> bool {
        self.used() > self.percent(SHORT_PERCENT)
    }

    /// Whether so many bytes more leave it not short.
    pub fn fits(&self, bytes: usize) -> bool {
        self.used().saturating_add(bytes) <= self.percent(SHORT_PERCENT)
    }

    /// Nothing is left.
    pub fn is_exhausted(&self) -> bool {
        self.used() > self.limit()
    }

    /// Half as much again as there is was taken.
    pub fn is_overdrawn(&self) -> bool {
        self.used() > self.limit().saturating_add(self.limit() / 2)
    }

    /// Whether those who together hold `held` bytes may bring in more. Who holds less than an even share of what is charged,
    /// among `sharing` in all, may take the rest.
    pub fn room(&self, held: usize, sharing: usize) -> bool {
        let used = self.used();
        let charged = self.charged.load(Ordering::Relaxed);
        let is_small = sharing > 1 && held.saturating_mul(sharing) < charged;
        used <= self.percent(FULL_PERCENT) || (is_small && used <= self.limit())
    }

    /// Resolves when somebody has given something back, or the limit has changed: to be made before it is looked whether
    /// there is space.
    pub fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    /// A write had to wait.
    pub fn note_wait(&self) {
        self.writes_waited.fetch_add(1, Ordering::Relaxed);
    }

    /// A view failed because memory ran out.
    pub fn note_view_failed(&self) {
        self.views_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// So many bytes of a view's state were written to disk because memory was short.
    pub(crate) fn note_spilled(&self, bytes: u64) {
        self.spilled.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many of them were read again.
    pub(crate) fn note_brought_back(&self, bytes: u64) {
        self.brought_back.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A view is rebuilt with more partitions.
    pub fn note_divided(&self) {
        self.views_divided.fetch_add(1, Ordering::Relaxed);
    }

    /// Looks at what the operating system sees, and tells those who wait.
    pub fn look(&self) {
        if let Some(resident) = self.resident.bytes() {
            let unseen = resident.saturating_sub(self.charged.load(Ordering::Relaxed));
            self.resident_bytes.store(resident, Ordering::Relaxed);
            self.unseen.store(unseen, Ordering::Relaxed);
        }
        self.tell();
    }

    /// Has those look again who wait for space.
    pub fn tell(&self) {
        self.freed.notify_waiters();
    }

    /// The account of a holder, made if it has none. It is there as long as somebody has it.
    pub fn account(self: &Arc<Self>, holder: Holder, name: &str) -> Arc<Account> {
        let mut accounts = self.accounts.lock();
        if let Some(known) = accounts.get(&holder).and_then(Weak::upgrade) {
            return known;
        }
        let account = Arc::new(Account::new(Arc::clone(self), holder, name));
        accounts.insert(holder, Arc::downgrade(&account));
        account
    }

    /// What a relation holds.
    pub fn held(&self, relation: RelationId) -> usize {
        let accounts = self.accounts.lock();
        let account = accounts.get(&Holder::Relation(relation)).and_then(Weak::upgrade);
        // Its last owner may be gone by now: it is dropped without the lock.
        drop(accounts);
        account.map_or(0, |account| account.total())
    }

    /// What the largest of those holds whose state can leave for the disk.
    fn most_that_can_leave(&self) -> usize {
        let accounts: Vec<Arc<Account>> = {
            let accounts = self.accounts.lock();
            accounts.values().filter_map(Weak::upgrade).collect()
        };
        let held = accounts.iter().filter_map(|account| account.can_leave());
        held.max().unwrap_or(0)
    }

    /// Bytes of the state of each view that are on disk because memory is short.
    pub fn on_disk(&self) -> BTreeMap<RelationId, usize> {
        let relation = |account: AccountStatus| match account.holder {
            Holder::Relation(id) => Some((id, account.on_disk)),
            Holder::Query(_) | Holder::Clients => None,
        };
        self.accounts().into_iter().filter_map(relation).collect()
    }

    /// An account for a query of its own.
    pub(crate) fn account_of_query(self: &Arc<Self>) -> Arc<Account> {
        let id = self.next_query.fetch_add(1, Ordering::Relaxed);
        self.account(Holder::Query(id), "")
    }

    /// Everybody who holds something, in order.
    pub fn accounts(&self) -> Vec<AccountStatus> {
        let accounts: Vec<Arc<Account>> = {
            let accounts = self.accounts.lock();
            accounts.values().filter_map(Weak::upgrade).collect()
        };
        accounts.iter().map(|account| account.status()).collect()
    }

    pub fn status(&self) -> MemoryStatus {
        let limit = self.limit();
        MemoryStatus {
            limit: (limit != usize::MAX).then_some(limit),
            used: self.used(),
            charged: self.charged.load(Ordering::Relaxed),
            resident: self.resident_bytes.load(Ordering::Relaxed),
            queries_refused: self.queries_refused.load(Ordering::Relaxed),
            writes_waited: self.writes_waited.load(Ordering::Relaxed),
            views_failed: self.views_failed.load(Ordering::Relaxed),
            views_divided: self.views_divided.load(Ordering::Relaxed),
            spilled: self.spilled.load(Ordering::Relaxed),
            brought_back: self.brought_back.load(Ordering::Relaxed),
        }
    }

    /// Who holds what: `view v 1.2 GB (and 7.0 GB on disk), query 3 20.0 MB, not accounted for 80.1 MB`.
    pub fn shown(&self) -> String {
        let mut accounts = self.accounts();
        accounts.retain(|account| account.total() > 0);
        accounts.sort_by_key(|account| std::cmp::Reverse(account.total()));
        let rest: usize = (accounts.iter().skip(NAMED_MAX)).map(AccountStatus::total).sum();
        let named = accounts.iter().take(NAMED_MAX);
        let mut shown: Vec<String> = named
            .map(|account| {
                let on_disk = match account.on_disk {
                    0 => String::new(),
                    bytes => format!(" (and {} on disk)", size(bytes)),
                };
                format!("{} {}{on_disk}", account.name, size(account.total()))
            })
            .collect();
        if rest > 0 {
            shown.push(format!("others {}", size(rest)));
        }
        let unseen = self.unseen.load(Ordering::Relaxed);
        if unseen > 0 {
            shown.push(format!("not accounted for {}", size(unseen)));
        }
        let limit = size(self.limit());
        format!("memory_limit is {limit}; {}", shown.join(", "))
    }
}

/// `600.0 MB`.
pub(crate) fn size(bytes: usize) -> String {
    let units = [("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)];
    let unit = units.iter().find(|(_, unit)| bytes >= *unit);
    match unit {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests;
