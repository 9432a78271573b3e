//! DECLARE, FETCH and CLOSE, over queries and over SUBSCRIBE.

use std::sync::Arc;
use std::time::Duration;

use datafusion::sql::sqlparser::ast::{self, CloseCursor, Declare, FetchDirection};
use futures::TryStreamExt;
use millrace_database::database::subscriptions::Begin;
use millrace_database::running::Running;
use millrace_parser::ast::{DeclareSubscribeCursor, DeclareSubscriptionCursor, Fetch, SubscriptionStart};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_postgres::units;

use crate::cursor::{Cursor, Movement, Patience};
use crate::limits::check_limit;
use crate::object_names;
use crate::outcome::{CommandTag, Outcome};
use crate::output_columns::OutputColumns;
use crate::query::{Providers, rows_of};
use crate::session::Session;
use crate::statement::{as_of, done, select, subscribe};
use crate::transaction::Transaction;

/// DECLARE name CURSOR FOR query.
pub async fn declare(
    session: &Arc<Session>,
    statements: Vec<Declare>,
    text: &str,
    running: Running,
) -> SqlResult<Outcome> {
    for statement in statements {
        let (Some(name), Some(query)) = (statement.names.first(), statement.for_query) else {
            return Err(SqlError::unsupported("DECLARE declares cursors only"));
        };
        let name = millrace_parser::fold(name);
        let hold = statement.hold == Some(true);
        if statement.binary == Some(true) {
            return Err(SqlError::unsupported("binary cursors are not supported"));
        }
        let scrolls = statement.scroll == Some(true);
        check_new(session, &name, hold)?;
        let mut scope = session.scope();
        let mut statement = ast::Statement::Query(query);
        object_names::shown(&mut statement);
        as_of::resolve(session, &mut scope, &mut statement).await?;
        let (plan, columns) = select::bind(session, &scope, &mut statement, select::Purpose::Run)?;
        let physical = session.physical_plan(plan, &Providers::new()).await?;
        let stream = session.start(physical)?;
        let schema = columns.applied(&stream.schema());
        let cursor = Cursor::new(hold, text.to_string(), schema, stream);
        session.cursors.lock().insert(
            name,
            match scrolls {
                true => cursor.scrolling(),
                false => cursor,
            },
        );
    }
    // The cursor's stream outlives this statement; each FETCH has its own right to run.
    drop(running);
    done("DECLARE CURSOR")
}

/// DECLARE name CURSOR FOR SUBSCRIBE ..: what it follows begins now.
pub(crate) async fn declare_subscribe(
    session: &Arc<Session>,
    declare: &DeclareSubscribeCursor,
    text: &str,
) -> SqlResult<Outcome> {
    let name = millrace_parser::fold(&declare.name);
    check_new(session, &name, declare.hold)?;
    let (rows, rights) = subscribe::rows_and_rights(session, &declare.subscribe).await?;
    let still_allowed = Arc::new(move || rights.check());
    let cursor = Cursor::following(declare.hold, text.to_string(), rows, still_allowed);
    session.cursors.lock().insert(name, cursor);
    done("DECLARE CURSOR")
}

/// DECLARE name SUBSCRIPTION CURSOR FOR subscription ..: it lasts until it is closed, or the session ends.
pub(crate) async fn declare_subscription(
    session: &Arc<Session>,
    declare: &DeclareSubscriptionCursor,
    text: &str,
) -> SqlResult<Outcome> {
    let name = millrace_parser::fold(&declare.name);
    check_new(session, &name, true)?;
    let from = match &declare.start {
        SubscriptionStart::Now => Begin::Now,
        SubscriptionStart::Full => Begin::Rows,
        SubscriptionStart::Since(expr) => subscribe::from_expression(session, expr).await?,
    };
    let following = subscribe::read_from(session, &declare.subscription, from).await?;
    let (idle, rights) = (Arc::default(), following.rights());
    let rows = subscribe::rows_of(following, Arc::clone(&idle));
    let still_allowed = Arc::new(move || rights.check());
    let cursor = Cursor::over_kept(text.to_string(), rows, idle, still_allowed);
    session.cursors.lock().insert(name, cursor);
    done("DECLARE CURSOR")
}

/// Refuses a cursor that would end at once, or whose name is taken.
fn check_new(session: &Session, name: &str, hold: bool) -> SqlResult<()> {
    let in_transaction =
        matches!(&*session.transaction.lock(), Transaction::Active(active) if !active.implicit);
    if !hold && !in_transaction {
        return Err(SqlError::new(
            SqlState::NoActiveSqlTransaction,
            "DECLARE CURSOR can only be used in transaction blocks",
        )
        .with_hint("Use BEGIN first, or declare it WITH HOLD."));
    }
    let cursors = session.cursors.lock();
    if cursors.contains_key(name) {
        return Err(SqlError::new(
            SqlState::DuplicateCursor,
            format!("cursor \"{name}\" already exists"),
        ));
    }
    check_limit(cursors.len(), "cursors")
}

/// FETCH or MOVE, in any direction.
pub(crate) async fn fetch(session: &Arc<Session>, fetch: &Fetch, running: Running) -> SqlResult<Outcome> {
    let name = millrace_parser::fold(&fetch.cursor);
    let movement = movement(&fetch.direction)?;
    let cursor = (session.cursors.lock().get(&name).cloned()).ok_or_else(|| undefined(&name))?;
    // Of what it has read before as well.
    cursor.still_allowed.as_ref().map_or(Ok(()), |asks| asks())?;
    let patience = match (&fetch.timeout, cursor.patience) {
        (None, usual) => usual,
        (Some(text), Patience::FirstRow | Patience::Present) => {
            Patience::Until(tokio::time::Instant::now() + timeout(text)?)
        }
        (Some(_), _) => {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("cursor \"{name}\" has no use for a timeout"),
            )
            .with_hint(
                "FETCH .. WITH (timeout = ..) is for cursors over SUBSCRIBE and over subscriptions.",
            ));
        }
    };
    let in_use = || {
        SqlError::new(SqlState::ObjectInUse, format!("cursor \"{name}\" is in use"))
            .with_detail("The rows of the previous FETCH have not all been read.")
    };
    let rows = match cursor.scrolls {
        true => {
            let batches = df(running.run(async { Ok(cursor.scroll(movement).await) }).await?)?;
            rows_of(Arc::clone(&cursor.schema), batches.ok_or_else(in_use)?)
        }
        false => cursor
            .fetch(count(movement, &fetch.direction)?, patience)
            .ok_or_else(in_use)?,
    };
    if fetch.only_moves {
        let rows = rows.map_ok(|batch| batch.num_rows() as u64);
        let passed = running
            .run(async { df(rows.try_collect::<Vec<u64>>().await) })
            .await?;
        let tag = CommandTag::rows("MOVE", passed.iter().sum());
        return Ok(Outcome::Done { tag });
    }
    let (schema, stream) = session.guarded(rows, &OutputColumns::default(), running);
    Ok(Outcome::Rows {
        schema,
        stream,
        tag: CommandTag::sent("FETCH"),
    })
}

/// The longest time that a FETCH waits for.
const TIMEOUT_MAX: Duration = Duration::from_secs(86_400);

fn timeout(text: &str) -> SqlResult<Duration> {
    let invalid = |hint: String| {
        let message = format!("invalid timeout: \"{text}\"");
        SqlError::new(SqlState::InvalidParameterValue, message).with_hint(hint)
    };
    match units::duration(text) {
        Ok(duration) if duration <= TIMEOUT_MAX => Ok(duration),
        Ok(_) => Err(invalid("A FETCH can wait for up to a day.".to_owned())),
        Err(why) => Err(invalid(format!("Here {why}."))),
    }
}

/// Where a cursor moves, by what FETCH or MOVE says.
fn movement(direction: &FetchDirection) -> SqlResult<Movement> {
    let number = |value: &ast::ValueWithSpan| match &value.value {
        ast::Value::Number(text, _) => text.parse::<i64>().map_err(|_| {
            SqlError::new(
                SqlState::SyntaxError,
                format!("FETCH takes a count of rows, not {text}"),
            )
        }),
        other => Err(SqlError::new(
            SqlState::SyntaxError,
            format!("FETCH takes a count of rows, not {other}"),
        )),
    };
    let forward = |count: i64| match count < 0 {
        true => Movement::Backward(count.unsigned_abs()),
        false => Movement::Forward(count.unsigned_abs()),
    };
    let backward = |count: i64| forward(count.saturating_neg());
    Ok(match direction {
        FetchDirection::Next | FetchDirection::Forward { limit: None } => Movement::Forward(1),
        FetchDirection::All | FetchDirection::ForwardAll => Movement::Forward(u64::MAX),
        FetchDirection::Count { limit } | FetchDirection::Forward { limit: Some(limit) } => {
            forward(number(limit)?)
        }
        FetchDirection::Prior | FetchDirection::Backward { limit: None } => Movement::Backward(1),
        FetchDirection::Backward { limit: Some(limit) } => backward(number(limit)?),
        FetchDirection::BackwardAll => Movement::Backward(u64::MAX),
        FetchDirection::First => Movement::Absolute(1),
        FetchDirection::Last => Movement::Absolute(-1),
        FetchDirection::Absolute { limit } => Movement::Absolute(number(limit)?),
        FetchDirection::Relative { limit } => Movement::Relative(number(limit)?),
    })
}

/// The rows of a movement of a cursor that only goes forward.
fn count(movement: Movement, direction: &FetchDirection) -> SqlResult<usize> {
    match movement {
        Movement::Forward(count) => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
        Movement::Relative(1) => Ok(1),
        _ => Err(SqlError::new(
            SqlState::ObjectNotInPrerequisiteState,
            "cursor can only scan forward",
        )
        .with_detail(format!("FETCH {direction} would move backward or skip rows."))
        .with_hint("Declare it with SCROLL option to enable backward scan.")),
    }
}

/// CLOSE name, CLOSE ALL.
pub fn close(session: &Session, which: &CloseCursor) -> SqlResult<Outcome> {
    match which {
        CloseCursor::All => {
            session.cursors.lock().clear();
            done("CLOSE CURSOR ALL")
        }
        CloseCursor::Specific { name } => {
            let name = millrace_parser::fold(name);
            match session.cursors.lock().remove(&name) {
                Some(_) => done("CLOSE CURSOR"),
                None => Err(undefined(&name)),
            }
        }
    }
}

fn undefined(name: &str) -> SqlError {
    SqlError::new(
        SqlState::InvalidCursorName,
        format!("cursor \"{name}\" does not exist"),
    )
}
