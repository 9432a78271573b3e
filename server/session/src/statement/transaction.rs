//! BEGIN, COMMIT, ROLLBACK, SAVEPOINT, FLUSH, CHECKPOINT.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    Ident, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::limits::check_limit;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;
use crate::transaction::{Active, Transaction};

/// BEGIN and START TRANSACTION. In the implicit transaction of a simple query it makes that one explicit.
pub fn begin(session: &Session, modes: &[TransactionMode], tag: &'static str) -> SqlResult<Outcome> {
    let read_only = match access(modes)? {
        Some(read_only) => read_only,
        None => session.setting("default_transaction_read_only").as_deref() == Some("on"),
    };
    let mut transaction = session.transaction.lock();
    match &mut *transaction {
        Transaction::Idle => *transaction = Transaction::Active(Box::new(Active::new(false, read_only))),
        Transaction::Active(active) if active.implicit => {
            active.implicit = false;
            active.read_only = read_only;
        }
        Transaction::Active(_) | Transaction::Failed { .. } => {
            drop(transaction);
            session.notice(Severity::Warning, "there is already a transaction in progress");
        }
    }
    done(tag)
}

/// What modes say of writing: whether it is refused. Each statement reads what is committed when it begins; stronger
/// isolation is not there, and is not promised.
///
/// # Errors
/// 0A000.
pub(crate) fn access(modes: &[TransactionMode]) -> SqlResult<Option<bool>> {
    let mut read_only = None;
    for mode in modes {
        match mode {
            TransactionMode::AccessMode(mode) => read_only = Some(*mode == TransactionAccessMode::ReadOnly),
            TransactionMode::IsolationLevel(
                TransactionIsolationLevel::ReadCommitted | TransactionIsolationLevel::ReadUncommitted,
            ) => {}
            TransactionMode::IsolationLevel(other) => {
                return Err(
                    SqlError::unsupported(format!("isolation level {other} is not supported"))
                        .with_hint("Transactions are READ COMMITTED."),
                );
            }
        }
    }
    Ok(read_only)
}

/// SET CONSTRAINTS ALL: there is no constraint that can be deferred.
pub fn set_constraints(session: &Session) -> SqlResult<Outcome> {
    let is_in_block = match &*session.transaction.lock() {
        Transaction::Active(active) => !active.implicit,
        Transaction::Idle | Transaction::Failed { .. } => false,
    };
    if !is_in_block {
        session.notice(
            Severity::Warning,
            "SET CONSTRAINTS can only be used in transaction blocks",
        );
    }
    done("SET CONSTRAINTS")
}

/// SET TRANSACTION: for the transaction that is open.
pub fn set(session: &Session, modes: &[TransactionMode]) -> SqlResult<Outcome> {
    let read_only = access(modes)?;
    let mut transaction = session.transaction.lock();
    match &mut *transaction {
        Transaction::Active(active) if active.read_only && active.has_read && read_only == Some(false) => {
            return Err(SqlError::new(
                SqlState::ActiveSqlTransaction,
                "transaction read-write mode must be set before any query",
            ));
        }
        Transaction::Active(active) => active.read_only = read_only.unwrap_or(active.read_only),
        _ => {
            drop(transaction);
            session.notice(
                Severity::Warning,
                "SET TRANSACTION can only be used in transaction blocks",
            );
        }
    }
    done("SET")
}

/// COMMIT and END. A failed transaction is rolled back instead.
pub async fn commit(session: &Arc<Session>, chain: bool) -> SqlResult<Outcome> {
    enum State {
        None,
        Open,
        Failed,
    }
    check_chain(session, chain, "COMMIT")?;
    let state = match &*session.transaction.lock() {
        Transaction::Idle => State::None,
        Transaction::Active(_) => State::Open,
        Transaction::Failed { .. } => State::Failed,
    };
    let modes = modes_to_keep(session, chain);
    let outcome = match state {
        State::None => {
            session.notice(Severity::Warning, "there is no transaction in progress");
            done("COMMIT")
        }
        State::Open => {
            session.commit().await?;
            done("COMMIT")
        }
        State::Failed => {
            *session.transaction.lock() = Transaction::Idle;
            done("ROLLBACK")
        }
    };
    if chain {
        begin(session, &modes, "BEGIN")?;
    }
    outcome
}

/// Refuses AND CHAIN where BEGIN has not been said: it would open a transaction.
fn check_chain(session: &Session, chain: bool, what: &str) -> SqlResult<()> {
    let is_in_block = match &*session.transaction.lock() {
        Transaction::Idle => false,
        Transaction::Active(active) => !active.implicit,
        Transaction::Failed { .. } => true,
    };
    match chain && !is_in_block {
        true => {
            let message = format!("{what} AND CHAIN can only be used in transaction blocks");
            Err(SqlError::new(SqlState::NoActiveSqlTransaction, message))
        }
        false => Ok(()),
    }
}

/// What AND CHAIN keeps: whether the transaction changes anything.
fn modes_to_keep(session: &Session, chain: bool) -> Vec<TransactionMode> {
    match &*session.transaction.lock() {
        Transaction::Active(active) if chain => {
            let access = match active.read_only {
                true => TransactionAccessMode::ReadOnly,
                false => TransactionAccessMode::ReadWrite,
            };
            vec![TransactionMode::AccessMode(access)]
        }
        _ => vec![],
    }
}

/// ROLLBACK.
pub fn rollback(session: &Session, chain: bool) -> SqlResult<Outcome> {
    check_chain(session, chain, "ROLLBACK")?;
    let modes = modes_to_keep(session, chain);
    if matches!(*session.transaction.lock(), Transaction::Idle) {
        session.notice(Severity::Warning, "there is no transaction in progress");
    }
    session.fail_transaction();
    *session.transaction.lock() = Transaction::Idle;
    if chain {
        begin(session, &modes, "BEGIN")?;
    }
    done("ROLLBACK")
}

/// SAVEPOINT.
pub(crate) fn savepoint(session: &Session, name: &Ident) -> SqlResult<Outcome> {
    let settings = session.settings.lock().clone();
    let cursors = session.cursors.lock().keys().cloned().collect();
    let mut transaction = session.transaction.lock();
    let active = in_block(transaction.active(), "SAVEPOINT")?;
    check_limit(active.savepoints.len(), "savepoints")?;
    active.save(millrace_parser::fold(name), settings, cursors);
    done("SAVEPOINT")
}

/// RELEASE: the savepoint is forgotten, with those behind it.
pub(crate) fn release(session: &Session, name: &Ident) -> SqlResult<Outcome> {
    let mut transaction = session.transaction.lock();
    let active = in_block(transaction.active(), "RELEASE SAVEPOINT")?;
    let place = find_savepoint(active, name)?;
    active.savepoints.truncate(place);
    done("RELEASE")
}

/// ROLLBACK TO: what came since is as if it had not been, also what made the transaction fail.
pub(crate) fn rollback_to(session: &Session, name: &Ident) -> SqlResult<Outcome> {
    let before = {
        let mut transaction = session.transaction.lock();
        if let Transaction::Failed {
            implicit: false,
            kept: None,
        } = &*transaction
        {
            return Err(undefined_savepoint(name));
        }
        let active = in_block(transaction.known(), "ROLLBACK TO SAVEPOINT")?;
        let place = find_savepoint(active, name)?;
        let before = active.back_to(place);
        *transaction = match std::mem::take(&mut *transaction) {
            Transaction::Failed {
                kept: Some(active), ..
            } => Transaction::Active(active),
            other => other,
        };
        before
    };
    if let Some((settings, cursors)) = before {
        session.put_settings(settings);
        let mut open = session.cursors.lock();
        open.retain(|name, _| cursors.contains(name));
    }
    done("ROLLBACK")
}

/// The transaction that BEGIN has begun.
fn in_block<'a>(active: Option<&'a mut Active>, command: &str) -> SqlResult<&'a mut Active> {
    active.filter(|active| !active.implicit).ok_or_else(|| {
        SqlError::new(
            SqlState::NoActiveSqlTransaction,
            format!("{command} can only be used in transaction blocks"),
        )
    })
}

fn find_savepoint(active: &Active, name: &Ident) -> SqlResult<usize> {
    let wanted = millrace_parser::fold(name);
    let place = (active.savepoints.iter()).rposition(|savepoint| savepoint.name == wanted);
    place.ok_or_else(|| undefined_savepoint(name))
}

fn undefined_savepoint(name: &Ident) -> SqlError {
    SqlError::new(
        SqlState::InvalidSavepointSpecification,
        format!("savepoint \"{}\" does not exist", millrace_parser::fold(name)),
    )
}

/// FLUSH: until everything that was acknowledged before it is visible in every relation, and in the files of sinks.
pub async fn flush(session: &Arc<Session>) -> SqlResult<Outcome> {
    everything_visible(session).await?;
    session.database().sinks().flush().await;
    done("FLUSH")
}

/// CHECKPOINT: until everything that was acknowledged before it is in a checkpoint, so that a start need not replay it.
pub async fn checkpoint(session: &Arc<Session>) -> SqlResult<Outcome> {
    everything_visible(session).await?;
    let runtime = session.database().runtime();
    let failed = runtime.checkpoint_totals().failed;
    runtime.checkpoint().await;
    if runtime.checkpoint_totals().failed > failed {
        return Err(
            SqlError::new(SqlState::IoError, "a checkpoint could not be written").with_detail(
                "See the server's log for the reason. Nothing is lost: a start replays the log \
                          from the previous checkpoint.",
            ),
        );
    }
    done("CHECKPOINT")
}

/// Waits for the views: they have all that was acknowledged until now.
pub(super) async fn everything_visible(session: &Arc<Session>) -> SqlResult<()> {
    let runtime = session.database().runtime();
    // What was acknowledged before the start counts too.
    runtime.caught_up().await?;
    let written = runtime.acknowledged();
    // Of a view that is built again nobody waits for more than was acknowledged; it has all of that when it is there again.
    runtime.filled_again().await?;
    runtime.wait_for(&written).await?;
    Ok(())
}
