//! COPY over the wire. The session decodes and encodes the rows; here are only the messages around them.

use std::sync::atomic::Ordering;

use millrace_postgres::error::{SqlError, SqlState};
use millrace_session::copy_in::CopyIn;
use millrace_session::{CommandTag, CopyOut};
use pgwire::messages::copy::{CopyData, CopyDone, CopyInResponse, CopyOutResponse};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Connection, Failure};

/// Text and CSV are both format 0 to the protocol; of binary data it says so for each column as well.
fn formats(binary: bool, columns: usize) -> (i8, Vec<i16>) {
    (i8::from(binary), vec![i16::from(binary); columns])
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Takes data from the client until it is done. After an error the client is told at once; what it still sends is
    /// thrown away by whoever reads the next message.
    pub(super) async fn copy_in(&mut self, mut copy: CopyIn) -> Result<CommandTag, Failure> {
        let columns = copy.columns();
        let (format, formats) = formats(copy.is_binary(), columns);
        let response = CopyInResponse::new(format, columns as i16, formats);
        self.wire.put(&PgWireBackendMessage::CopyInResponse(response))?;
        self.wire.flush().await?;
        loop {
            let message = tokio::select! {
                biased;
                message = self.receive() => message?,
                error = copy.ended() => return Err(error.into()),
            };
            match message {
                PgWireFrontendMessage::CopyData(data) => copy.push(&data.data).await?,
                PgWireFrontendMessage::CopyDone(_) => {
                    let copied = copy.finish().await?;
                    let rows = copied.rows;
                    self.shared.told.metrics.ingested(rows - copied.rejected);
                    return Ok(CommandTag::rows("COPY", rows));
                }
                PgWireFrontendMessage::CopyFail(fail) => return Err(copy.fail(&fail.message).into()),
                // Drivers send a Sync right behind the Execute that begins the COPY.
                PgWireFrontendMessage::Flush(_) | PgWireFrontendMessage::Sync(_) => {}
                _ => {
                    let reason = "unexpected message type during COPY from stdin";
                    copy.fail(reason);
                    return Err(SqlError::new(SqlState::ProtocolViolation, reason).into());
                }
            }
        }
    }

    /// Sends the data of a COPY TO STDOUT.
    pub(super) async fn copy_out(&mut self, mut copy: CopyOut) -> Result<CommandTag, Failure> {
        let (format, formats) = formats(copy.binary, copy.columns);
        let response = CopyOutResponse::new(format, copy.columns as i16, formats);
        self.wire.put(&PgWireBackendMessage::CopyOutResponse(response))?;
        let counter = copy.row_counter();
        let mut is_slow = false;
        while let Some(rows) = self.next_piece(&mut copy.stream, is_slow).await? {
            let rows = rows?;
            is_slow = rows.is_empty();
            for row in rows.messages() {
                self.wire
                    .put(&PgWireBackendMessage::CopyData(CopyData::new(row)))?;
                self.wire.relieve().await?;
            }
        }
        self.wire.put(&PgWireBackendMessage::CopyDone(CopyDone::new()))?;
        Ok(CommandTag::rows("COPY", counter.load(Ordering::Acquire)))
    }
}
