//! From a connector's definition to its reader: the one list of readers.

use millrace_catalog::connector::ConnectorDef;
use millrace_catalog::connector::encoding::{Encoding, Envelope, KeyFormat};
use millrace_postgres::error::{SqlError, SqlResult};

use crate::files::FileReader;
use crate::kafka;
use crate::schema::Schemas;
use crate::source::{ConnectorError, FilesRead, Position, Reader};

/// Connects to the source that a connector names, and goes on from a position, with the files that were read before. Of files of columns
/// those of these names are read.
///
/// # Errors
/// It cannot be reached, refuses, has not what the position needs.
pub async fn open(
    connector: &ConnectorDef,
    encoding: &Encoding,
    names: Vec<String>,
    position: &Position,
    before: &FilesRead,
) -> Result<Box<dyn Reader>, ConnectorError> {
    let of_options = |error: SqlError| ConnectorError::lasting(error.message, "Create the stream again.");
    if let Some(files) = connector.files().map_err(of_options)? {
        let reader = FileReader::open(files, encoding.clone(), names, position, before).await?;
        return Ok(Box::new(reader));
    }
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

/// The columns that records have, each with its type in SQL, where that is written down somewhere; none: nobody says.
///
/// # Errors
/// Who has written it down does not answer, or it is not about records.
pub async fn columns(connector: &ConnectorDef) -> SqlResult<Option<Vec<(String, String)>>> {
    let Some((format, topic)) = connector.format()? else {
        return Ok(None);
    };
    let has_key = format.envelope == Envelope::Upsert(KeyFormat::AsValue);
    match Schemas::of(&format) {
        Some(schemas) => schemas.columns(&topic, has_key).await,
        None => Ok(None),
    }
}
