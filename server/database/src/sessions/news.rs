//! LISTEN and NOTIFY: what committed transactions tell, on channels, to the sessions that listen.
//!
//! A session's messages wait in a queue of its own until its client is told, which happens between statements. The queue has a limit:
//! a NOTIFY that would exceed it for somebody fails, so that nobody misses a message without its sender's knowing.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Bytes that may wait for a session.
pub const QUEUE_BYTES_MAX: usize = 8 << 20;
/// The longest payload is shorter than this, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 8_000;
/// The longest name of a channel is shorter than this, in bytes.
pub const CHANNEL_BYTES_MAX: usize = 64;

/// What is told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Message {
    /// The channel.
    pub channel: String,
    /// What it says.
    pub payload: String,
    /// The session that tells it.
    pub from: i32,
}

impl Message {
    /// A message, if it is one.
    ///
    /// # Errors
    /// The channel has no name, or one or the payload is too long.
    pub fn new(channel: &str, payload: &str, from: i32) -> SqlResult<Self> {
        let wrong = |message| Err(SqlError::new(SqlState::InvalidParameterValue, message));
        if channel.is_empty() {
            return wrong("channel name cannot be empty");
        }
        if channel.len() >= CHANNEL_BYTES_MAX {
            return wrong("channel name too long");
        }
        if payload.len() >= PAYLOAD_BYTES_MAX {
            return wrong("payload string too long");
        }
        Ok(Message {
            channel: channel.to_owned(),
            payload: payload.to_owned(),
            from,
        })
    }

    /// What it takes in a queue.
    pub fn bytes(&self) -> usize {
        self.channel.len() + self.payload.len() + size_of::<Message>()
    }
}

/// The messages of a session, and the channels on which it listens.
#[derive(Debug, Default)]
pub struct Inbox {
    state: Mutex<InboxState>,
    has_come: Notify,
}

#[derive(Debug, Default)]
struct InboxState {
    channels: BTreeSet<String>,
    messages: VecDeque<Message>,
    bytes: usize,
}

impl Inbox {
    /// The channels.
    pub fn channels(&self) -> Vec<String> {
        self.state.lock().channels.iter().cloned().collect()
    }

    /// The messages that wait.
    pub fn take(&self) -> Vec<Message> {
        let mut state = self.state.lock();
        state.bytes = 0;
        state.messages.drain(..).collect()
    }

    /// Returns when messages wait.
    pub async fn wait(&self) {
        loop {
            let mut has_come = std::pin::pin!(self.has_come.notified());
            has_come.as_mut().enable();
            if !self.state.lock().messages.is_empty() {
                return;
            }
            has_come.await;
        }
    }
}

/// Who listens, by database and session.
#[derive(Debug, Default)]
pub struct News {
    inboxes: Mutex<HashMap<(String, i32), Arc<Inbox>>>,
}

impl News {
    /// A session begins to listen.
    pub fn listen(&self, database: &str, session: i32, inbox: &Arc<Inbox>, channel: &str) {
        inbox.state.lock().channels.insert(channel.to_owned());
        let mut inboxes = self.inboxes.lock();
        inboxes.insert((database.to_owned(), session), Arc::clone(inbox));
    }

    /// A session no longer listens; none: on no channel.
    pub fn unlisten(&self, database: &str, session: i32, channel: Option<&str>) {
        let key = (database.to_owned(), session);
        let mut inboxes = self.inboxes.lock();
        let Some(inbox) = inboxes.get(&key) else {
            return;
        };
        let mut state = inbox.state.lock();
        match channel {
            Some(channel) => {
                state.channels.remove(channel);
            }
            None => state.channels.clear(),
        }
        let is_deaf = state.channels.is_empty();
        drop(state);
        if is_deaf {
            inboxes.remove(&key);
        }
    }

    /// A session is gone.
    pub fn forget(&self, session: i32) {
        self.inboxes.lock().retain(|(_, of), _| *of != session);
    }

    fn listeners(&self, database: &str, channel: &str) -> Vec<Arc<Inbox>> {
        let inboxes = self.inboxes.lock();
        let of_database = inboxes.iter().filter(|((of, _), _)| of == database);
        of_database
            .filter(|(_, inbox)| inbox.state.lock().channels.contains(channel))
            .map(|(_, inbox)| Arc::clone(inbox))
            .collect()
    }

    /// Whether there is room for a message, beside those that a transaction has yet to tell.
    ///
    /// # Errors
    /// Somebody who listens has too many that wait.
    pub fn check_room(&self, database: &str, message: &Message, before: usize) -> SqlResult<()> {
        let needed = before + message.bytes();
        for inbox in self.listeners(database, &message.channel) {
            if inbox.state.lock().bytes + needed > QUEUE_BYTES_MAX {
                return Err(SqlError::new(
                    SqlState::ProgramLimitExceeded,
                    "too many notifications in the NOTIFY queue",
                )
                .with_detail(format!(
                    "A session that listens on channel \"{}\" does not take its messages.",
                    message.channel
                )));
            }
        }
        Ok(())
    }

    /// Tells messages to all who listen.
    pub fn tell(&self, database: &str, messages: Vec<Message>) {
        for message in messages {
            for inbox in self.listeners(database, &message.channel) {
                let mut state = inbox.state.lock();
                state.bytes += message.bytes();
                state.messages.push_back(message.clone());
                drop(state);
                inbox.has_come.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_reach_who_listens_and_a_full_queue_refuses() {
        let news = News::default();
        let inbox = Arc::new(Inbox::default());
        news.listen("d", 1, &inbox, "a");
        let message = Message::new("a", "x", 2).unwrap();
        news.tell("d", vec![message.clone(), Message::new("b", "", 2).unwrap()]);
        news.tell("other", vec![message.clone()]);
        assert_eq!(inbox.take(), [message]);
        let large = Message::new("a", &"x".repeat(PAYLOAD_BYTES_MAX - 1), 2).unwrap();
        let mut told = 0;
        while news.check_room("d", &large, 0).is_ok() {
            news.tell("d", vec![large.clone()]);
            told += 1;
        }
        assert!(told > 900 && told * large.bytes() <= QUEUE_BYTES_MAX);
        assert_eq!(inbox.take().len(), told);
        news.unlisten("d", 1, Some("a"));
        news.tell("d", vec![large]);
        assert!(inbox.take().is_empty() && news.inboxes.lock().is_empty());
        assert!(Message::new("", "x", 1).is_err());
        assert!(Message::new("a", &"x".repeat(PAYLOAD_BYTES_MAX), 1).is_err());
    }
}
