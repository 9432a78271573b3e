//! Kafka: how to get in, topics that are read, and topics that are written.

mod connect;
mod reader;
mod writer;

pub use self::reader::KafkaReader;
pub use self::writer::KafkaWriter;
