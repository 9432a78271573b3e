//! By what a stored relation is known, whatever it is called: in plans, watermarks, checkpoints and the catalog.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The identity of a stream, table or materialized view. Never reused; names may change, this does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RelationId(pub u64);

impl fmt::Display for RelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
