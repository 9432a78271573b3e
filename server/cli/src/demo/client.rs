//! The demo's connection to its own server: over PostgreSQL's wire, as any user's.

use std::net::SocketAddr;
use std::pin::pin;

use bytes::Bytes;
use futures::SinkExt;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

use super::DemoError;
use crate::table::ResultTable;

/// One connection.
pub struct Client {
    client: tokio_postgres::Client,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// The server does not take the connection.
    pub async fn connect(address: SocketAddr) -> Result<Self, DemoError> {
        let mut config = Config::new();
        config
            .host(address.ip().to_string())
            .port(address.port())
            .user("millrace")
            .dbname("millrace")
            .application_name("millrace demo");
        let failed = |error| DemoError::sql("connecting", error);
        let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
        tokio::spawn(async move {
            // Whoever waits for an answer hears of a lost connection, but not why.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection of the demo has ended");
            }
        });
        Ok(Client { client })
    }

    /// Runs a statement whose answer does not matter.
    ///
    /// # Errors
    /// The statement failed.
    pub async fn run(&self, sql: &str) -> Result<(), DemoError> {
        self.client
            .batch_execute(sql)
            .await
            .map_err(|error| DemoError::sql(sql, error))
    }

    /// Runs a query; the values are texts.
    ///
    /// # Errors
    /// The query failed.
    pub async fn rows(&self, sql: &str) -> Result<ResultTable, DemoError> {
        let answer = self.client.simple_query(sql).await;
        let mut table = ResultTable::default();
        for message in answer.map_err(|error| DemoError::sql(sql, error))? {
            match message {
                SimpleQueryMessage::RowDescription(columns) => {
                    table.columns = columns.iter().map(|column| column.name().to_owned()).collect();
                }
                SimpleQueryMessage::Row(row) => {
                    let values = (0..row.len()).map(|index| row.get(index).map(str::to_owned));
                    table.rows.push(values.collect());
                }
                _ => {}
            }
        }
        Ok(table)
    }

    /// Runs a query for one number.
    ///
    /// # Errors
    /// The query failed or answered something else.
    pub async fn number(&self, sql: &str) -> Result<u64, DemoError> {
        let table = self.rows(sql).await?;
        let value = table.rows.first().and_then(|row| row.first()?.clone());
        value
            .as_deref()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| DemoError::NotANumber {
                sql: sql.to_owned(),
                answer: value.unwrap_or_else(|| "nothing".to_owned()),
            })
    }

    /// Sends data to a COPY FROM STDIN and returns once the rows are durable.
    ///
    /// # Errors
    /// The server refused the data.
    pub async fn copy(&self, sql: &str, data: Vec<u8>) -> Result<u64, DemoError> {
        let failed = |error| DemoError::sql(sql, error);
        let mut sink = pin!(self.client.copy_in(sql).await.map_err(failed)?);
        sink.send(Bytes::from(data)).await.map_err(failed)?;
        sink.finish().await.map_err(failed)
    }
}
