//! GROUP BY as PostgreSQL writes it and sqlparser does not read it.
//!
//! | written | in the AST |
//! |---|---|
//! | `GROUP BY DISTINCT ROLLUP (a, b), a` | a first key that is a call of [`GROUP_DISTINCT`] |
//! | `GROUP BY ALL a, b` | `GROUP BY a, b` |
//! | `GROUPING SETS (a, GROUPING SETS (b, ()))` | `GROUPING SETS (a, b, ())` |
//!
//! ROLLUP and CUBE within GROUPING SETS are read as calls of functions of these names.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{closing, is};
use crate::ast::GROUP_DISTINCT;
use crate::tokens::{is_word, starts_with};

/// The words that end a GROUP BY without keys.
const ENDS: [&str; 12] = [
    "HAVING",
    "WINDOW",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "FOR",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "EMIT",
    "WITH",
];

/// Rewrites all of them.
pub(super) fn respell(tokens: &mut Vec<TokenWithSpan>) {
    let mut i = 0;
    while i < tokens.len() {
        if starts_with(&tokens[i..], &["GROUP", "BY", "DISTINCT"]) {
            let span = tokens[i + 2].span;
            let mark = [
                Token::make_word(GROUP_DISTINCT, Some('"')),
                Token::LParen,
                Token::RParen,
                Token::Comma,
            ];
            tokens.splice(i + 2..=i + 2, mark.map(|token| TokenWithSpan::new(token, span)));
        } else if starts_with(&tokens[i..], &["GROUP", "BY", "ALL"]) && begins_key(tokens.get(i + 3)) {
            tokens.remove(i + 2);
        }
        i += 1;
    }
    flatten(tokens);
}

fn begins_key(token: Option<&TokenWithSpan>) -> bool {
    match token.map(|token| &token.token) {
        None | Some(Token::RParen | Token::SemiColon | Token::Comma) => false,
        Some(_) => !ENDS.iter().any(|end| is_word(token, end)),
    }
}

/// Takes the sets out of GROUPING SETS within GROUPING SETS.
fn flatten(tokens: &mut Vec<TokenWithSpan>) {
    let begins = |i: usize| {
        let is_there =
            starts_with(&tokens[i..], &["GROUPING", "SETS"]) && is(tokens.get(i + 2), &Token::LParen);
        is_there.then(|| closing(tokens, i + 2)).flatten()
    };
    let mut dropped = vec![];
    let mut i = 0;
    while i < tokens.len() {
        if let Some(end) = begins(i) {
            for inner in i + 3..end {
                if let Some(close) = begins(inner) {
                    dropped.extend([inner, inner + 1, inner + 2, close]);
                }
            }
            i = end;
        }
        i += 1;
    }
    if !dropped.is_empty() {
        dropped.sort_unstable();
        let mut at = 0;
        tokens.retain(|_| {
            at += 1;
            dropped.binary_search(&(at - 1)).is_err()
        });
    }
}
