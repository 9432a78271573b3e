//! What can go wrong while running.

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use millrace_operator::error::OperatorError;
use millrace_planner::RelationId;
use millrace_resource::cpu;
use millrace_resource::error::ResourceError;
use millrace_state::error::StateError;
use millrace_storage::StorageError;

/// A failure of the runtime.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    DataFusion(#[from] DataFusionError),
    /// Slots that end, memory that is not there, a disk that fails.
    #[error(transparent)]
    Resource(ResourceError),
    #[error("relation {0} does not exist in the runtime")]
    UnknownRelation(RelationId),
    /// Two live rows of a table would have the same key.
    #[error("duplicate key value violates unique constraint: key {key} already exists")]
    DuplicateKey { relation: RelationId, key: String },
    /// A view failed while it ran, and runs no more.
    #[error("materialized view \"{view}\" failed: {why}")]
    ViewFailed { view: String, why: String },
    /// An expression that fails on a row, a recursion without end.
    #[error(transparent)]
    Operator(OperatorError),
    #[error("worker {0} does not exist")]
    UnknownWorker(u32),
    #[error("cannot remove worker {0}: it is the last one")]
    LastWorker(u32),
    /// A write was held back by backpressure for as long as `write_timeout` allows.
    #[error("write timed out after {waited:?}: {cause} (backpressure): {why}")]
    WriteTimedOut {
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
    #[error("internal runtime error: {0}")]
    Internal(String),
}

impl From<ResourceError> for RuntimeError {
    fn from(error: ResourceError) -> Self {
        match error {
            ResourceError::DataFusion(error) => RuntimeError::DataFusion(error),
            ResourceError::Internal(why) => RuntimeError::Internal(why),
            other => RuntimeError::Resource(other),
        }
    }
}

impl From<StateError> for RuntimeError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::DataFusion(error) => RuntimeError::DataFusion(error),
            StateError::Resource(error) => error.into(),
            StateError::Internal(why) => RuntimeError::Internal(why),
        }
    }
}

impl From<OperatorError> for RuntimeError {
    fn from(error: OperatorError) -> Self {
        match error {
            OperatorError::DataFusion(error) => RuntimeError::DataFusion(error),
            OperatorError::Resource(error) => error.into(),
            OperatorError::Internal(why) => RuntimeError::Internal(why),
            other => RuntimeError::Operator(other),
        }
    }
}

impl From<ArrowError> for RuntimeError {
    fn from(error: ArrowError) -> Self {
        RuntimeError::DataFusion(error.into())
    }
}

impl RuntimeError {
    /// The runtime ends, or has ended.
    pub(crate) const SHUTTING_DOWN: RuntimeError = RuntimeError::Resource(ResourceError::ShuttingDown);

    /// A worker was lost while it ran something for somebody.
    pub(crate) fn worker_lost(worker: u32) -> RuntimeError {
        RuntimeError::Resource(ResourceError::WorkerLost(worker))
    }

    /// Why a view failed, for those who read it.
    pub(crate) fn reason(&self) -> String {
        match self {
            RuntimeError::DataFusion(error) => match error.find_root() {
                DataFusionError::ResourcesExhausted(why) => why.clone(),
                _ => self.to_string(),
            },
            _ => self.to_string(),
        }
    }

    /// Whether it failed because memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            RuntimeError::Resource(ResourceError::OutOfMemory { .. }) => true,
            RuntimeError::DataFusion(error) => {
                matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
            }
            _ => false,
        }
    }
}

/// The runtime's result type.
pub type Result<T, E = RuntimeError> = std::result::Result<T, E>;

/// A task on the slots, which fails as everything here does.
pub type CpuTask<T> = cpu::CpuTask<T, RuntimeError>;
