//! What the store shares with its writer: the durability, the time, the device, and the right to show writes to readers.

use std::sync::Weak;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::Durability;
use crate::log::device::{LogDevice, LogGroup, Turn};

/// See the module. Storage has no clock of its own: the time is what it was told last.
#[derive(Debug)]
pub(super) struct LogSettings {
    durability: AtomicU8,
    now_ms: AtomicI64,
    /// Whoever schedules the device that the log is on, if somebody does.
    device: RwLock<Option<Weak<dyn LogDevice>>>,
    /// Held while durable writes are shown to readers: whoever has it sees whole writes only.
    pub(super) publishing: Mutex<()>,
}

const LEVELS: [Durability; 3] = [Durability::Fsync, Durability::Group, Durability::Off];

impl LogSettings {
    pub(super) fn new(durability: Durability) -> LogSettings {
        let settings = LogSettings {
            durability: AtomicU8::new(0),
            now_ms: AtomicI64::new(0),
            device: RwLock::default(),
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

    pub(super) fn set_device(&self, device: Weak<dyn LogDevice>) {
        *self.device.write() = Some(device);
    }

    /// Takes the device for a group of writes.
    pub(super) fn turn(&self, group: LogGroup) -> Option<Turn> {
        Turn::begin(self.device.read().as_ref(), group)
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    pub(super) fn set_now_ms(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }
}
