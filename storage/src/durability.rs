//! What an acknowledged write survives: a setting of the whole store, which a write can lower for itself.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Power loss. All that waits is written and synced at once.
    Fsync,
    /// Power loss. As `Fsync`, but when several came together the last time, the writer waits for as many to share the
    /// next sync: no longer than the last one took, and than `group_commit_delay_ms_max`. A lone client never waits.
    #[default]
    Group,
    /// The death of the process, but not of the machine: nothing is synced before it is acknowledged.
    Off,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Fsync => "fsync",
            Durability::Group => "group",
            Durability::Off => "off",
        })
    }
}

impl FromStr for Durability {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "fsync" => Ok(Durability::Fsync),
            "group" => Ok(Durability::Group),
            "off" => Ok(Durability::Off),
            _ => Err(()),
        }
    }
}
