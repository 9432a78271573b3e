//! SET, RESET, DISCARD.

use std::collections::BTreeSet;

use datafusion::sql::sqlparser::ast::{DiscardObject, Set, TransactionAccessMode, TransactionMode};
use millrace_catalog::CatalogSnapshot;
use millrace_catalog::settings::{IDENTITY, join_list};
use millrace_catalog::temporary::schema_of;
use millrace_database::sessions::TransactionStatus;
use millrace_parser::ast::{SetValue, SetVariable};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::parse;
use millrace_storage::ObjectId;

use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::{done, transaction};

/// SET name = value, SET LOCAL included.
pub(crate) fn variable(session: &Session, set: &SetVariable) -> SqlResult<Outcome> {
    if set.local && !session.transaction_is_open() {
        session.notice(
            Severity::Warning,
            "SET LOCAL can only be used in transaction blocks",
        );
        return done("SET");
    }
    if set.name == "transaction_read_only"
        && let SetValue::Values(values) = &set.value
        && let Some(read_only) = values.first().and_then(|value| parse::boolean(value))
    {
        let mode = match read_only {
            true => TransactionAccessMode::ReadOnly,
            false => TransactionAccessMode::ReadWrite,
        };
        return transaction::set(session, &[TransactionMode::AccessMode(mode)]);
    }
    match &set.value {
        SetValue::Default => reset_one(session, &set.name, set.local)?,
        SetValue::Values(values) => {
            let text = match values.as_slice() {
                // A single value of search_path may be a list that was quoted as one string.
                [value] => value.clone(),
                several if set.name.eq_ignore_ascii_case("search_path") => join_list(several),
                several => several.join(", "),
            };
            session.set_setting(&set.name, &text, set.local)?;
        }
    }
    done("SET")
}

fn reset_one(session: &Session, name: &str, is_local: bool) -> SqlResult<()> {
    if IDENTITY.contains(&name) {
        return session.set_identity(name, None, is_local);
    }
    let mut reported = None;
    session.change_settings(is_local, |settings| {
        reported = settings.reset(name)?;
        Ok(())
    })?;
    session.report(reported);
    Ok(())
}

/// RESET name, RESET ALL.
pub(crate) fn reset(session: &Session, name: Option<&str>) -> SqlResult<Outcome> {
    match name {
        Some(name) => reset_one(session, name, false)?,
        None => reset_all(session)?,
    }
    done("RESET")
}

fn reset_all(session: &Session) -> SqlResult<()> {
    let mut reported = vec![];
    session.change_settings(false, |settings| {
        settings.reset_all();
        reported = settings.reported();
        Ok(())
    })?;
    session.parameter_changes.lock().extend(reported);
    Ok(())
}

/// SET TRANSACTION and its like.
pub fn other(session: &Session, set: &Set) -> SqlResult<Outcome> {
    match set {
        Set::SetTransaction {
            modes,
            snapshot: None,
            session: false,
        } => transaction::set(session, modes),
        Set::SetTransaction {
            modes,
            snapshot: None,
            session: true,
        } => {
            if let Some(read_only) = transaction::access(modes)? {
                let value = if read_only { "on" } else { "off" };
                session.set_setting("default_transaction_read_only", value, false)?;
            }
            done("SET")
        }
        other => Err(SqlError::unsupported(format!("SET {other} is not supported"))),
    }
}

/// Drops the temporary tables of the session.
async fn drop_temporary(session: &Session) -> SqlResult<()> {
    let schema = schema_of(session.id());
    let own = |catalog: &CatalogSnapshot| -> BTreeSet<ObjectId> {
        let own = catalog.objects().filter(|object| object.schema == schema);
        own.map(|object| object.id).collect()
    };
    if own(&session.catalog()).is_empty() {
        return Ok(());
    }
    let guard = session.ddl().await?;
    guard.drop(&own(&guard.catalog())).await
}

/// DISCARD: the session is as it was at its start.
pub(crate) async fn discard(session: &Session, what: &DiscardObject) -> SqlResult<Outcome> {
    if matches!(what, DiscardObject::ALL | DiscardObject::PLANS) {
        session.known.lock().clear();
    }
    if matches!(what, DiscardObject::ALL) {
        if session.transaction_status() != TransactionStatus::Idle {
            return Err(SqlError::new(
                SqlState::ActiveSqlTransaction,
                "DISCARD ALL cannot run inside a transaction block",
            ));
        }
        drop_temporary(session).await?;
        session.set_identity("session_authorization", None, false)?;
        reset_all(session)?;
        session.prepared.lock().clear();
        session.cursors.lock().clear();
        session.database().advisory_locks().unlock_all(session.id());
        let (news, database) = (session.database().news(), &session.info().database);
        news.unlisten(database, session.id(), None);
        return done("DISCARD ALL");
    }
    if matches!(what, DiscardObject::TEMP) {
        drop_temporary(session).await?;
    }
    done(match what {
        DiscardObject::PLANS => "DISCARD PLANS",
        DiscardObject::SEQUENCES => "DISCARD SEQUENCES",
        DiscardObject::TEMP => "DISCARD TEMP",
        DiscardObject::ALL => "DISCARD ALL",
    })
}
