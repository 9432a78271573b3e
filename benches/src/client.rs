//! A client of the server under test: what experiments ask of the PostgreSQL protocol.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Instant;

use bytes::Bytes;
use futures::SinkExt;
use millrace_oracle::text::TextRow;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::error::BenchError;
use crate::statistics::ms_since;

/// How much of a COPY goes into one message: what psql and the drivers send is about this size.
const COPY_MESSAGE_BYTES: usize = 64 * 1024;

/// One connection.
pub struct Client {
    inner: tokio_postgres::Client,
}

impl Client {
    /// Connects as the default user to the default database.
    pub async fn connect(address: SocketAddr) -> Result<Self, BenchError> {
        Self::connect_as(address, "millrace").await
    }

    /// The same as another user.
    pub async fn connect_as(address: SocketAddr, user: &str) -> Result<Self, BenchError> {
        let mut config = tokio_postgres::Config::new();
        config.host(address.ip().to_string()).port(address.port());
        config.user(user).dbname("millrace");
        Self::connect_to(&config).await
    }

    /// Connects to any server that speaks the protocol.
    pub async fn connect_to(config: &tokio_postgres::Config) -> Result<Self, BenchError> {
        let connected = config.connect(NoTls).await;
        let (inner, connection) = connected.map_err(BenchError::postgres("cannot connect"))?;
        // It ends with the client; what breaks it is reported to whoever waits for an answer.
        tokio::spawn(connection);
        Ok(Client { inner })
    }

    /// The connection itself, for what is not wrapped here.
    pub fn postgres(&self) -> &tokio_postgres::Client {
        &self.inner
    }

    /// Runs statements whose answers are of no interest.
    pub async fn run(&self, sql: &str) -> Result<(), BenchError> {
        self.inner
            .batch_execute(sql)
            .await
            .map_err(BenchError::postgres(sql))
    }

    /// The rows of a query, through the simple protocol.
    pub async fn rows(&self, sql: &str) -> Result<Vec<TextRow>, BenchError> {
        let messages = self.inner.simple_query(sql).await;
        let messages = messages.map_err(BenchError::postgres(sql))?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(
                (0..row.len())
                    .map(|column| row.get(column).map(str::to_owned))
                    .collect(),
            ),
            _ => None,
        });
        Ok(rows.collect())
    }

    /// The one number that a query answers.
    pub async fn number(&self, sql: &str) -> Result<f64, BenchError> {
        let rows = self.rows(sql).await?;
        let value = rows.first().and_then(|row| row.first()?.as_ref());
        let number = value.and_then(|value| value.parse().ok());
        number.ok_or_else(|| BenchError::Wrong(format!("{sql} answers {rows:?}")))
    }

    /// Milliseconds of a query, answer included.
    pub async fn time(&self, sql: &str) -> Result<f64, BenchError> {
        let begin = Instant::now();
        self.rows(sql).await?;
        Ok(ms_since(begin))
    }

    /// Sends all of `data` to a COPY FROM STDIN, and returns how many rows the server took.
    pub async fn copy_in(&self, sql: &str, data: &Bytes) -> Result<u64, BenchError> {
        let failed = || BenchError::postgres(sql);
        let mut sink = pin!(self.inner.copy_in::<_, Bytes>(sql).await.map_err(failed())?);
        let mut rest = data.clone();
        while !rest.is_empty() {
            let message = rest.split_to(rest.len().min(COPY_MESSAGE_BYTES));
            sink.feed(message).await.map_err(failed())?;
        }
        sink.finish().await.map_err(failed())
    }
}
