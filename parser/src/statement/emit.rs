//! The EMIT clause at the end of a view or sink.
//!
//! It is taken off the tokens before the query is parsed, because `FROM s EMIT CHANGES` reads as an alias otherwise.

use sqlparser::tokenizer::TokenWithSpan;

use crate::ast::Emit;
use crate::reader::{Parse, Reader};
use crate::tokens::{nesting, starts_with};

/// The clauses that follow EMIT.
const CLAUSES: [&[&str]; 7] = [
    &["CHANGES"],
    &["ON", "UPDATE"],
    &["ON", "WINDOW", "CLOSE"],
    &["AFTER", "WINDOW", "CLOSE"],
    &["IMMEDIATE"],
    &["FINAL"],
    &["EVERY"],
];

/// The index at which a trailing EMIT clause begins.
pub(super) fn position(tokens: &[TokenWithSpan]) -> Option<usize> {
    let mut depth = 0;
    for i in (0..tokens.len()).rev() {
        depth += nesting(&tokens[i].token);
        let clause = || CLAUSES.iter().any(|clause| starts_with(&tokens[i + 1..], clause));
        if depth == 0 && i > 0 && starts_with(&tokens[i..], &["EMIT"]) && clause() {
            return Some(i);
        }
    }
    None
}

/// Takes a trailing EMIT clause off `tokens`. Clauses after it (`WITH`, `FORMAT`) are returned as the second part.
pub(super) fn take(
    reader: &Reader<'_>,
    tokens: &mut Vec<TokenWithSpan>,
) -> Parse<(Emit, Vec<TokenWithSpan>)> {
    let Some(at) = position(tokens) else {
        return Ok((Emit::Changes, Vec::new()));
    };
    let mut reader = reader.over(tokens.split_off(at));
    let emit = clause(&mut reader)?;
    Ok((emit, reader.rest()))
}

/// `EMIT ..`.
pub(super) fn clause(reader: &mut Reader<'_>) -> Parse<Emit> {
    reader.need(&["EMIT"])?;
    if reader.take(&["EVERY"]) {
        return Ok(Emit::Every(reader.expr()?));
    }
    for words in [&["CHANGES"][..], &["IMMEDIATE"], &["ON", "UPDATE"]] {
        if reader.take(words) {
            return Ok(Emit::Changes);
        }
    }
    for words in [
        &["FINAL"][..],
        &["ON", "WINDOW", "CLOSE"],
        &["AFTER", "WINDOW", "CLOSE"],
    ] {
        if reader.take(words) {
            let delay = if reader.take(&["WITH", "DELAY"]) {
                Some(reader.expr()?)
            } else {
                None
            };
            return Ok(Emit::OnWindowClose { delay });
        }
    }
    Err(reader.unexpected("CHANGES, ON WINDOW CLOSE or EVERY"))
}
