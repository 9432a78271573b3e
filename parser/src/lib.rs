//! SQL statements of millrace: PostgreSQL's dialect, through sqlparser, with the streaming statements around it.
//!
//! ```text
//! text ──tokenize──> tokens ──split at ;──> statement ──normalise──> tokens ──┬─ ours ──> statement/*.rs
//!                   (tokens.rs)            (limits.rs) (normalise.rs)         └─ else ──> sqlparser
//! ```
//!
//! `text.rs` leads a text through these steps, and says errors with their places in it.
//!
//! The parser knows no catalog and does no I/O. It never panics and never overflows the stack, whatever the input:
//! nesting, chains of operators and length are limited before sqlparser sees a statement.

pub mod ast;
mod dialect;
mod display;
mod error;
mod identifier;
mod limits;
mod normalise;
mod reader;
mod rules;
mod source;
mod statement;
mod text;
mod tokens;
pub mod walk;

pub use error::{ParseError, ParseErrorKind};
pub use identifier::{
    fold, is_bytewise, name_parts, quote_identifier, quote_literal, string_value, type_word, type_word_text,
};
pub use limits::{MAX_NESTING, MAX_OPERATORS, MAX_SQL_BYTES};
pub use tokens::{ALL_MEMBERS, TextSize, from_first_word};

use std::ops::Range;

use ast::Statement;
use sqlparser::ast::{Expr, SetExpr};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use crate::source::Source;

/// A statement and the text that it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The statement. Its spans count from the start of `text`.
    pub statement: Statement,
    /// The statement's own text, without the semicolon and without surrounding space and comments.
    pub text: String,
    /// The character at which `text` starts in what was parsed, from 0.
    pub offset: usize,
}

impl Parsed {
    /// The character, from 1, at which something in the statement stands in the whole text that was parsed: what an
    /// error reports as its position.
    pub fn position(&self, location: Location) -> Option<usize> {
        Source::new(&self.text)
            .char_offset(location)
            .map(|chars| self.offset + chars + 1)
    }
}

/// Parses all statements of `sql`. Empty ones are skipped.
pub fn parse(sql: &str) -> Result<Vec<Parsed>, ParseError> {
    let pieces = text::statements(sql, statement::parse_statement)?;
    let mut parsed = Vec::with_capacity(pieces.len());
    for (piece, statement) in pieces {
        let (text, offset) = (piece.text.to_string(), piece.offset);
        match created_table(&piece, &statement) {
            None => parsed.push(Parsed {
                statement,
                text,
                offset,
            }),
            Some(text) => {
                let made = text::statements(&text, statement::parse_statement)?;
                parsed.extend(made.into_iter().map(|(_, statement)| Parsed {
                    statement,
                    text: text.clone(),
                    offset,
                }));
            }
        }
    }
    Ok(parsed)
}

/// `SELECT a INTO t FROM ..` is `CREATE TABLE t AS SELECT a FROM ..`: the text of that.
fn created_table(piece: &tokens::Piece<'_>, statement: &Statement) -> Option<String> {
    let Statement::Sql(sql) = statement else {
        return None;
    };
    let sqlparser::ast::Statement::Query(query) = sql.as_ref() else {
        return None;
    };
    // Of a UNION and its like, the first may have it.
    let mut first = query.body.as_ref();
    while let SetExpr::SetOperation { left, .. } = first {
        first = left;
    }
    let SetExpr::Select(select) = first else {
        return None;
    };
    let into = select.into.as_ref()?;
    let kind = match (into.temporary, into.unlogged) {
        (true, _) => "TEMPORARY ",
        (_, true) => "UNLOGGED ",
        _ => "",
    };
    // The text is cut: what has much in it is neither copied nor written anew.
    let source = Source::new(piece.text);
    let tokens = tokens::tokenize(&source).ok()?;
    let mut depth = 0;
    let words = |token: &TokenWithSpan, word: &str| matches!(&token.token, Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word));
    let begin = tokens.iter().find(|token| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0 && words(token, "into")
    })?;
    let end = into.name.0.last()?.as_ident()?.span.end;
    let begin = source.byte_offset(begin.span.start)?;
    let end = source.byte_offset(end)?;
    let (before, behind) = (piece.text.get(..begin)?, piece.text.get(end..)?);
    Some(format!("CREATE {kind}TABLE {} AS {before}{behind}", into.name))
}

/// The tokens of a text without comments, each with its characters, from 0; none, if it is no SQL.
pub fn tokens(sql: &str) -> Vec<(Range<usize>, Token)> {
    let source = Source::new(sql);
    let tokens = tokens::tokenize(&source).unwrap_or_default().into_iter();
    let placed = tokens.filter_map(|token| {
        let (start, end) = (token.span.start, token.span.end);
        Some((source.char_offset(start)?..source.char_offset(end)?, token.token))
    });
    placed.collect()
}

/// Parses one expression, with nothing after it.
pub fn parse_expression(sql: &str) -> Result<Expr, ParseError> {
    text::expression(sql)
}

/// The one statement of `sql`.
#[cfg(test)]
pub(crate) fn parse_one(sql: &str) -> Result<Statement, ParseError> {
    let mut parsed = parse(sql)?;
    assert_eq!(parsed.len(), 1, "{sql}");
    Ok(parsed.remove(0).statement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn select_into_makes_a_table() {
        let cases = [
            ("SELECT a INTO t FROM u", "CREATE TABLE t AS SELECT a  FROM u"),
            (
                "WITH x AS (SELECT 1) SELECT a AS \"into\" INTO TEMP TABLE s.\"T\" FROM x, (SELECT 2) y",
                "CREATE TEMPORARY TABLE s.\"T\" AS WITH x AS (SELECT 1) SELECT a AS \"into\"  FROM x, (SELECT 2) y",
            ),
            (
                "SELECT 'é' INTO UNLOGGED t",
                "CREATE UNLOGGED TABLE t AS SELECT 'é' ",
            ),
        ];
        for (sql, expected) in cases {
            let parsed = parse(&format!("SELECT 0; {sql}")).unwrap().remove(1);
            assert_eq!((parsed.text.as_str(), parsed.offset), (expected, 10));
            assert!(matches!(parsed.statement, Statement::CreateTable(_)), "{sql}");
        }
        // Only a statement by itself is one.
        assert!(matches!(
            parse_one("SELECT a FROM (SELECT 1 INTO t) x")
                .map(|statement| matches!(statement, Statement::CreateTable(_))),
            Ok(false) | Err(_)
        ));
    }
}
