//! Cursors: `DECLARE` over a SUBSCRIBE or a subscription, and `FETCH` from any.

use sqlparser::ast::{Value, ValueWithSpan};
use sqlparser::tokenizer::Token;

use super::{subscribe, with};
use crate::ast::{
    DeclareSubscribeCursor, DeclareSubscriptionCursor, Fetch, FetchDirection, Statement, SubscriptionStart,
};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `DECLARE`; `None` for a cursor over a query, which sqlparser reads.
pub(super) fn parse_declare(reader: &mut Reader<'_>) -> Parse<Option<Statement>> {
    let name = reader.ident()?;
    if reader.take(&["SUBSCRIPTION", "CURSOR", "FOR"]) {
        let subscription = reader.name()?;
        let start = if reader.take(&["FULL"]) {
            SubscriptionStart::Full
        } else if reader.take(&["SINCE"]) {
            SubscriptionStart::Since(Box::new(reader.expr()?))
        } else {
            SubscriptionStart::Now
        };
        let cursor = DeclareSubscriptionCursor {
            name,
            subscription,
            start,
        };
        return Ok(Some(Statement::DeclareSubscriptionCursor(Box::new(cursor))));
    }
    while reader
        .take_one_of(&["BINARY", "INSENSITIVE", "ASENSITIVE", "NO", "SCROLL"])
        .is_some()
    {}
    reader.need(&["CURSOR"])?;
    let hold = reader.take(&["WITH", "HOLD"]);
    let _ = reader.take(&["WITHOUT", "HOLD"]);
    reader.need(&["FOR"])?;
    if !reader.take(&["SUBSCRIBE"]) {
        return Ok(None);
    }
    let subscribe = subscribe::parse(reader)?;
    Ok(Some(Statement::DeclareSubscribeCursor(Box::new(
        DeclareSubscribeCursor {
            name,
            hold,
            subscribe,
        },
    ))))
}

/// After `FETCH`, or `MOVE`.
pub(super) fn parse_fetch(reader: &mut Reader<'_>, only_moves: bool) -> Parse<Statement> {
    let direction = direction(reader)?;
    let _ = reader.take_one_of(&["FROM", "IN"]);
    let cursor = reader.ident()?;
    let at = reader.here();
    let mut timeout = None;
    for entry in with::options(reader)?.0 {
        if entry.name.value != "timeout" {
            return Err(Failure::invalid(
                format!("FETCH option \"{}\" not recognized", entry.name.value),
                at,
            )
            .with_hint("The only option is timeout, such as WITH (timeout = '1s')."));
        }
        timeout = Some(entry.value);
    }
    Ok(Statement::Fetch(Box::new(Fetch {
        cursor,
        direction,
        timeout,
        only_moves,
    })))
}

fn direction(reader: &mut Reader<'_>) -> Parse<FetchDirection> {
    // `FETCH next` may also be a cursor that is called "next".
    let alone = matches!(reader.peek_nth_token_ref(1).token, Token::EOF);
    if !alone {
        let word = reader.take_one_of(&[
            "NEXT", "PRIOR", "FIRST", "LAST", "ALL", "ABSOLUTE", "RELATIVE", "FORWARD", "BACKWARD",
        ]);
        if let Some(word) = word {
            return Ok(match word {
                "NEXT" => FetchDirection::Next,
                "PRIOR" => FetchDirection::Prior,
                "FIRST" => FetchDirection::First,
                "LAST" => FetchDirection::Last,
                "ALL" => FetchDirection::All,
                "ABSOLUTE" => FetchDirection::Absolute {
                    limit: count(reader)?,
                },
                "RELATIVE" => FetchDirection::Relative {
                    limit: count(reader)?,
                },
                "FORWARD" if reader.take(&["ALL"]) => FetchDirection::ForwardAll,
                "BACKWARD" if reader.take(&["ALL"]) => FetchDirection::BackwardAll,
                "FORWARD" => FetchDirection::Forward {
                    limit: optional_count(reader)?,
                },
                _ => FetchDirection::Backward {
                    limit: optional_count(reader)?,
                },
            });
        }
    }
    Ok(match optional_count(reader)? {
        Some(limit) => FetchDirection::Count { limit },
        None => FetchDirection::Next,
    })
}

fn optional_count(reader: &mut Reader<'_>) -> Parse<Option<ValueWithSpan>> {
    match reader.peek_token_ref().token {
        Token::Number(..) | Token::Minus => Ok(Some(count(reader)?)),
        _ => Ok(None),
    }
}

fn count(reader: &mut Reader<'_>) -> Parse<ValueWithSpan> {
    let span = reader.peek_token_ref().span;
    let sign = if reader.take_token(&Token::Minus) { "-" } else { "" };
    let number = reader.number()?;
    Ok(Value::Number(format!("{sign}{number}"), false).with_span(span))
}
