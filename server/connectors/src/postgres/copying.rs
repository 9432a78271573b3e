//! The rows of a table at a snapshot.

use std::pin::Pin;

use bytes::BytesMut;
use futures::StreamExt;
use millrace_catalog::connector::postgres::PostgresDef;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, CopyOutStream};

use super::{ANSWER, at, literal, message, of_client, texts, while_busy, within};
use crate::source::ConnectorError;

/// Rows that are copied at a time.
const COPIED_ROWS: usize = 8_192;

/// A copy under way.
pub struct Copying<'s> {
    pub(super) client: &'s Client,
    pub(super) def: &'s PostgresDef,
    /// Has a row as long as the server is at it.
    pub(super) busy: String,
    /// The table, as SQL has it.
    pub(super) name: String,
    /// The number of the table, when all is copied.
    pub(super) oid: Option<u32>,
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
        let mut rows = vec![];
        while !self.is_done && rows.len() < COPIED_ROWS {
            let Some(piece) = while_busy(&def.place, &self.busy, self.pieces.next()).await? else {
                self.is_done = true;
                self.end().await?;
                break;
            };
            self.rest
                .extend_from_slice(&piece.map_err(|error| refused(def, &error))?);
            while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(end + 1);
                rows.push(copied_row(&line[..end])?);
            }
        }
        Ok(Some(rows).filter(|rows| !rows.is_empty()))
    }

    /// The number of the table, when all is copied.
    pub fn oid(&self) -> Option<u32> {
        self.oid
    }

    /// All is there. Which table it was is asked while nobody can give its name to another: the copy has its lock until the end.
    async fn end(&mut self) -> Result<(), ConnectorError> {
        let place = &self.def.place;
        let sql = format!("SELECT to_regclass({})::oid::text", literal(&self.name));
        let found = within(place, ANSWER, texts(self.client, &sql)).await?;
        self.oid = found
            .into_iter()
            .flatten()
            .flatten()
            .next()
            .and_then(|oid| oid.parse().ok());
        within(place, ANSWER, self.client.batch_execute("COMMIT")).await
    }
}

/// Why a table cannot be copied. What the server refuses to the role, or does not have, it refuses again.
pub(super) fn refused(def: &PostgresDef, error: &tokio_postgres::Error) -> ConnectorError {
    match error.code() {
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE || *code == SqlState::UNDEFINED_TABLE => {
            ConnectorError::lasting(
                format!("{}: {}", at(&def.place), message(error)),
                format!(
                    "Role \"{}\" must be able to read all rows of the table: GRANT SELECT, and BYPASSRLS if it has policies. Then RESUME the source.",
                    def.place.user
                ),
            )
        }
        _ => of_client(&def.place, error),
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
