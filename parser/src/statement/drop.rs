//! `DROP` of the kinds that the catalog has, of roles and tokens, and `DROP WORKER`.

use sqlparser::tokenizer::Token;

use super::{object, role};
use crate::ast::{DropBehavior, DropStatement, ObjectKind, Statement};
use crate::reader::{Parse, Reader};

/// After `DROP`; `None` for kinds that only PostgreSQL has.
pub(super) fn parse(reader: &mut Reader<'_>) -> Parse<Option<Statement>> {
    if reader.take(&["WORKER"]) {
        return Ok(Some(Statement::DropWorker(reader.number()?)));
    }
    if reader.take_one_of(&role::KINDS).is_some() {
        return Ok(Some(role::drop(reader)?));
    }
    if reader.take(&["OWNED"]) {
        return Ok(Some(role::drop_owned(reader)?));
    }
    if reader.take(&["TOKEN"]) {
        return Ok(Some(role::drop_token(reader)?));
    }
    let Some(kind) = object::kind(reader) else {
        return Ok(None);
    };
    if kind == ObjectKind::Index {
        let _ = reader.take(&["CONCURRENTLY"]);
    }
    let if_exists = object::if_exists(reader);
    let names = reader.list(|reader| {
        let name = reader.name()?;
        if kind == ObjectKind::Function && reader.take_token(&Token::LParen) {
            reader.rest_of_parenthesis()?;
        }
        Ok(name)
    })?;
    let behavior = behavior(reader);
    Ok(Some(Statement::Drop(DropStatement {
        kind,
        if_exists,
        names,
        behavior,
    })))
}

/// `[CASCADE | RESTRICT]`.
pub(super) fn behavior(reader: &mut Reader<'_>) -> DropBehavior {
    match reader.take_one_of(&["CASCADE", "RESTRICT"]) {
        Some("CASCADE") => DropBehavior::Cascade,
        _ => DropBehavior::Restrict,
    }
}
