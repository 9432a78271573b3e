//! What calls and engines may take at most.

use std::time::Duration;

/// How long a call may run, if nobody says otherwise.
pub const CALL_TIME: Duration = Duration::from_millis(100);
/// What a machine may hold, if nobody says otherwise.
pub const MEMORY_BYTES: usize = 64 << 20;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Processor time of one call (setting `javascript_call_timeout`).
    pub call_time: Duration,
    /// What one machine may hold (setting `javascript_memory`).
    pub memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            call_time: CALL_TIME,
            memory_bytes: MEMORY_BYTES,
        }
    }
}
