//! Whole statements as PostgreSQL writes them and sqlparser does not read them.
//!
//! | written | in the AST |
//! |---|---|
//! | `CHECK (..) NO INHERIT` | `CHECK (..)`: no table inherits from another |
//! | `BEGIN DEFERRABLE` | `BEGIN`: only serializable transactions, which there are none of, can be deferred |
//! | `CREATE RECURSIVE VIEW v (n) AS q` | `CREATE VIEW v (n) AS WITH RECURSIVE v (n) AS (q) SELECT * FROM v` |

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::operands::{like, word};
use super::{closing, is};
use crate::tokens::{is_word, starts_with};

type Tokens = Vec<TokenWithSpan>;

/// Rewrites all of them.
pub(super) fn respell(tokens: &mut Tokens) {
    let has = |tokens: &Tokens, word: &str| tokens.iter().any(|token| is_word(Some(token), word));
    if has(tokens, "DEFERRABLE") {
        deferrable_transactions(tokens);
    }
    if has(tokens, "RECURSIVE") {
        recursive_views(tokens);
    }
    if has(tokens, "INHERIT") {
        checks_of_one_table(tokens);
    }
}

/// `CHECK (..) NO INHERIT`: no table inherits from another.
fn checks_of_one_table(tokens: &mut Tokens) {
    let mut at = 1;
    while at < tokens.len() {
        match starts_with(&tokens[at..], &["NO", "INHERIT"]) && is(tokens.get(at - 1), &Token::RParen) {
            true => {
                tokens.drain(at..at + 2);
            }
            false => at += 1,
        }
    }
}

/// `[NOT] DEFERRABLE` of a transaction.
fn deferrable_transactions(tokens: &mut Tokens) {
    let is_transaction = starts_with(tokens, &["BEGIN"])
        || starts_with(tokens, &["START", "TRANSACTION"])
        || starts_with(tokens, &["SET", "TRANSACTION"])
        || starts_with(tokens, &["SET", "SESSION", "CHARACTERISTICS"]);
    if !is_transaction {
        return;
    }
    let Some(at) = tokens.iter().position(|token| is_word(Some(token), "DEFERRABLE")) else {
        return;
    };
    let mut from = at - usize::from(is_word(tokens.get(at - 1), "NOT"));
    from -= usize::from(is(tokens.get(from - 1), &Token::Comma));
    // SET TRANSACTION needs something to set.
    let is_alone =
        from + 1 + usize::from(at > from) >= tokens.len() && is_word(tokens.get(from - 1), "TRANSACTION");
    match is_alone && is_word(tokens.first(), "SET") {
        true => {
            let model = tokens[at].clone();
            let default = ["ISOLATION", "LEVEL", "READ", "COMMITTED"].map(|name| word(name, &model));
            tokens.splice(from..=at, default);
        }
        false => {
            tokens.drain(from..=at);
        }
    }
}

/// `CREATE [OR REPLACE] RECURSIVE VIEW v (..) AS q`.
fn recursive_views(tokens: &mut Tokens) {
    let at = match starts_with(tokens, &["CREATE", "OR", "REPLACE"]) {
        true => 3,
        false => 1,
    };
    let at = at + usize::from(is_word(tokens.get(at), "TEMP") || is_word(tokens.get(at), "TEMPORARY"));
    if !(is_word(tokens.first(), "CREATE")
        && starts_with(&tokens[at.min(tokens.len())..], &["RECURSIVE", "VIEW"]))
    {
        return;
    }
    let Some(columns) = tokens.iter().position(|token| token.token == Token::LParen) else {
        return;
    };
    let Some(end) = closing(tokens, columns).filter(|end| is_word(tokens.get(end + 1), "AS")) else {
        return;
    };
    let name = tokens[at + 2..columns].to_vec();
    let Some(own) = name.last().cloned() else {
        return;
    };
    let list = tokens[columns..=end].to_vec();
    let model = own.clone();
    let query = tokens.split_off(end + 2);
    tokens.extend([word("WITH", &model), word("RECURSIVE", &model), own.clone()]);
    tokens.extend(list);
    tokens.extend([word("AS", &model), like(Token::LParen, &model)]);
    tokens.extend(query);
    tokens.extend([
        like(Token::RParen, &model),
        word("SELECT", &model),
        like(Token::Mul, &model),
        word("FROM", &model),
        own,
    ]);
    tokens.remove(at);
}
