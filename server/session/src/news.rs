//! LISTEN, UNLISTEN and NOTIFY: what they say waits for the end of the transaction.

use datafusion::sql::sqlparser::ast::Ident;
use millrace_database::sessions::news::Message;
use millrace_postgres::error::SqlResult;

use crate::limits::check_limit;
use crate::session::Session;
use crate::transaction::{Listening, Told, Transaction};

/// LISTEN channel.
///
/// # Errors
/// The name is too long.
pub(crate) fn listen(session: &Session, channel: &Ident) -> SqlResult<()> {
    let channel = millrace_parser::fold(channel);
    Message::new(&channel, "", session.id())?;
    let told = match &*session.transaction.lock() {
        Transaction::Active(active) => active.told.listening.len(),
        _ => 0,
    };
    let channels = session.inbox.channels();
    if !channels.contains(&channel) {
        check_limit(channels.len() + told, "channels to listen on")?;
    }
    change(session, Listening::On(channel));
    Ok(())
}

/// UNLISTEN channel, UNLISTEN *.
pub(crate) fn unlisten(session: &Session, channel: &Ident) {
    let all = channel.quote_style.is_none() && channel.value == "*";
    change(
        session,
        Listening::Off((!all).then(|| millrace_parser::fold(channel))),
    );
}

/// NOTIFY channel, 'payload'; and `pg_notify`.
///
/// # Errors
/// It is no message, or the queue of somebody who listens is full.
pub(crate) fn notify(session: &Session, channel: &str, payload: &str) -> SqlResult<()> {
    let message = Message::new(channel, payload, session.id())?;
    let news = session.database().news();
    let database = &session.info().database;
    if let Transaction::Active(active) = &mut *session.transaction.lock() {
        let told = &mut active.told;
        // The same twice is once.
        if !told.messages.contains(&message) {
            let before = told.messages.iter().map(Message::bytes).sum();
            news.check_room(database, &message, before)?;
            told.messages.push(message);
        }
        return Ok(());
    }
    news.check_room(database, &message, 0)?;
    news.tell(database, vec![message]);
    Ok(())
}

fn change(session: &Session, listening: Listening) {
    if let Transaction::Active(active) = &mut *session.transaction.lock() {
        active.told.listening.push(listening);
        return;
    }
    apply(session, &listening);
}

fn apply(session: &Session, listening: &Listening) {
    let (news, database) = (session.database().news(), &session.info().database);
    match listening {
        Listening::On(channel) => news.listen(database, session.id(), &session.inbox, channel),
        Listening::Off(channel) => news.unlisten(database, session.id(), channel.as_deref()),
    }
}

/// What a transaction said that was committed.
pub(crate) fn committed(session: &Session, told: Told) {
    for listening in &told.listening {
        apply(session, listening);
    }
    session
        .database()
        .news()
        .tell(&session.info().database, told.messages);
}
