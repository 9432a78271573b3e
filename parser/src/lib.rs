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
mod source;
mod statement;
mod text;
mod tokens;
pub mod walk;

pub use error::{ParseError, ParseErrorKind};
pub use identifier::{fold, name_parts, quote_identifier, quote_literal};
pub use limits::{MAX_NESTING, MAX_OPERATORS, MAX_SQL_BYTES};
pub use tokens::ALL_MEMBERS;

use ast::Statement;
use sqlparser::ast::Expr;
use sqlparser::tokenizer::Location;

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
    let parsed = pieces.into_iter().map(|(piece, statement)| Parsed {
        statement,
        text: piece.text.to_string(),
        offset: piece.offset,
    });
    Ok(parsed.collect())
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
