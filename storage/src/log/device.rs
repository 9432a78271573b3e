//! The device that the log is on, as whoever embeds the store shares it between the log and other work.
//!
//! The writer does not wait for its turn: somebody waits for each of its writes. It says when it begins and when it has
//! ended, so that others keep out of its way, and so that its use of the device is counted as theirs is.

use std::sync::{Arc, Weak};
use std::time::Instant;

/// What schedules the device. It is told by the writer's thread.
pub trait LogDevice: Send + Sync {
    /// A group of writes is about to be written and synced.
    fn begin(&self);
    /// That is done, or has failed.
    fn end(&self, group: LogGroup);
}

/// A group of writes that became durable together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogGroup {
    /// When the first of its writes was submitted.
    pub queued: Instant,
    /// When the writer began with it.
    pub started: Instant,
    pub bytes: u64,
}

/// A turn on the device, which ends when it is dropped.
pub(super) struct Turn {
    device: Arc<dyn LogDevice>,
    group: LogGroup,
}

impl Turn {
    /// `None`: nobody schedules the device, or not any more.
    pub(super) fn begin(device: Option<&Weak<dyn LogDevice>>, group: LogGroup) -> Option<Turn> {
        let device = device?.upgrade()?;
        device.begin();
        Some(Turn { device, group })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.device.end(self.group);
    }
}
