//! Operands and clauses as PostgreSQL writes them, which sqlparser does not read.
//!
//! | written | in the AST |
//! |---|---|
//! | `mood 'happy'` | `'happy'::mood`, for types that have no keyword |
//! | `U&'d!0061t' UESCAPE '!'` | the text that it stands for |
//! | `U&"d\0061t"` | the name that it stands for |
//! | `int ARRAY`, `int ARRAY[4]` | `int[]` |
//! | `t.* IS NULL`, `t.*::text`, `t.* = u.*` | `t IS NULL`, `t::text`, `t = u`: the row of `t` |
//! | `f(a := 1)` | `f(a => 1)` |
//! | `f(x, VARIADIC a)` | `f(x, "variadic"(a))`, see [`VARIADIC`] |
//! | `ORDER BY x USING >` | `ORDER BY x DESC` |
//! | `((SELECT 1) UNION SELECT 2)` | `(SELECT * FROM (SELECT 1) AS "operand" UNION SELECT 2)` |
//! | `RANGE '1 day'::interval PRECEDING` | `RANGE INTERVAL '1 day' PRECEDING` |
//! | `RANGE '1'::int PRECEDING` | `RANGE ('1'::int) PRECEDING` |

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::is;
use crate::ast::VARIADIC;
use crate::error::Failure;
use crate::tokens::{is_word, nesting, starts_with};

type Tokens = Vec<TokenWithSpan>;

/// Rewrites all of them.
pub(super) fn respell(tokens: &mut Tokens) -> Result<(), Failure> {
    let has = |tokens: &Tokens, word: &str| tokens.iter().any(|token| is_word(Some(token), word));
    if has(tokens, "UESCAPE") {
        escaped_by(tokens)?;
    }
    // The options of COPY are written so: DELIMITER 'x'.
    if !starts_with(tokens, &["COPY"]) {
        typed_literals(tokens);
    }
    if has(tokens, "ARRAY") {
        array_types(tokens);
    }
    rows_of_stars(tokens);
    for token in tokens.iter_mut() {
        if token.token == Token::Assignment {
            token.token = Token::RArrow;
        }
    }
    if has(tokens, "VARIADIC") {
        variadic_arguments(tokens);
    }
    if has(tokens, "USING") {
        order_by_operator(tokens);
    }
    if ["UNION", "INTERSECT", "EXCEPT"]
        .iter()
        .any(|word| has(tokens, word))
    {
        parenthesised_operands(tokens);
    }
    if has(tokens, "PRECEDING") || has(tokens, "FOLLOWING") {
        interval_bounds(tokens);
    }
    Ok(())
}

pub(super) fn like(token: Token, model: &TokenWithSpan) -> TokenWithSpan {
    TokenWithSpan::new(token, model.span)
}

pub(super) fn word(name: &str, model: &TokenWithSpan) -> TokenWithSpan {
    like(Token::make_word(name, None), model)
}

/// Changes of the tokens, made in one go: a statement may have a million of them.
#[derive(Default)]
struct Edits(Vec<Edit>);

struct Edit {
    at: usize,
    removed: usize,
    put: Tokens,
}

impl Edits {
    /// Puts tokens in the place of so many.
    fn replace(&mut self, at: usize, removed: usize, put: Tokens) {
        self.0.push(Edit { at, removed, put });
    }

    fn apply(mut self, tokens: &mut Tokens) {
        if self.0.is_empty() {
            return;
        }
        self.0.sort_by_key(|edit| edit.at);
        let mut old = std::mem::take(tokens).into_iter().enumerate().peekable();
        for edit in self.0 {
            while let Some((_, token)) = old.next_if(|(at, _)| *at < edit.at) {
                tokens.push(token);
            }
            tokens.extend(edit.put);
            while old.next_if(|(at, _)| *at < edit.at + edit.removed).is_some() {}
        }
        tokens.extend(old.map(|(_, token)| token));
    }
}

/// Where parentheses and brackets close.
struct Ends {
    /// For each token: where what it opens ends, or, of any other, where what is around it does.
    of: Vec<Option<usize>>,
}

impl Ends {
    fn of(tokens: &[TokenWithSpan]) -> Self {
        let mut of = vec![None; tokens.len()];
        let mut open: Vec<usize> = vec![];
        let mut around: Vec<Option<usize>> = vec![None; tokens.len()];
        for (at, token) in tokens.iter().enumerate() {
            around[at] = open.last().copied();
            match nesting(&token.token) {
                1 => open.push(at),
                -1 => {
                    if let Some(begin) = open.pop() {
                        of[begin] = Some(at);
                    }
                }
                _ => {}
            }
        }
        for at in 0..tokens.len() {
            if of[at].is_none() {
                of[at] = around[at].and_then(|begin| of[begin]);
            }
        }
        Ends { of }
    }

    /// Where the parenthesis at `at` closes.
    fn of_open(&self, at: usize) -> Option<usize> {
        self.of.get(at).copied().flatten()
    }

    /// Where the parentheses around a token that opens none close.
    fn around(&self, at: usize) -> Option<usize> {
        self.of_open(at)
    }
}

/// Whether an operand may begin behind this token.
fn begins_operand(before: Option<&TokenWithSpan>) -> bool {
    match before.map(|token| &token.token) {
        None => false,
        Some(Token::Word(word)) => matches!(
            word.keyword,
            Keyword::SELECT
                | Keyword::DISTINCT
                | Keyword::ALL
                | Keyword::WHERE
                | Keyword::HAVING
                | Keyword::AND
                | Keyword::OR
                | Keyword::NOT
                | Keyword::ON
                | Keyword::BY
                | Keyword::CASE
                | Keyword::WHEN
                | Keyword::THEN
                | Keyword::ELSE
                | Keyword::BETWEEN
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::RETURNING
                | Keyword::DEFAULT
        ),
        Some(
            Token::LParen
            | Token::LBracket
            | Token::Comma
            | Token::Eq
            | Token::Neq
            | Token::Lt
            | Token::Gt
            | Token::LtEq
            | Token::GtEq
            | Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::Mod
            | Token::StringConcat
            | Token::RArrow
            | Token::Arrow
            | Token::AtArrow
            | Token::ArrowAt,
        ) => true,
        Some(_) => false,
    }
}

/// `t 'x'` of a type that sqlparser has no keyword for.
fn typed_literals(tokens: &mut Tokens) {
    const BEGIN: [&str; 7] = [
        "SELECT",
        "VALUES",
        "WHERE",
        "SET",
        "RETURNING",
        "DEFAULT",
        "CHECK",
    ];
    let begins = |token: &TokenWithSpan| BEGIN.iter().any(|word| is_word(Some(token), word));
    // Before the first expression there are options of the statement: EXPLAIN (DURATION '1 s').
    let Some(first) = tokens.iter().position(begins) else {
        return;
    };
    let mut edits = Edits::default();
    for i in first + 1..tokens.len().saturating_sub(1) {
        let is_type = match &tokens[i].token {
            Token::Word(word) => {
                let has_keyword = word.keyword != Keyword::NoKeyword && word.keyword != Keyword::NAME;
                word.quote_style.is_some() || !has_keyword
            }
            _ => false,
        };
        if is_type
            && begins_operand(tokens.get(i - 1))
            && matches!(tokens[i + 1].token, Token::SingleQuotedString(_))
        {
            let cast = like(Token::DoubleColon, &tokens[i]);
            edits.replace(i, 2, vec![tokens[i + 1].clone(), cast, tokens[i].clone()]);
        }
    }
    edits.apply(tokens);
}

/// `U&'..' UESCAPE 'c'`: the tokenizer reads `U&'..'` with a backslash.
fn escaped_by(tokens: &mut Tokens) -> Result<(), Failure> {
    let mut edits = Edits::default();
    for i in 1..tokens.len().saturating_sub(1) {
        if is_word(tokens.get(i), "UESCAPE")
            && let Token::UnicodeStringLiteral(text) = &tokens[i - 1].token
            && let Token::SingleQuotedString(escape) = &tokens[i + 1].token
        {
            let escape = escape_character(escape, &tokens[i + 1])?;
            let Some(read) = unescaped(text, escape) else {
                let at = tokens[i - 1].span.start;
                return Err(Failure::invalid("invalid Unicode escape sequence", at));
            };
            let text = like(Token::SingleQuotedString(read), &tokens[i - 1]);
            edits.replace(i - 1, 3, vec![text]);
        }
    }
    edits.apply(tokens);
    Ok(())
}

fn escape_character(text: &str, token: &TokenWithSpan) -> Result<char, Failure> {
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(escape), None) if !(escape.is_ascii_hexdigit() || "+'\" \t\n".contains(escape)) => Ok(escape),
        _ => Err(Failure::invalid(
            "invalid Unicode escape character",
            token.span.start,
        )),
    }
}

/// `U&"d\0061t"`, and with UESCAPE: one name, which the tokenizer takes for three tokens.
pub(super) fn unicode_names(tokens: &mut Tokens) -> Result<(), Failure> {
    let mut edits = Edits::default();
    for i in 2..tokens.len() {
        let Token::Word(name) = &tokens[i].token else {
            continue;
        };
        let is_one = name.quote_style == Some('"')
            && tokens[i - 1].token == Token::Ampersand
            && is_word(tokens.get(i - 2), "U")
            && tokens[i - 2].span.end == tokens[i - 1].span.start
            && tokens[i - 1].span.end == tokens[i].span.start;
        if !is_one {
            continue;
        }
        let escape = match tokens.get(i + 2).map(|token| &token.token) {
            Some(Token::SingleQuotedString(escape)) if is_word(tokens.get(i + 1), "UESCAPE") => {
                Some(escape_character(escape, &tokens[i + 2])?)
            }
            _ => None,
        };
        let Some(read) = unescaped(&name.value, escape.unwrap_or('\\')) else {
            return Err(Failure::invalid(
                "invalid Unicode escape sequence",
                tokens[i - 2].span.start,
            ));
        };
        let length = if escape.is_some() { 5 } else { 3 };
        edits.replace(
            i - 2,
            length,
            vec![like(Token::make_word(&read, Some('"')), &tokens[i - 2])],
        );
    }
    edits.apply(tokens);
    Ok(())
}

/// The text of `\0061`, `\+000061` and `\\` with another escape character; `None`: it stands for no character.
fn unescaped(text: &str, escape: char) -> Option<String> {
    let mut read = String::with_capacity(text.len());
    let mut rest = text;
    let mut high: Option<u32> = None;
    while let Some(at) = rest.find(escape) {
        if high.is_some() && at > 0 {
            return None;
        }
        read.push_str(&rest[..at]);
        rest = &rest[at + escape.len_utf8()..];
        if rest.starts_with(escape) {
            read.push(escape);
            rest = &rest[escape.len_utf8()..];
            continue;
        }
        let (digits, length) = match rest.strip_prefix('+') {
            Some(digits) => (digits.get(..6)?, 7),
            None => (rest.get(..4)?, 4),
        };
        let mut code = u32::from_str_radix(digits, 16).ok()?;
        rest = &rest[length..];
        // Two halves of a pair make one character.
        match (high.take(), code) {
            (None, 0xD800..=0xDBFF) => {
                high = Some(code);
                continue;
            }
            (Some(first), 0xDC00..=0xDFFF) => code = 0x10000 + ((first - 0xD800) << 10) + (code - 0xDC00),
            (Some(_), _) => return None,
            (None, _) => {}
        }
        read.push(char::from_u32(code).filter(|character| *character != '\0')?);
    }
    if high.is_some() {
        return None;
    }
    read.push_str(rest);
    Some(read)
}

/// `int ARRAY[4]`: no type tells the size of its arrays.
fn array_types(tokens: &mut Tokens) {
    const TYPES: [&str; 22] = [
        "INTEGER",
        "INT",
        "INT2",
        "INT4",
        "INT8",
        "SMALLINT",
        "BIGINT",
        "REAL",
        "PRECISION",
        "FLOAT4",
        "FLOAT8",
        "NUMERIC",
        "DECIMAL",
        "TEXT",
        "VARCHAR",
        "BOOLEAN",
        "BOOL",
        "DATE",
        "TIMESTAMP",
        "TIMESTAMPTZ",
        "UUID",
        "JSONB",
    ];
    let ends = Ends::of(tokens);
    let mut edits = Edits::default();
    for i in 1..tokens.len() {
        let of_type = TYPES.iter().any(|name| is_word(tokens.get(i - 1), name));
        if of_type && is_word(tokens.get(i), "ARRAY") {
            let size = match is(tokens.get(i + 1), &Token::LBracket) {
                true => ends.of_open(i + 1).map_or(0, |end| end - i),
                false => 0,
            };
            let brackets = [Token::LBracket, Token::RBracket].map(|token| like(token, &tokens[i]));
            edits.replace(i, 1 + size, brackets.into());
        }
    }
    edits.apply(tokens);
}

/// `t.*` as an operand: the row of `t`.
fn rows_of_stars(tokens: &mut Tokens) {
    let compares = |token: &Token| {
        matches!(
            token,
            Token::Eq | Token::Neq | Token::Lt | Token::Gt | Token::LtEq | Token::GtEq
        )
    };
    let mut edits = Edits::default();
    for i in 1..tokens.len().saturating_sub(1) {
        let is_star = tokens[i].token == Token::Period
            && tokens[i + 1].token == Token::Mul
            && matches!(tokens[i - 1].token, Token::Word(_));
        if is_star {
            let is_left = tokens.get(i + 2).is_some_and(|next| {
                next.token == Token::DoubleColon || compares(&next.token) || is_word(Some(next), "IS")
            });
            let is_right = i >= 2 && compares(&tokens[i - 2].token);
            if is_left || is_right {
                edits.replace(i, 2, vec![]);
            }
        }
    }
    edits.apply(tokens);
}

/// `VARIADIC a`, the last argument.
fn variadic_arguments(tokens: &mut Tokens) {
    let ends = Ends::of(tokens);
    let mut edits = Edits::default();
    for i in 1..tokens.len().saturating_sub(1) {
        let is_argument = is(tokens.get(i - 1), &Token::LParen) || is(tokens.get(i - 1), &Token::Comma);
        if !(is_argument && is_word(tokens.get(i), "VARIADIC")) {
            continue;
        }
        // In CREATE FUNCTION it is a mode of a parameter: a name and a type.
        let is_parameter = matches!(
            (&tokens[i + 1].token, tokens.get(i + 2).map(|token| &token.token)),
            (Token::Word(_), Some(Token::Word(_)))
        );
        if let Some(end) = ends.around(i).filter(|end| *end > i + 1 && !is_parameter) {
            let name = like(Token::make_word(VARIADIC, Some('"')), &tokens[i]);
            edits.replace(i, 1, vec![name, like(Token::LParen, &tokens[i])]);
            edits.replace(end, 0, vec![like(Token::RParen, &tokens[end])]);
        }
    }
    edits.apply(tokens);
}

/// `x USING <` among what a query is ordered by.
fn order_by_operator(tokens: &mut Tokens) {
    let mut edits = Edits::default();
    for i in 1..tokens.len().saturating_sub(1) {
        let direction = match tokens[i + 1].token {
            Token::Lt => "ASC",
            Token::Gt => "DESC",
            _ => continue,
        };
        let ends = match tokens.get(i + 2).map(|token| &token.token) {
            None | Some(Token::Comma | Token::RParen | Token::SemiColon) => true,
            Some(Token::Word(word)) => matches!(
                word.keyword,
                Keyword::NULLS | Keyword::LIMIT | Keyword::OFFSET | Keyword::FETCH | Keyword::FOR
            ),
            Some(_) => false,
        };
        if is_word(tokens.get(i), "USING") && ends {
            // The text of a view's query ends where its last token does.
            let mut direction = word(direction, &tokens[i]);
            direction.span.end = tokens[i + 1].span.end;
            edits.replace(i, 2, vec![direction]);
        }
    }
    edits.apply(tokens);
}

/// `((SELECT 1) UNION SELECT 2)` where an expression may stand: sqlparser reads the first operand as a whole subquery.
fn parenthesised_operands(tokens: &mut Tokens) {
    let ends = Ends::of(tokens);
    let mut edits = Edits::default();
    for i in 1..tokens.len().saturating_sub(1) {
        if tokens[i].token == Token::LParen
            && tokens[i + 1].token == Token::LParen
            && let Some(end) = ends.of_open(i + 1)
            && ["UNION", "INTERSECT", "EXCEPT"]
                .iter()
                .any(|operator| is_word(tokens.get(end + 1), operator))
            && begins_query(&tokens[i + 1..])
        {
            let model = &tokens[i + 1];
            let select = vec![
                word("SELECT", model),
                like(Token::Mul, model),
                word("FROM", model),
            ];
            edits.replace(i + 1, 0, select);
            let name = vec![
                word("AS", model),
                like(Token::make_word("operand", Some('"')), model),
            ];
            edits.replace(end + 1, 0, name);
        }
    }
    edits.apply(tokens);
}

/// Whether a query stands behind these parentheses.
fn begins_query(tokens: &[TokenWithSpan]) -> bool {
    let first = tokens.iter().find(|token| token.token != Token::LParen);
    ["SELECT", "VALUES", "WITH"]
        .iter()
        .any(|word| is_word(first, word))
}

/// `'1 day'::interval PRECEDING`, `'1'::int PRECEDING`: sqlparser reads no cast there, but one in parentheses.
fn interval_bounds(tokens: &mut Tokens) {
    let mut edits = Edits::default();
    for i in 0..tokens.len().saturating_sub(3) {
        let is_bound = matches!(tokens[i].token, Token::SingleQuotedString(_))
            && tokens[i + 1].token == Token::DoubleColon
            && is_word(tokens.get(i + 2), "INTERVAL")
            && (is_word(tokens.get(i + 3), "PRECEDING") || is_word(tokens.get(i + 3), "FOLLOWING"));
        if is_bound {
            edits.replace(i, 3, vec![tokens[i + 2].clone(), tokens[i].clone()]);
            continue;
        }
        let begins = ["BETWEEN", "AND", "RANGE", "ROWS", "GROUPS"];
        let is_cast = i > 0
            && matches!(tokens[i].token, Token::SingleQuotedString(_))
            && tokens[i + 1].token == Token::DoubleColon
            && begins.iter().any(|word| is_word(tokens.get(i - 1), word));
        let ends_type = |at: &usize| {
            let token = &tokens[*at].token;
            let is_type = matches!(
                token,
                Token::Word(_) | Token::Number(..) | Token::LParen | Token::RParen
            );
            !is_type || ends_bound(tokens.get(*at))
        };
        if is_cast
            && let Some(end) = (i + 2..tokens.len()).find(ends_type)
            && ends_bound(tokens.get(end))
        {
            edits.replace(i, 1, vec![like(Token::LParen, &tokens[i]), tokens[i].clone()]);
            edits.replace(end, 0, vec![like(Token::RParen, &tokens[end])]);
        }
    }
    edits.apply(tokens);
}

fn ends_bound(token: Option<&TokenWithSpan>) -> bool {
    is_word(token, "PRECEDING") || is_word(token, "FOLLOWING")
}
