//! `SEARCH` and `CYCLE` behind a query of WITH RECURSIVE, which sqlparser does not know: each becomes one more query of WITH, of a
//! name that nothing else has, whose list says what it said.
//!
//! | written | becomes |
//! |---|---|
//! | `SEARCH DEPTH FIRST BY a, b SET o` | `, "SEARCH of WITH" AS (SELECT 'DEPTH', o, a, b)` |
//! | `CYCLE a, b SET c TO 'Y' DEFAULT 'N' USING p` | `, "CYCLE of WITH" AS (SELECT 'Y', 'N', c, p, a, b)` |

use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan};

use super::{is, word};
use crate::ast::{CYCLE_OF_WITH, SEARCH_OF_WITH};
use crate::error::Failure;
use crate::tokens::{is_word, starts_with};

/// Replaces the clauses. In what is maintained they are refused: rows have no order there.
pub(super) fn as_queries(tokens: &mut Vec<TokenWithSpan>) -> Result<(), Failure> {
    let is_definition = is_word(tokens.first(), "CREATE")
        && !tokens.iter().take(4).any(|token| is_word(Some(token), "TABLE"))
        || is_word(tokens.first(), "SUBSCRIBE");
    let mut i = 1;
    while i < tokens.len() {
        let is_behind = is(tokens.get(i - 1), &Token::RParen);
        let is_search = starts_with(&tokens[i..], &["SEARCH", "DEPTH", "FIRST", "BY"])
            || starts_with(&tokens[i..], &["SEARCH", "BREADTH", "FIRST", "BY"]);
        let is_cycle = is_word(tokens.get(i), "CYCLE")
            && matches!(tokens.get(i + 1).map(|token| &token.token), Some(Token::Word(_)))
            && (is(tokens.get(i + 2), &Token::Comma) || is_word(tokens.get(i + 2), "SET"));
        if is_behind && (is_search || is_cycle) {
            if is_definition {
                let clause = if is_search { "SEARCH" } else { "CYCLE" };
                let message =
                    format!("the {clause} clause of WITH RECURSIVE is not supported in a definition");
                let hint = "Keep what was seen in an array, or use UNION without ALL.";
                return Err(Failure::unsupported(message, tokens[i].span.start, hint));
            }
            let (name, list, end) = match is_search {
                true => search(tokens, i)?,
                false => cycle(tokens, i)?,
            };
            let query = query(name, list, tokens[i].span);
            let length = query.len();
            tokens.splice(i..end, query);
            i += length;
            continue;
        }
        i += 1;
    }
    Ok(())
}

type Said = (&'static str, Vec<Vec<TokenWithSpan>>, usize);

fn unexpected(tokens: &[TokenWithSpan], at: usize, expected: &str) -> Failure {
    let place = tokens.get(at).or(tokens.last()).map(|token| token.span.start);
    let place = place.unwrap_or(Location { line: 1, column: 1 });
    Failure::invalid(format!("expected {expected}"), place)
}

/// `a, b`, and where it ends.
fn names(tokens: &[TokenWithSpan], mut at: usize) -> Result<(Vec<Vec<TokenWithSpan>>, usize), Failure> {
    let mut names = vec![];
    loop {
        names.push(name(tokens, at)?);
        at += 1;
        if !is(tokens.get(at), &Token::Comma) {
            return Ok((names, at));
        }
        at += 1;
    }
}

fn name(tokens: &[TokenWithSpan], at: usize) -> Result<Vec<TokenWithSpan>, Failure> {
    match tokens.get(at) {
        Some(token) if matches!(token.token, Token::Word(_)) => Ok(vec![token.clone()]),
        _ => Err(unexpected(tokens, at, "the name of a column")),
    }
}

fn behind(tokens: &[TokenWithSpan], at: usize, word: &str) -> Result<usize, Failure> {
    match is_word(tokens.get(at), word) {
        true => Ok(at + 1),
        false => Err(unexpected(tokens, at, word)),
    }
}

fn search(tokens: &[TokenWithSpan], at: usize) -> Result<Said, Failure> {
    let how = match is_word(tokens.get(at + 1), "DEPTH") {
        true => "DEPTH",
        false => "BREADTH",
    };
    let (by, end) = names(tokens, at + 4)?;
    let place = behind(tokens, end, "SET")?;
    let how = vec![literal(how, tokens[at].span)];
    let list = [vec![how, name(tokens, place)?], by].concat();
    Ok((SEARCH_OF_WITH, list, place + 1))
}

fn cycle(tokens: &[TokenWithSpan], at: usize) -> Result<Said, Failure> {
    let span = tokens[at].span;
    let (by, end) = names(tokens, at + 1)?;
    let place = behind(tokens, end, "SET")?;
    let mark = name(tokens, place)?;
    let mut end = place + 1;
    let (mut found, mut other) = (vec![word("TRUE", span)], vec![word("FALSE", span)]);
    if is_word(tokens.get(end), "TO") {
        let until = |from: usize, word: &str| {
            (from..tokens.len())
                .find(|at| is_word(tokens.get(*at), word))
                .filter(|end| *end > from)
                .ok_or_else(|| unexpected(tokens, from, word))
        };
        let default = until(end + 1, "DEFAULT")?;
        let using = until(default + 1, "USING")?;
        found = tokens[end + 1..default].to_vec();
        other = tokens[default + 1..using].to_vec();
        end = using;
    }
    let place = behind(tokens, end, "USING")?;
    let list = [vec![found, other, mark, name(tokens, place)?], by].concat();
    Ok((CYCLE_OF_WITH, list, place + 1))
}

fn literal(text: &str, span: Span) -> TokenWithSpan {
    TokenWithSpan::new(Token::SingleQuotedString(text.to_owned()), span)
}

/// `, "name" AS (SELECT ..)`.
fn query(name: &str, list: Vec<Vec<TokenWithSpan>>, span: Span) -> Vec<TokenWithSpan> {
    let token = |token| TokenWithSpan::new(token, span);
    let mut all = vec![
        token(Token::Comma),
        token(Token::make_word(name, Some('"'))),
        word("AS", span),
        token(Token::LParen),
        word("SELECT", span),
    ];
    for (place, item) in list.into_iter().enumerate() {
        if place > 0 {
            all.push(token(Token::Comma));
        }
        all.extend(item);
    }
    all.push(token(Token::RParen));
    all
}
