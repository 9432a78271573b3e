//! `CREATE SINK` and `CREATE SUBSCRIPTION`: the ways out.

use sqlparser::ast::Query;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{emit, object, with};
use crate::ast::{CreateSink, CreateSubscription, Emit, SinkInput, Statement};
use crate::error::Failure;
use crate::reader::{Parse, Reader};
use crate::tokens::{is_word, nesting};

/// After `CREATE SINK`.
pub(super) fn parse_sink(reader: &mut Reader<'_>) -> Parse<Statement> {
    let if_not_exists = object::if_not_exists(reader);
    let name = reader.name()?;
    let mut emit = Emit::default();
    let input = if reader.take(&["FROM"]) {
        let input = SinkInput::Relation(reader.name()?);
        if reader.at(&["EMIT"]) {
            emit = emit::clause(reader)?;
        }
        input
    } else {
        reader.need(&["AS"])?;
        let (query, clause, after) = query(reader)?;
        emit = clause;
        let mut tail = reader.over(after);
        let statement = finish_sink(&mut tail, name, if_not_exists, SinkInput::Query(query), emit)?;
        tail.end()?;
        return Ok(statement);
    };
    finish_sink(reader, name, if_not_exists, input, emit)
}

/// The query of what follows it, its EMIT, and what comes behind.
fn query(reader: &mut Reader<'_>) -> Parse<(Box<Query>, Emit, Vec<TokenWithSpan>)> {
    let mut tokens = reader.rest();
    let tail = tail_position(&tokens);
    let mut after = tokens.split_off(tail);
    let (clause, between) = emit::take(reader, &mut tokens)?;
    after.splice(0..0, between);
    let mut body = reader.over(tokens);
    let query = body.query()?;
    body.end()?;
    Ok((query, clause, after))
}

fn finish_sink(
    reader: &mut Reader<'_>,
    name: sqlparser::ast::ObjectName,
    if_not_exists: bool,
    input: SinkInput,
    emit: Emit,
) -> Parse<Statement> {
    let options = with::options(reader)?;
    let format = with::format(reader)?;
    Ok(Statement::CreateSink(Box::new(CreateSink {
        name,
        if_not_exists,
        input,
        options,
        format,
        emit,
    })))
}

/// Where `WITH (` or `FORMAT f ENCODE` after the query begins.
fn tail_position(tokens: &[TokenWithSpan]) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate() {
        if depth == 0 && i > 0 {
            let with =
                is_word(Some(token), "WITH") && tokens.get(i + 1).is_some_and(|t| t.token == Token::LParen);
            let format = is_word(Some(token), "FORMAT") && is_word(tokens.get(i + 2), "ENCODE");
            if with || format {
                return i;
            }
        }
        depth += nesting(&token.token);
    }
    tokens.len()
}

/// After `CREATE SUBSCRIPTION`.
pub(super) fn parse_subscription(reader: &mut Reader<'_>) -> Parse<Statement> {
    let if_not_exists = object::if_not_exists(reader);
    let name = reader.name()?;
    let create = |input, options| {
        Statement::CreateSubscription(Box::new(CreateSubscription {
            name,
            if_not_exists,
            input,
            options,
        }))
    };
    if reader.take_one_of(&["FROM", "ON"]).is_some() {
        let input = SinkInput::Relation(reader.name()?);
        return Ok(create(input, with::options(reader)?));
    }
    if reader.take_one_of(&["AS", "FOR"]).is_none() {
        reader.need(&["FROM"])?;
    }
    let at = reader.here();
    let (query, emit, after) = query(reader)?;
    if emit != Emit::default() {
        return Err(
            Failure::invalid("EMIT is not possible in CREATE SUBSCRIPTION".to_owned(), at)
                .with_hint("Create a materialized view with EMIT, and a subscription to that."),
        );
    }
    let mut tail = reader.over(after);
    let options = with::options(&mut tail)?;
    tail.end()?;
    Ok(create(SinkInput::Query(query), options))
}
