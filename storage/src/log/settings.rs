//! What the store shares with its writer: the durability, the time, and the right to show writes to readers.

use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

use parking_lot::Mutex;

use crate::Durability;

/// See the module. Storage has no clock of its own: the time is what it was told last.
#[derive(Debug)]
pub(super) struct LogSettings {
    durability: AtomicU8,
    now_ms: AtomicI64,
    /// Held while durable writes are shown to readers: whoever has it sees whole writes only.
    pub(super) publishing: Mutex<()>,
}

const LEVELS: [Durability; 3] = [Durability::Fsync, Durability::Group, Durability::Off];

impl LogSettings {
    pub(super) fn new(durability: Durability) -> LogSettings {
        let settings = LogSettings {
            durability: AtomicU8::new(0),
            now_ms: AtomicI64::new(0),
            publishing: Mutex::new(()),
        };
        settings.set_durability(durability);
        settings
    }

    pub(super) fn durability(&self) -> Durability {
        LEVELS[usize::from(self.durability.load(Ordering::Acquire))]
    }

    pub(super) fn set_durability(&self, durability: Durability) {
        let level = match durability {
            Durability::Fsync => 0,
            Durability::Group => 1,
            Durability::Off => 2,
        };
        self.durability.store(level, Ordering::Release);
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    pub(super) fn set_now_ms(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }
}
