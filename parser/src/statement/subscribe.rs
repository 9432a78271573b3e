//! `SUBSCRIBE`.

use sqlparser::ast::Ident;
use sqlparser::tokenizer::Token;

use crate::ast::{Subscribe, SubscribeTarget};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `SUBSCRIBE`.
pub(super) fn parse(reader: &mut Reader<'_>) -> Parse<Subscribe> {
    let _ = reader.take(&["TO"]);
    let target = if reader.take_token(&Token::LParen) {
        let tokens = reader.rest_of_parenthesis()?;
        let mut inner = reader.over(tokens);
        let query = inner.query()?;
        inner.end()?;
        SubscribeTarget::Query(query)
    } else {
        SubscribeTarget::Relation(reader.name()?)
    };
    let mut subscribe = Subscribe {
        target,
        snapshot: true,
        progress: false,
        upsert: None,
        as_of: None,
    };
    loop {
        // What is short there is long by now (`normalise`).
        let is_as_of = |reader: &mut Reader<'_>| {
            reader.take(&["AS", "OF"]) || reader.take(&["FOR", "SYSTEM_TIME", "AS", "OF"])
        };
        if subscribe.as_of.is_none() && is_as_of(reader) {
            subscribe.as_of = Some(reader.expr()?);
        } else if subscribe.upsert.is_none() && reader.take(&["ENVELOPE"]) {
            subscribe.upsert = Some(envelope(reader)?);
        } else if reader.take(&["WITH"]) {
            reader.parenthesised(|reader| option(reader, &mut subscribe))?;
        } else {
            return Ok(subscribe);
        }
    }
}

/// After `ENVELOPE`.
fn envelope(reader: &mut Reader<'_>) -> Parse<Vec<Ident>> {
    reader.need(&["UPSERT"])?;
    if !reader.take_token(&Token::LParen) {
        return Ok(vec![]);
    }
    reader.need(&["KEY"])?;
    let key = reader.parenthesised(Reader::ident)?;
    reader.need_token(&Token::RParen)?;
    Ok(key)
}

fn option(reader: &mut Reader<'_>, subscribe: &mut Subscribe) -> Parse<()> {
    let at = reader.here();
    let name = reader.option_name()?.value;
    let _ = reader.take_token(&Token::Eq);
    match name.as_str() {
        "snapshot" => subscribe.snapshot = reader.boolean()?,
        "progress" => subscribe.progress = reader.boolean()?,
        _ => {
            return Err(
                Failure::invalid(format!("SUBSCRIBE option \"{name}\" not recognized"), at)
                    .with_hint("The options are SNAPSHOT and PROGRESS."),
            );
        }
    }
    Ok(())
}
