//! What workers and queries of this process share: its memory, disks, network, and the threads that wait for them.
//!
//! It knows of nothing that runs: workers, queries and checkpoints are handed it, and use what they need of it.

mod waits;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::object_store::local::LocalFileSystem;
use millrace_resource::disk::{DiskScheduler, DiskStore, Disks};
use millrace_resource::error::ResourceError;
use millrace_resource::memory::Memory;
use millrace_resource::monotask::{Moved, Phase};
use millrace_resource::network::Network;
use millrace_resource::spill::query::SpillFiles;
use millrace_resource::spill::state::{Spill, SpillOptions};

use self::waits::Waits;
use crate::error::{Result, RuntimeError};

/// See the module.
pub(crate) struct Machine {
    /// CPU slots of a worker.
    pub cores: usize,
    pub memory: Arc<Memory>,
    /// Where state of views goes when memory is short, if it goes anywhere.
    pub spill: Option<Arc<Spill>>,
    /// Serve what is read from files and written to them.
    pub disks: Arc<Disks>,
    /// What workers fetch of each other goes over it.
    pub network: Arc<Network>,
    /// Where the runtime's own waiting is done.
    pub io: tokio::runtime::Handle,
    /// Drives what tasks await.
    waits: Waits,
    /// Whether writes wait for the device.
    flushes_writes: Arc<AtomicBool>,
}

impl Machine {
    /// Starts the disks' schedulers. `data`: where the logs are.
    ///
    /// # Errors
    /// The directory for spilled state cannot be written, or the operating system refuses a thread.
    pub fn start(
        cores: usize,
        memory: &Arc<Memory>,
        spill: Option<&SpillOptions>,
        data: &Path,
    ) -> Result<Machine> {
        let io = tokio::runtime::Handle::current();
        let disks = Arc::new(Disks::new(data, memory));
        let spill = match spill {
            None => None,
            Some(spill) => {
                let spill = Spill::open(spill, &disks.of(&spill.directory), memory, io.clone());
                Some(spill.map_err(|error| ResourceError::Spill(error.to_string()))?)
            }
        };
        Ok(Machine {
            cores,
            memory: Arc::clone(memory),
            spill,
            disks,
            network: Arc::default(),
            io,
            waits: Waits::start()?,
            flushes_writes: Arc::new(AtomicBool::new(true)),
        })
    }

    /// The device that the logs are on.
    pub fn data(&self) -> &Arc<DiskScheduler> {
        self.disks.data()
    }

    /// Where what tasks await is driven.
    pub fn waits(&self) -> tokio::runtime::Handle {
        self.waits.handle()
    }

    /// Drives nothing any more.
    pub fn stop(&self) {
        self.waits.stop();
    }

    /// Whether a write of a query, a checkpoint or a sink ends when the device has it.
    pub fn set_flushes_writes(&self, is_on: bool) {
        self.flushes_writes.store(is_on, Ordering::Relaxed);
    }

    /// Files, read and written when the disk scheduler says.
    pub fn files(&self, files: LocalFileSystem) -> Arc<DiskStore> {
        Arc::new(DiskStore::new(files, &self.disks, &self.flushes_writes))
    }

    /// What queries spill, as files in the system's directory for such.
    pub fn spill_files(&self) -> Arc<SpillFiles> {
        let directory = std::env::temp_dir();
        Arc::new(SpillFiles::new(&self.disks, directory, &self.flushes_writes))
    }

    /// What a file holds, read as a disk monotask once there is memory for it.
    ///
    /// # Errors
    /// The operating system refuses a thread. The inner error is the file's.
    pub async fn read_file(&self, path: &Path) -> Result<std::io::Result<Vec<u8>>> {
        let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
        let file = path.to_owned();
        let read = move || {
            let content = std::fs::read(file);
            let bytes = content.as_ref().map_or(0, |content| content.len() as u64);
            (content, Moved { bytes, rows: 0 })
        };
        let disk = self.disks.of(path);
        let served = disk
            .serve(Phase::Read, usize::try_from(bytes).unwrap_or(usize::MAX), read)
            .await;
        let (content, _) = served.map_err(|error| RuntimeError::Internal(error.to_string()))?;
        Ok(content)
    }

    /// Runs what reads and writes files by itself as a disk monotask of the device that a path is on.
    ///
    /// # Errors
    /// It panicked, or the operating system refuses a thread.
    pub async fn use_files<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        // How much it moves, it does not say.
        let work = move || (work(), Moved::default());
        let used = self.disks.of(path).serve(Phase::Write, 0, work).await;
        let (done, _) = used.map_err(|error| RuntimeError::Internal(error.to_string()))?;
        Ok(done)
    }
}
