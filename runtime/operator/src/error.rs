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
    #[error("an expression failed on a row (on_error = 'fail'): {0}")]
    ExpressionFailed(String),
    /// A recursive query of a view reached a limit within one epoch; `limit` is `10000 iterations`.
    #[error(
        "recursive query \"{query}\" did not end within {limit}: UNION ALL never ends on a cycle in the data (UNION \
         does), or if the recursive term has no condition that stops it; the limits are recursion_iterations_max and \
         recursion_rows_max"
    )]
    EndlessRecursion { query: String, limit: String },
    #[error("internal runtime error: {0}")]
    Internal(String),
}

impl OperatorError {
    /// Whether it failed because memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            OperatorError::Resource(ResourceError::OutOfMemory { .. }) => true,
            OperatorError::DataFusion(error) => is_for_memory(error),
            _ => false,
        }
    }
}

/// Whether an error is about memory, and not about a row.
pub(crate) fn is_for_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
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
