//! SQL statements of millrace: PostgreSQL's dialect, through sqlparser, with the streaming statements around it.
//!
//! ```text
//! text ──tokenize──> tokens ──split at ;──> statement ──normalise──> tokens ──┬─ ours ──> statement/*.rs
//!                   (tokens.rs)            (limits.rs) (normalise.rs)         └─ else ──> sqlparser
//! ```
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
mod tokens;

pub use error::{ParseError, ParseErrorKind};
pub use identifier::{fold, quote_identifier, quote_literal};
pub use limits::{MAX_NESTING, MAX_OPERATORS, MAX_SQL_BYTES};

use ast::Statement;
use sqlparser::ast::Expr;
use sqlparser::tokenizer::Location;

use crate::error::{Failure, Place};
use crate::reader::Reader;
use crate::source::Source;
use crate::tokens::Piece;

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
    limits::check_length(sql)?;
    let source = Source::new(sql);
    let pieces = tokens::split(&source)?;
    let total = source.chars();
    pieces
        .into_iter()
        .map(|piece| parse_piece(piece, total))
        .collect()
}

/// Parses one expression, with nothing after it.
pub fn parse_expression(sql: &str) -> Result<Expr, ParseError> {
    limits::check_length(sql)?;
    let source = Source::new(sql);
    let tokens = tokens::tokenize(&source)?;
    let place = Place {
        source: &source,
        tokens: &tokens,
        offset: 0,
        semicolon: None,
        total: source.chars(),
    };
    let parse = || -> Result<Expr, Failure> {
        limits::check_tokens(&tokens)?;
        let mut reader = Reader::new(&source, tokens.clone());
        let expr = reader.expr()?;
        reader.end()?;
        Ok(expr)
    };
    parse().map_err(|failure| place.explain(failure))
}

fn parse_piece(piece: Piece<'_>, total: usize) -> Result<Parsed, ParseError> {
    let source = Source::new(piece.text);
    let place = Place {
        source: &source,
        tokens: &piece.tokens,
        offset: piece.offset,
        semicolon: piece.semicolon,
        total,
    };
    let parse = || -> Result<Statement, Failure> {
        limits::check_tokens(&piece.tokens)?;
        let tokens = normalise::normalise(piece.tokens.clone())?;
        statement::parse_statement(&source, tokens)
    };
    let statement = parse().map_err(|failure| place.explain(failure))?;
    Ok(Parsed {
        statement,
        text: piece.text.to_string(),
        offset: piece.offset,
    })
}

/// The one statement of `sql`.
#[cfg(test)]
pub(crate) fn parse_one(sql: &str) -> Result<Statement, ParseError> {
    let mut parsed = parse(sql)?;
    assert_eq!(parsed.len(), 1, "{sql}");
    Ok(parsed.remove(0).statement)
}
