//! What a view asks of those who run it: how urgent it is, and what becomes of rows on which it fails.

use serde::{Deserialize, Serialize};

/// How urgent the epochs of a view are (Neptune, section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Priority {
    /// They go before all queries.
    #[default]
    Stream,
    /// They are batch work, and give way. Views that are connected through their inputs have common epochs: these are
    /// batch work if those of all of them are to be.
    Batch,
}

impl Priority {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Priority::Stream => "stream",
            Priority::Batch => "batch",
        }
    }
}

/// What becomes of a row on which an expression of a view fails. It is counted in any case. The result of an aggregate or window
/// function that fails is of no one row: it is NULL, unless the view fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The expression is NULL there.
    #[default]
    Null,
    /// The row is left out.
    Skip,
    /// The view fails.
    Fail,
}

impl OnError {
    /// All of them.
    pub const ALL: [OnError; 3] = [OnError::Null, OnError::Skip, OnError::Fail];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            OnError::Null => "null",
            OnError::Skip => "skip",
            OnError::Fail => "fail",
        }
    }
}
