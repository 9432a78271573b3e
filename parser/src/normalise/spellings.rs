//! PostgreSQL's spellings that sqlparser does not read.
//!
//! | written | in the AST |
//! |---|---|
//! | `JOIN b USING (k) AS u` | `USING (k, "join alias".u)`, see [`JOIN_ALIAS`] |
//! | `ROWS FROM (f(), g()) AS t` | the table function [`ROWS_FROM`] with `f()` and `g()` as its arguments |
//! | `INSERT INTO t (a) OVERRIDING SYSTEM VALUE` | a column [`OVERRIDING`]`.system` more |
//! | `x = ANY (VALUES (1), (2))` | `x = ANY (SELECT * FROM (VALUES (1), (2)) AS "values")` |
//! | `ROWS .. EXCLUDE TIES` | a text among the columns of PARTITION BY, see [`Exclusion`] |
//! | `SET a[1] = v` | `SET a = "assign element"(v, 1)`, see [`ASSIGN_ELEMENT`] |

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::{closing, is, search};
use crate::ast::{ASSIGN_ELEMENT, ASSIGN_SLICE, Exclusion, JOIN_ALIAS, OVERRIDING, ROWS_FROM};
use crate::error::Failure;
use crate::tokens::{is_word, nesting, starts_with};

/// Rewrites all of them.
pub(super) fn respell(tokens: &mut Vec<TokenWithSpan>) -> Result<(), Failure> {
    let has = |tokens: &[TokenWithSpan], word: &str| tokens.iter().any(|token| is_word(Some(token), word));
    if has(tokens, "TRIM") {
        trims_of_blanks(tokens);
    }
    if has(tokens, "EXCLUDE") {
        exclusions(tokens)?;
    }
    if has(tokens, "SIMILAR") {
        similar_substrings(tokens);
    }
    if has(tokens, "USING") {
        join_aliases(tokens);
    }
    if has(tokens, "ROWS") {
        rows_from(tokens)?;
    }
    if has(tokens, "VALUES") {
        compared_values(tokens);
    }
    if has(tokens, "OVERRIDING") {
        overriding(tokens);
    }
    if has(tokens, "RECURSIVE") {
        search::as_queries(tokens)?;
    }
    if has(tokens, "SET") {
        assigned_elements(tokens)?;
    }
    if has(tokens, "INSERT") {
        refuse_parts_of_columns(tokens)?;
    }
    Ok(())
}

fn quoted(name: &str, span: Span) -> TokenWithSpan {
    TokenWithSpan::new(Token::make_word(name, Some('"')), span)
}

/// Quoted literals with a line break between them are one.
pub(super) fn join_literals(tokens: &mut Vec<TokenWithSpan>) -> Result<(), Failure> {
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for mut token in tokens.drain(..) {
        match &mut token.token {
            Token::NationalStringLiteral(text) => {
                token.token = Token::SingleQuotedString(std::mem::take(text));
            }
            Token::SingleQuotedByteStringLiteral(_) | Token::HexStringLiteral(_) => {
                let hint = "Bytes are written as '\\x1f'::bytea.";
                return Err(Failure::unsupported(
                    "bit strings are not supported",
                    token.span.start,
                    hint,
                ));
            }
            _ => {}
        }
        if let Token::SingleQuotedString(more) = &token.token
            && let Some(before) = joined.last_mut()
            && token.span.start.line > before.span.end.line
            && let Token::SingleQuotedString(text) = &mut before.token
        {
            text.push_str(more);
            before.span.end = token.span.end;
            continue;
        }
        joined.push(token);
    }
    *tokens = joined;
    Ok(())
}

/// `TRIM(BOTH FROM x)` is `TRIM(BOTH x)`.
fn trims_of_blanks(tokens: &mut Vec<TokenWithSpan>) {
    let mut i = 0;
    while i < tokens.len() {
        if is_word(tokens.get(i), "TRIM") && is(tokens.get(i + 1), &Token::LParen) {
            let is_side = ["BOTH", "LEADING", "TRAILING"]
                .iter()
                .any(|side| is_word(tokens.get(i + 2), side));
            let from = if is_side { i + 3 } else { i + 2 };
            if is_word(tokens.get(from), "FROM") {
                tokens.remove(from);
            }
        }
        i += 1;
    }
}

/// Of a window's frame: `EXCLUDE NO OTHERS` says nothing, and of the others a mark is put among the columns of PARTITION BY.
fn exclusions(tokens: &mut Vec<TokenWithSpan>) -> Result<(), Failure> {
    let mut i = 1;
    while i < tokens.len() {
        let in_frame = ["ROW", "PRECEDING", "FOLLOWING"]
            .iter()
            .any(|end| is_word(tokens.get(i - 1), end));
        if in_frame && is_word(tokens.get(i), "EXCLUDE") {
            let says = |words: &str| {
                let mut words = words.split(' ').enumerate();
                words.all(|(place, word)| is_word(tokens.get(i + 1 + place), word))
            };
            let exclusion = Exclusion::ALL.into_iter().find(|one| says(one.words()));
            let length = match exclusion {
                Some(one) => 1 + one.words().split(' ').count(),
                None if says("no others") => 3,
                None => {
                    let message = "CURRENT ROW, GROUP, TIES or NO OTHERS must follow EXCLUDE";
                    return Err(Failure::invalid(message, tokens[i].span.start));
                }
            };
            let span = tokens[i].span;
            tokens.drain(i..i + length);
            if let (Some(one), Some(open)) = (exclusion, opening(tokens, i)) {
                let word = |word: &str| TokenWithSpan::new(Token::make_word(word, None), span);
                let text = TokenWithSpan::new(Token::SingleQuotedString(one.mark()), span);
                // The planner passes over constants.
                let mark = [text, word("IS"), word("NULL")];
                let begins = ["PARTITION", "ORDER", "ROWS", "RANGE", "GROUPS"];
                let is_named = !begins.iter().any(|word| is_word(tokens.get(open + 1), word));
                let at = open + 1 + usize::from(is_named);
                if is_word(tokens.get(at), "PARTITION") {
                    let comma = TokenWithSpan::new(Token::Comma, span);
                    tokens.splice(at + 2..at + 2, mark.into_iter().chain([comma]));
                } else {
                    let by = [word("PARTITION"), word("BY")];
                    tokens.splice(at..at, by.into_iter().chain(mark));
                }
            }
        }
        i += 1;
    }
    Ok(())
}

/// The parenthesis that is open before a place.
fn opening(tokens: &[TokenWithSpan], before: usize) -> Option<usize> {
    let mut depth = 0;
    (0..before).rev().find(|at| {
        depth += nesting(&tokens[*at].token);
        depth > 0
    })
}

/// `SUBSTRING(x SIMILAR p ESCAPE e)` is `SUBSTRING(x FROM p FOR e)`.
fn similar_substrings(tokens: &mut [TokenWithSpan]) {
    for i in 0..tokens.len() {
        if !(is_word(tokens.get(i), "SUBSTRING") && is(tokens.get(i + 1), &Token::LParen)) {
            continue;
        }
        let mut depth = 0;
        let mut is_similar = false;
        for at in i + 1..tokens.len() {
            depth += nesting(&tokens[at].token);
            if depth == 0 {
                break;
            }
            let word = if depth != 1 {
                continue;
            } else if is_word(tokens.get(at), "SIMILAR") && !is_word(tokens.get(at + 1), "TO") {
                is_similar = true;
                "FROM"
            } else if is_similar && is_word(tokens.get(at), "ESCAPE") {
                "FOR"
            } else {
                continue;
            };
            tokens[at].token = Token::make_word(word, None);
        }
    }
}

/// `SELECT`, `SELECT WHERE p`: a row without columns. sqlparser knows that only with a FROM.
pub(super) fn rows_without_columns(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    const AFTER: [&str; 4] = ["WHERE", "UNION", "INTERSECT", "EXCEPT"];
    let is_bare = |i: &usize| {
        let next = tokens.get(i + 1);
        let has_ended =
            next.is_none_or(|next| matches!(next.token, Token::SemiColon | Token::RParen | Token::EOF));
        is_word(tokens.get(*i), "SELECT")
            && (has_ended || AFTER.iter().any(|word| is_word(next, word)))
            && begins_query(&tokens[..*i])
    };
    let bare: Vec<usize> = (0..tokens.len()).filter(is_bare).collect();
    if bare.is_empty() {
        return tokens;
    }
    let mut out = Vec::with_capacity(tokens.len() + bare.len() * 9);
    for (i, token) in tokens.into_iter().enumerate() {
        let span = token.span;
        out.push(token);
        if !bare.contains(&i) {
            continue;
        }
        let word = |text: &str| Token::make_word(text, None);
        let one = [
            word("FROM"),
            Token::LParen,
            word("VALUES"),
            Token::LParen,
            Token::Number("1".to_owned(), false),
            Token::RParen,
            Token::RParen,
            word("AS"),
            // A name that nobody has.
            Token::make_word("?row?", Some('"')),
        ];
        out.extend(one.into_iter().map(|token| TokenWithSpan { token, span }));
    }
    out
}

/// Whether a query may stand behind these tokens.
pub(super) fn begins_query(before: &[TokenWithSpan]) -> bool {
    before.is_empty()
        || ["AS", "UNION", "ALL", "EXCEPT", "INTERSECT"]
            .iter()
            .any(|word| is_word(before.last(), word))
        || opens_subquery(before)
}

/// Whether tokens end with a parenthesis around a query: not one around the arguments of a function, or the columns of a table.
fn opens_subquery(before: &[TokenWithSpan]) -> bool {
    const OPENERS: [&str; 20] = [
        "ALL", "AND", "ANY", "ARRAY", "AS", "CASE", "ELSE", "EXISTS", "FROM", "IN", "JOIN", "LATERAL", "NOT",
        "ON", "OR", "SELECT", "SOME", "THEN", "WHEN", "WHERE",
    ];
    let [rest @ .., open] = before else { return false };
    let opens = match rest.last() {
        Some(TokenWithSpan {
            token: Token::Word(_),
            ..
        }) => OPENERS.iter().any(|word| is_word(rest.last(), word)),
        _ => true,
    };
    open.token == Token::LParen && opens
}

/// `ANY (VALUES ..)`: sqlparser reads SELECT and WITH there.
fn compared_values(tokens: &mut Vec<TokenWithSpan>) {
    let mut i = 0;
    while i < tokens.len() {
        let begins = ["ANY", "SOME", "ALL"]
            .iter()
            .any(|word| is_word(tokens.get(i), word))
            && is(tokens.get(i + 1), &Token::LParen)
            && is_word(tokens.get(i + 2), "VALUES");
        if let Some(end) = closing(tokens, i + 1).filter(|_| begins) {
            let word = |text: &str| Token::make_word(text, None);
            let at = |span: Span| move |token: Token| TokenWithSpan { token, span };
            let [first, last] = [i + 2, end].map(|place| tokens[place].span);
            let close = [Token::RParen, word("AS"), Token::make_word("values", Some('"'))];
            tokens.splice(end..end, close.map(at(last)));
            let open = [word("SELECT"), Token::Mul, word("FROM"), Token::LParen];
            tokens.splice(i + 2..i + 2, open.map(at(first)));
        }
        i += 1;
    }
}

/// `JOIN b USING (k) AS u`: the alias becomes one of the columns. After the USING of DELETE and MERGE stands a relation.
fn join_aliases(tokens: &mut Vec<TokenWithSpan>) {
    let mut i = 0;
    while i < tokens.len() {
        let list = is_word(tokens.get(i), "USING") && is(tokens.get(i + 1), &Token::LParen);
        if let Some(end) = closing(tokens, i + 1).filter(|_| list)
            && tokens[i + 2..end]
                .iter()
                .all(|token| matches!(token.token, Token::Word(_) | Token::Comma))
            && is_word(tokens.get(end + 1), "AS")
            && matches!(
                tokens.get(end + 2).map(|token| &token.token),
                Some(Token::Word(_))
            )
        {
            let alias = tokens[end + 2].clone();
            let span = alias.span;
            let comma = TokenWithSpan::new(Token::Comma, span);
            let period = TokenWithSpan::new(Token::Period, span);
            tokens.drain(end + 1..end + 3);
            tokens.splice(end..end, [comma, quoted(JOIN_ALIAS, span), period, alias]);
        }
        i += 1;
    }
}

/// `ROWS FROM (f(), g())`. Columns that are defined within are refused.
fn rows_from(tokens: &mut Vec<TokenWithSpan>) -> Result<(), Failure> {
    let mut i = 1;
    while i < tokens.len() {
        let begins = starts_with(&tokens[i..], &["ROWS", "FROM"])
            && is(tokens.get(i + 2), &Token::LParen)
            && (is(tokens.get(i - 1), &Token::Comma)
                || ["FROM", "JOIN", "LATERAL"]
                    .iter()
                    .any(|word| is_word(tokens.get(i - 1), word)));
        if let Some(end) = closing(tokens, i + 2).filter(|_| begins) {
            let mut depth = 0;
            for token in &tokens[i + 2..end] {
                depth += nesting(&token.token);
                if depth == 1 && is_word(Some(token), "AS") {
                    let message = "columns that are defined within ROWS FROM are not supported";
                    return Err(Failure::unsupported(message, token.span.start, ""));
                }
            }
            let span = tokens[i].span;
            tokens.splice(i..i + 2, [quoted(ROWS_FROM, span)]);
        }
        i += 1;
    }
    Ok(())
}

/// `OVERRIDING SYSTEM | USER VALUE` of an INSERT becomes one of its columns.
fn overriding(tokens: &mut Vec<TokenWithSpan>) {
    let mut i = 1;
    while i < tokens.len() {
        let system = starts_with(&tokens[i..], &["OVERRIDING", "SYSTEM", "VALUE"]);
        if system || starts_with(&tokens[i..], &["OVERRIDING", "USER", "VALUE"]) {
            let span = tokens[i].span;
            let which = if system { "system" } else { "user" };
            let marker = [
                quoted(OVERRIDING, span),
                TokenWithSpan::new(Token::Period, span),
                quoted(which, span),
                TokenWithSpan::new(Token::RParen, span),
            ];
            // The list of columns, or none.
            let (from, first) = match is(tokens.get(i - 1), &Token::RParen) {
                true => (i - 1, Token::Comma),
                false => (i, Token::LParen),
            };
            let first = TokenWithSpan::new(first, span);
            tokens.splice(from..i + 3, std::iter::once(first).chain(marker));
        }
        i += 1;
    }
}

/// `INSERT INTO t (a[1], c.x)`.
fn refuse_parts_of_columns(tokens: &[TokenWithSpan]) -> Result<(), Failure> {
    for i in 0..tokens.len() {
        if !starts_with(&tokens[i..], &["INSERT", "INTO"]) {
            continue;
        }
        let is_in_name = |token: &&TokenWithSpan| match token.token {
            Token::Word(_) => !["VALUES", "SELECT", "WITH"]
                .iter()
                .any(|word| is_word(Some(token), word)),
            _ => token.token == Token::Period,
        };
        let open = i + 2 + tokens[i + 2..].iter().take_while(is_in_name).count();
        let Some(end) = closing(tokens, open).filter(|_| is(tokens.get(open), &Token::LParen)) else {
            continue;
        };
        let list = &tokens[open + 1..end];
        let is_list = matches!(list.first().map(|token| &token.token), Some(Token::Word(word)) if word.keyword != Keyword::SELECT);
        if is_list && let Some(bracket) = list.iter().find(|token| token.token == Token::LBracket) {
            let message = "INSERT into elements of an array is not supported";
            let hint = "Insert the whole array.";
            return Err(Failure::unsupported(message, bracket.span.start, hint));
        }
        let names = list.iter().zip(list.iter().skip(1));
        let is_attribute = |(name, dot): &(&TokenWithSpan, &TokenWithSpan)| {
            let is_mark = matches!(&name.token, Token::Word(word) if word.value == OVERRIDING);
            dot.token == Token::Period && !is_mark
        };
        if is_list && let Some((name, dot)) = names.into_iter().find(is_attribute) {
            let table = tokens.get(open - 1);
            if let (Token::Word(name), Some(Token::Word(table))) =
                (&name.token, table.map(|table| &table.token))
                && name.value.eq_ignore_ascii_case(&table.value)
            {
                let message = format!("column \"{0}\" of relation \"{0}\" does not exist", name.value);
                let hint = "Write columns without their table's name.";
                return Err(Failure::invalid(message, dot.span.start).with_hint(hint));
            }
            let message = "INSERT into attributes of a column is not supported";
            let hint = "Insert composite values as a whole: ROW(..).";
            return Err(Failure::unsupported(message, dot.span.start, hint));
        }
    }
    Ok(())
}

/// `SET a[i] = v` is `SET a = "assign element"(v, i)`; `SET a[i:j] = v` is `SET a = "assign slice"(v, i, j)`.
fn assigned_elements(tokens: &mut Vec<TokenWithSpan>) -> Result<(), Failure> {
    let mut i = 0;
    while i < tokens.len() {
        if is_word(tokens.get(i), "SET") {
            assigned_list(tokens, i + 1)?;
        }
        i += 1;
    }
    Ok(())
}

/// Rewrites the assignments of a list that begins at `from`.
fn assigned_list(tokens: &mut Vec<TokenWithSpan>, mut from: usize) -> Result<(), Failure> {
    loop {
        if !matches!(tokens.get(from).map(|token| &token.token), Some(Token::Word(_))) {
            return Ok(());
        }
        // The subscripts, each with its brackets.
        let mut subscripts = vec![];
        let mut at = from + 1;
        while is(tokens.get(at), &Token::LBracket)
            && let Some(end) = closing(tokens, at)
        {
            subscripts.push((at, end));
            at = end + 1;
        }
        if !is(tokens.get(at), &Token::Eq) {
            return Ok(());
        }
        let mut end = end_of_value(tokens, at + 1);
        if let (Some((first, _)), Some((_, last))) = (subscripts.first(), subscripts.last()) {
            let span = tokens[*first].span;
            let mut places: Vec<TokenWithSpan> = vec![];
            let mut is_slice = false;
            for (open, close) in &subscripts {
                let mut depth = 0;
                places.push(TokenWithSpan::new(Token::Comma, span));
                let inner = &tokens[open + 1..*close];
                for (index, token) in inner.iter().enumerate() {
                    depth += nesting(&token.token);
                    if depth != 0 || token.token != Token::Colon {
                        places.push(token.clone());
                        continue;
                    }
                    if subscripts.len() > 1 || index == 0 || index + 1 == inner.len() {
                        let message = "this slice cannot be assigned to: only one with both ends can";
                        return Err(Failure::unsupported(message, span.start, ""));
                    }
                    is_slice = true;
                    places.push(TokenWithSpan::new(Token::Comma, span));
                }
            }
            let function = if is_slice { ASSIGN_SLICE } else { ASSIGN_ELEMENT };
            let mut call = vec![
                TokenWithSpan::new(Token::Eq, span),
                quoted(function, span),
                TokenWithSpan::new(Token::LParen, span),
            ];
            call.extend_from_slice(&tokens[at + 1..end]);
            call.extend(places);
            call.push(TokenWithSpan::new(Token::RParen, span));
            let (begin, length) = (*first, call.len());
            debug_assert!(begin <= *last);
            tokens.splice(begin..end, call);
            end = begin + length;
        }
        if !is(tokens.get(end), &Token::Comma) {
            return Ok(());
        }
        from = end + 1;
    }
}

/// Where the value of an assignment that begins at `from` ends.
fn end_of_value(tokens: &[TokenWithSpan], from: usize) -> usize {
    const ENDS: [&str; 4] = ["WHERE", "FROM", "RETURNING", "WHEN"];
    let (mut depth, mut cases) = (0, 0);
    for (at, token) in tokens.iter().enumerate().skip(from) {
        depth += nesting(&token.token);
        if depth < 0 {
            return at;
        }
        if depth > 0 {
            continue;
        }
        match &token.token {
            Token::Word(word) if word.keyword == Keyword::CASE => cases += 1,
            Token::Word(word) if word.keyword == Keyword::END => cases -= 1,
            _ => {}
        }
        let is_distinct = at > from && is_word(tokens.get(at - 1), "DISTINCT");
        let ends = ENDS.iter().any(|end| is_word(Some(token), end)) && !is_distinct;
        if cases == 0 && (ends || token.token == Token::Comma) {
            return at;
        }
    }
    tokens.len()
}
