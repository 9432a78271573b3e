//! How the demo is asked to end: by a signal or a key.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;

use super::screen;
use crate::signals::EndSignals;

/// Asks for the end. Asked a second time, it does not wait for it.
#[derive(Clone)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Stop {
    /// Nobody asked yet; the signals that end a process will.
    ///
    /// # Errors
    /// The signals cannot be listened for.
    pub fn on_signals() -> io::Result<Self> {
        let mut signals = EndSignals::listen()?;
        let stop = Stop(Arc::new(watch::channel(false).0));
        let asking = stop.clone();
        tokio::spawn(async move {
            loop {
                signals.asked().await;
                asking.ask();
            }
        });
        Ok(stop)
    }

    /// Whether the end was asked for, and a way to wait for it.
    pub fn asked(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }

    /// Asks.
    pub fn ask(&self) {
        if self.0.send_replace(true) {
            screen::restore();
            #[expect(
                clippy::disallowed_methods,
                reason = "asked for a second time: somebody wants out at once"
            )]
            std::process::exit(1);
        }
    }
}
