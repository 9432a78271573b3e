//! What the catalog holds: objects, each with the SQL that made it, and the changes to them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The identity of an object forever: from a counter that never goes back, so that a name may be reused
/// but an id never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ObjectId(pub u64);

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an object is. Storage only keeps it; its meaning is the binder's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    Database,
    Schema,
    User,
    Stream,
    Table,
    View,
    MaterializedView,
    ExternalTable,
    Index,
    Sink,
    Subscription,
    Function,
    Sequence,
    Setting,
    Secret,
    Type,
    Domain,
}

/// One object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CatalogObject {
    pub id: ObjectId,
    pub kind: ObjectKind,
    /// The database that it is in; empty for a database and for what belongs to none.
    pub database: String,
    /// The schema that it is in; empty for a schema and for what belongs to none.
    pub schema: String,
    pub name: String,
    /// The statement that makes it, bound to full names.
    pub sql: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Milliseconds since 1970-01-01 UTC.
    pub created_at_ms: i64,
    /// Whatever else its kind needs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, serde_json::Value>,
}

/// One step of [`Catalog::apply`](super::Catalog::apply).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatalogChange {
    /// Adds the object, or replaces the one with its id.
    Put(CatalogObject),
    /// Removes the object; nothing happens if there is none.
    Remove(ObjectId),
    /// Sets a small fact.
    PutFact {
        key: String,
        #[serde(with = "hex")]
        value: Vec<u8>,
    },
    /// Removes a fact; nothing happens if there is none.
    RemoveFact { key: String },
}

/// Bytes as hexadecimal text, so that the journal stays a text file.
pub(super) mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).expect("four bits are one hexadecimal digit"));
            }
        }
        serializer.serialize_str(&text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        if !text.len().is_multiple_of(2) || !text.is_ascii() {
            return Err(D::Error::custom("odd hexadecimal text"));
        }
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).map_err(D::Error::custom))
            .collect()
    }
}
