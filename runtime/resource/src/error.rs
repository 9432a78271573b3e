//! What can go wrong with a resource: slots that end, memory that is not there, a disk that fails.

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;

/// A failure of a resource's scheduler.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    #[error(transparent)]
    DataFusion(#[from] DataFusionError),
    /// A worker was lost while it ran something for somebody.
    #[error("worker {0} was lost while it ran this statement")]
    WorkerLost(u32),
    /// Something grew past `memory_limit`; `held` says what uses the memory.
    #[error("out of memory: {who} exceeded memory_limit: {held}")]
    OutOfMemory { who: String, held: String },
    /// Spilled state cannot be written to the disk, or read back.
    #[error("cannot spill state or read it back: {0}")]
    Spill(String),
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("internal runtime error: {0}")]
    Internal(String),
}

impl From<ArrowError> for ResourceError {
    fn from(error: ArrowError) -> Self {
        ResourceError::DataFusion(error.into())
    }
}

/// The result type of resources.
pub type Result<T, E = ResourceError> = std::result::Result<T, E>;
