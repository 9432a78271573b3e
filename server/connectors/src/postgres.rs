//! A PostgreSQL server whose changes are followed: what is asked of it, a snapshot of a table, and the stream of transactions.
//!
//! ```text
//!  slot, with an exported snapshot at X --> COPY of the tables at X --> transactions that were committed after X, in their order
//! ```

mod copying;
mod follower;
mod pgoutput;
mod publication;
mod slots;
mod tls;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::BytesMut;
use millrace_catalog::connector::postgres::{PostgresDef, PostgresPlace};
use millrace_postgres::error::SqlError;
use pgwire_replication::{Lsn, PgWireError, ReplicationConfig};
use tokio_postgres::{Client, NoTls};

pub use self::copying::Copying;
pub use self::follower::{Event, Follower};
pub use self::pgoutput::{Cell, ColumnInfo, Message, TableInfo};
pub use self::publication::{Followed, made_again};
pub use self::slots::{Slot, Snapshot, snapshot};
pub use self::writer::PostgresWriter;
use crate::source::ConnectorError;

/// How long the server may take for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a statement may take that waits for locks of others.
const STATEMENT: Duration = Duration::from_secs(60);
/// After so long without a word a connection that follows changes is lost. The server says something twice in that time, if we ask for
/// nothing ourselves (`wal_sender_timeout`).
const SILENCE: Duration = Duration::from_secs(30);
/// So much silence of a statement that may take long, and it is asked elsewhere whether the server is still at it.
const LONG_SILENCE: Duration = Duration::from_secs(20);
/// One row must fit.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// Messages that wait for us.
const BUFFERED: usize = 8_192;
/// So that texts are those that we read.
const SETTINGS: &str = "-c client_encoding=UTF8 -c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC -c extra_float_digits=3 -c bytea_output=hex";

/// A position in the server's log.
pub fn lsn_text(lsn: i64) -> String {
    Lsn::from_u64(lsn as u64).to_pg_string()
}

/// A connection for questions.
pub struct Server {
    client: Client,
    /// The process there that answers.
    pid: String,
    /// Which server it is.
    pub system: String,
}

/// A table as the server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// The columns that our role may read.
    pub readable: BTreeSet<String>,
    /// Names and types of the columns.
    pub columns: BTreeMap<String, String>,
    /// The columns that updates and deletes tell of the row that they are about.
    pub identity: BTreeSet<String>,
}

impl Server {
    /// Connects.
    ///
    /// # Errors
    /// It does not answer, refuses, or does not have logical replication.
    pub async fn connect(def: &PostgresDef) -> Result<Server, ConnectorError> {
        let client = client(&def.place).await?;
        let mut server = Server {
            client,
            pid: String::new(),
            system: String::new(),
        };
        let found = server
            .rows(
                def,
                "SELECT current_setting('wal_level'), (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user),
                 (SELECT system_identifier FROM pg_control_system())::text, pg_backend_pid()::text",
            )
            .await?;
        let row = found.first().cloned().unwrap_or_default();
        let text = |at: usize| row.get(at).cloned().flatten().unwrap_or_default();
        if text(0) != "logical" {
            return Err(ConnectorError::lasting(
                format!(
                    "{} has wal_level = {}, and changes can be followed with logical alone",
                    at(&def.place),
                    text(0)
                ),
                "Set wal_level = logical in its postgresql.conf, and restart it.",
            ));
        }
        if text(1) != "t" {
            return Err(ConnectorError::lasting(
                format!(
                    "role \"{}\" of {} may not follow changes",
                    def.place.user,
                    at(&def.place)
                ),
                format!("ALTER ROLE {} REPLICATION", quoted(&def.place.user)),
            ));
        }
        server.system = text(2);
        server.pid = text(3);
        Ok(server)
    }

    /// The rows of a statement, as texts.
    async fn rows(&self, def: &PostgresDef, sql: &str) -> Result<Vec<Vec<Option<String>>>, ConnectorError> {
        within(&def.place, ANSWER, texts(&self.client, sql)).await
    }

    /// A table.
    ///
    /// # Errors
    /// It is not there.
    pub async fn table(
        &self,
        def: &PostgresDef,
        schema: &str,
        name: &str,
    ) -> Result<Upstream, ConnectorError> {
        let sql = format!(
            "SELECT a.attname, format_type(a.atttypid, NULL), c.relreplident = 'f' OR EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND a.attnum = ANY(i.indkey)
                    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END),
                has_schema_privilege(n.oid, 'USAGE') AND has_column_privilege(c.oid, a.attnum, 'SELECT')
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
             WHERE n.nspname = {} AND c.relname = {} AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
                AND a.attgenerated = ''",
            literal(schema),
            literal(name)
        );
        let rows = self.rows(def, &sql).await?;
        if rows.is_empty() {
            return Err(ConnectorError::lasting(
                format!(
                    "table {schema}.{name} is not there on {}, or has no columns",
                    at(&def.place)
                ),
                "Use the upstream names of the table, with its schema, and of its columns: 'public.orders'.",
            ));
        }
        let mut upstream = Upstream {
            readable: BTreeSet::new(),
            columns: BTreeMap::new(),
            identity: BTreeSet::new(),
        };
        for row in rows {
            let text = |at: usize| row.get(at).cloned().flatten().unwrap_or_default();
            if text(2) == "t" {
                upstream.identity.insert(text(0));
            }
            if text(3) == "t" {
                upstream.readable.insert(text(0));
            }
            upstream.columns.insert(text(0), text(1));
        }
        Ok(upstream)
    }

    /// Copies columns of a table as they were at a snapshot.
    ///
    /// # Errors
    /// The table is not there; the connection is lost.
    pub async fn copy<'s>(
        &'s self,
        def: &'s PostgresDef,
        snapshot: &Snapshot,
        (schema, name): (&str, &str),
        columns: &[String],
    ) -> Result<Copying<'s>, ConnectorError> {
        // Policies that hide rows are an error there instead of rows that are missing here.
        let begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {}; SET LOCAL row_security = off",
            literal(&snapshot.name)
        );
        within(&def.place, ANSWER, self.client.batch_execute(&begin)).await?;
        let columns: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
        let sql = format!(
            "COPY (SELECT {} FROM {}.{}) TO STDOUT",
            columns.join(", "),
            quoted(schema),
            quoted(name)
        );
        let busy = self.is_busy();
        let beginning = while_busy(&def.place, &busy, self.client.copy_out(&sql)).await?;
        let pieces = beginning.map_err(|error| copying::refused(def, &error))?;
        Ok(Copying {
            client: &self.client,
            def,
            busy,
            name: format!("{}.{}", quoted(schema), quoted(name)),
            oid: None,
            pieces: Box::pin(pieces),
            rest: BytesMut::new(),
            is_done: false,
        })
    }

    /// Has a row as long as the server is at a statement of this connection, and its answer is not what it waits to be rid of.
    fn is_busy(&self) -> String {
        format!(
            "SELECT 1 FROM pg_stat_activity WHERE pid = {} AND state = 'active' AND wait_event IS DISTINCT FROM 'ClientWrite'",
            self.pid
        )
    }
}

/// The answer of a server, which may take so long.
async fn within<T>(
    place: &PostgresPlace,
    limit: Duration,
    work: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, ConnectorError> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done.map_err(|error| of_client(place, &error)),
        Err(_) => Err(silent_for(place, limit)),
    }
}

/// Waits for what may take long, as long as another connection hears that the server is at it: `busy` has a row then.
async fn while_busy<T>(
    place: &PostgresPlace,
    busy: &str,
    work: impl Future<Output = T>,
) -> Result<T, ConnectorError> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Ok(done),
            () = tokio::time::sleep(LONG_SILENCE) => {}
        }
        let other = client(place).await?;
        if within(place, ANSWER, texts(&other, busy)).await?.is_empty() {
            // It may have answered meanwhile.
            return tokio::time::timeout(ANSWER, work)
                .await
                .map_err(|_| silent_for(place, LONG_SILENCE));
        }
    }
}

/// Connects for questions.
async fn client(place: &PostgresPlace) -> Result<Client, ConnectorError> {
    let mut config = tokio_postgres::Config::new();
    config
        .user(&place.user)
        .dbname(&place.database)
        .options(SETTINGS)
        .application_name("millrace")
        // It is on already, where it is wanted.
        .ssl_mode(tokio_postgres::config::SslMode::Disable);
    if let Some(password) = password(place).await? {
        config.password(password);
    }
    let connecting = async {
        let stream = tls::connect(place).await?.wire;
        let connected = config.connect_raw(stream, NoTls).await;
        connected.map_err(|error| of_client(place, &error))
    };
    let connecting = tokio::time::timeout(ANSWER, connecting).await;
    let (client, connection) = connecting.map_err(|_| silent(place))??;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL ended");
        }
    });
    Ok(client)
}

/// The rows of a statement, as texts.
async fn texts(client: &Client, sql: &str) -> Result<Vec<Vec<Option<String>>>, tokio_postgres::Error> {
    let mut rows = vec![];
    for message in client.simple_query(sql).await? {
        if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
            rows.push((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect());
        }
    }
    Ok(rows)
}

async fn replication(def: &PostgresDef, from: i64) -> Result<ReplicationConfig, ConnectorError> {
    let password = password(&def.place).await?.unwrap_or_default();
    let password = String::from_utf8(password)
        .map_err(|_| ConnectorError::passing("the password of a PostgreSQL source is not UTF-8"))?;
    // A socket of ours, or the server itself.
    let host = match tls::tunnel(&def.place).await? {
        Some(directory) => directory.to_string_lossy().into_owned(),
        None => def.place.host.clone(),
    };
    let config = ReplicationConfig::new(
        host,
        &*def.place.user,
        password,
        &*def.place.database,
        &*def.slot,
        &*def.publication,
    );
    Ok(config
        .with_port(def.place.port)
        .with_start_lsn(Lsn::from_u64(from as u64))
        // The server asks for a sign of life when half of that is over, and we say nothing that nobody asked for: so there is a word
        // from it twice in the time after which it is lost for us.
        .with_options(format!("{SETTINGS} -c wal_sender_timeout={}s", SILENCE.as_secs()))
        .with_wakeup_interval(10 * SILENCE)
        .with_buffer_size(BUFFERED)
        .with_status_interval(Duration::from_millis(500))
        .with_max_message_size(MESSAGE_BYTES_MAX)
        .with_application_name("millrace"))
}

async fn password(place: &PostgresPlace) -> Result<Option<Vec<u8>>, ConnectorError> {
    let Some(secret) = place.password.clone() else {
        return Ok(None);
    };
    // Whatever the file is, nobody else waits for it.
    let read = tokio::task::spawn_blocking(move || secret.read()).await;
    let read = read.map_err(|error| ConnectorError::passing(error.to_string()))?;
    read.map(Some)
        .map_err(|error: SqlError| ConnectorError::passing(error.message))
}

fn at(place: &PostgresPlace) -> String {
    format!("PostgreSQL at {}:{}", place.host, place.port)
}

/// The server does not say anything.
fn silent(place: &PostgresPlace) -> ConnectorError {
    silent_for(place, ANSWER)
}

fn silent_for(place: &PostgresPlace, limit: Duration) -> ConnectorError {
    ConnectorError::passing(format!(
        "{} did not answer within {} seconds",
        at(place),
        limit.as_secs()
    ))
}

fn message(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => match error.detail() {
            Some(detail) => format!("{} ({detail})", error.message()),
            None => error.message().to_owned(),
        },
        None => {
            let cause = std::error::Error::source(error);
            cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
        }
    }
}

fn of_client(place: &PostgresPlace, error: &tokio_postgres::Error) -> ConnectorError {
    ConnectorError::passing(format!("{}: {}", at(place), message(error)))
}

fn of_stream(place: &PostgresPlace, error: &PgWireError) -> ConnectorError {
    let shown = format!("{}: {error}", at(place));
    match error.is_message_too_large() {
        true => ConnectorError::lasting(shown, "A single row must be smaller than that."),
        false => ConnectorError::passing(shown),
    }
}

/// A name in SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in SQL, whatever standard_conforming_strings says.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
