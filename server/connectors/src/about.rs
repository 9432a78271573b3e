//! What one record is about, in words of our own.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use serde_json::value::RawValue;

/// The members of a JSON object, each as it is written.
pub(crate) type Members<'a> = BTreeMap<String, &'a RawValue>;

/// Names of columns that stay as they were.
pub(crate) type Kept = Vec<String>;

/// What a record is about.
#[derive(Debug, Default)]
pub(crate) struct About {
    /// The row that is there from then on, as a JSON object of its columns.
    pub row: Option<Bytes>,
    /// The key of a row that is gone from then on, as a JSON object.
    pub gone: Option<Bytes>,
    pub kept: Kept,
}

impl About {
    pub fn row(row: Bytes) -> About {
        About {
            row: Some(row),
            ..About::default()
        }
    }

    pub fn gone(key: Bytes) -> About {
        About {
            gone: Some(key),
            ..About::default()
        }
    }
}

/// A JSON object of members.
pub(crate) fn document(members: &Members<'_>) -> SqlResult<Bytes> {
    let bytes = serde_json::to_vec(members).map_err(|error| broken("value", &error))?;
    Ok(bytes.into())
}

pub(crate) fn invalid(message: &str) -> SqlError {
    SqlError::new(SqlState::InvalidTextRepresentation, message.to_owned())
}

/// What is wrong with the JSON of a key or value.
pub(crate) fn broken(what: &str, error: &serde_json::Error) -> SqlError {
    invalid(&format!("the {what} is not a JSON object")).with_detail(error.to_string())
}
