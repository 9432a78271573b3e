//! What tests and measurements do to a runtime, and no product does: whoever does it says so, `use millrace_engine::testing::Testing`.

use millrace_schedule::id::WorkerId;

use super::Runtime;
use crate::error::{Result, RuntimeError};

/// Faults of machines, and machines that are slower than this one.
pub trait Testing {
    /// Serves the disks as devices of this rate would be, in bytes a second; `None`: as fast as they are.
    fn set_disk_rate(&self, bytes_per_second: Option<u64>);

    /// Has workers' queries be as if each had a link of this rate, in bytes a second; `None`: they share their memory.
    fn set_network_rate(&self, bytes_per_second: Option<u64>);

    /// Cuts a worker off from all others, from the driver and from the sources, as a broken network would. It goes on with what it has,
    /// until it is held to be lost.
    ///
    /// # Errors
    /// There is no such worker.
    fn cut_off_worker(&self, worker: u32) -> Result<()>;

    /// Has the maps of a worker wait from now on, as on a machine that has come to a standstill, or (`false`) go on. What has state there
    /// goes on, and so do messages.
    ///
    /// # Errors
    /// There is no such worker.
    fn stall_worker(&self, worker: u32, is_stalled: bool) -> Result<()>;
}

impl Testing for Runtime {
    fn set_disk_rate(&self, bytes_per_second: Option<u64>) {
        for disk in self.engine.machine.disks.all() {
            disk.set_bytes_per_second(bytes_per_second);
        }
    }

    fn set_network_rate(&self, bytes_per_second: Option<u64>) {
        self.engine.machine.network.set_bytes_per_second(bytes_per_second);
    }

    fn cut_off_worker(&self, worker: u32) -> Result<()> {
        match self.engine.workers.get(WorkerId(worker)) {
            Some(worker) => worker.cut_off(),
            None => return Err(RuntimeError::UnknownWorker(worker)),
        }
        Ok(())
    }

    fn stall_worker(&self, worker: u32, is_stalled: bool) -> Result<()> {
        match self.engine.workers.get(WorkerId(worker)) {
            Some(worker) => worker.stall(is_stalled),
            None => return Err(RuntimeError::UnknownWorker(worker)),
        }
        Ok(())
    }
}
