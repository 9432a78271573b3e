//! Relations as PostgreSQL writes them and sqlparser does not read them.
//!
//! | written | in the AST |
//! |---|---|
//! | `FROM ONLY t`, `UPDATE ONLY (t)`, `FROM t *` | `FROM t`, `UPDATE t`: no table inherits from another |
//! | `FROM json_to_record(x) AS (a int)` | `FROM json_to_record(x) AS json_to_record (a int)` |
//! | `(TABLE t)`, `INSERT INTO u TABLE t` | `(SELECT * FROM t)`, `INSERT INTO u SELECT * FROM t` |

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::spellings::begins_query;
use super::{closing, is};
use crate::identifier::is_reserved;
use crate::tokens::{is_word, nesting};

type Tokens = Vec<TokenWithSpan>;

/// Rewrites all of them.
pub(super) fn respell(tokens: &mut Tokens) {
    let has = |tokens: &Tokens, word: &str| tokens.iter().any(|token| is_word(Some(token), word));
    if has(tokens, "TABLE") {
        whole_tables(tokens);
    }
    if has(tokens, "ONLY") {
        only(tokens);
    }
    if tokens.iter().any(|token| token.token == Token::Mul) {
        with_descendants(tokens);
    }
    if RECORDS.iter().any(|name| has(tokens, name)) {
        named_records(tokens);
    }
}

/// Functions whose columns are defined where they are called.
const RECORDS: [&str; 4] = [
    "JSON_TO_RECORD",
    "JSON_TO_RECORDSET",
    "JSONB_TO_RECORD",
    "JSONB_TO_RECORDSET",
];

/// Columns that are defined behind AS without a name: the function's is theirs.
fn named_records(tokens: &mut Tokens) {
    let mut at = 0;
    while at < tokens.len() {
        let is_called = RECORDS.iter().any(|name| is_word(tokens.get(at), name))
            && is(tokens.get(at + 1), &Token::LParen);
        if is_called
            && let Some(end) = closing(tokens, at + 1)
            && is_word(tokens.get(end + 1), "AS")
            && is(tokens.get(end + 2), &Token::LParen)
        {
            let name = tokens[at].clone();
            tokens.insert(end + 2, name);
        }
        at += 1;
    }
}

/// `TABLE t` where a query stands is `SELECT * FROM t`; sqlparser reads it only when nothing follows.
fn whole_tables(tokens: &mut Tokens) {
    let is_query = |i: &usize| {
        is_word(tokens.get(*i), "TABLE")
            && matches!(tokens.get(i + 1).map(|next| &next.token), Some(Token::Word(_)))
            && (begins_query(&tokens[..*i]) || ends_insert_into(&tokens[..*i]))
    };
    let found: Vec<usize> = (0..tokens.len()).filter(is_query).collect();
    for at in found.into_iter().rev() {
        let span = tokens[at].span;
        let word = |text: &str| Token::make_word(text, None);
        let select = [word("SELECT"), Token::Mul, word("FROM")];
        tokens.splice(at..=at, select.map(|token| TokenWithSpan::new(token, span)));
    }
}

/// Whether tokens end with `INSERT INTO t` or `INSERT INTO t (a, b)`.
fn ends_insert_into(before: &[TokenWithSpan]) -> bool {
    let mut end = before.len();
    if is(before.last(), &Token::RParen) {
        let mut depth = 0;
        let open = (0..end).rev().find(|at| {
            depth += nesting(&before[*at].token);
            depth == 0
        });
        end = open.unwrap_or(0);
    }
    let is_of_name = |token: &&TokenWithSpan| match token.token {
        Token::Word(_) => !is_word(Some(token), "INTO"),
        _ => token.token == Token::Period,
    };
    let name = before[..end].iter().rev().take_while(is_of_name).count();
    let into = end - name;
    name > 0 && into >= 2 && is_word(before.get(into - 1), "INTO") && is_word(before.get(into - 2), "INSERT")
}

/// ONLY before a relation, and the parentheses that it may have around it.
fn only(tokens: &mut Tokens) {
    let mut at = 1;
    while at + 1 < tokens.len() {
        let stands_before_relation = is(tokens.get(at - 1), &Token::Comma)
            || ["FROM", "JOIN", "UPDATE", "USING"]
                .iter()
                .any(|word| is_word(tokens.get(at - 1), word));
        if stands_before_relation && is_word(tokens.get(at), "ONLY") {
            match tokens[at + 1].token {
                Token::LParen => {
                    if let Some(end) = closing(tokens, at + 1) {
                        tokens.remove(end);
                        tokens.drain(at..at + 2);
                    }
                }
                Token::Word(_) => {
                    tokens.remove(at);
                }
                _ => {}
            }
        }
        at += 1;
    }
}

/// `FROM t *`, behind which no operand stands: `substring(a FROM b * c)` has one.
fn with_descendants(tokens: &mut Tokens) {
    let mut at = 2;
    while at < tokens.len() {
        let ends = match tokens.get(at + 1).map(|next| &next.token) {
            None | Some(Token::Comma | Token::RParen | Token::SemiColon) => true,
            Some(Token::Word(word)) if word.quote_style.is_none() => {
                let joins = [
                    "join", "inner", "left", "right", "full", "cross", "natural", "set",
                ];
                let word = word.value.to_ascii_lowercase();
                is_reserved(&word) || joins.contains(&word.as_str())
            }
            Some(_) => false,
        };
        if ends && tokens[at].token == Token::Mul && names_relation(&tokens[..at]) {
            tokens.remove(at);
        } else {
            at += 1;
        }
    }
}

/// Whether tokens end with FROM, JOIN or UPDATE and a name.
fn names_relation(before: &[TokenWithSpan]) -> bool {
    let mut rest = before;
    loop {
        match rest {
            [head @ .., keyword, name]
                if matches!(name.token, Token::Word(_)) && keyword.token != Token::Period =>
            {
                let begins = ["FROM", "JOIN", "UPDATE"]
                    .iter()
                    .any(|word| is_word(Some(keyword), word));
                return begins && !is(head.last(), &Token::Period);
            }
            [head @ .., period, name]
                if matches!(name.token, Token::Word(_)) && period.token == Token::Period =>
            {
                rest = head;
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::parse_one;

    #[test]
    fn one_relation_however_it_is_written() {
        for (written, plain) in [
            ("SELECT * FROM ONLY t", "SELECT * FROM t"),
            (
                "SELECT * FROM ONLY (s.t) AS x, ONLY u JOIN ONLY v ON true",
                "SELECT * FROM s.t AS x, u JOIN v ON true",
            ),
            ("UPDATE ONLY t SET a = 1", "UPDATE t SET a = 1"),
            ("DELETE FROM ONLY t USING u", "DELETE FROM t USING u"),
            ("SELECT * FROM s.t *", "SELECT * FROM s.t"),
            (
                "SELECT * FROM t * WHERE a > 1 * 2",
                "SELECT * FROM t WHERE a > 1 * 2",
            ),
            ("UPDATE t * SET a = 1", "UPDATE t SET a = 1"),
            (
                "SELECT * FROM json_to_record(x) AS (a int)",
                "SELECT * FROM json_to_record(x) AS json_to_record (a int)",
            ),
            ("INSERT INTO t TABLE u", "INSERT INTO t SELECT * FROM u"),
            (
                "INSERT INTO s.t (a, b) TABLE u",
                "INSERT INTO s.t (a, b) SELECT * FROM u",
            ),
            (
                "SELECT substring(a FROM b * c), count(*) FROM t FETCH FIRST 1 ROW ONLY",
                "SELECT substring(a FROM (b * c)), count(*) FROM t FETCH FIRST 1 ROW ONLY",
            ),
        ] {
            let written = parse_one(written).unwrap().to_string().replace(['(', ')'], "");
            let plain = parse_one(plain).unwrap().to_string().replace(['(', ')'], "");
            assert_eq!(written, plain);
        }
    }
}
