//! The simple protocol: a text with any number of statements, each answered in turn, the rest dropped at an error.

use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use millrace_postgres::from_internal;
use millrace_session::{CommandTag, Outcome};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::{CommandComplete, EmptyQueryResponse};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Connection, Failure};
use super::message::{self, Format, RowWriter};
use super::wire::Closed;
use crate::metrics::StatementKind;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Answers a Query message.
    pub(super) async fn simple_query(&mut self, sql: &str) -> Result<(), Closed> {
        // A simple query destroys the unnamed statement and portal.
        self.statements.remove("");
        self.portals.remove("");
        match self.run_statements(sql).await {
            Ok(()) => {}
            Err(Failure::Closed(closed)) => return Err(closed),
            Err(Failure::Sql(error)) => self.report(error)?,
        }
        self.ready().await
    }

    /// Tells of a statement that has ended.
    pub(super) fn ended(&self, kind: StatementKind, succeeded: bool, duration: Duration) {
        self.shared.told.ended(&self.session, kind, succeeded, duration);
    }

    async fn run_statements(&mut self, sql: &str) -> Result<(), Failure> {
        let mut kind = StatementKind::of_sql(sql);
        let mut started = Instant::now();
        let answered = async {
            self.check_statement_length(sql)?;
            let mut query = self.session.run(sql).await?;
            let mut any = false;
            while let Some(outcome) = query.next().await {
                any = true;
                let tag = self.send_outcome(outcome?).await?;
                kind = tag
                    .as_ref()
                    .map_or(kind, |tag| StatementKind::of_tag(&tag.command));
                if let Some(tag) = tag {
                    self.ended(kind, true, started.elapsed());
                    self.wire.put(&complete(&tag, 0))?;
                    self.wire.relieve().await?;
                }
                started = Instant::now();
            }
            if !any {
                self.wire.put(&PgWireBackendMessage::EmptyQueryResponse(
                    EmptyQueryResponse::new(),
                ))?;
            }
            Ok(())
        }
        .await;
        if let Err(Failure::Sql(_)) = &answered {
            self.ended(kind, false, started.elapsed());
        }
        answered
    }

    /// Sends what a statement answers with, except for the completion, which it returns (with its row count filled in).
    async fn send_outcome(&mut self, outcome: Outcome) -> Result<Option<CommandTag>, Failure> {
        self.put_notices()?;
        match outcome {
            Outcome::Rows { schema, stream, tag } => {
                let format = |_| Format::Text;
                self.wire.put(&message::row_description(&schema, format))?;
                let sent = self.send_rows(&schema, stream).await?;
                self.put_notices()?;
                Ok(Some(CommandTag::plain(tag.render(sent))))
            }
            Outcome::Done { tag } => Ok(Some(tag)),
            Outcome::Empty => {
                self.wire.put(&PgWireBackendMessage::EmptyQueryResponse(
                    EmptyQueryResponse::new(),
                ))?;
                Ok(None)
            }
            Outcome::CopyIn(copy) => self.copy_in(*copy).await.map(Some),
            Outcome::CopyOut(copy) => self.copy_out(copy).await.map(Some),
        }
    }

    async fn send_rows(
        &mut self,
        schema: &SchemaRef,
        mut stream: SendableRecordBatchStream,
    ) -> Result<u64, Failure> {
        let (mut sent, mut is_slow) = (0, false);
        while let Some(batch) = self.next_piece(&mut stream, is_slow).await? {
            let batch = batch.map_err(from_internal::datafusion)?;
            is_slow = batch.num_rows() == 0;
            self.send_batch(schema, &batch).await?;
            sent += batch.num_rows() as u64;
        }
        Ok(sent)
    }

    async fn send_batch(&mut self, schema: &SchemaRef, batch: &RecordBatch) -> Result<(), Failure> {
        let writer = RowWriter::new(batch, schema, |_| Format::Text)?;
        for row in 0..batch.num_rows() {
            writer.put(row, self.wire.outgoing())?;
            self.wire.relieve().await?;
        }
        Ok(())
    }
}

/// The completion of a statement.
pub(super) fn complete(tag: &CommandTag, sent: u64) -> PgWireBackendMessage {
    PgWireBackendMessage::CommandComplete(CommandComplete::new(tag.render(sent)))
}
