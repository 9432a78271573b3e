//! Ctrl-C while files run: the first ends them, and what came of them is told; the second ends the process.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Whether somebody has asked for the end, and a way to wait for it.
///
/// # Errors
/// The signals cannot be listened for.
pub fn asked() -> io::Result<watch::Receiver<bool>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (asking, asked) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if asking.send_replace(true) {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "asked for a second time: somebody wants out at once"
                )]
                std::process::exit(1);
            }
        }
    });
    Ok(asked)
}
