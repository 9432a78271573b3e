//! A PostgreSQL server whose changes are followed: what is asked of it, a snapshot of a table, and the stream of transactions.
//!
//! ```text
//!  slot, with an exported snapshot at X --> COPY of the tables at X --> transactions that were committed after X, in their order
//! ```

mod copying;
mod follower;
mod pgoutput;
mod tls;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use millrace_catalog::connector::postgres::{PostgresDef, PostgresPlace};
use millrace_postgres::error::SqlError;
use pgwire_replication::{Lsn, PgWireError, ReplicationClient, ReplicationConfig};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

pub use self::copying::Copying;
pub use self::follower::{Event, Follower};
pub use self::pgoutput::{Cell, ColumnInfo, Message, TableInfo};
pub use self::writer::PostgresWriter;
use crate::source::ConnectorError;

/// How long the server may take for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a slot may be in use that is to be dropped, and how often that is asked.
const SLOT_FREED: Duration = Duration::from_secs(4);
const SLOT_RETRY: Duration = Duration::from_millis(50);
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
    /// Which server it is.
    pub system: String,
}

/// A table as the server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Names and types of the columns.
    pub columns: BTreeMap<String, String>,
    /// The columns that updates and deletes tell of the row that they are about.
    pub identity: BTreeSet<String>,
}

/// A replication slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Up to where we have said that we have everything.
    pub confirmed: i64,
    pub is_lost: bool,
}

/// A moment in the server's history, as long as this is kept.
pub struct Snapshot {
    pub lsn: i64,
    name: String,
    /// The connection that exported it.
    _held: ReplicationClient,
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
            system: String::new(),
        };
        let found = server
            .rows(
                def,
                "SELECT current_setting('wal_level'), (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user),
                 (SELECT system_identifier FROM pg_control_system())::text",
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
        Ok(server)
    }

    /// The rows of a statement, as texts.
    async fn rows(&self, def: &PostgresDef, sql: &str) -> Result<Vec<Vec<Option<String>>>, ConnectorError> {
        let found = texts(&self.client, sql).await;
        found.map_err(|error| of_client(&def.place, &error))
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
                    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END)
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
            columns: BTreeMap::new(),
            identity: BTreeSet::new(),
        };
        for row in rows {
            let text = |at: usize| row.get(at).cloned().flatten().unwrap_or_default();
            if text(2) == "t" {
                upstream.identity.insert(text(0));
            }
            upstream.columns.insert(text(0), text(1));
        }
        Ok(upstream)
    }

    /// Has the publication publish these tables.
    ///
    /// # Errors
    /// It does not, and may not be changed.
    pub async fn publish(
        &self,
        def: &PostgresDef,
        tables: &BTreeSet<(String, String)>,
    ) -> Result<(), ConnectorError> {
        let publication = quoted(&def.publication);
        let sql = format!(
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot FROM pg_publication WHERE pubname = {}",
            literal(&def.publication)
        );
        let found = self.rows(def, &sql).await?;
        let is_there = !found.is_empty();
        let says = |at: usize| found.first().is_some_and(|row| row[at].as_deref() == Some("t"));
        // What it leaves out would be missed in silence.
        let lacking = |what: &str| {
            ConnectorError::lasting(
                format!("publication \"{}\" of {} {what}", def.publication, at(&def.place)),
                "Choose another publication.name, or have one made by leaving it away.",
            )
        };
        if is_there && !says(0) {
            return Err(lacking(
                "does not publish all of insert, update, delete and truncate",
            ));
        }
        if is_there && !says(1) {
            let sql = "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                 WHERE c.relkind = 'p'";
            let partitioned = self.rows(def, sql).await?;
            let is_followed = |row: &Vec<Option<String>>| match (&row[0], &row[1]) {
                (Some(schema), Some(name)) => tables.contains(&(schema.clone(), name.clone())),
                _ => false,
            };
            if partitioned.iter().any(is_followed) {
                return Err(lacking(
                    "publishes partitions by their own names (publish_via_partition_root)",
                ));
            }
        }
        let sql = format!(
            "SELECT schemaname, tablename, to_jsonb(t) ->> 'rowfilter' FROM pg_publication_tables t WHERE pubname = {}",
            literal(&def.publication)
        );
        let rows = self.rows(def, &sql).await?;
        let name = |row: &Vec<Option<String>>| Some((row.first()?.clone()?, row.get(1)?.clone()?));
        let is_filtered = |row: &&Vec<Option<String>>| {
            row[2].is_some() && name(row).is_some_and(|name| tables.contains(&name))
        };
        if rows.iter().any(|row| is_filtered(&row)) {
            return Err(lacking("publishes some rows of a table alone (WHERE)"));
        }
        let published: BTreeSet<(String, String)> = rows.iter().filter_map(name).collect();
        let missing: Vec<String> = (tables.difference(&published))
            .map(|(schema, name)| format!("{}.{}", quoted(schema), quoted(name)))
            .collect();
        let statement = match (is_there, missing.is_empty()) {
            (true, true) => return Ok(()),
            (true, false) => format!("ALTER PUBLICATION {publication} ADD TABLE {}", missing.join(", ")),
            (false, true) => {
                format!("CREATE PUBLICATION {publication} WITH (publish_via_partition_root = true)")
            }
            (false, false) => format!(
                "CREATE PUBLICATION {publication} FOR TABLE {} WITH (publish_via_partition_root = true)",
                missing.join(", ")
            ),
        };
        let refused = |why: String| {
            ConnectorError::lasting(
                format!(
                    "publication \"{}\" of {} does not exist or lacks tables that are followed{why}",
                    def.publication,
                    at(&def.place)
                ),
                format!("Have an upstream role with the privilege run: {statement}"),
            )
        };
        if !def.publishes {
            return Err(refused(String::new()));
        }
        let Err(error) = self.client.batch_execute(&statement).await else {
            return Ok(());
        };
        match error.code() {
            // Somebody was quicker, perhaps an attempt of ours that was broken off.
            Some(&SqlState::DUPLICATE_OBJECT | &SqlState::UNIQUE_VIOLATION) | None => {
                Err(of_client(&def.place, &error))
            }
            Some(_) => Err(refused(format!(": {}", message(&error)))),
        }
    }

    /// The slot, if it is there.
    ///
    /// # Errors
    /// It is of another kind.
    pub async fn slot(&self, def: &PostgresDef) -> Result<Option<Slot>, ConnectorError> {
        let sql = format!(
            "SELECT (confirmed_flush_lsn - '0/0')::bigint, coalesce(wal_status, ''), coalesce(plugin, ''), coalesce(database, '')
             FROM pg_replication_slots WHERE slot_name = {}",
            literal(&def.slot)
        );
        let rows = self.rows(def, &sql).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let text = |at: usize| row.get(at).cloned().flatten().unwrap_or_default();
        if text(2).is_empty() || text(3).is_empty() {
            // By an attempt of ours that was broken off, perhaps.
            let what = format!("slot \"{}\" of {} is being made", def.slot, at(&def.place));
            return Err(ConnectorError::passing(what));
        }
        if text(2) != "pgoutput" || text(3) != def.place.database {
            return Err(ConnectorError::lasting(
                format!(
                    "slot \"{}\" of {} is for something else",
                    def.slot,
                    at(&def.place)
                ),
                "Choose another slot.name.",
            ));
        }
        Ok(Some(Slot {
            confirmed: text(0).parse().unwrap_or_default(),
            is_lost: text(1) == "lost",
        }))
    }

    /// Removes the slot. What has read from it until now may still be going, and is waited for.
    ///
    /// # Errors
    /// Somebody uses it.
    pub async fn drop_slot(&self, def: &PostgresDef) -> Result<(), ConnectorError> {
        let sql = format!(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = {}",
            literal(&def.slot)
        );
        let until = Instant::now() + SLOT_FREED;
        loop {
            match texts(&self.client, &sql).await {
                Ok(_) => return Ok(()),
                Err(error) if error.code() == Some(&SqlState::OBJECT_IN_USE) && Instant::now() < until => {
                    tokio::time::sleep(SLOT_RETRY).await;
                }
                Err(error) => return Err(of_client(&def.place, &error)),
            }
        }
    }

    /// How much of the server's log is not confirmed, in bytes.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn behind(&self, def: &PostgresDef) -> Result<u64, ConnectorError> {
        let sql = format!(
            "SELECT (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint FROM pg_replication_slots WHERE slot_name = {}",
            literal(&def.slot)
        );
        let rows = self.rows(def, &sql).await?;
        let bytes = rows.first().and_then(|row| row.first()?.as_ref()?.parse().ok());
        Ok(bytes.unwrap_or_default())
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
        let error = |error: tokio_postgres::Error| of_client(&def.place, &error);
        let begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {}",
            literal(&snapshot.name)
        );
        self.client.batch_execute(&begin).await.map_err(error)?;
        let columns: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
        let sql = format!(
            "COPY (SELECT {} FROM {}.{}) TO STDOUT",
            columns.join(", "),
            quoted(schema),
            quoted(name)
        );
        let pieces = self.client.copy_out(&sql).await.map_err(error)?;
        Ok(Copying {
            client: &self.client,
            def,
            pieces: Box::pin(pieces),
            rest: BytesMut::new(),
            is_done: false,
        })
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

/// Makes the slot, or a temporary one, and a snapshot of what was there before everything that the slot has.
///
/// # Errors
/// The server refuses.
pub async fn snapshot(def: &PostgresDef, is_temporary: bool) -> Result<Snapshot, ConnectorError> {
    let config = replication(def, 0).await?;
    let connecting = tokio::time::timeout(ANSWER, ReplicationClient::connect_gated(config)).await;
    let mut client = connecting
        .map_err(|_| silent(&def.place))?
        .map_err(|error| of_stream(&def.place, &error))?;
    let (slot, temporary) = match is_temporary {
        true => (
            format!(
                "{}_{:08x}",
                def.slot.chars().take(50).collect::<String>(),
                rand::random::<u32>()
            ),
            "TEMPORARY ",
        ),
        false => (def.slot.clone(), ""),
    };
    let sql = format!(
        "CREATE_REPLICATION_SLOT {} {temporary}LOGICAL pgoutput EXPORT_SNAPSHOT",
        quoted(&slot)
    );
    let rows = client
        .simple_query(&sql)
        .await
        .map_err(|error| of_stream(&def.place, &error))?;
    let text = |at: usize| -> Option<String> {
        let cell: &Option<Bytes> = rows.first()?.get(at)?;
        Some(String::from_utf8_lossy(cell.as_ref()?).into_owned())
    };
    let (Some(lsn), Some(name)) = (text(1).and_then(|lsn| Lsn::parse(&lsn).ok()), text(2)) else {
        return Err(ConnectorError::passing(format!(
            "{} made a slot without a snapshot",
            at(&def.place)
        )));
    };
    Ok(Snapshot {
        lsn: lsn.as_u64() as i64,
        name,
        _held: client,
    })
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
        .with_options(SETTINGS)
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
    ConnectorError::passing(format!(
        "{} did not answer within {} seconds",
        at(place),
        ANSWER.as_secs()
    ))
}

fn message(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => error.message().to_owned(),
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
