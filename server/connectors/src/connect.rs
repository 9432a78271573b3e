//! From a connector's definition to its reader: the one list of readers.

use millrace_catalog::connector::ConnectorDef;
use millrace_postgres::error::SqlError;

use crate::kafka;
use crate::source::{ConnectorError, Position, Reader};

/// Connects to the source that a connector names, and goes on from a position.
///
/// # Errors
/// It cannot be reached, refuses, has not what the position needs.
pub async fn open(connector: &ConnectorDef, position: &Position) -> Result<Box<dyn Reader>, ConnectorError> {
    let of_options = |error: SqlError| ConnectorError::lasting(error.message, "Create the stream again.");
    match connector.kafka().map_err(of_options)? {
        Some(kafka) => {
            let reader = kafka::KafkaReader::open(&kafka, position).await?;
            Ok(Box::new(reader))
        }
        None => Err(ConnectorError::lasting(
            format!("connector \"{}\" is not one that is read", connector.name()),
            "Create the stream again.",
        )),
    }
}
