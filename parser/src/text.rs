//! A text's way through the parser's steps, whatever its statements are: errors are said with their places in the text.
//!
//! The crate's front parses what clients send with it, and CREATE FUNCTION the text of a body.

use sqlparser::ast::Expr;
use sqlparser::tokenizer::TokenWithSpan;

use crate::error::{ParseError, Place};
use crate::reader::{Parse, Reader};
use crate::source::Source;
use crate::tokens::Piece;
use crate::{limits, normalise, tokens};

/// All statements of a text, each with what `parse` makes of its tokens. Empty ones are skipped.
pub(crate) fn statements<'a, T>(
    sql: &'a str,
    parse: impl for<'s> Fn(&'s Source<'s>, Vec<TokenWithSpan>) -> Parse<T>,
) -> Result<Vec<(Piece<'a>, T)>, ParseError> {
    limits::check_length(sql)?;
    let source = Source::new(sql);
    let pieces = tokens::split(&source)?;
    let total = source.chars();
    let parsed = pieces
        .into_iter()
        .map(|(piece, tokens)| -> Result<_, ParseError> {
            let source = Source::new(piece.text);
            let place = Place {
                source: &source,
                tokens: &|| tokens::tokenize(&source).unwrap_or_default(),
                offset: piece.offset,
                semicolon: piece.semicolon,
                total,
            };
            let parsed = || -> Parse<T> {
                limits::check_tokens(&tokens)?;
                parse(&source, normalise::normalise(tokens)?)
            };
            let parsed = parsed().map_err(|failure| place.explain(failure))?;
            Ok((piece, parsed))
        });
    parsed.collect()
}

/// One expression, with nothing after it.
pub(crate) fn expression(sql: &str) -> Result<Expr, ParseError> {
    limits::check_length(sql)?;
    let source = Source::new(sql);
    let tokens = tokens::tokenize(&source)?;
    let place = Place {
        source: &source,
        tokens: &|| tokens::tokenize(&source).unwrap_or_default(),
        offset: 0,
        semicolon: None,
        total: source.chars(),
    };
    let parse = || -> Parse<Expr> {
        limits::check_tokens(&tokens)?;
        let mut reader = Reader::new(&source, tokens);
        let expr = reader.expr()?;
        reader.end()?;
        Ok(expr)
    };
    parse().map_err(|failure| place.explain(failure))
}
