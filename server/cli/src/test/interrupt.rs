//! Ctrl-C while files run: the first ends them, and what came of them is told; the second ends the process.

use std::io;

use tokio::sync::watch;

use crate::signals::EndSignals;

/// Whether somebody has asked for the end, and a way to wait for it.
///
/// # Errors
/// The signals cannot be listened for.
pub fn asked() -> io::Result<watch::Receiver<bool>> {
    let mut signals = EndSignals::listen()?;
    let (asking, asked) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            signals.asked().await;
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
