//! The functions of advisory locks: which lock a call means, and what it does when the statement is run.
//!
//! The numbers have to be written into the call, or be parameters: a lock is taken once, before the query runs, and not for each row.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{Expr, Function, UnaryOperator, Value};
use millrace_database::sessions::advisory::{AdvisoryLocks, Key, Mode};
use millrace_functions::syntax::{self, arguments, literal_text};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::session::Session;
use crate::transaction::Transaction;

/// A lock for which the statement has yet to wait.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    key: Key,
    mode: Mode,
    is_of_transaction: bool,
}

/// What a call does.
#[derive(Debug, Clone, Copy)]
enum Call {
    Lock { waits: bool, is_of_transaction: bool },
    Unlock,
    UnlockAll,
}

fn call(name: &str) -> Option<(Call, Mode)> {
    let (name, mode) = match name.strip_suffix("_shared") {
        Some(name) => (name, Mode::Shared),
        None => (name, Mode::Exclusive),
    };
    let lock = |waits, is_of_transaction| Call::Lock {
        waits,
        is_of_transaction,
    };
    let call = match name {
        "pg_advisory_lock" => lock(true, false),
        "pg_try_advisory_lock" => lock(false, false),
        "pg_advisory_xact_lock" => lock(true, true),
        "pg_try_advisory_xact_lock" => lock(false, true),
        "pg_advisory_unlock" => Call::Unlock,
        "pg_advisory_unlock_all" if mode == Mode::Exclusive => Call::UnlockAll,
        _ => return None,
    };
    Some((call, mode))
}

/// What stands for a call; `None`: it is of another function. Locks to wait for are added to `wanted`; unless it `acts`, nothing is
/// done.
///
/// # Errors
/// The arguments are no numbers, or the session has too many locks.
pub(crate) fn value(
    session: &Session,
    name: &str,
    function: &Function,
    acts: bool,
    wanted: &mut Vec<Wanted>,
) -> SqlResult<Option<Expr>> {
    let Some((call, mode)) = call(name) else {
        return Ok(None);
    };
    let boolean = |value: bool| Some(Expr::value(Value::Boolean(value)));
    let nothing = || Some(syntax::text(""));
    if !acts {
        return Ok(match call {
            Call::Lock { waits: true, .. } | Call::UnlockAll => nothing(),
            Call::Lock { waits: false, .. } | Call::Unlock => boolean(true),
        });
    }
    let locks = session.database().advisory_locks();
    if let Call::UnlockAll = call {
        locks.unlock_all(session.id());
        return Ok(nothing());
    }
    let key = key(session, name, function)?;
    Ok(match call {
        Call::Lock {
            waits: true,
            is_of_transaction,
        } => {
            wanted.push(Wanted {
                key,
                mode,
                is_of_transaction,
            });
            nothing()
        }
        Call::Lock {
            waits: false,
            is_of_transaction,
        } => {
            let lock = Wanted {
                key,
                mode,
                is_of_transaction,
            };
            boolean(lock.try_take(session, locks)?)
        }
        Call::Unlock | Call::UnlockAll => {
            let is_given_back = locks.unlock(session.id(), &key, mode);
            if !is_given_back {
                let message = "you don't own a lock of type ";
                let kind = if mode == Mode::Shared {
                    "ShareLock"
                } else {
                    "ExclusiveLock"
                };
                session.notice(crate::notice::Severity::Warning, format!("{message}{kind}"));
            }
            boolean(is_given_back)
        }
    })
}

fn key(session: &Session, name: &str, function: &Function) -> SqlResult<Key> {
    let numbers: Vec<i64> = arguments(function)
        .into_iter()
        .map(number)
        .collect::<Option<_>>()
        .ok_or_else(|| {
            SqlError::unsupported(format!(
                "{name}() is supported only with numbers that are constants"
            ))
        })?;
    let database = session.info().database.clone();
    let half = |number: i64| {
        i32::try_from(number)
            .map(i32::cast_unsigned)
            .map_err(|_| SqlError::new(SqlState::NumericValueOutOfRange, "integer out of range"))
    };
    match numbers.as_slice() {
        [number] => {
            let number = number.cast_unsigned();
            Ok(Key {
                database,
                class: (number >> 32) as u32,
                object: number as u32,
                numbers: 1,
            })
        }
        [class, object] => Ok(Key {
            database,
            class: half(*class)?,
            object: half(*object)?,
            numbers: 2,
        }),
        _ => Err(SqlError::new(
            SqlState::UndefinedFunction,
            format!(
                "function {name}() does not exist with {} arguments",
                numbers.len()
            ),
        )),
    }
}

fn number(expr: &Expr) -> Option<i64> {
    fn text(expr: &Expr) -> Option<String> {
        match expr {
            Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr,
            } => text(expr).map(|text| format!("-{text}")),
            other => literal_text(other),
        }
    }
    text(expr)?.trim().parse().ok()
}

impl Wanted {
    /// Takes the lock, if nobody is in the way.
    fn try_take(&self, session: &Session, locks: &Arc<AdvisoryLocks>) -> SqlResult<bool> {
        if !self.is_of_transaction {
            return locks.try_for_session(session.id(), &self.key, self.mode);
        }
        let lock = locks.try_for_transaction(session.id(), &self.key, self.mode)?;
        let is_taken = lock.is_some();
        // Outside of a transaction the statement is one, at whose end it is given back.
        if let (Some(lock), Transaction::Active(active)) = (lock, &mut *session.transaction.lock()) {
            active.advisory.push(lock);
        }
        Ok(is_taken)
    }

    /// Waits for the lock and takes it.
    ///
    /// # Errors
    /// The session would wait for itself, or has too many.
    pub(crate) async fn take(&self, session: &Session) -> SqlResult<()> {
        let locks = session.database().advisory_locks();
        while !self.try_take(session, locks)? {
            locks.wait(session.id(), &self.key, self.mode).await?;
        }
        Ok(())
    }
}
