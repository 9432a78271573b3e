//! Whoever follows a view: each row of each update, with the time at which it came.

use std::pin::Pin;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use futures::StreamExt;
use tokio_postgres::CopyOutStream;

use super::PATIENCE;
use crate::client::Client;
use crate::error::BenchError;

/// Microseconds since 1970: processes have no other clock in common.
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// A row that a view has now.
#[derive(Debug, Clone, Copy)]
pub struct Row<const N: usize> {
    pub epoch: u64,
    /// The view's columns, which are all numbers.
    pub columns: [u64; N],
    pub seen_us: u64,
}

/// The changes of a view with so many columns.
pub struct Follower<const N: usize> {
    stream: Pin<Box<CopyOutStream>>,
    rest: BytesMut,
    came_us: u64,
}

impl<const N: usize> Follower<N> {
    /// Follows a view over a connection that does nothing else from then on.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn new(client: &Client, view: &str) -> Result<Self, BenchError> {
        let sql = format!("COPY (SUBSCRIBE {view}) TO STDOUT");
        let stream = client.postgres().copy_out(&sql).await;
        Ok(Follower {
            stream: Box::pin(stream.map_err(BenchError::postgres(sql))?),
            rest: BytesMut::new(),
            came_us: 0,
        })
    }

    /// The next row that the view has.
    ///
    /// # Errors
    /// None comes, or something that is no such row.
    pub async fn next(&mut self) -> Result<Row<N>, BenchError> {
        loop {
            while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(end + 1);
                if let Some(row) = self.row(&line[..end])? {
                    return Ok(row);
                }
            }
            let message = tokio::time::timeout(PATIENCE, self.stream.next()).await;
            let message =
                message.map_err(|_| BenchError::Wrong("the view does not change any more".into()))?;
            let message = message.ok_or_else(|| BenchError::Wrong("the view cannot be followed".into()))?;
            self.came_us = now_us();
            let message = message.map_err(BenchError::postgres("cannot follow the view"))?;
            self.rest.extend_from_slice(&message);
        }
    }

    /// The row in a line; none: the line says that there is a row no more.
    fn row(&self, line: &[u8]) -> Result<Option<Row<N>>, BenchError> {
        let wrong = || BenchError::Wrong(format!("a change is {}", String::from_utf8_lossy(line)));
        let mut fields = std::str::from_utf8(line).map_err(|_| wrong())?.split('\t');
        let epoch = fields.next().and_then(|field| field.parse().ok());
        let epoch = epoch.ok_or_else(wrong)?;
        match fields.next() {
            Some("insert" | "update_insert") => {}
            Some("delete" | "update_delete") => return Ok(None),
            _ => return Err(wrong()),
        }
        let mut columns = [0; N];
        for column in &mut columns {
            *column = (fields.next())
                .and_then(|field| field.parse().ok())
                .ok_or_else(wrong)?;
        }
        Ok(Some(Row {
            epoch,
            columns,
            seen_us: self.came_us,
        }))
    }
}
