//! The messages of a sink as records of Avro, whose schemas are in a registry.

use millrace_catalog::connector::registry::RegistryPlace;
use millrace_catalog::sink::avro::AvroSchemas;
use millrace_postgres::error::SqlResult;

use super::avro::encode::Encoder;
use super::registry::Registry;
use crate::source::ConnectorError;
use crate::target::Message;

/// Makes them.
#[derive(Debug)]
pub(crate) struct Records {
    key: Option<Encoder>,
    value: Encoder,
}

/// The subjects of a topic, as Confluent's serializers name them, with their schemas.
fn subjects<'s>(topic: &str, schemas: &'s AvroSchemas) -> impl Iterator<Item = (String, &'s str)> {
    let key = schemas.key.iter().map(|key| ("key", key.as_str()));
    let topic = topic.to_owned();
    key.chain([("value", schemas.value.as_str())])
        .map(move |(part, schema)| (format!("{topic}-{part}"), schema))
}

impl Records {
    /// Registers the schemas, which is nothing if they are there.
    ///
    /// # Errors
    /// The registry does not answer, or refuses.
    pub async fn register(
        topic: &str,
        place: &RegistryPlace,
        schemas: &AvroSchemas,
    ) -> Result<Records, ConnectorError> {
        let registry = Registry::new(place).await?;
        let mut encoders = vec![];
        for (subject, schema) in subjects(topic, schemas) {
            let id = registry.register(&subject, schema).await?;
            let encoder = Encoder::new(schema, id);
            encoders.push(
                encoder.map_err(|error| ConnectorError::lasting(error.message, "Create the sink again."))?,
            );
        }
        let value = encoders.pop();
        Ok(Records {
            value: value.ok_or_else(|| ConnectorError::passing("a sink of Avro has no schema"))?,
            key: encoders.pop(),
        })
    }

    /// Looks whether they would be taken.
    ///
    /// # Errors
    /// They would not, or the registry does not answer.
    pub async fn check(
        topic: &str,
        place: &RegistryPlace,
        schemas: &AvroSchemas,
    ) -> Result<(), ConnectorError> {
        let registry = Registry::new(place).await?;
        for (subject, schema) in subjects(topic, schemas) {
            registry.check(&subject, schema).await?;
        }
        Ok(())
    }

    /// A message as it is sent.
    ///
    /// # Errors
    /// It is not what the schemas say.
    pub fn message(&self, message: &Message) -> SqlResult<Message> {
        let key = self.key.as_ref().zip(message.key.as_ref());
        let value = message.value.as_ref();
        Ok(Message {
            key: key.map(|(encoder, key)| encoder.encode(key)).transpose()?,
            value: value.map(|value| self.value.encode(value)).transpose()?,
        })
    }
}
