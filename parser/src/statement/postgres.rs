//! Everything that sqlparser's own AST expresses, and what little must be known before it is asked.

use sqlparser::ast::Statement as SqlStatement;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{emit, vacuum};
use crate::ast::Statement;
use crate::error::Failure;
use crate::reader::{Parse, Reader};
use crate::rules;

/// Words that begin a statement, for the hint at a misspelt one.
const STARTS: [&str; 43] = [
    "ALTER",
    "ANALYZE",
    "BACKUP",
    "BEGIN",
    "CANCEL",
    "CHECKPOINT",
    "CLOSE",
    "COMMENT",
    "COMMIT",
    "COPY",
    "CREATE",
    "DEALLOCATE",
    "DECLARE",
    "DELETE",
    "DESCRIBE",
    "DISCARD",
    "DROP",
    "EXECUTE",
    "EXPLAIN",
    "FETCH",
    "FLUSH",
    "GRANT",
    "INSERT",
    "KILL",
    "PAUSE",
    "PREPARE",
    "REFRESH",
    "RELEASE",
    "RESET",
    "RESUME",
    "REVOKE",
    "ROLLBACK",
    "SAVEPOINT",
    "SELECT",
    "SET",
    "SHOW",
    "START",
    "SUBSCRIBE",
    "TRUNCATE",
    "UPDATE",
    "VACUUM",
    "VALUES",
    "WITH",
];

/// A statement of PostgreSQL's.
pub(super) fn parse(reader: &mut Reader<'_>) -> Parse<Statement> {
    let first = reader.peek_token();
    if let Some(hint) = unknown_start(&first) {
        return Err(Failure::Unexpected { found: first, hint });
    }
    let tokens = reader.rest();
    if let Some(at) = emit::position(&tokens)
        && is_query(&first)
    {
        let message = "EMIT is allowed only in CREATE MATERIALIZED VIEW and CREATE SINK";
        let hint = "To follow the changes of a query, use SUBSCRIBE (SELECT ..).";
        return Err(Failure::unsupported(message, tokens[at].span.start, hint));
    }
    let mut inner = reader.over(as_sqlparser_spells(tokens));
    let statement = parse_for_rows(&mut inner)?;
    inner.end()?;
    Ok(Statement::Sql(Box::new(statement)))
}

/// One statement of sqlparser's. In it, `TABLE t` and `ABORT` are spelt as PostgreSQL allows.
pub(super) fn parse_for_rows(reader: &mut Reader<'_>) -> Parse<SqlStatement> {
    if reader.at(&["TABLE"]) {
        return Ok(SqlStatement::Query(reader.query()?));
    }
    if reader.take(&["ABORT"]) {
        let _ = reader.take_one_of(&["WORK", "TRANSACTION"]);
        return Ok(SqlStatement::Rollback {
            chain: false,
            savepoint: None,
        });
    }
    if reader.take(&["VACUUM"]) {
        return vacuum::parse(reader);
    }
    let statement = reader.parse_statement()?;
    rules::check(&statement)?;
    Ok(statement)
}

fn is_query(first: &TokenWithSpan) -> bool {
    match &first.token {
        Token::LParen => true,
        Token::Word(word) => ["SELECT", "WITH", "VALUES", "TABLE"]
            .iter()
            .any(|w| word.value.eq_ignore_ascii_case(w)),
        _ => false,
    }
}

/// `COMMENT ON STREAM` is a comment on a table to sqlparser; names are looked up whatever their kind.
fn as_sqlparser_spells(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if crate::tokens::starts_with(&tokens, &["COMMENT", "ON"])
        && ["STREAM", "SOURCE", "SINK", "SUBSCRIPTION"]
            .iter()
            .any(|kind| crate::tokens::is_word(tokens.get(2), kind))
    {
        tokens[2].token = Token::make_keyword("TABLE");
    }
    tokens
}

/// The hint if `first` is a word that begins no statement; `None` if it may begin one.
fn unknown_start(first: &TokenWithSpan) -> Option<Option<String>> {
    use sqlparser::keywords::Keyword;
    let Token::Word(word) = &first.token else {
        return None;
    };
    if word.quote_style.is_none() && word.keyword != Keyword::NoKeyword {
        return None;
    }
    if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("ABORT") {
        return None;
    }
    let upper = word.value.to_uppercase();
    let nearest = STARTS.iter().map(|start| (distance(&upper, start), start)).min();
    Some(
        nearest
            .filter(|(distance, _)| *distance <= 2)
            .map(|(_, start)| format!("Did you mean {start}?")),
    )
}

/// Edits from one word to another.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().take(32).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let substitute = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}
