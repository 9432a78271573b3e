//! `pg_cursors` and `pg_prepared_statements`: what the session that asks has open.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::catalog::TableProvider;
use millrace_database::sessions::{Kept, Sessions};
use millrace_postgres::error::SqlResult;

use super::table::{Row, provider};

/// The cursors that DECLARE has opened.
///
/// # Errors
/// The rows could not be put together.
pub fn cursors(sessions: &Sessions, session: Option<i32>) -> SqlResult<Arc<dyn TableProvider>> {
    let kept = session
        .and_then(|id| sessions.get(id))
        .map(|session| session.cursors());
    let rows = kept.unwrap_or_default().into_iter().map(|cursor| {
        let mut row = row("creation_time", &cursor.kept);
        row.insert("is_holdable", cursor.is_holdable.to_string());
        row.insert("is_scrollable", cursor.is_scrollable.to_string());
        row
    });
    let flag = |name: &str| Field::new(name, DataType::Boolean, false);
    let schema = Schema::new(vec![
        text("name"),
        text("statement"),
        flag("is_holdable"),
        flag("is_binary"),
        flag("is_scrollable"),
        time("creation_time"),
    ]);
    provider(&Arc::new(schema), &rows.collect::<Vec<Row>>())
}

/// The statements that PREPARE has prepared. Those of the protocol are not among them.
///
/// # Errors
/// The rows could not be put together.
pub fn prepared_statements(sessions: &Sessions, session: Option<i32>) -> SqlResult<Arc<dyn TableProvider>> {
    let kept = session
        .and_then(|id| sessions.get(id))
        .map(|session| session.prepared_statements());
    let rows = kept.unwrap_or_default().into_iter().map(|prepared| {
        let mut row = row("prepare_time", &prepared.kept);
        row.insert(
            "parameter_types",
            format!("{{{}}}", prepared.parameter_types.join(",")),
        );
        row.insert("from_sql", "t".to_owned());
        row
    });
    let count = |name: &str| Field::new(name, DataType::Int64, false);
    let words = Field::new_list_field(DataType::Utf8, true);
    let schema = Schema::new(vec![
        text("name"),
        text("statement"),
        time("prepare_time"),
        Field::new("parameter_types", DataType::List(Arc::new(words)), true),
        Field::new("from_sql", DataType::Boolean, false),
        count("generic_plans"),
        count("custom_plans"),
    ]);
    provider(&Arc::new(schema), &rows.collect::<Vec<Row>>())
}

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true)
}

fn time(name: &str) -> Field {
    Field::new(
        name,
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        true,
    )
}

fn row(time: &'static str, kept: &Kept) -> Row {
    let at = chrono::DateTime::from_timestamp_millis(kept.began_at_ms);
    Row::from([
        ("name", kept.name.clone()),
        ("statement", kept.statement.clone()),
        (time, at.map(|at| at.to_rfc3339()).unwrap_or_default()),
    ])
}
