//! Rows that come and go as text: COPY, and ingest over HTTP.
//!
//! ```text
//! bytes --split--> columns of texts --types::parse--> typed columns --RowBuilder--> rows --append--> log
//!        (text, csv)                  `---- on the cpu scheduler, some batches at a time ----'
//! bytes --documents--> typed columns ...
//!        (NDJSON, JSON array)
//! ```
//!
//! A COPY is one write: its rows are kept until the end and appended at once, so that of a failed one nothing stays.
//! One that is larger than [`CHUNK_BYTES_MAX`] is appended in chunks of that size; when it fails after the first chunk,
//! the error says how many rows were kept. Inside a transaction all of it waits for COMMIT, whatever its size.

pub mod ingest;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field};
use millrace_catalog::{Object, Relation};
use millrace_database::database::rows::{RowBuilder, RowError, positions};
use millrace_database::ingest_keys::{Answered, IngestKey, Rejection};
use millrace_database::running::Running;
use millrace_engine::{CpuTask, LateRow, LateRows};
use millrace_postgres::copy::binary;
use millrace_postgres::copy::json::{self, Documents};
use millrace_postgres::copy::layout::Layout;
use millrace_postgres::copy::split::{Columns, Splitter};
use millrace_postgres::error::input::shortened;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_postgres::types::{self, parse};
use millrace_resource::memory::{Charge, Use};
use millrace_schedule::cpu::QueryClass;
use millrace_storage::ObjectId;

use crate::call::Call;
use crate::resolve::Resolve;
use crate::session::Session;
use crate::withheld::withheld;
use crate::write::WriteScope;

/// Rows that are converted at a time.
pub const BATCH_ROWS: usize = 16_384;

/// Rows in memory, in bytes, beyond which a COPY is appended before its end. Where memory is less it is an eighth of that: a write takes
/// three times its rows beside them.
pub const CHUNK_BYTES_MAX: usize = 256 << 20;

/// Batches that are converted at once; the connection waits for the oldest when there are more.
const CONVERSIONS_MAX: usize = 4;

/// How the rows of an ingest request look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IngestFormat {
    /// One JSON object a line.
    NdJson,
    /// One array of objects.
    JsonArray,
    /// Comma-separated values, a value for each column that is not generated.
    Csv {
        /// Whether the first line has the names of the columns, in their order.
        header: bool,
    },
}

/// What turns bytes into typed columns.
enum Decoder {
    Split {
        splitter: Splitter,
        columns: Columns,
        layout: Layout,
    },
    Binary {
        rows: binary::Rows,
        columns: Columns,
    },
    Json(json::Decoder),
}

/// What turns typed or textual columns into rows.
struct Conversion {
    builder: RowBuilder,
    /// The columns that the data has, in its order.
    given: Vec<Arc<Field>>,
    what: String,
}

impl Conversion {
    /// Rows from texts. Of several bad values the first in reading order is the one to name.
    fn texts(&self, texts: &[StringArray], lines: &[u64], layout: &Layout) -> SqlResult<RecordBatch> {
        let mut typed: Vec<(Arc<Field>, ArrayRef)> = Vec::with_capacity(self.given.len());
        let mut bad: Option<(usize, usize, SqlError)> = None;
        for (index, (field, texts)) in self.given.iter().zip(texts).enumerate() {
            match parse::column(field, texts) {
                Ok(array) => typed.push((Arc::clone(field), array)),
                Err(cell) => {
                    if bad.as_ref().is_none_or(|(row, ..)| cell.row < *row) {
                        bad = Some((cell.row, index, *cell.error));
                    }
                }
            }
        }
        if let Some((row, index, error)) = bad {
            let text = texts[index].value(row);
            let context = format!(
                "{}, line {}, column {}: \"{}\"",
                self.what,
                lines[row],
                self.given[index].name(),
                shortened(text)
            );
            return Err(error.with_context(context));
        }
        self.builder
            .build(&typed, lines.len())
            .map_err(|failure| split_failure(&self.what, lines, texts, layout, failure))
    }

    /// Rows from JSON documents; `before` rows came earlier.
    fn documents(&self, documents: &Documents, before: u64) -> SqlResult<RecordBatch> {
        let batch = documents.read(before)?;
        let typed: Vec<(Arc<Field>, ArrayRef)> = self
            .given
            .iter()
            .cloned()
            .zip(batch.columns().iter().cloned())
            .collect();
        self.builder
            .build(&typed, batch.num_rows())
            .map_err(|failure| json_failure(&self.what, before, failure))
    }
}

/// What became of a piece of the data.
enum Converted {
    Rows(RecordBatch),
    /// Something is wrong with them: they are read again when it is known how many came before, for the error.
    Wrong(Documents),
}

/// Data on its way from the client into a relation.
pub struct CopyIn {
    session: Arc<Session>,
    object: Arc<Object>,
    decoder: Decoder,
    conversion: Arc<Conversion>,
    /// Conversions under way, in the order of the data.
    converting: VecDeque<CpuTask<SqlResult<Converted>>>,
    /// What the errors call it: `COPY t`.
    what: String,
    rows: Vec<RecordBatch>,
    /// For these rows.
    charge: Charge,
    /// Rows that were converted.
    converted: u64,
    /// Rows that were appended before the end.
    appended: u64,
    /// Those of them that did not enter the stream.
    late: LateRows,
    /// The statement, or the request, that it is: it goes on until the data has come.
    running: Running,
    /// What a failure said: nothing is taken after it.
    failure: Option<SqlError>,
    /// The key under which the write is remembered.
    key: Option<IngestKey>,
    /// A hash of all that came with it.
    body: Option<u64>,
    /// A statement is counted at the end, since when it was begun.
    pub(crate) call: Option<(Call, Instant)>,
    resolve: Resolve,
}

impl CopyIn {
    /// COPY FROM STDIN. No layout: in binary format.
    pub(crate) async fn for_copy(
        session: &Arc<Session>,
        object: Arc<Object>,
        columns: &[String],
        layout: Option<Layout>,
        resolve: Resolve,
    ) -> SqlResult<Self> {
        let relation = relation_of(&object)?;
        let positions = positions(relation, columns)?;
        let given: Vec<Arc<Field>> = positions
            .iter()
            .map(|position| Arc::clone(&relation.schema().fields()[*position]))
            .collect();
        let names: Vec<String> = given.iter().map(|field| field.name().clone()).collect();
        let columns = Columns::new(given.len());
        let what = format!("COPY {}", object.name);
        let decoder = match layout {
            Some(layout) => Decoder::Split {
                splitter: Splitter::new(&layout, names),
                columns,
                layout,
            },
            None => {
                let types = given.iter().map(|field| types::pg_type(field));
                Decoder::Binary {
                    rows: binary::Rows::new(names.into_iter().zip(types).collect(), &what),
                    columns,
                }
            }
        };
        Self::new(session, &object, &positions, given, decoder, what, resolve)
    }

    fn new(
        session: &Arc<Session>,
        object: &Arc<Object>,
        positions: &[usize],
        given: Vec<Arc<Field>>,
        decoder: Decoder,
        what: String,
        resolve: Resolve,
    ) -> SqlResult<Self> {
        let scope = session.scope();
        let builder = RowBuilder::new(session.database(), &scope, relation_of(object)?, positions)?;
        Ok(CopyIn {
            session: Arc::clone(session),
            object: Arc::clone(object),
            decoder,
            conversion: Arc::new(Conversion {
                builder,
                given,
                what: what.clone(),
            }),
            converting: VecDeque::new(),
            what,
            rows: vec![],
            charge: session.clients_account().charge(Use::Input, 0),
            converted: 0,
            appended: 0,
            late: LateRows::default(),
            running: session.running(),
            failure: None,
            key: None,
            body: None,
            call: None,
            resolve,
        })
    }

    /// The relation that takes the data.
    pub fn relation(&self) -> ObjectId {
        self.object.id
    }

    /// Has the write remembered under a key, with how many rows it has. It must be one write.
    pub fn remember(&mut self, key: IngestKey) {
        self.key = Some(key);
    }

    /// What the write is remembered to have come as; to be said before its end.
    pub fn remember_body(&mut self, hash: u64) {
        self.body = Some(hash);
    }

    /// How many columns the data has.
    pub fn columns(&self) -> usize {
        self.conversion.given.len()
    }

    /// Whether the data is in PostgreSQL's binary format.
    pub fn is_binary(&self) -> bool {
        matches!(self.decoder, Decoder::Binary { .. })
    }

    /// Takes the next bytes. After an error everything that follows is ignored, and [`Self::finish`] answers with it.
    ///
    /// # Errors
    /// A row is malformed or does not fit its relation.
    pub async fn push(&mut self, bytes: &[u8]) -> SqlResult<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let (session, running) = (Arc::clone(&self.session), self.running.clone());
        let result = session.run_here(&running, self.take(bytes)).await;
        self.note(result)
    }

    /// Returns when it must end though the client has not sent all, with the reason. Nothing is taken after it.
    pub async fn ended(&self) -> SqlError {
        let error = self.running.ended().await;
        self.session.fail_transaction();
        error
    }

    async fn take(&mut self, bytes: &[u8]) -> SqlResult<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let full = match &mut self.decoder {
                Decoder::Split {
                    splitter, columns, ..
                } => {
                    rest = splitter
                        .push(rest, columns, BATCH_ROWS)
                        .map_err(|error| error.into_sql(&self.what))?;
                    columns.rows() >= BATCH_ROWS
                }
                Decoder::Binary { rows, columns } => {
                    rest = rows.push(rest, columns, BATCH_ROWS)?;
                    columns.rows() >= BATCH_ROWS
                }
                Decoder::Json(decoder) => {
                    rest = decoder.push(rest)?;
                    decoder.is_full()
                }
            };
            if full {
                self.session.wait_for_backpressure(self.object.id).await?;
                self.convert()?;
                self.collect(CONVERSIONS_MAX).await?;
            }
            if self.charge.bytes() > self.chunk_bytes_max() && !self.waits_for_commit() {
                if self.key.is_some() {
                    return Err(SqlError::new(
                        SqlState::ProgramLimitExceeded,
                        "the data is too large for a single write, which an Idempotency-Key requires",
                    )
                    .with_hint("Send smaller pieces, each with its own key."));
                }
                self.append().await?;
                // The chunk lasts; what comes after it is another matter.
                self.running.reopen()?;
            }
        }
        Ok(())
    }

    /// Ends the data and makes the rows last. Returns how many there were, with those that did not enter their stream.
    ///
    /// # Errors
    /// A row is malformed, or the write fails; nothing is kept but what the error says.
    pub async fn finish(mut self) -> SqlResult<Copied> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (session, running) = (Arc::clone(&self.session), self.running.clone());
        let result = session.run_here(&running, self.end()).await;
        self.note(result)?;
        if let Some((call, began)) = self.call.take() {
            call.ended(self.appended, began.elapsed());
        }
        Ok(Copied {
            rows: self.appended,
            rejected: self.late.rows,
            rejections: rejections(&self.object, &self.late),
        })
    }

    async fn end(&mut self) -> SqlResult<()> {
        while let Decoder::Binary { rows, columns } = &mut self.decoder
            && !rows.finish(columns, BATCH_ROWS)?
        {
            self.convert()?;
            self.collect(CONVERSIONS_MAX).await?;
        }
        match &mut self.decoder {
            Decoder::Split {
                splitter, columns, ..
            } => {
                splitter
                    .finish(columns)
                    .map_err(|error| error.into_sql(&self.what))?;
            }
            Decoder::Binary { .. } => {}
            Decoder::Json(decoder) => decoder.finish()?,
        }
        self.convert()?;
        self.collect(0).await?;
        self.append().await
    }

    /// Ends it because the client gave up. Returns what to answer.
    pub fn fail(self, message: &str) -> SqlError {
        self.session.fail_transaction();
        SqlError::new(
            SqlState::QueryCanceled,
            format!("COPY from stdin failed: {message}"),
        )
        .with_context(self.what)
    }

    fn chunk_bytes_max(&self) -> usize {
        let memory = self.session.database().runtime().memory();
        CHUNK_BYTES_MAX.min(memory.limit() / 8)
    }

    /// Remembers a failure and says what of the data was kept.
    fn note(&mut self, result: SqlResult<()>) -> SqlResult<()> {
        result.map_err(|error| {
            let mut error = withheld(&self.session, error);
            if self.appended > 0 {
                error.detail = Some(format!(
                    "{}The first {} rows were stored: data of more than {} MB is appended in chunks.",
                    error.detail.map(|detail| detail + " ").unwrap_or_default(),
                    self.appended,
                    self.chunk_bytes_max() >> 20
                ));
            }
            self.session.fail_transaction();
            self.rows.clear();
            self.converting.clear();
            self.failure = Some(error.clone());
            error
        })
    }

    /// Starts converting what was decoded so far into rows.
    fn convert(&mut self) -> SqlResult<()> {
        let conversion = Arc::clone(&self.conversion);
        let runtime = self.session.database().runtime();
        let texts_of = |columns: &mut Columns, layout: Layout| {
            let lines = columns.lines().to_vec();
            (columns.take(), lines, layout)
        };
        let texts = match &mut self.decoder {
            Decoder::Split { columns, layout, .. } if columns.rows() > 0 => {
                Some(texts_of(columns, layout.clone()))
            }
            Decoder::Binary { columns, .. } if columns.rows() > 0 => Some(texts_of(columns, Layout::text())),
            _ => None,
        };
        let task = match &mut self.decoder {
            Decoder::Split { .. } | Decoder::Binary { .. } => {
                let Some((texts, lines, layout)) = texts else {
                    return Ok(());
                };
                runtime.compute(QueryClass::Interactive, move || {
                    conversion.texts(&texts, &lines, &layout).map(Converted::Rows)
                })?
            }
            Decoder::Json(decoder) => {
                let Some(documents) = decoder.take() else {
                    return Ok(());
                };
                runtime.compute(QueryClass::Interactive, move || {
                    Ok(match conversion.documents(&documents, 0) {
                        Ok(rows) => Converted::Rows(rows),
                        Err(_) => Converted::Wrong(documents),
                    })
                })?
            }
        };
        self.converting.push_back(task);
        Ok(())
    }

    /// Takes the converted rows, in order, until at most so many conversions are under way.
    async fn collect(&mut self, waiting_max: usize) -> SqlResult<()> {
        while self.converting.len() > waiting_max {
            let Some(task) = self.converting.pop_front() else {
                break;
            };
            let batch = match task.await.map_err(from_internal::runtime)?? {
                Converted::Rows(batch) => batch,
                Converted::Wrong(documents) => {
                    let (conversion, before) = (Arc::clone(&self.conversion), self.converted);
                    let again = move || conversion.documents(&documents, before);
                    let again =
                        (self.session.database().runtime()).compute(QueryClass::Interactive, again)?;
                    again.await.map_err(from_internal::runtime)??
                }
            };
            self.converted += batch.num_rows() as u64;
            self.charge
                .resize(self.charge.bytes() + batch.get_array_memory_size());
            self.rows.push(batch);
        }
        Ok(())
    }

    fn waits_for_commit(&self) -> bool {
        self.session.transaction_is_open()
    }

    async fn append(&mut self) -> SqlResult<()> {
        let relation = relation_of(&self.object)?;
        let rows = std::mem::take(&mut self.rows);
        let count: u64 = rows.iter().map(|batch| batch.num_rows() as u64).sum();
        let note = |late: &LateRows| match &self.key {
            Some(key) => key.note(Answered {
                rows: count - late.rows,
                rejected: late.rows,
                rejections: rejections(&self.object, late),
                body: self.body,
            }),
            None => vec![],
        };
        let write: WriteScope = self.session.begin_write(relation).await?;
        let scope = self.session.scope();
        let changes = (self.resolve)(&self.session, &scope, relation, &write, rows).await?;
        let late = write.finish_noted(changes, &note).await.map_err(|error| {
            if error.context.is_none() {
                error.with_context(self.what.clone())
            } else {
                error
            }
        })?;
        self.charge.resize(0);
        self.late
            .add(&late, usize::try_from(self.appended).unwrap_or(usize::MAX));
        self.appended += count;
        Ok(())
    }
}

/// What became of the data of a COPY or a request.
#[derive(Debug)]
pub struct Copied {
    /// Rows that there were.
    pub rows: u64,
    /// Those of them that did not enter their stream. Within a transaction that is known at its end.
    pub rejected: u64,
    /// The first of those.
    pub rejections: Vec<Rejection>,
}

/// Why rows did not enter a stream, the first of them.
fn rejections(object: &Object, late: &LateRows) -> Vec<Rejection> {
    let zone = match object.relation() {
        Some(relation) => (relation.event_time.as_ref())
            .map(|event_time| relation.schema().field(event_time.column).data_type().clone()),
        None => None,
    };
    let has_zone = matches!(zone, Some(DataType::Timestamp(_, Some(_))));
    let shown = |time: i64| match chrono::DateTime::from_timestamp_micros(time) {
        Some(time) if has_zone => time.format("%Y-%m-%d %H:%M:%S%.f+00").to_string(),
        Some(time) => time.format("%Y-%m-%d %H:%M:%S%.f").to_string(),
        None => format!("{time} us"),
    };
    let reason = |row: &LateRow| match row.watermark {
        Some(watermark) => format!(
            "late: its event time {} is before the stream's watermark {}",
            shown(row.event_time),
            shown(watermark)
        ),
        None => format!(
            "its event time {} is ahead of the clock by more than watermark.max_future_skew",
            shown(row.event_time)
        ),
    };
    let rows = late.first.iter().map(|row| Rejection {
        row: row.position as u64 + 1,
        reason: reason(row),
    });
    rows.collect()
}

/// The relation of an object that was found to take rows.
fn relation_of(object: &Object) -> SqlResult<&Relation> {
    let relation = object.relation();
    relation.ok_or_else(|| SqlError::internal(format!("{} has no rows", object.described())))
}

fn split_failure(
    what: &str,
    lines: &[u64],
    texts: &[StringArray],
    layout: &Layout,
    failure: RowError,
) -> SqlError {
    use arrow::array::Array;
    match failure.row {
        None => (*failure.error).with_context(what),
        Some(row) => {
            let line: Vec<&str> = texts
                .iter()
                .map(|column| {
                    if column.is_null(row) {
                        layout.null.as_str()
                    } else {
                        column.value(row)
                    }
                })
                .collect();
            let line = line.join(&char::from(layout.delimiter).to_string());
            let number = lines.get(row).copied().unwrap_or_default();
            (*failure.error).with_context(format!("{what}, line {number}: \"{}\"", shortened(&line)))
        }
    }
}

fn json_failure(what: &str, before: u64, failure: RowError) -> SqlError {
    match failure.row {
        None => (*failure.error).with_context(what),
        Some(row) => (*failure.error).with_context(format!("{what}, row {}", before + row as u64 + 1)),
    }
}

#[cfg(test)]
mod tests;
