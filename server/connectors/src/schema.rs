//! Records whose schemas are in a registry: from their bytes to JSON, which is read as any other.
//!
//! ```text
//!  0, number of the schema (4 bytes), [which message, of Protobuf,] the value
//!        |
//!        `--> Schemas::prepare asks the registry, once for each number --> Layout --> Schemas::document
//! ```
//! So all envelopes, types and errors are those of JSON. A number that the registry does not know makes a bad record; a registry that
//! does not answer makes the source try again.

mod avro;
mod json;
mod protobuf;
mod records;
mod registry;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use millrace_catalog::connector::encoding::{Encoding, Envelope, RecordFormat};
use millrace_catalog::connector::registry::RegistryPlace;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use parking_lot::{Mutex, RwLock};

pub(crate) use self::records::Records;
use self::registry::{Language, Registered, Registry};
use crate::about::invalid;
use crate::source::ConnectorError;

/// The schemas that are kept in memory, at most.
const SCHEMAS_MAX: usize = 10_000;

/// What records' bytes are in.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Avro { is_debezium: bool },
    Protobuf { message: Option<String> },
}

#[derive(Debug)]
enum Layout {
    Avro(avro::Layout),
    Protobuf(protobuf::Layout),
}

/// The schemas of a source's records.
#[derive(Debug)]
pub(crate) struct Schemas {
    place: RegistryPlace,
    kind: Kind,
    registry: Mutex<Option<Arc<Registry>>>,
    /// By number; of those that cannot be used, why.
    known: RwLock<HashMap<u32, Result<Arc<Layout>, SqlError>>>,
}

impl Schemas {
    /// For a format, if its schemas are in a registry.
    pub fn of(format: &RecordFormat) -> Option<Schemas> {
        let kind = match &format.encoding {
            Encoding::Avro(_) => Kind::Avro {
                is_debezium: format.envelope == Envelope::Debezium,
            },
            Encoding::Protobuf { message, .. } => Kind::Protobuf {
                message: message.clone(),
            },
            Encoding::Json | Encoding::Csv { .. } | Encoding::Bytes | Encoding::Parquet => return None,
        };
        Some(Schemas {
            place: format.encoding.registry()?.clone(),
            kind,
            registry: Mutex::default(),
            known: RwLock::default(),
        })
    }

    /// Learns what is needed to read these bytes.
    ///
    /// # Errors
    /// The registry does not answer, or refuses.
    pub async fn prepare<'b>(&self, all: impl Iterator<Item = &'b Bytes>) -> Result<(), ConnectorError> {
        let unknown: BTreeSet<u32> = {
            let known = self.known.read();
            let numbers = all.filter_map(|bytes| split(bytes).ok()).map(|(id, _)| id);
            // What was not there may have come.
            numbers
                .filter(|id| !known.get(id).is_some_and(Result::is_ok))
                .collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let registry = self.registry().await?;
        for id in unknown {
            let layout = match registry.schema(id).await? {
                Some(registered) => self.layout(&registered).map(Arc::new),
                None => Err(invalid(&format!("the schema registry has no schema {id}"))),
            };
            let mut known = self.known.write();
            if known.len() >= SCHEMAS_MAX {
                known.clear();
            }
            known.insert(id, layout);
        }
        Ok(())
    }

    async fn registry(&self) -> Result<Arc<Registry>, ConnectorError> {
        if let Some(registry) = &*self.registry.lock() {
            return Ok(Arc::clone(registry));
        }
        let registry = Arc::new(Registry::new(&self.place).await?);
        *self.registry.lock() = Some(Arc::clone(&registry));
        Ok(registry)
    }

    fn layout(&self, registered: &Registered) -> SqlResult<Layout> {
        match (&self.kind, registered.language) {
            (Kind::Avro { is_debezium }, Language::Avro) => {
                avro::Layout::new(registered, *is_debezium).map(Layout::Avro)
            }
            (Kind::Protobuf { message }, Language::Protobuf) => {
                protobuf::Layout::new(registered, message.as_deref()).map(Layout::Protobuf)
            }
            (_, language) => Err(SqlError::new(
                SqlState::FeatureNotSupported,
                format!("the schema of the record is of {language:?}"),
            )),
        }
    }

    /// The columns that the records of a topic have, each with its type in SQL, as its newest schema says; none: the registry knows no
    /// schema of the topic.
    ///
    /// # Errors
    /// The registry does not answer, or the schema is not one of records.
    pub async fn columns(&self, topic: &str, has_key: bool) -> SqlResult<Option<Vec<(String, String)>>> {
        let registry = self.registry().await.map_err(ConnectorError::into_sql)?;
        let mut columns: Option<Vec<(String, String)>> = None;
        let subjects = [("key", has_key), ("value", true)];
        for (part, _) in subjects.into_iter().filter(|(_, is_wanted)| *is_wanted) {
            let newest = registry.newest(&format!("{topic}-{part}")).await;
            let Some(registered) = newest.map_err(ConnectorError::into_sql)? else {
                continue;
            };
            let found = match self.layout(&registered)? {
                Layout::Avro(layout) => layout.columns(),
                Layout::Protobuf(layout) => layout.columns(),
            };
            let found = match found {
                // A key that is a value alone is a column that somebody else names.
                Err(_) if part == "key" => vec![],
                found => found?,
            };
            let known = columns.get_or_insert_default();
            let is_new = |(name, _): &(String, String)| !known.iter().any(|(known, _)| known == name);
            let new: Vec<_> = found.into_iter().filter(is_new).collect();
            known.extend(new);
        }
        Ok(columns)
    }

    /// The columns of what has these schemas, each with its type in SQL; none of what cannot be read.
    pub fn columns_of(&self, bytes: &Bytes) -> Option<(u32, Vec<(String, String)>)> {
        let (id, _) = split(bytes).ok()?;
        let layout = Arc::clone(self.known.read().get(&id)?.as_ref().ok()?);
        let columns = match &*layout {
            Layout::Avro(layout) => layout.columns(),
            Layout::Protobuf(layout) => layout.columns(),
        };
        Some((id, columns.ok()?))
    }

    /// The number of the schema of a record; none: it has none.
    pub fn number(bytes: &Bytes) -> Option<u32> {
        split(bytes).ok().map(|(id, _)| id)
    }

    /// A value as JSON.
    ///
    /// # Errors
    /// It has no schema, or is not what that says.
    pub fn document(&self, bytes: &Bytes) -> SqlResult<Bytes> {
        let (id, rest) = split(bytes)?;
        let layout = match self.known.read().get(&id) {
            Some(Ok(layout)) => Arc::clone(layout),
            Some(Err(error)) => return Err(error.clone()),
            None => return Err(invalid(&format!("the schema registry has no schema {id}"))),
        };
        let document = match &*layout {
            Layout::Avro(layout) => layout.document(rest)?,
            Layout::Protobuf(layout) => layout.document(rest)?,
        };
        Ok(document.into())
    }
}

/// The number of the schema, and what is behind it.
fn split(bytes: &[u8]) -> SqlResult<(u32, &[u8])> {
    match bytes.split_first_chunk() {
        Some(([0, a, b, c, d], rest)) => Ok((u32::from_be_bytes([*a, *b, *c, *d]), rest)),
        _ => Err(invalid("the record does not begin with the number of a schema")
            .with_hint("Producers write it there if they use the serializer of a schema registry.")),
    }
}
