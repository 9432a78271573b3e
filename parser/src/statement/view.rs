//! `CREATE MATERIALIZED VIEW`.

use super::{CreatePrefix, emit, object, with};
use crate::ast::{CreateMaterializedView, Statement};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `CREATE MATERIALIZED VIEW`.
pub(super) fn parse(reader: &mut Reader<'_>, prefix: CreatePrefix) -> Parse<Statement> {
    let if_not_exists = object::if_not_exists(reader);
    let name = reader.name()?;
    let columns = if reader.peek_token_ref().token == sqlparser::tokenizer::Token::LParen {
        reader.parenthesised(|reader| reader.ident())?
    } else {
        Vec::new()
    };
    let options = with::options(reader)?;
    reader.need(&["AS"])?;
    let mut tokens = reader.rest();
    let (emit, after) = emit::take(reader, &mut tokens)?;
    reader.over(after).end()?;
    if super::with_data::take(&mut tokens) == Some(false) {
        let at = tokens.last().map_or(reader.here(), |token| token.span.end);
        let hint = "A materialized view is filled when it is created, and kept up to date from then on.";
        return Err(Failure::unsupported("WITH NO DATA is not supported", at, hint));
    }
    let query_text = match (tokens.first(), tokens.last()) {
        (Some(first), Some(last)) => reader.text(first.span.start, last.span.end).to_string(),
        _ => String::new(),
    };
    let mut body = reader.over(tokens);
    let query = body.query()?;
    body.end()?;
    Ok(Statement::CreateMaterializedView(Box::new(
        CreateMaterializedView {
            name,
            or_replace: prefix.or_replace,
            if_not_exists,
            columns,
            options,
            query,
            query_text,
            emit,
        },
    )))
}
