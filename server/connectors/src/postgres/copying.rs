//! The rows of a table at a snapshot.

use std::pin::Pin;

use bytes::BytesMut;
use futures::StreamExt;
use millrace_catalog::connector::postgres::PostgresDef;
use tokio_postgres::{Client, CopyOutStream};

use super::of_client;
use crate::source::ConnectorError;

/// Rows that are copied at a time.
const COPIED_ROWS: usize = 8_192;

/// A copy under way.
pub struct Copying<'s> {
    pub(super) client: &'s Client,
    pub(super) def: &'s PostgresDef,
    pub(super) pieces: Pin<Box<CopyOutStream>>,
    pub(super) rest: BytesMut,
    pub(super) is_done: bool,
}

impl Copying<'_> {
    /// The next rows, as texts; none: that was all.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn next(&mut self) -> Result<Option<Vec<Vec<Option<String>>>>, ConnectorError> {
        let def = self.def;
        let error = |error: tokio_postgres::Error| of_client(&def.place, &error);
        let mut rows = vec![];
        while !self.is_done && rows.len() < COPIED_ROWS {
            let Some(piece) = self.pieces.next().await else {
                self.is_done = true;
                self.client.batch_execute("COMMIT").await.map_err(error)?;
                break;
            };
            self.rest.extend_from_slice(&piece.map_err(error)?);
            while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(end + 1);
                rows.push(copied_row(&line[..end])?);
            }
        }
        Ok(Some(rows).filter(|rows| !rows.is_empty()))
    }
}

/// One line of COPY's text format.
fn copied_row(line: &[u8]) -> Result<Vec<Option<String>>, ConnectorError> {
    let cell = |cell: &[u8]| -> Result<Option<String>, ConnectorError> {
        if cell == b"\\N" {
            return Ok(None);
        }
        let mut text = Vec::with_capacity(cell.len());
        let mut bytes = cell.iter();
        while let Some(byte) = bytes.next() {
            text.push(match byte {
                b'\\' => match bytes.next() {
                    Some(b'b') => 8,
                    Some(b'f') => 12,
                    Some(b'n') => b'\n',
                    Some(b'r') => b'\r',
                    Some(b't') => b'\t',
                    Some(b'v') => 11,
                    Some(other) => *other,
                    None => b'\\',
                },
                other => *other,
            });
        }
        let text = String::from_utf8(text);
        text.map(Some)
            .map_err(|_| ConnectorError::passing("a text of PostgreSQL is not UTF-8"))
    };
    line.split(|byte| *byte == b'\t').map(cell).collect()
}
