//! From the target of a sink to its writer: the one list of writers.

use millrace_catalog::sink::{SinkDef, Target};

use crate::files::BucketWriter;
use crate::kafka::KafkaWriter;
use crate::postgres::PostgresWriter;
use crate::source::ConnectorError;
use crate::target::Writer;

/// Connects to the target of a sink, as the only one who writes it from now on. `holder` is a name that nobody else has.
///
/// # Errors
/// It cannot be reached, refuses, or is not what it was.
pub async fn open(sink: &SinkDef, holder: &str) -> Result<Box<dyn Writer>, ConnectorError> {
    match &sink.target {
        Target::Kafka(kafka) => Ok(Box::new(KafkaWriter::open(kafka, holder).await?)),
        Target::Postgres(postgres) => Ok(Box::new(PostgresWriter::open(sink, postgres, holder).await?)),
        Target::Bucket(bucket) => Ok(Box::new(BucketWriter::open(bucket).await?)),
        Target::Files(_) => Err(nothing_to_connect()),
    }
}

/// Looks whether the target of a new sink can be written.
///
/// # Errors
/// It cannot.
pub async fn check(sink: &SinkDef, holder: &str) -> Result<(), ConnectorError> {
    match &sink.target {
        Target::Kafka(kafka) => KafkaWriter::check(kafka, holder).await,
        Target::Postgres(postgres) => PostgresWriter::check(sink, postgres).await,
        Target::Bucket(bucket) => BucketWriter::check(bucket).await,
        Target::Files(_) => Err(nothing_to_connect()),
    }
}

fn nothing_to_connect() -> ConnectorError {
    ConnectorError::lasting("files are written by the server itself", "Create the sink again.")
}
