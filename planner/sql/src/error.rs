//! What a statement says that cannot be.

use datafusion::error::DataFusionError;

/// A statement that says what cannot be. It travels through DataFusion as one of its external errors.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Faulty {
    pub fault: Fault,
    pub message: String,
}

/// What is wrong with a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    InvalidParameter,
    DatatypeMismatch,
    DatetimeOverflow,
    UndefinedColumn,
    UndefinedTable,
    UndefinedFunction,
    WrongObjectType,
    AmbiguousColumn,
    DuplicateAlias,
    InvalidColumnReference,
    InvalidFrameOffset,
    NullNotAllowed,
    InvalidRecursion,
    SyntaxError,
    TooComplex,
    LimitExceeded,
}

impl From<Faulty> for DataFusionError {
    fn from(error: Faulty) -> Self {
        DataFusionError::External(Box::new(error))
    }
}
