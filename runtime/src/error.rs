//! What can go wrong while running.

use datafusion::error::DataFusionError;
use millrace_planner::RelationId;
use millrace_storage::StorageError;

/// A failure of the runtime.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    DataFusion(#[from] DataFusionError),
    #[error("relation {0} does not exist in the runtime")]
    UnknownRelation(RelationId),
    /// Two live rows of a table would have the same key.
    #[error("duplicate key value violates unique constraint: key {key} already exists")]
    DuplicateKey { relation: RelationId, key: String },
    /// A view failed while it ran, and runs no more.
    #[error("materialized view \"{view}\" failed: {why}")]
    ViewFailed { view: String, why: String },
    /// An expression of a view failed on a row, and the view was made with `on_error = 'fail'`.
    #[error("an expression failed on a row (on_error = 'fail'): {0}")]
    ExpressionFailed(String),
    /// A recursive query of a view reached a limit within one epoch; `limit` is `10000 iterations`.
    #[error(
        "recursive query \"{query}\" did not end within {limit}: UNION ALL never ends on a cycle in the data (UNION \
         does), or if the recursive term has no condition that stops it; the limits are recursion_iterations_max and \
         recursion_rows_max"
    )]
    EndlessRecursion { query: String, limit: String },
    #[error("worker {0} does not exist")]
    UnknownWorker(u32),
    #[error("cannot remove worker {0}: it is the last one")]
    LastWorker(u32),
    /// A worker was lost while it ran something for somebody.
    #[error("worker {0} was lost while it ran this statement")]
    WorkerLost(u32),
    /// Something grew past `memory_limit`; `held` says what uses the memory.
    #[error("out of memory: {who} exceeded memory_limit: {held}")]
    OutOfMemory { who: String, held: String },
    /// Spilled state cannot be written to the disk, or read back.
    #[error("cannot spill state or read it back: {0}")]
    Spill(String),
    /// A write was held back by backpressure for as long as `write_timeout` allows.
    #[error("write timed out after {waited:?}: {cause} (backpressure): {why}")]
    NoRoom {
        waited: std::time::Duration,
        /// What is to blame, in a few words.
        cause: &'static str,
        why: String,
    },
    /// Rows of a view that was followed were lost with a worker; the view has them again, at other versions.
    #[error(
        "the changes of \"{relation}\" cannot be followed any further: it was restored after a worker was lost"
    )]
    RowsLost { relation: String },
    /// A write was cancelled before it was handed to the log: nothing of it was stored.
    #[error("the write was cancelled before it was submitted")]
    Ended,
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("internal runtime error: {0}")]
    Internal(String),
}

impl RuntimeError {
    /// Whether it failed because memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            RuntimeError::OutOfMemory { .. } => true,
            RuntimeError::DataFusion(error) => {
                matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
            }
            _ => false,
        }
    }
}

/// The runtime's result type.
pub type Result<T, E = RuntimeError> = std::result::Result<T, E>;
