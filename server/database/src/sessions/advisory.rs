//! Advisory locks: numbers that clients lock for purposes of their own.
//!
//! A lock is had by a session until it gives it back as often as it took it, or by a transaction until its end. Who has it may take it
//! again. Sessions that wait are tried again, all of them, whenever a lock is given back; one that would wait for itself through
//! others is refused (40P01).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Locks that a session may have.
pub const LOCKS_MAX: usize = 10_000;

/// What is locked: a number of 64 bits, or two of 32.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Numbers of one database are none of another's.
    pub database: String,
    /// `pg_locks.classid`.
    pub class: u32,
    /// `pg_locks.objid`.
    pub object: u32,
    /// `pg_locks.objsubid`: 1 is one number, 2 are two.
    pub numbers: u8,
}

/// Who else may have a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// All who share it.
    Shared,
    /// Nobody.
    Exclusive,
}

#[derive(Debug, Default)]
struct Holder {
    shared: usize,
    exclusive: usize,
}

impl Holder {
    fn count(&mut self, mode: Mode) -> &mut usize {
        match mode {
            Mode::Shared => &mut self.shared,
            Mode::Exclusive => &mut self.exclusive,
        }
    }

    fn is_none(&self) -> bool {
        self.shared == 0 && self.exclusive == 0
    }
}

#[derive(Debug, Default)]
struct State {
    /// Who has each lock, by the numbers of sessions.
    held: BTreeMap<Key, HashMap<i32, Holder>>,
    /// Those of them that are the session's own, and not of a transaction.
    owned: HashMap<(i32, Key, Mode), usize>,
    /// For what sessions wait.
    awaited: HashMap<i32, (Key, Mode)>,
}

impl State {
    /// The others who keep a session from a lock.
    fn in_the_way(&self, session: i32, key: &Key, mode: Mode) -> Vec<i32> {
        let holders = self.held.get(key).into_iter().flatten();
        holders
            .filter(|(holder, held)| **holder != session && (mode == Mode::Exclusive || held.exclusive > 0))
            .map(|(holder, _)| *holder)
            .collect()
    }

    fn take(&mut self, session: i32, key: &Key, mode: Mode) -> SqlResult<bool> {
        if !self.in_the_way(session, key, mode).is_empty() {
            return Ok(false);
        }
        let has = |holders: &&HashMap<i32, Holder>| holders.contains_key(&session);
        if self.held.values().filter(has).count() >= LOCKS_MAX {
            return Err(SqlError::new(
                SqlState::ProgramLimitExceeded,
                format!("a session can have at most {LOCKS_MAX} advisory locks"),
            ));
        }
        let holders = self.held.entry(key.clone()).or_default();
        *holders.entry(session).or_default().count(mode) += 1;
        Ok(true)
    }

    fn give_back(&mut self, session: i32, key: &Key, mode: Mode) {
        let Some(holders) = self.held.get_mut(key) else {
            return;
        };
        if let Some(holder) = holders.get_mut(&session) {
            let count = holder.count(mode);
            *count = count.saturating_sub(1);
            if holder.is_none() {
                holders.remove(&session);
            }
        }
        if holders.is_empty() {
            self.held.remove(key);
        }
    }

    /// Whether a session that waits for this would wait for itself.
    fn is_deadlock(&self, session: i32, key: &Key, mode: Mode) -> bool {
        let mut seen = HashSet::new();
        let mut next = self.in_the_way(session, key, mode);
        while let Some(other) = next.pop() {
            if other == session {
                return true;
            }
            if seen.insert(other)
                && let Some((key, mode)) = self.awaited.get(&other)
            {
                next.extend(self.in_the_way(other, key, *mode));
            }
        }
        false
    }
}

/// A lock as `pg_locks` shows it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// What is locked.
    pub key: Key,
    /// How.
    pub mode: Mode,
    /// The session.
    pub session: i32,
    /// Whether it has it; else it waits.
    pub is_held: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub struct AdvisoryLocks {
    state: Mutex<State>,
    given_back: Notify,
}

impl AdvisoryLocks {
    /// Takes a lock for a transaction, if nobody is in the way.
    ///
    /// # Errors
    /// The session has too many.
    pub fn try_for_transaction(
        self: &Arc<Self>,
        session: i32,
        key: &Key,
        mode: Mode,
    ) -> SqlResult<Option<TransactionLock>> {
        let taken = self.state.lock().take(session, key, mode)?;
        Ok(taken.then(|| TransactionLock {
            locks: Arc::clone(self),
            session,
            key: key.clone(),
            mode,
        }))
    }

    /// Takes a lock for a session, if nobody is in the way.
    ///
    /// # Errors
    /// The session has too many.
    pub fn try_for_session(&self, session: i32, key: &Key, mode: Mode) -> SqlResult<bool> {
        let mut state = self.state.lock();
        let taken = state.take(session, key, mode)?;
        if taken {
            *state.owned.entry((session, key.clone(), mode)).or_default() += 1;
        }
        Ok(taken)
    }

    /// Waits until nobody is in the way; another may be quicker then.
    ///
    /// # Errors
    /// The session would wait for itself.
    pub async fn wait(&self, session: i32, key: &Key, mode: Mode) -> SqlResult<()> {
        struct Waiting<'a>(&'a AdvisoryLocks, i32);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.state.lock().awaited.remove(&self.1);
            }
        }
        let _waiting = Waiting(self, session);
        loop {
            let mut given_back = std::pin::pin!(self.given_back.notified());
            given_back.as_mut().enable();
            {
                let mut state = self.state.lock();
                if state.in_the_way(session, key, mode).is_empty() {
                    return Ok(());
                }
                if state.is_deadlock(session, key, mode) {
                    return Err(SqlError::new(SqlState::DeadlockDetected, "deadlock detected")
                        .with_detail("Each of some sessions waits for an advisory lock of the next."));
                }
                state.awaited.insert(session, (key.clone(), mode));
            }
            given_back.await;
        }
    }

    /// Gives a lock of a session back; false: it does not have it.
    pub fn unlock(&self, session: i32, key: &Key, mode: Mode) -> bool {
        let mut state = self.state.lock();
        let owned = (session, key.clone(), mode);
        let Some(count) = state.owned.get_mut(&owned) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            state.owned.remove(&owned);
        }
        state.give_back(session, key, mode);
        drop(state);
        self.given_back.notify_waiters();
        true
    }

    /// Gives all locks of a session back; those of its transaction stay.
    pub fn unlock_all(&self, session: i32) {
        let mut state = self.state.lock();
        let owned: Vec<((i32, Key, Mode), usize)> =
            state.owned.extract_if(|(of, ..), _| *of == session).collect();
        for ((_, key, mode), count) in owned {
            for _ in 0..count {
                state.give_back(session, &key, mode);
            }
        }
        drop(state);
        self.given_back.notify_waiters();
    }

    /// Those that are had or waited for.
    pub fn shown(&self) -> Vec<Shown> {
        let state = self.state.lock();
        let mut all = vec![];
        for (key, holders) in &state.held {
            for (session, holder) in holders {
                for (count, mode) in [(holder.shared, Mode::Shared), (holder.exclusive, Mode::Exclusive)] {
                    if count > 0 {
                        all.push(Shown {
                            key: key.clone(),
                            mode,
                            session: *session,
                            is_held: true,
                        });
                    }
                }
            }
        }
        all.extend(state.awaited.iter().map(|(session, (key, mode))| Shown {
            key: key.clone(),
            mode: *mode,
            session: *session,
            is_held: false,
        }));
        all
    }
}

/// A lock of a transaction: it is given back when this is dropped.
#[derive(Debug)]
pub struct TransactionLock {
    locks: Arc<AdvisoryLocks>,
    session: i32,
    key: Key,
    mode: Mode,
}

impl Drop for TransactionLock {
    fn drop(&mut self) {
        self.locks
            .state
            .lock()
            .give_back(self.session, &self.key, self.mode);
        self.locks.given_back.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(object: u32) -> Key {
        Key {
            database: "d".into(),
            class: 0,
            object,
            numbers: 1,
        }
    }

    #[test]
    fn locks_are_given_back_as_often_as_they_were_taken() {
        let locks = Arc::new(AdvisoryLocks::default());
        let mode = Mode::Exclusive;
        assert!(locks.try_for_session(1, &key(7), mode).unwrap());
        assert!(locks.try_for_session(1, &key(7), mode).unwrap());
        let of_transaction = locks.try_for_transaction(1, &key(7), mode).unwrap();
        assert!(of_transaction.is_some());
        assert!(!locks.try_for_session(2, &key(7), Mode::Shared).unwrap());
        assert!(locks.unlock(1, &key(7), mode) && locks.unlock(1, &key(7), mode));
        assert!(!locks.unlock(1, &key(7), mode));
        assert!(!locks.try_for_session(2, &key(7), Mode::Shared).unwrap());
        drop(of_transaction);
        assert!(locks.try_for_session(2, &key(7), Mode::Shared).unwrap());
        assert!(locks.try_for_session(1, &key(7), Mode::Shared).unwrap());
        assert!(!locks.try_for_session(1, &key(7), mode).unwrap());
        locks.unlock_all(2);
        assert!(locks.try_for_session(1, &key(7), mode).unwrap());
        locks.unlock_all(1);
        assert!(locks.shown().is_empty());
    }

    #[tokio::test]
    async fn who_waits_goes_on_and_never_for_itself() {
        let locks = Arc::new(AdvisoryLocks::default());
        let mode = Mode::Exclusive;
        assert!(locks.try_for_session(1, &key(1), mode).unwrap());
        assert!(locks.try_for_session(2, &key(2), mode).unwrap());
        let waiting = tokio::spawn({
            let locks = Arc::clone(&locks);
            async move { locks.wait(1, &key(2), mode).await }
        });
        while locks.shown().iter().all(|lock| lock.is_held) {
            tokio::task::yield_now().await;
        }
        let error = locks.wait(2, &key(1), mode).await.unwrap_err();
        assert_eq!(error.code, SqlState::DeadlockDetected);
        locks.unlock_all(2);
        waiting.await.unwrap().unwrap();
    }
}
