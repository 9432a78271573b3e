//! `CREATE SEQUENCE`, and the options of sequences, which may stand in any order.

use sqlparser::ast::{Expr, ObjectName, SequenceOptions, Statement as SqlStatement};
use sqlparser::tokenizer::Token;

use super::{CreatePrefix, object};
use crate::ast::{SequenceClauses, Statement};
use crate::reader::{Parse, Reader};

/// After `CREATE [TEMPORARY] SEQUENCE`.
pub(super) fn parse(reader: &mut Reader<'_>, prefix: CreatePrefix) -> Parse<Statement> {
    let if_not_exists = object::if_not_exists(reader);
    let name = reader.name()?;
    let mut data_type = None;
    let mut owned_by = None;
    let mut options = vec![];
    loop {
        if reader.take(&["AS"]) {
            data_type = Some(reader.parse_data_type()?);
        } else if reader.take(&["OWNED", "BY"]) {
            owned_by = Some(reader.name()?);
        } else if let Some(option) = option(reader)? {
            options.push(option);
        } else {
            break;
        }
    }
    Ok(Statement::Sql(Box::new(SqlStatement::CreateSequence {
        temporary: prefix.temporary,
        if_not_exists,
        name,
        data_type,
        sequence_options: options,
        owned_by,
    })))
}

/// The clauses of ALTER SEQUENCE.
pub(super) fn clauses(reader: &mut Reader<'_>) -> Parse<SequenceClauses> {
    let mut clauses = SequenceClauses::default();
    loop {
        if reader.take(&["AS"]) {
            clauses.data_type = Some(reader.parse_data_type()?);
        } else if reader.take(&["OWNED", "BY"]) {
            clauses.owned_by = Some(reader.name()?);
        } else if reader.take(&["RESTART"]) {
            clauses.restart = Some(restart(reader)?);
        } else if let Some(option) = option(reader)? {
            clauses.options.push(option);
        } else if clauses == SequenceClauses::default() {
            return Err(reader.unexpected("an option of the sequence"));
        } else {
            return Ok(clauses);
        }
    }
}

/// `[[WITH] value]` behind RESTART.
fn restart(reader: &mut Reader<'_>) -> Parse<Option<Expr>> {
    let with = reader.take(&["WITH"]);
    let token = &reader.peek_token_ref().token;
    let is_number = matches!(token, Token::Number(..) | Token::Minus | Token::Plus);
    match with || is_number {
        true => Ok(Some(reader.expr()?)),
        false => Ok(None),
    }
}

/// `SET GENERATED .. | SET option | RESTART ..`, as often as they come: what changes of an identity column.
pub(super) fn identity_changes(reader: &mut Reader<'_>) -> Parse<(Option<bool>, SequenceClauses)> {
    let (mut always, mut clauses) = (None, SequenceClauses::default());
    loop {
        if reader.take(&["RESTART"]) {
            clauses.restart = Some(restart(reader)?);
        } else if reader.take(&["SET", "GENERATED"]) {
            let is_always = reader.take(&["ALWAYS"]);
            if !is_always {
                reader.need(&["BY", "DEFAULT"])?;
            }
            always = Some(is_always);
        } else if reader.take(&["SET"]) {
            let changed = option(reader)?.ok_or_else(|| reader.unexpected("an option of the sequence"))?;
            clauses.options.push(changed);
        } else {
            return Ok((always, clauses));
        }
    }
}

/// `[(option ..)]` behind IDENTITY.
pub(super) fn identity_options(reader: &mut Reader<'_>) -> Parse<Vec<SequenceOptions>> {
    let mut options = vec![];
    if reader.take_token(&Token::LParen) {
        while let Some(option) = option(reader)? {
            options.push(option);
        }
        reader.need_token(&Token::RParen)?;
    }
    Ok(options)
}

/// The same behind `ADD GENERATED .. AS IDENTITY`, where the sequence may have a name.
pub(super) fn named_identity_options(
    reader: &mut Reader<'_>,
) -> Parse<(Option<ObjectName>, Vec<SequenceOptions>)> {
    let (mut name, mut options) = (None, vec![]);
    if reader.take_token(&Token::LParen) {
        loop {
            if reader.take(&["SEQUENCE", "NAME"]) {
                name = Some(reader.name()?);
            } else if let Some(option) = option(reader)? {
                options.push(option);
            } else {
                break;
            }
        }
        reader.need_token(&Token::RParen)?;
    }
    Ok((name, options))
}

fn option(reader: &mut Reader<'_>) -> Parse<Option<SequenceOptions>> {
    if reader.take(&["INCREMENT"]) {
        let by = reader.take(&["BY"]);
        return Ok(Some(SequenceOptions::IncrementBy(reader.expr()?, by)));
    }
    if reader.take(&["START"]) {
        let with = reader.take(&["WITH"]);
        return Ok(Some(SequenceOptions::StartWith(reader.expr()?, with)));
    }
    // sqlparser's CYCLE says whether it is off.
    for (words, option) in [
        (["NO", "MINVALUE"], SequenceOptions::MinValue(None)),
        (["NO", "MAXVALUE"], SequenceOptions::MaxValue(None)),
        (["NO", "CYCLE"], SequenceOptions::Cycle(true)),
    ] {
        if reader.take(&words) {
            return Ok(Some(option));
        }
    }
    Ok(
        match reader.take_one_of(&["MINVALUE", "MAXVALUE", "CACHE", "CYCLE"]) {
            Some("MINVALUE") => Some(SequenceOptions::MinValue(Some(reader.expr()?))),
            Some("MAXVALUE") => Some(SequenceOptions::MaxValue(Some(reader.expr()?))),
            Some("CACHE") => Some(SequenceOptions::Cache(reader.expr()?)),
            Some(_) => Some(SequenceOptions::Cycle(false)),
            None => None,
        },
    )
}
