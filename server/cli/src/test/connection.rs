//! A client of a test file, in either protocol, with values as the files write them.

use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType};
use tokio_postgres::{Client, Config as PgConfig, NoTls, SimpleQueryMessage};

use super::{Protocol, binary};

/// How long a statement may take to notice that nobody waits for it.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// One client of a test file.
pub struct Connection {
    client: Client,
    protocol: Protocol,
    driver: tokio::task::JoinHandle<()>,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr, protocol: Protocol) -> Result<Self, Failure> {
        let mut config = PgConfig::new();
        config
            .host(address.ip().to_string())
            .port(address.port())
            .user("millrace")
            .dbname("millrace");
        let (client, connection) = config.connect(NoTls).await.map_err(Failure)?;
        let driver = tokio::spawn(async move {
            // Whoever waits for an answer hears of a lost connection.
            let _ = connection.await;
        });
        Ok(Connection {
            client,
            protocol,
            driver,
        })
    }

    async fn run_simple(&self, sql: &str) -> Result<DBOutput<DefaultColumnType>, tokio_postgres::Error> {
        let mut messages = pin!(self.client.simple_query_raw(sql).await?);
        let mut columns = None;
        let mut rows = Vec::new();
        let mut affected = 0;
        while let Some(message) = messages.next().await {
            match message? {
                SimpleQueryMessage::RowDescription(described) => columns = Some(described.len()),
                SimpleQueryMessage::Row(row) => {
                    rows.push((0..row.len()).map(|index| shown(row.get(index))).collect());
                }
                SimpleQueryMessage::CommandComplete(count) => affected = count,
                _ => {}
            }
        }
        Ok(match columns {
            Some(columns) => DBOutput::Rows {
                types: vec![DefaultColumnType::Any; columns],
                rows,
            },
            None => DBOutput::StatementComplete(affected),
        })
    }

    /// The driver asks for binary results, so this also tests that binary and text agree.
    async fn run_extended(&self, sql: &str) -> Result<DBOutput<DefaultColumnType>, tokio_postgres::Error> {
        let statement = self.client.prepare(sql).await?;
        if statement.columns().is_empty() {
            return Ok(DBOutput::StatementComplete(
                self.client.execute(&statement, &[]).await?,
            ));
        }
        let rows = self.client.query(&statement, &[]).await?;
        let show = |row: &tokio_postgres::Row| {
            (0..row.len())
                .map(|index| Ok(shown(binary::text(row, index)?.as_deref())))
                .collect()
        };
        let types = vec![DefaultColumnType::Any; statement.columns().len()];
        Ok(DBOutput::Rows {
            types,
            rows: rows
                .iter()
                .map(show)
                .collect::<Result<_, tokio_postgres::Error>>()?,
        })
    }
}

#[async_trait]
impl AsyncDB for Connection {
    type Error = Failure;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Failure> {
        match self.protocol {
            Protocol::Simple => self.run_simple(sql).await,
            Protocol::Extended => self.run_extended(sql).await,
        }
        .map_err(Failure)
    }

    async fn shutdown(&mut self) {
        // What still runs, because the file was interrupted, is not waited for: a server that is stopped gives it its time. The
        // answer to another statement comes when it has ended. There may be nobody left to be asked.
        let _ = self.client.cancel_token().cancel_query(NoTls).await;
        let _ = tokio::time::timeout(CANCEL_TIMEOUT, self.client.simple_query("")).await;
        self.driver.abort();
    }

    fn engine_name(&self) -> &str {
        "millrace"
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    fn error_sql_state(error: &Failure) -> Option<String> {
        error.0.code().map(|code| code.code().to_owned())
    }
}

/// A failed statement, with everything that the server said about it.
#[derive(Debug)]
pub struct Failure(tokio_postgres::Error);

impl Failure {
    /// Whether the connection is gone, and not only the statement refused.
    pub(super) fn is_of_connection(&self) -> bool {
        self.0.is_closed()
            || self.0.as_db_error().is_none() && self.0.to_string().starts_with("error communicating")
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(error) = self.0.as_db_error() else {
            return write!(f, "{}", self.0);
        };
        write!(f, "{}", error.message())?;
        for more in [error.detail(), error.hint(), error.where_()]
            .into_iter()
            .flatten()
        {
            write!(f, "\n{more}")?;
        }
        Ok(())
    }
}

/// A value as the files write it. A line break is a space, as it is when values are compared: a row is a line of the file.
fn shown(value: Option<&str>) -> String {
    match value {
        None => "NULL".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(text) => text.replace(['\n', '\r'], " "),
    }
}
