//! What can go wrong in an operator: an expression that fails on a row, a recursion without end, state that cannot be had.

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use millrace_resource::error::ResourceError;
use millrace_state::error::StateError;
use millrace_storage::StorageError;

/// A failure of an operator.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    DataFusion(#[from] DataFusionError),
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// An expression of a view failed on a row, and the view was made with `on_error = 'fail'`.
    #[error("an expression fails on a row (on_error = 'fail'): {0}")]
    ExpressionFailed(String),
    /// A recursive query of a view reached a limit within one epoch; `limit` is `10000 iterations`.
    #[error(
        "recursive query \"{query}\" was still going on after {limit}: with UNION ALL a cycle in the data is endless \
         (UNION ends), and so is a recursive term without a condition that stops it; recursion_iterations_max and \
         recursion_rows_max in the configuration are the limits"
    )]
    EndlessRecursion { query: String, limit: String },
    #[error("internal runtime error: {0}")]
    Internal(String),
}

impl From<ArrowError> for OperatorError {
    fn from(error: ArrowError) -> Self {
        OperatorError::DataFusion(error.into())
    }
}

impl From<StateError> for OperatorError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::DataFusion(error) => OperatorError::DataFusion(error),
            StateError::Resource(error) => OperatorError::Resource(error),
            StateError::Internal(why) => OperatorError::Internal(why),
        }
    }
}

/// The result type of operators.
pub type Result<T, E = OperatorError> = std::result::Result<T, E>;
