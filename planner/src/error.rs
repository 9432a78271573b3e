//! Why a statement could not be planned.

use datafusion::error::DataFusionError;

/// A planning failure. Everything but [`PlanError::Internal`] is the user's to mend.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A construct that cannot be maintained incrementally; `construct` names it as the user wrote it.
    #[error("{construct} is not supported in a materialized view")]
    NotIncremental { construct: String, hint: Option<String> },
    /// What DataFusion's binder or optimizer says: unknown names, type errors, unsupported SQL.
    #[error(transparent)]
    DataFusion(#[from] DataFusionError),
    /// A broken invariant of the planner.
    #[error("internal planner error: {0}")]
    Internal(String),
}

impl From<PlanError> for DataFusionError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::DataFusion(error) => error,
            other => DataFusionError::External(Box::new(other)),
        }
    }
}

impl PlanError {
    /// A construct that views do not support, with advice.
    pub fn not_incremental(construct: impl Into<String>, hint: impl Into<String>) -> Self {
        PlanError::NotIncremental {
            construct: construct.into(),
            hint: Some(hint.into()),
        }
    }
}

/// The planner's result type.
pub type Result<T, E = PlanError> = std::result::Result<T, E>;
