//! From the target of a sink to its writer: the one list of writers.

use std::sync::Arc;

use millrace_catalog::connector::private_hosts::PrivateHosts;
use millrace_catalog::sink::{SinkDef, Target};
use uuid::Uuid;

use crate::delta::DeltaWriter;
use crate::files::BucketWriter;
use crate::kafka::KafkaWriter;
use crate::postgres::PostgresWriter;
use crate::source::ConnectorError;
use crate::target::Writer;
use crate::webhook::WebhookWriter;

/// Who writes.
#[derive(Debug)]
pub struct By<'a> {
    /// A name that nobody else has.
    holder: String,
    /// Hosts at private addresses that may be written to.
    private_hosts: &'a Arc<PrivateHosts>,
}

impl By<'_> {
    /// Somebody who was not there before.
    pub fn new(private_hosts: &Arc<PrivateHosts>) -> By<'_> {
        By {
            holder: Uuid::new_v4().to_string(),
            private_hosts,
        }
    }
}

/// Connects to the target of a sink, as the only one who writes it from now on.
///
/// # Errors
/// It cannot be reached, refuses, or is not what it was.
pub async fn open(sink: &SinkDef, by: &By<'_>) -> Result<Box<dyn Writer>, ConnectorError> {
    match &sink.target {
        Target::Kafka(kafka) => Ok(Box::new(KafkaWriter::open(kafka, &by.holder).await?)),
        Target::Postgres(postgres) => Ok(Box::new(PostgresWriter::open(sink, postgres, &by.holder).await?)),
        Target::Bucket(bucket) => Ok(Box::new(BucketWriter::open(bucket).await?)),
        Target::Delta(delta) => Ok(Box::new(DeltaWriter::open(delta).await?)),
        Target::Webhook(webhook) => Ok(Box::new(WebhookWriter::open(webhook, by.private_hosts).await?)),
        Target::Files(_) | Target::Subscription(_) => Err(nothing_to_connect()),
    }
}

/// Looks whether the target of a new sink can be written.
///
/// # Errors
/// It cannot.
pub async fn check(sink: &SinkDef, by: &By<'_>) -> Result<(), ConnectorError> {
    match &sink.target {
        Target::Kafka(kafka) => KafkaWriter::check(kafka, &by.holder).await,
        Target::Postgres(postgres) => PostgresWriter::check(sink, postgres).await,
        Target::Bucket(bucket) => BucketWriter::check(bucket).await,
        Target::Delta(delta) => DeltaWriter::check(delta).await,
        Target::Webhook(webhook) => WebhookWriter::check(webhook, by.private_hosts).await,
        Target::Files(_) | Target::Subscription(_) => Err(nothing_to_connect()),
    }
}

fn nothing_to_connect() -> ConnectorError {
    ConnectorError::lasting(
        "files and subscriptions are written by the server itself",
        "Create the sink again.",
    )
}
