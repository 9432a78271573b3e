//! `CREATE TABLE`, with columns or from a query.

use sqlparser::ast::Ident;
use sqlparser::tokenizer::Token;

use super::columns::TableElements;
use super::{CreatePrefix, columns, object, with};
use crate::ast::{ConflictRule, CreateTable, OnCommit, OptionEntry, Statement};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `CREATE [TEMPORARY] TABLE`.
pub(super) fn parse(reader: &mut Reader<'_>, prefix: CreatePrefix) -> Parse<Statement> {
    let if_not_exists = object::if_not_exists(reader);
    let name = reader.name()?;
    let mut column_names = Vec::new();
    let (mut elements, mut include) = (TableElements::default(), vec![]);
    if names_only(reader) {
        column_names = reader.parenthesised(|reader| reader.ident())?;
    } else if !reader.at(&["AS"]) && !reader.at(&["WITH"]) && !reader.at(&["ON", "COMMIT"]) {
        (elements, include) = columns::elements(reader, true)?;
    }
    let append_only = reader.take(&["APPEND", "ONLY"]);
    let on_conflict = on_conflict(reader)?;
    let mut options = with::options(reader)?;
    if !elements.columns.is_empty() && reader.take(&["FROM"]) {
        let source = reader.name()?;
        reader.need(&["TABLE"])?;
        let table = reader.string()?;
        for (name, value) in [
            ("connector", "postgres-cdc"),
            ("source", &*source.to_string()),
            ("table.name", &*table),
        ] {
            options.0.push(OptionEntry {
                name: Ident::new(name),
                value: value.to_owned(),
            });
        }
    }
    let format = with::format(reader)?;
    let on_commit = on_commit(reader)?;
    refuse_clauses(reader)?;
    let mut as_query = None;
    let mut with_no_data = false;
    if reader.at(&["AS"])
        && (!elements.columns.is_empty() || !elements.like.is_empty() || elements.all_columns)
    {
        return Err(reader.unexpected("the end of the statement: with AS a column has a name and no type"));
    }
    if reader.take(&["AS"]) {
        as_query = Some(reader.query()?);
        with_no_data = reader.take(&["WITH", "NO", "DATA"]);
        if !with_no_data {
            let _ = reader.take(&["WITH", "DATA"]);
        }
    } else if !column_names.is_empty()
        || (elements.columns.is_empty()
            && elements.like.is_empty()
            && !elements.all_columns
            && !options.0.is_empty()
            && format.is_none())
    {
        return Err(reader.unexpected("AS and a query"));
    }
    Ok(Statement::CreateTable(Box::new(CreateTable {
        name,
        or_replace: prefix.or_replace,
        temporary: prefix.temporary,
        on_commit,
        if_not_exists,
        all_columns: elements.all_columns,
        columns: elements.columns,
        like: elements.like,
        column_names,
        primary_key: elements.primary_key,
        constraints: elements.constraints,
        watermark: elements.watermark,
        append_only,
        on_conflict,
        include,
        options,
        format,
        as_query,
        with_no_data,
    })))
}

/// Whether `(a, b) AS` or `(a, b) WITH` is next: names without types.
fn names_only(reader: &Reader<'_>) -> bool {
    if reader.peek_token_ref().token != Token::LParen {
        return false;
    }
    let mut n = 1;
    loop {
        if !matches!(reader.peek_nth_token_ref(n).token, Token::Word(_)) {
            return false;
        }
        match reader.peek_nth_token_ref(n + 1).token {
            Token::Comma => n += 2,
            Token::RParen => return true,
            _ => return false,
        }
    }
}

/// `ON CONFLICT DO NOTHING | DO UPDATE FULL | DO UPDATE IF NOT NULL`; RisingWave's older words are IGNORE and OVERWRITE.
fn on_conflict(reader: &mut Reader<'_>) -> Parse<Option<ConflictRule>> {
    if !reader.take(&["ON", "CONFLICT"]) {
        return Ok(None);
    }
    for rule in ConflictRule::ALL {
        let words: Vec<&str> = rule.clause().split(' ').collect();
        if reader.take(&words) {
            return without_version(reader, rule);
        }
    }
    match reader.take_one_of(&["IGNORE", "OVERWRITE"]) {
        Some("IGNORE") => return without_version(reader, ConflictRule::Keep),
        Some(_) => return without_version(reader, ConflictRule::Replace),
        None => {}
    }
    Err(reader.unexpected("DO NOTHING, DO UPDATE FULL or DO UPDATE IF NOT NULL"))
}

fn without_version(reader: &Reader<'_>, rule: ConflictRule) -> Parse<Option<ConflictRule>> {
    if reader.at(&["WITH", "VERSION", "COLUMN"]) {
        let hint = "The row that comes last wins; a materialized view with DISTINCT ON picks the newest by a column.";
        let message = "WITH VERSION COLUMN is not supported";
        return Err(Failure::unsupported(message, reader.here(), hint));
    }
    Ok(Some(rule))
}

/// `ON COMMIT PRESERVE ROWS | DELETE ROWS | DROP`.
fn on_commit(reader: &mut Reader<'_>) -> Parse<Option<OnCommit>> {
    if !reader.take(&["ON", "COMMIT"]) {
        return Ok(None);
    }
    if reader.take(&["PRESERVE", "ROWS"]) {
        Ok(Some(OnCommit::PreserveRows))
    } else if reader.take(&["DELETE", "ROWS"]) {
        Ok(Some(OnCommit::DeleteRows))
    } else if reader.take(&["DROP"]) {
        Ok(Some(OnCommit::Drop))
    } else {
        Err(reader.unexpected("PRESERVE ROWS, DELETE ROWS or DROP"))
    }
}

fn refuse_clauses(reader: &Reader<'_>) -> Parse<()> {
    for clause in ["INHERITS", "PARTITION", "ON", "TABLESPACE", "USING"] {
        if reader.at(&[clause]) {
            let message = format!("{clause} in CREATE TABLE is not supported");
            return Err(Failure::unsupported(message, reader.here(), ""));
        }
    }
    Ok(())
}
