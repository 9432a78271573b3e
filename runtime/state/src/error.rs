//! What can go wrong with state: a column that cannot be compared or hashed, rows that a disk does not give back.

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use millrace_resource::error::ResourceError;

/// A failure of a table.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(transparent)]
    DataFusion(#[from] DataFusionError),
    #[error(transparent)]
    Resource(#[from] ResourceError),
    #[error("internal runtime error: {0}")]
    Internal(String),
}

impl From<ArrowError> for StateError {
    fn from(error: ArrowError) -> Self {
        StateError::DataFusion(error.into())
    }
}

/// The result type of tables.
pub type Result<T, E = StateError> = std::result::Result<T, E>;
