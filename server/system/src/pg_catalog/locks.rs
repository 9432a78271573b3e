//! `pg_locks`: the tables that sessions have locked for writing, and those that they wait for.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::TableProvider;
use millrace_database::Database;
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
    provider(&schema(), &rows.collect::<Vec<Row>>())
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
        ("classid", DataType::Int32),
        ("objid", DataType::Int32),
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
