//! A table of PostgreSQL that a sink writes: the rows of a step and how far the sink is, in one transaction.
//!
//! ```text
//!   BEGIN; LOCK ..; UPDATE millrace_sinks SET next = 8 WHERE sink = .. AND holder = us; DELETE ..; INSERT .. ON CONFLICT ..; COMMIT
//! ```
//! `open` puts its own name into the sink's row of `millrace_sinks`: whoever was there before finds another holder, and ends. Rows go there as
//! JSON, which PostgreSQL itself reads as the types of the table's columns (`json_populate_recordset`).

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use millrace_catalog::connector::postgres::PostgresTarget;
use millrace_catalog::sink::{PostgresSink, SinkDef};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::{ANSWER, at, client, literal, message, of_client, quoted, silent_for, within};
use crate::source::ConnectorError;
use crate::target::{Message, Reached, Said, Writer};

/// The table in which it stands how far each sink is, in the schema of the table that is written.
const PROGRESS: &str = "millrace_sinks";
/// How long a statement there waits for locks, and how long it may take. For each the server has `ANSWER` more to say so: a connection
/// that is silent for longer is lost.
const LOCKS: Duration = Duration::from_secs(10);
const STATEMENT: Duration = Duration::from_secs(60);
/// How long the end of a connection may take.
const CLOSING: Duration = Duration::from_secs(2);
/// Rows and bytes that go there with one statement.
const ROWS_MAX: usize = 10_000;
const BYTES_MAX: usize = 8 << 20;

/// See the module.
pub struct PostgresWriter {
    target: PostgresTarget,
    client: Client,
    id: String,
    holder: String,
    statements: Statements,
    reached: Option<Reached>,
}

/// What is run for a step. `$1` is an array of objects.
struct Statements {
    /// Nobody replaces the table while a step goes there.
    begin: String,
    /// Only of the table that was written before.
    progress: String,
    delete: String,
    put: String,
}

/// A column of the table there.
struct Column {
    is_not_null: bool,
    has_default: bool,
    is_generated: bool,
}

impl PostgresWriter {
    /// Takes the sink over, and finds out how far it is.
    ///
    /// # Errors
    /// The server does not answer or refuses, the table is not there, another one, or has not what is needed.
    pub async fn open(sink: &SinkDef, postgres: &PostgresSink, holder: &str) -> Result<Self, ConnectorError> {
        let (target, client) = connected(postgres).await?;
        let table = checked(&client, &target, sink).await?;
        let mut writer = PostgresWriter {
            statements: Statements::new(&target, sink),
            client,
            id: postgres.id.clone(),
            holder: holder.to_owned(),
            target,
            reached: None,
        };
        writer.take(&table).await?;
        Ok(writer)
    }

    /// Looks whether a new sink could write.
    ///
    /// # Errors
    /// It could not.
    pub async fn check(sink: &SinkDef, postgres: &PostgresSink) -> Result<(), ConnectorError> {
        let (target, client) = connected(postgres).await?;
        checked(&client, &target, sink).await?;
        create_progress(&client, &target).await
    }

    /// Puts our name into the sink's row. `table`: which table it is, which another of the same name is not.
    async fn take(&mut self, table: &str) -> Result<(), ConnectorError> {
        create_progress(&self.client, &self.target).await?;
        let sql = format!(
            "INSERT INTO {progress} AS p (sink, holder, target) VALUES ({id}, {holder}, {table}) \
             ON CONFLICT (sink) DO UPDATE SET holder = EXCLUDED.holder RETURNING next::text, sum::text, target",
            progress = progress(&self.target),
            id = literal(&self.id),
            holder = literal(&self.holder),
            table = literal(table),
        );
        let rows = rows(&self.client, &self.target, &sql).await?;
        let row = rows.into_iter().next().unwrap_or_default();
        let number = |at: usize| row.get(at)?.as_ref()?.parse::<i64>().ok();
        if let (Some(next), Some(sum)) = (number(0), number(1)) {
            if row.get(2).and_then(Option::as_deref) != Some(table) {
                return Err(made_again(&self.target));
            }
            self.reached = Some(Reached {
                next: next as u64,
                sum: sum as u32,
            });
        }
        Ok(())
    }

    /// Runs the statements of a step, inside a transaction.
    async fn run(&self, reached: Reached, messages: Vec<Message>) -> Result<(), ConnectorError> {
        let (next, sum) = (reached.next as i64, i64::from(reached.sum));
        let parameters: [&(dyn ToSql + Sync); 4] = [&next, &sum, &self.id, &self.holder];
        let changing = self.client.execute(&self.statements.progress, &parameters);
        if within(&self.target.place, LOCKS + ANSWER, changing).await? == 0 {
            return Err(self.not_ours().await?);
        }
        let (gone, put): (Vec<Message>, Vec<Message>) =
            messages.into_iter().partition(|message| message.value.is_none());
        let gone = gone.into_iter().filter_map(|message| message.key);
        let put = put.into_iter().filter_map(|message| message.value);
        self.execute(&self.statements.delete, gone.collect()).await?;
        self.execute(&self.statements.put, put.collect()).await
    }

    /// Why the sink's row is not what we left there.
    async fn not_ours(&self) -> Result<ConnectorError, ConnectorError> {
        let sql = format!(
            "SELECT holder FROM {} WHERE sink = {}",
            progress(&self.target),
            literal(&self.id)
        );
        let found = rows(&self.client, &self.target, &sql).await?;
        let holder = found.into_iter().flatten().next().flatten();
        if holder.as_ref() == Some(&self.holder) {
            return Ok(made_again(&self.target));
        }
        Ok(ConnectorError::lasting(
            format!(
                "another server writes for this sink, or its row in {} was deleted",
                progress(&self.target)
            ),
            "Drop the sink and create it again. If its data directory is a copy, do so in the copy.",
        ))
    }

    /// Runs a statement over objects, so many at a time.
    async fn execute(&self, sql: &str, objects: Vec<Bytes>) -> Result<(), ConnectorError> {
        let mut objects = objects.into_iter().peekable();
        while objects.peek().is_some() {
            let (mut array, mut count) = (vec![b'['], 0);
            while count < ROWS_MAX
                && array.len() < BYTES_MAX
                && let Some(object) = objects.next()
            {
                if count > 0 {
                    array.push(b',');
                }
                array.extend_from_slice(&object);
                count += 1;
            }
            array.push(b']');
            let array =
                String::from_utf8(array).map_err(|error| ConnectorError::passing(error.to_string()))?;
            let parameters: [&(dyn ToSql + Sync); 1] = [&array];
            let executing = self.client.execute(sql, &parameters);
            within(&self.target.place, STATEMENT + ANSWER, executing).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Writer for PostgresWriter {
    fn reached(&self) -> Said {
        self.reached.into()
    }

    async fn write(&mut self, reached: Reached, messages: Vec<Message>) -> Result<(), ConnectorError> {
        let place = &self.target.place;
        within(
            place,
            LOCKS + ANSWER,
            self.client.batch_execute(&self.statements.begin),
        )
        .await?;
        self.run(reached, messages).await?;
        within(place, STATEMENT + ANSWER, self.client.batch_execute("COMMIT")).await?;
        self.reached = Some(reached);
        Ok(())
    }

    async fn close(&self) {
        // What is open there is undone. A connection that is gone has been told.
        let _ = tokio::time::timeout(CLOSING, self.client.batch_execute("ROLLBACK")).await;
    }
}

impl Statements {
    fn new(target: &PostgresTarget, sink: &SinkDef) -> Statements {
        let table = named(target);
        let columns: Vec<String> = sink.columns.iter().map(|column| quoted(column)).collect();
        let listed = columns.join(", ");
        let key: Vec<&String> = sink
            .target
            .key()
            .unwrap_or_default()
            .iter()
            .map(|at| &columns[*at])
            .collect();
        let objects = format!("json_populate_recordset(NULL::{table}, $1::text::json)");
        let conflict = match sink.sink_type.has_deletions() {
            false => String::new(),
            true => {
                let others: Vec<String> = (columns.iter())
                    .filter(|column| !key.contains(column))
                    .map(|column| format!("{column} = EXCLUDED.{column}"))
                    .collect();
                let action = match others.is_empty() {
                    true => "NOTHING".to_owned(),
                    false => format!("UPDATE SET {}", others.join(", ")),
                };
                let key: Vec<&str> = key.iter().map(|column| column.as_str()).collect();
                format!(" ON CONFLICT ({}) DO {action}", key.join(", "))
            }
        };
        let is_same: Vec<String> = (key.iter())
            .map(|column| format!("old.{column} = gone.{column}"))
            .collect();
        Statements {
            begin: format!("BEGIN; LOCK TABLE {table} IN ROW EXCLUSIVE MODE"),
            progress: format!(
                "UPDATE {} SET next = $1, sum = $2 \
                 WHERE sink = $3 AND holder = $4 AND target = {}::regclass::oid::text",
                progress(target),
                literal(&table)
            ),
            delete: format!(
                "DELETE FROM {table} AS old USING {objects} AS gone WHERE {}",
                is_same.join(" AND ")
            ),
            put: format!("INSERT INTO {table} ({listed}) SELECT {listed} FROM {objects}{conflict}"),
        }
    }
}

async fn connected(postgres: &PostgresSink) -> Result<(PostgresTarget, Client), ConnectorError> {
    let target = postgres
        .target()
        .map_err(|error| ConnectorError::lasting(error.message, "Create the sink again."))?;
    let client = client(&target.place).await?;
    // Whoever keeps a lock there keeps the sink waiting, and not for ever; and our own are not kept by a connection that is gone.
    let (locks, statement) = (LOCKS.as_secs(), STATEMENT.as_secs());
    let settings = format!(
        "SET lock_timeout = '{locks}s'; SET statement_timeout = '{statement}s'; \
         SET idle_in_transaction_session_timeout = '{statement}s'"
    );
    within(&target.place, ANSWER, client.batch_execute(&settings)).await?;
    Ok((target, client))
}

/// Makes the table of the progress, unless it is there.
async fn create_progress(client: &Client, target: &PostgresTarget) -> Result<(), ConnectorError> {
    let there = format!("SELECT to_regclass({})", literal(&progress(target)));
    let found = rows(client, target, &there).await?;
    if found.iter().flatten().any(Option::is_some) {
        return Ok(());
    }
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {} (sink text PRIMARY KEY, holder text NOT NULL, target text NOT NULL, \
         next bigint, sum bigint)",
        progress(target)
    );
    let making = tokio::time::timeout(LOCKS + ANSWER, client.batch_execute(&sql));
    let made = making
        .await
        .map_err(|_| silent_for(&target.place, LOCKS + ANSWER))?;
    made.map_err(|error| match error.code() {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => ConnectorError::lasting(
            format!("{}: {}", at(&target.place), message(&error)),
            format!(
                "Have a role of the target with the privilege run: GRANT CREATE ON SCHEMA {} TO {}",
                quoted(&target.schema),
                quoted(&target.place.user)
            ),
        ),
        _ => of_client(&target.place, &error),
    })
}

/// Which table it is, if it has what the sink writes.
async fn checked(client: &Client, target: &PostgresTarget, sink: &SinkDef) -> Result<String, ConnectorError> {
    let table = named(target);
    let lasting = |what: String, hint: &str| ConnectorError::lasting(what, hint);
    let sql = format!(
        "SELECT c.oid::text, has_table_privilege(c.oid, 'INSERT')::text, \
            (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))::text \
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = {} AND c.relname = {} AND c.relkind IN ('r', 'p')",
        literal(&target.schema),
        literal(&target.table)
    );
    let found = rows(client, target, &sql).await?;
    let Some(row) = found.first() else {
        return Err(lasting(
            format!("table {table} is not there on {}", at(&target.place)),
            "Create it there, with a column for each column of the sink.",
        ));
    };
    let text = |at: usize| row.get(at).cloned().flatten().unwrap_or_default();
    let has_deletions = sink.sink_type.has_deletions();
    if text(1) != "true" || (has_deletions && text(2) != "true") {
        let rights = if has_deletions {
            "SELECT, INSERT, UPDATE, DELETE"
        } else {
            "INSERT"
        };
        return Err(lasting(
            format!(
                "role \"{}\" may not write table {table} of {}",
                target.place.user,
                at(&target.place)
            ),
            &format!("GRANT {rights} ON {table} TO {}", quoted(&target.place.user)),
        ));
    }
    let oid = text(0);
    let columns = columns(client, target, &oid).await?;
    for name in &sink.columns {
        match columns.get(name) {
            None => {
                return Err(lasting(
                    format!("table {table} has no column {}", quoted(name)),
                    "The columns of a sink have the same names there. Name them in a query: CREATE SINK .. AS SELECT ..",
                ));
            }
            Some(column) if column.is_generated => {
                return Err(lasting(
                    format!("column {} of table {table} is generated there", quoted(name)),
                    "Leave it out: CREATE SINK .. AS SELECT ..",
                ));
            }
            Some(_) => {}
        }
    }
    let missing = columns.iter().find(|(name, column)| {
        column.is_not_null && !column.has_default && !column.is_generated && !sink.columns.contains(name)
    });
    if let Some((name, _)) = missing {
        return Err(lasting(
            format!(
                "column {} of table {table} is NOT NULL, and the sink does not have it",
                quoted(name)
            ),
            "Give it a default there, or select it in a query: CREATE SINK .. AS SELECT ..",
        ));
    }
    if has_deletions {
        let key: Vec<&str> = (sink.target.key().unwrap_or_default().iter())
            .map(|at| sink.columns[*at].as_str())
            .collect();
        check_key(client, target, &oid, &key).await?;
    }
    Ok(oid)
}

async fn columns(
    client: &Client,
    target: &PostgresTarget,
    oid: &str,
) -> Result<BTreeMap<String, Column>, ConnectorError> {
    let sql = format!(
        "SELECT attname, attnotnull::text, (atthasdef OR attidentity <> '')::text, (attgenerated <> '' OR attidentity = 'a')::text \
         FROM pg_attribute WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped"
    );
    let found = rows(client, target, &sql).await?;
    let column = |row: Vec<Option<String>>| {
        let says = |at: usize| row.get(at).and_then(Option::as_deref) == Some("true");
        let column = Column {
            is_not_null: says(1),
            has_default: says(2),
            is_generated: says(3),
        };
        Some((row.first()?.clone()?, column))
    };
    Ok(found.into_iter().filter_map(column).collect())
}

/// Refuses a table that does not hold every key once.
async fn check_key(
    client: &Client,
    target: &PostgresTarget,
    oid: &str,
    key: &[&str],
) -> Result<(), ConnectorError> {
    let sql = format!(
        "SELECT (SELECT string_agg(a.attname, chr(10)) FROM pg_attribute a \
                 WHERE a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]) AND a.attnotnull), i.indnkeyatts::text \
         FROM pg_index i WHERE i.indrelid = {oid} AND i.indisunique AND i.indisvalid AND i.indimmediate \
            AND i.indpred IS NULL AND i.indexprs IS NULL"
    );
    let found = rows(client, target, &sql).await?;
    let is_key = |row: &Vec<Option<String>>| {
        let names = row.first().cloned().flatten().unwrap_or_default();
        let names: Vec<&str> = names.split('\n').collect();
        let count = row.get(1).cloned().flatten().and_then(|count| count.parse().ok());
        count == Some(key.len())
            && names.len() == key.len()
            && key.iter().all(|column| names.contains(column))
    };
    if found.iter().any(is_key) {
        return Ok(());
    }
    let listed: Vec<String> = key.iter().map(|column| quoted(column)).collect();
    Err(ConnectorError::lasting(
        format!(
            "table {} has no primary key or unique constraint over exactly ({}), all NOT NULL",
            named(target),
            listed.join(", ")
        ),
        format!(
            "ALTER TABLE {} ADD PRIMARY KEY ({})",
            named(target),
            listed.join(", ")
        ),
    ))
}

/// The rows of a statement, as texts.
async fn rows(
    client: &Client,
    target: &PostgresTarget,
    sql: &str,
) -> Result<Vec<Vec<Option<String>>>, ConnectorError> {
    within(&target.place, LOCKS + ANSWER, super::texts(client, sql)).await
}

fn made_again(target: &PostgresTarget) -> ConnectorError {
    ConnectorError::lasting(
        format!("table {} was dropped and recreated", named(target)),
        "Rows written to the old table are gone. To write all rows to the new one, drop the sink and create it again.",
    )
}

fn named(target: &PostgresTarget) -> String {
    format!("{}.{}", quoted(&target.schema), quoted(&target.table))
}

fn progress(target: &PostgresTarget) -> String {
    format!("{}.{PROGRESS}", quoted(&target.schema))
}
