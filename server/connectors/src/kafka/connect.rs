//! How to get in, and what is said when that fails.

use std::time::Duration;

use krafka::auth::{AuthConfig, TlsConfig};
use krafka::{Kafka, KrafkaError};
use millrace_catalog::connector::kafka::{KafkaPlace, Mechanism};

use crate::source::ConnectorError;

/// After so long it is asked again which partitions there are.
pub(super) const PARTITIONS_EVERY: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to a cluster.
///
/// # Errors
/// No broker answers, or it refuses.
pub(super) async fn connect(place: &KafkaPlace) -> Result<Kafka, ConnectorError> {
    let secret = |error: millrace_postgres::error::SqlError| ConnectorError::passing(error.message);
    let mut security = match &place.sasl {
        None => AuthConfig::plaintext(),
        Some(sasl) => {
            let password = sasl.password.clone();
            // Whatever the file is, nobody else waits for it.
            let read = tokio::task::spawn_blocking(move || password.read()).await;
            let password = read
                .map_err(|error| ConnectorError::passing(error.to_string()))?
                .map_err(secret)?;
            let password = String::from_utf8(password)
                .map_err(|_| ConnectorError::passing("the password for Kafka is not UTF-8"))?;
            let user = sasl.user.clone();
            match sasl.mechanism {
                Mechanism::Plain => AuthConfig::sasl_plain(user, password),
                Mechanism::ScramSha256 => AuthConfig::sasl_scram_sha256(user, password),
                Mechanism::ScramSha512 => AuthConfig::sasl_scram_sha512(user, password),
            }
        }
    };
    if let Some(tls) = &place.tls {
        let mut config = TlsConfig::new();
        if let Some(path) = &tls.ca {
            config = config.with_ca_cert(path.display().to_string());
        }
        security = security.with_tls(config);
    }
    let connecting = Kafka::builder(place.brokers.clone())
        .client_id("millrace")
        .metadata_max_age(PARTITIONS_EVERY / 2)
        .security(security)
        .connect_timeout(CONNECT_TIMEOUT)
        .request_timeout(REQUEST_TIMEOUT)
        .connect();
    match tokio::time::timeout(REQUEST_TIMEOUT, connecting).await {
        Ok(connected) => connected.map_err(|error| failed(place, &error)),
        Err(_) => Err(ConnectorError::passing(format!(
            "no Kafka broker at {} answered within {} seconds",
            place.brokers,
            REQUEST_TIMEOUT.as_secs()
        ))),
    }
}

pub(super) fn failed(place: &KafkaPlace, error: &KrafkaError) -> ConnectorError {
    explain(&place.brokers, &place.topic, error)
}

pub(super) fn no_topic(topic: &str, brokers: &str) -> ConnectorError {
    let mut error = ConnectorError::passing(format!("topic \"{topic}\" does not exist on {brokers}"));
    error.hint =
        Some("Create the topic first, or see whether its name is spelled as on the broker.".to_owned());
    error
}

pub(super) fn explain(brokers: &str, topic: &str, error: &KrafkaError) -> ConnectorError {
    match error {
        KrafkaError::UnknownTopic { .. } => no_topic(topic, brokers),
        KrafkaError::Auth { .. } => {
            let mut refused =
                ConnectorError::passing(format!("Kafka at {brokers} refused to let us in: {error}"));
            refused.hint = Some(
                "See properties.security.protocol, properties.sasl.mechanism, the user and the password."
                    .to_owned(),
            );
            refused
        }
        _ => ConnectorError::passing(format!("Kafka at {brokers}, topic \"{topic}\": {error}")),
    }
}
