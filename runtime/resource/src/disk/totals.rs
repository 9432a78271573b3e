//! What a device has done since the start, by what it was for.

use std::ops::AddAssign;
use std::time::Duration;

use crate::monotask::{DiskUse, Phase};

/// Monotasks added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub monotasks: u64,
    pub bytes: u64,
    /// From being handed to the scheduler to being begun.
    pub queue: Duration,
    pub service: Duration,
}

impl Totals {
    /// Those of one monotask.
    pub(super) fn of(used: &DiskUse) -> Totals {
        Totals {
            monotasks: 1,
            bytes: used.moved.bytes,
            queue: used.queue(),
            service: used.service,
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.monotasks += other.monotasks;
        self.bytes += other.bytes;
        self.queue += other.queue;
        self.service += other.service;
    }
}

/// Those of one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskTotals {
    /// Groups of writes to the log.
    pub log: Totals,
    pub read: Totals,
    pub write: Totals,
    pub reread: Totals,
}

impl DiskTotals {
    pub(super) fn add(&mut self, used: &DiskUse) {
        let totals = match used.phase {
            Phase::Read => &mut self.read,
            Phase::Write => &mut self.write,
            Phase::Reread => &mut self.reread,
        };
        *totals += Totals::of(used);
    }
}
