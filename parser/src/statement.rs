//! From the tokens of one statement to its AST: the leading words choose a family, one file each.
//!
//! What no family takes goes to sqlparser as it is.

mod alter;
mod columns;
mod copy;
mod cursor;
mod drop;
mod emit;
mod explain;
mod external;
mod function;
mod grant;
mod job;
mod merge;
mod object;
mod postgres;
mod refused;
mod role;
mod secret;
mod sequence;
mod set;
mod show;
mod sink;
mod stream;
mod subscribe;
mod table;
mod user_type;
mod vacuum;
mod view;
mod what_if;
mod with;
mod with_data;

use sqlparser::tokenizer::TokenWithSpan;

use crate::ast::Statement;
use crate::error::Failure;
use crate::reader::{Parse, Reader};
use crate::source::Source;

/// Parses one statement with nothing after it.
pub(crate) fn parse_statement<'a>(source: &'a Source<'a>, tokens: Vec<TokenWithSpan>) -> Parse<Statement> {
    statement_of(Reader::new(source, tokens)).map_err(|failure| match failure.is_of_syntax() {
        true => refused::instead(source).unwrap_or(failure),
        false => failure,
    })
}

/// Parses what `reader` is at as one statement, up to its end.
fn statement_of(mut reader: Reader<'_>) -> Parse<Statement> {
    let statement = match ours(&mut reader)? {
        Some(statement) => statement,
        None => postgres::parse(&mut reader)?,
    };
    reader.end()?;
    Ok(statement)
}

/// A statement that has a type of our own, or `None` with nothing read.
fn ours(reader: &mut Reader<'_>) -> Parse<Option<Statement>> {
    let start = reader.index();
    let Some(word) = reader.take_one_of(&[
        "CREATE",
        "COPY",
        "SUBSCRIBE",
        "DECLARE",
        "FETCH",
        "EXPLAIN",
        "SHOW",
        "DESCRIBE",
        "DESC",
        "SET",
        "RESET",
        "DROP",
        "ALTER",
        "CANCEL",
        "PAUSE",
        "RESUME",
        "WAIT",
        "FLUSH",
        "REFRESH",
        "CHECKPOINT",
        "ADD",
        "KILL",
        "BACKUP",
        "GRANT",
        "REVOKE",
        "REASSIGN",
        "MERGE",
        "MOVE",
    ]) else {
        return Ok(None);
    };
    let statement = match word {
        "CREATE" => create(reader)?,
        "COPY" => Some(copy::parse(reader)?),
        "SUBSCRIBE" => Some(Statement::Subscribe(Box::new(subscribe::parse(reader)?))),
        "DECLARE" => cursor::parse_declare(reader)?,
        "FETCH" => Some(cursor::parse_fetch(reader, false)?),
        "MOVE" => Some(cursor::parse_fetch(reader, true)?),
        "EXPLAIN" => Some(explain::parse(reader)?),
        "SHOW" => Some(show::parse(reader)?),
        "DESCRIBE" | "DESC" => {
            let _ = reader.take(&["TABLE"]);
            Some(Statement::Describe(reader.name()?))
        }
        "GRANT" => Some(grant::parse(reader, false)?),
        "REVOKE" => Some(grant::parse(reader, true)?),
        "REASSIGN" => Some(role::reassign(reader)?),
        "MERGE" => Some(merge::parse(reader)?),
        "SET" => set::parse_set(reader)?,
        "RESET" => set::parse_reset(reader)?,
        "DROP" => drop::parse(reader)?,
        "ALTER" => alter::parse(reader)?,
        other => job::parse(reader, other)?,
    };
    if statement.is_none() {
        while reader.index() > start {
            reader.prev_token();
        }
    }
    Ok(statement)
}

/// What stands between CREATE and the kind of object.
#[derive(Debug, Clone, Copy, Default)]
struct CreatePrefix {
    or_replace: bool,
    temporary: bool,
}

fn create(reader: &mut Reader<'_>) -> Parse<Option<Statement>> {
    let at = reader.here();
    let or_replace = reader.take(&["OR", "REPLACE"]);
    let _ = reader.take_one_of(&["GLOBAL", "LOCAL"]);
    let temporary = reader.take_one_of(&["TEMP", "TEMPORARY"]).is_some();
    let unlogged = reader.take(&["UNLOGGED"]);
    if let Some(kind) = reader.take_one_of(&role::KINDS) {
        return Ok(Some(role::create(reader, kind)?));
    }
    if reader.take(&["TOKEN"]) {
        return Ok(Some(role::create_token(reader)?));
    }
    let prefix = CreatePrefix {
        or_replace,
        temporary,
    };
    let kind = reader.take_one_of(&[
        "STREAM",
        "SOURCE",
        "TABLE",
        "MATERIALIZED",
        "SINK",
        "SUBSCRIPTION",
        "EXTERNAL",
        "FUNCTION",
        "AGGREGATE",
        "REDUCER",
        "SEQUENCE",
        "SECRET",
        "TYPE",
        "DOMAIN",
    ]);
    let Some(kind) = kind else { return Ok(None) };
    if (temporary && !matches!(kind, "TABLE" | "SEQUENCE")) || (unlogged && kind != "TABLE") {
        return Err(Failure::unsupported(
            format!("CREATE TEMPORARY {kind} is not supported"),
            at,
            "",
        ));
    }
    if or_replace
        && matches!(
            kind,
            "SINK" | "SUBSCRIPTION" | "SEQUENCE" | "SECRET" | "TYPE" | "DOMAIN"
        )
    {
        return Err(Failure::unsupported(
            format!("CREATE OR REPLACE {kind} is not supported"),
            at,
            "Drop it first.",
        ));
    }
    let statement = match kind {
        "STREAM" | "SOURCE" => stream::parse(reader, prefix)?,
        "TABLE" => table::parse(reader, prefix)?,
        "MATERIALIZED" => {
            reader.need(&["VIEW"])?;
            view::parse(reader, prefix)?
        }
        "FUNCTION" => function::parse(reader, prefix, function::Kind::Function)?,
        "AGGREGATE" => function::parse(reader, prefix, function::Kind::Aggregate)?,
        "REDUCER" => function::parse(reader, prefix, function::Kind::Reducer)?,
        "SEQUENCE" => sequence::parse(reader, prefix)?,
        "SECRET" => secret::create(reader)?,
        "TYPE" => user_type::create_type(reader)?,
        "DOMAIN" => user_type::create_domain(reader)?,
        "SINK" => sink::parse_sink(reader)?,
        "SUBSCRIPTION" => sink::parse_subscription(reader)?,
        _ => {
            reader.need(&["TABLE"])?;
            external::parse(reader, prefix)?
        }
    };
    Ok(Some(statement))
}
