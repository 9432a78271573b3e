//! The signals that ask a process to end in order: SIGINT (ctrl-C), SIGTERM, and SIGHUP (its terminal was closed).

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for them, from when it was made until the process ends.
#[derive(Debug)]
pub struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Option<Signal>,
}

impl EndSignals {
    /// # Errors
    /// The signals cannot be listened for.
    pub fn listen() -> io::Result<Self> {
        Ok(EndSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            // `nohup` has a process outlive its terminal: a handler would undo that.
            hang_up: (!ignores_hang_up())
                .then(|| signal(SignalKind::hangup()))
                .transpose()?,
        })
    }

    /// Returns once for each time that somebody asks. The end of a terminal asks once, however often it is told: the system and a
    /// shell both do, and the second signal is not one that wants out at once.
    pub async fn asked(&mut self) {
        let hang_up = self.hang_up.as_mut();
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            Some(_) = async { hang_up?.recv().await } => self.hang_up = None,
        }
    }
}

/// Whether the process was started with SIGHUP ignored. Where the system does not say it, it was not.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The first bit is signal 1.
    ignored.is_some_and(|mask| mask & 1 == 1)
}
