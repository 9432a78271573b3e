//! `mr_catalog.subscribers`: one row for each client that follows a relation or a query, or reads a subscription, and how far it is.

use std::sync::Arc;

use arrow::array::{StringArray, TimestampMicrosecondArray};
use millrace_catalog::scope::Acting;
use millrace_database::Database;
use millrace_database::database::subscriptions::SubscriptionInfo;

use super::{Columns, numbers, optional_numbers};
use crate::pg_catalog::activity::{HIDDEN, may_see};

pub(super) fn columns(database: &Database, viewer: Acting) -> Columns {
    let sessions = database.sessions();
    let is_shown = |info: &SubscriptionInfo| {
        let session = sessions.iter().find(|session| session.id() == info.session);
        !viewer.is_checked || session.is_some_and(|session| may_see(database, session.as_ref(), viewer))
    };
    let catalog = database.catalog();
    let all = database.subscriptions().list();
    let relations = all.iter().map(|info| {
        let object = catalog.object(info.relation);
        object.map(|object| object.display_name())
    });
    let queries = all.iter().map(|info| match &info.query {
        Some(_) if !is_shown(info) => Some(HIDDEN),
        query => query.as_deref(),
    });
    let began = all.iter().map(|info| info.began_at_ms.saturating_mul(1_000));
    vec![
        ("id", numbers(all.iter().map(|info| info.id))),
        ("relation", Arc::new(StringArray::from_iter(relations))),
        ("query", Arc::new(StringArray::from_iter(queries))),
        (
            "session",
            optional_numbers(all.iter().map(|info| u64::try_from(info.session).ok())),
        ),
        (
            "began_at",
            Arc::new(TimestampMicrosecondArray::from_iter_values(began).with_timezone("UTC")),
        ),
        ("epoch", optional_numbers(all.iter().map(|info| info.epoch))),
        ("newest_epoch", numbers(all.iter().map(|info| info.newest_epoch))),
        ("rows", numbers(all.iter().map(|info| info.rows))),
        (
            "waiting_bytes",
            numbers(all.iter().map(|info| info.waiting_bytes)),
        ),
        (
            "error",
            Arc::new(StringArray::from_iter(all.iter().map(|info| info.error.clone()))),
        ),
    ]
}
