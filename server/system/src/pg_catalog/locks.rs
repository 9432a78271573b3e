//! `pg_locks`: the tables that sessions have locked for writing, their advisory locks, and those that they wait for.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::TableProvider;
use millrace_database::Database;
use millrace_database::sessions::advisory::{Mode, Shown};
use millrace_database::sessions::{Locking, SessionStatus};
use millrace_postgres::error::SqlResult;
use millrace_storage::ObjectId;

use super::oid;
use super::table::{Row, provider};

/// One row for each session and table. Readers take no locks; a writer's lets others read.
///
/// # Errors
/// The rows could not be put together.
pub fn relation(database: &Database) -> SqlResult<Arc<dyn TableProvider>> {
    let sessions = database.sessions();
    let rows = sessions.iter().flat_map(|session| {
        let locks = session.locks().into_iter();
        locks.map(|lock| row(database, session.as_ref(), lock))
    });
    let advisory = database.advisory_locks().shown();
    let advisory = advisory.iter().map(|lock| advisory_row(database, lock));
    provider(&schema(), &rows.chain(advisory).collect::<Vec<Row>>())
}

fn schema() -> SchemaRef {
    let columns = [
        ("locktype", DataType::Utf8),
        ("database", DataType::Int32),
        ("relation", DataType::Int32),
        ("page", DataType::Int32),
        ("tuple", DataType::Int16),
        ("virtualxid", DataType::Utf8),
        ("transactionid", DataType::Int64),
        ("classid", DataType::Int64),
        ("objid", DataType::Int64),
        ("objsubid", DataType::Int16),
        ("virtualtransaction", DataType::Utf8),
        ("pid", DataType::Int32),
        ("mode", DataType::Utf8),
        ("granted", DataType::Boolean),
        ("fastpath", DataType::Boolean),
        (
            "waitstart",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ),
    ];
    let fields = columns.map(|(name, data_type)| Field::new(name, data_type, true));
    Arc::new(Schema::new(fields.to_vec()))
}

fn advisory_row(database: &Database, lock: &Shown) -> Row {
    let mode = match lock.mode {
        Mode::Shared => "ShareLock",
        Mode::Exclusive => "ExclusiveLock",
    };
    let mut row = Row::from([
        ("locktype", "advisory".to_owned()),
        ("classid", lock.key.class.to_string()),
        ("objid", lock.key.object.to_string()),
        ("objsubid", lock.key.numbers.to_string()),
        ("virtualtransaction", format!("{}/1", lock.session)),
        ("pid", lock.session.to_string()),
        ("mode", mode.to_owned()),
        ("granted", lock.is_held.to_string()),
        ("fastpath", "false".to_owned()),
    ]);
    if let Some(of) = database.catalog().database(&lock.key.database) {
        row.insert("database", oid(of.id).to_string());
    }
    row
}

fn row(database: &Database, session: &dyn SessionStatus, lock: Locking) -> Row {
    let mut row = Row::from([
        ("locktype", "relation".to_owned()),
        ("relation", oid(ObjectId(lock.relation.0)).to_string()),
        ("virtualtransaction", format!("{}/1", session.id())),
        ("pid", session.id().to_string()),
        ("mode", "ExclusiveLock".to_owned()),
        ("granted", lock.is_held.to_string()),
        ("fastpath", "false".to_owned()),
    ]);
    let catalog = database.catalog();
    if let Some(of) = catalog.database(&session.info().database) {
        row.insert("database", oid(of.id).to_string());
    }
    if !lock.is_held
        && let Some(since) = chrono::DateTime::from_timestamp_millis(lock.since_ms)
    {
        row.insert("waitstart", since.to_rfc3339());
    }
    row
}
