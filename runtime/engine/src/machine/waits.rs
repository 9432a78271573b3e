//! Where what tasks await is driven: files, timers.
//!
//! A runtime of one thread, because on such a one DataFusion starts no tasks of its own to read ahead: what runs, runs on the
//! slots.

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::{Result, RuntimeError};

/// See the module.
pub struct Waits {
    handle: tokio::runtime::Handle,
    stop: Mutex<Option<oneshot::Sender<()>>>,
}

impl Waits {
    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system refuses it.
    pub fn start() -> Result<Waits> {
        let refused =
            |error: std::io::Error| RuntimeError::Internal(format!("cannot start waiting: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(refused)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("waits".into())
            .spawn(move || {
                // A sender that is gone stops it too.
                let _ = runtime.block_on(stopped);
                // Files that are being read are not waited for.
                runtime.shutdown_background();
            })
            .map_err(refused)?;
        Ok(Waits {
            handle,
            stop: Mutex::new(Some(stop)),
        })
    }

    /// For the slots to enter.
    pub fn handle(&self) -> tokio::runtime::Handle {
        self.handle.clone()
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.stop.lock().take();
    }
}
