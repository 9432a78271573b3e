//! `pg_stat_activity`: the sessions, as PostgreSQL shows them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::TableProvider;
use millrace_catalog::role::MONITOR;
use millrace_catalog::scope::Acting;
use millrace_database::Database;
use millrace_database::sessions::{SessionStatus, TransactionStatus};
use millrace_postgres::error::SqlResult;

use super::oid;
use super::roles::role_oid;
use super::table::{Row, provider};

/// One row a session. What is not known of it (waits, addresses of sockets' ends, transactions' ids) is NULL.
///
/// # Errors
/// The rows could not be put together.
pub fn relation(database: &Database, viewer: Acting) -> SqlResult<Arc<dyn TableProvider>> {
    let sessions = database.sessions();
    let rows: Vec<Row> = sessions
        .iter()
        .map(|session| {
            let mut row = row(database, session.as_ref());
            if row.contains_key("query") && !may_see(database, session.as_ref(), viewer) {
                row.insert("query", HIDDEN.to_owned());
            }
            row
        })
        .collect();
    provider(&schema(), &rows)
}

/// `pg_stat_ssl`: how the connections of the sessions are encrypted. Of clients' certificates only the name is known.
///
/// # Errors
/// The rows could not be put together.
pub fn encryption(database: &Database, viewer: Acting) -> SqlResult<Arc<dyn TableProvider>> {
    let columns = [
        ("pid", DataType::Int32),
        ("ssl", DataType::Boolean),
        ("version", DataType::Utf8),
        ("cipher", DataType::Utf8),
        ("bits", DataType::Int32),
        ("client_dn", DataType::Utf8),
        ("client_serial", DataType::Utf8),
        ("issuer_dn", DataType::Utf8),
    ];
    let fields = columns.map(|(name, data_type)| Field::new(name, data_type, true));
    let row = |session: &dyn SessionStatus| {
        let mut row = Row::from([("pid", session.id().to_string())]);
        if !may_see(database, session, viewer) {
            return row;
        }
        let encryption = session.info().encryption.clone();
        row.insert("ssl", encryption.is_some().to_string());
        if let Some(encryption) = encryption {
            row.insert("version", encryption.version);
            row.insert("cipher", encryption.cipher);
            row.insert("bits", encryption.bits.to_string());
            row.extend(encryption.client.map(|name| ("client_dn", format!("/CN={name}"))));
        }
        row
    };
    let sessions = database.sessions();
    let rows: Vec<Row> = sessions.iter().map(|session| row(session.as_ref())).collect();
    provider(&Arc::new(Schema::new(fields.to_vec())), &rows)
}

/// What is shown in place of a statement that is not the viewer's to see: what it says may be a secret.
pub const HIDDEN: &str = "<insufficient privilege>";

/// Whether somebody may see what a session does.
pub fn may_see(database: &Database, session: &dyn SessionStatus, viewer: Acting) -> bool {
    let catalog = database.catalog();
    !viewer.is_checked
        || catalog.has_role(viewer.role, MONITOR)
        || catalog.has_role(viewer.role, session.user())
}

fn schema() -> SchemaRef {
    let time = || DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let columns = [
        ("datid", DataType::Int32),
        ("datname", DataType::Utf8),
        ("pid", DataType::Int32),
        ("leader_pid", DataType::Int32),
        ("usesysid", DataType::Int32),
        ("usename", DataType::Utf8),
        ("application_name", DataType::Utf8),
        ("client_addr", DataType::Utf8),
        ("client_hostname", DataType::Utf8),
        ("client_port", DataType::Int32),
        ("backend_start", time()),
        ("xact_start", time()),
        ("query_start", time()),
        ("state_change", time()),
        ("wait_event_type", DataType::Utf8),
        ("wait_event", DataType::Utf8),
        ("state", DataType::Utf8),
        ("backend_xid", DataType::Int64),
        ("backend_xmin", DataType::Int64),
        ("query_id", DataType::Int64),
        ("query", DataType::Utf8),
        ("backend_type", DataType::Utf8),
    ];
    let fields = columns.map(|(name, data_type)| Field::new(name, data_type, true));
    Arc::new(Schema::new(fields.to_vec()))
}

fn row(database: &Database, session: &dyn SessionStatus) -> Row {
    let info = session.info();
    let activity = session.activity();
    let is_running = activity.as_ref().is_some_and(|activity| activity.is_running());
    let state = match session.transaction_status() {
        _ if is_running => "active",
        TransactionStatus::Idle => "idle",
        TransactionStatus::Active => "idle in transaction",
        TransactionStatus::Failed => "idle in transaction (aborted)",
    };
    let mut row = Row::from([
        ("datname", info.database.clone()),
        ("pid", session.id().to_string()),
        ("state", state.to_owned()),
        ("backend_type", "client backend".to_owned()),
    ]);
    let mut put = |column, value: Option<String>| {
        if let Some(value) = value {
            row.insert(column, value);
        }
    };
    let time = |ms: i64| chrono::DateTime::from_timestamp_millis(ms).map(|time| time.to_rfc3339());
    let of_database = database
        .catalog()
        .database(&info.database)
        .map(|object| oid(object.id));
    put("usesysid", Some(role_oid(session.user()).to_string()));
    put(
        "usename",
        database
            .catalog()
            .role_by_id(session.user())
            .map(|role| role.name.clone()),
    );
    put("datid", of_database.map(|oid| oid.to_string()));
    put("application_name", session.setting("application_name"));
    // A client on this machine may have no address.
    if let Some((address, port)) = info.peer.rsplit_once(':') {
        put("client_addr", Some(address.trim_matches(['[', ']']).to_owned()));
        put("client_port", port.parse().ok().map(|port: u16| port.to_string()));
    }
    put("backend_start", time(session.began_at_ms()));
    if let Some(activity) = activity {
        put("query_start", time(activity.started_at_ms));
        put("query", Some(activity.statement));
    }
    row
}
