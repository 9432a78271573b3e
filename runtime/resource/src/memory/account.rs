//! What one holder has, by what it is used for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{AccountStatus, Holder, LEAVING_PART, Memory};
use crate::error::{ResourceError, Result};

/// Who has less than this part of the limit is not asked to go.
const LARGE_PART: usize = 16;

/// What memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Keyed state and rows of views, rows of tables.
    State,
    /// Rows between the tasks of an epoch.
    InFlight,
    /// Written rows, from the log to the end of their epoch; what clients sent that is not written yet.
    Input,
    /// What a query works with.
    Query,
    /// Rows that wait for a client to take them.
    Result,
}

impl Use {
    pub const ALL: [Use; 5] = [Use::State, Use::InFlight, Use::Input, Use::Query, Use::Result];
}

/// See the module.
pub struct Account {
    memory: Arc<Memory>,
    holder: Holder,
    name: Mutex<String>,
    bytes: [AtomicUsize; Use::ALL.len()],
    on_disk: AtomicUsize,
    can_leave: AtomicBool,
}

impl Account {
    pub(super) fn new(memory: Arc<Memory>, holder: Holder, name: &str) -> Account {
        Account {
            memory,
            holder,
            name: Mutex::new(name.to_owned()),
            bytes: Default::default(),
            on_disk: AtomicUsize::new(0),
            can_leave: AtomicBool::new(false),
        }
    }

    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// What errors call it.
    pub fn set_name(&self, name: String) {
        *self.name.lock() = name;
    }

    pub fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// Bytes that it holds.
    pub fn total(&self) -> usize {
        self.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn status(&self) -> AccountStatus {
        AccountStatus {
            holder: self.holder,
            name: self.name(),
            bytes: Use::ALL.map(|what| self.bytes[what as usize].load(Ordering::Relaxed)),
            on_disk: self.on_disk(),
        }
    }

    pub(crate) fn grow(&self, what: Use, bytes: usize) {
        self.bytes[what as usize].fetch_add(bytes, Ordering::Relaxed);
        self.memory.charged.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn shrink(&self, what: Use, bytes: usize) {
        self.bytes[what as usize].fetch_sub(bytes, Ordering::Relaxed);
        self.memory.charged.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Charges so many bytes, until what is returned is dropped.
    pub fn charge(self: &Arc<Self>, what: Use, bytes: usize) -> Charge {
        self.grow(what, bytes);
        Charge {
            account: Arc::clone(self),
            what,
            bytes,
        }
    }

    /// For a view that grows.
    ///
    /// # Errors
    /// No memory is left, and the view is among those that hold most: not less than half of what the largest relation has,
    /// and a sixteenth of the limit. It cannot go on.
    pub fn check(&self) -> Result<()> {
        if self.memory.is_exhausted() && self.gives_way() {
            return Err(self.out_of_memory());
        }
        Ok(())
    }

    /// For what takes so many bytes in one step.
    ///
    /// # Errors
    /// With them more would be used than there is.
    pub fn room(&self, bytes: usize) -> Result<()> {
        match self.memory.used().saturating_add(bytes) > self.memory.limit() {
            true => Err(self.out_of_memory()),
            false => Ok(()),
        }
    }

    /// Whether it is among the relations that are asked first when memory is short; see [`Account::check`].
    pub fn gives_way(&self) -> bool {
        if !self.is_large() {
            return false;
        }
        let accounts = self.memory.accounts();
        let relations = accounts
            .iter()
            .filter(|account| matches!(account.holder, Holder::Relation(_)));
        let most = relations.map(AccountStatus::total).max().unwrap_or(0);
        self.total() >= most / 2
    }

    /// Its state can leave for the disk.
    pub fn set_leaving(&self) {
        self.can_leave.store(true, Ordering::Relaxed);
    }

    /// What it holds, if its state can leave.
    pub(super) fn can_leave(&self) -> Option<usize> {
        self.can_leave.load(Ordering::Relaxed).then(|| self.total())
    }

    /// Whether it is among those whose state is to leave first when memory is short: not those that are too small to matter, or
    /// hold less than half of what the largest of them does. What cannot leave does not count.
    pub fn leaves(&self) -> bool {
        let total = self.total();
        self.can_leave.load(Ordering::Relaxed)
            && total >= self.memory.limit() / LEAVING_PART
            && total >= self.memory.most_that_can_leave() / 2
    }

    /// Bytes of its state that are on disk because memory is short.
    pub fn on_disk(&self) -> usize {
        self.on_disk.load(Ordering::Relaxed)
    }

    /// Whether it holds so much that others would notice if it went.
    pub fn is_large(&self) -> bool {
        self.total() >= self.memory.limit() / LARGE_PART
    }

    /// Why it cannot go on.
    pub fn out_of_memory(&self) -> ResourceError {
        ResourceError::OutOfMemory {
            who: self.name(),
            held: self.memory.shown(),
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut accounts = self.memory.accounts.lock();
        // Another may have been made meanwhile.
        if accounts
            .get(&self.holder)
            .is_some_and(|account| account.strong_count() == 0)
        {
            accounts.remove(&self.holder);
        }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Account").field(&self.status()).finish()
    }
}

/// Bytes that an account holds as long as this exists.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    what: Use,
    bytes: usize,
}

impl Charge {
    /// From now on it is so many bytes.
    pub fn resize(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.account.grow(self.what, bytes - self.bytes);
        } else {
            self.account.shrink(self.what, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.shrink(self.what, self.bytes);
    }
}

/// Bytes of an account's state that are on disk as long as this exists.
#[derive(Debug)]
pub struct OnDisk {
    account: Arc<Account>,
    bytes: usize,
}

impl OnDisk {
    /// Nothing yet.
    pub fn new(account: &Arc<Account>) -> OnDisk {
        OnDisk {
            account: Arc::clone(account),
            bytes: 0,
        }
    }

    /// From now on it is so many bytes.
    pub fn set(&mut self, bytes: usize) {
        for total in [&self.account.on_disk, &self.account.memory.on_disk_bytes] {
            total.fetch_add(bytes, Ordering::Relaxed);
            total.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// State is measured again after so long at the latest, if it changed,
const MEASURED_EVERY: Duration = Duration::from_millis(100);
/// or when so many bytes have come,
const MOVED_BYTES_MIN: usize = 1 << 18;
/// or such a part of what there was.
const MOVED_PART: usize = 16;
/// But measuring takes such a part of the time at most: some operators have to look at every group.
const MEASURING_PART: u32 = 50;

/// The charge for a piece of state. To measure state costs more than a small change of it: until it is measured again, what
/// comes in is taken to stay.
#[derive(Debug)]
pub struct StateCharge(Mutex<Measured>);

#[derive(Debug)]
struct Measured {
    charge: Charge,
    bytes: usize,
    moved: usize,
    at: Instant,
    /// How long it took.
    took: Duration,
}

impl StateCharge {
    /// Of empty state.
    pub fn new(account: &Arc<Account>) -> StateCharge {
        StateCharge(Mutex::new(Measured {
            charge: account.charge(Use::State, 0),
            bytes: 0,
            moved: 0,
            at: Instant::now(),
            took: Duration::ZERO,
        }))
    }

    /// So many bytes of changes were applied; `measure` tells what there is now.
    pub fn moved(&self, bytes: usize, measure: impl FnOnce() -> usize) {
        let mut measured = self.0.lock();
        measured.moved += bytes;
        let began = Instant::now();
        let since = began - measured.at;
        let is_due =
            measured.moved >= MOVED_BYTES_MIN.max(measured.bytes / MOVED_PART) || since >= MEASURED_EVERY;
        if is_due && since >= measured.took * MEASURING_PART {
            let bytes = measure();
            measured.took = began.elapsed();
            measured.set(bytes);
        } else {
            let assumed = measured.bytes + measured.moved;
            measured.charge.resize(assumed);
        }
    }

    /// The bytes that are charged.
    pub fn bytes(&self) -> usize {
        self.0.lock().charge.bytes()
    }

    /// There are so many bytes now.
    pub fn set(&self, bytes: usize) {
        self.0.lock().set(bytes);
    }

    /// Measures it now. Who drops the state first and then says so by [`StateCharge::set`] is not overtaken by what was measured before.
    pub fn measure(&self, measure: impl FnOnce() -> usize) {
        let mut measured = self.0.lock();
        let bytes = measure();
        measured.set(bytes);
    }
}

impl Measured {
    fn set(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.moved = 0;
        self.at = Instant::now();
        self.charge.resize(bytes);
    }
}
