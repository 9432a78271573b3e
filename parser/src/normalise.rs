//! Streaming constructs inside queries that sqlparser cannot read, rewritten in the tokens into ones that it can.
//!
//! The table in [`crate::ast`] says what becomes what; [`spellings`] has PostgreSQL's own. Spans stay those of the source, so that errors still point at
//! what the user wrote; inserted tokens have the span of their neighbour.

mod grouping;
mod operands;
mod relations;
mod search;
mod spellings;
mod statements;
mod structs;

use sqlparser::ast::Ident;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use crate::ast::{ASOF_INNER, ASOF_LEFT};
use crate::error::Failure;
use crate::identifier::needs_escapes;
use crate::tokens::{is_word, nesting, starts_with};

/// The table functions that cut a relation into windows.
const WINDOW_FUNCTIONS: [&str; 4] = ["TUMBLE", "HOP", "SESSION", "CUMULATE"];

/// Rewrites all of them.
pub(crate) fn normalise(mut tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>, Failure> {
    refuse_trailing_junk(&tokens)?;
    if tokens.iter().any(|token| token.token == Token::Ampersand) {
        operands::unicode_names(&mut tokens)?;
    }
    disarm_words_of_others(&mut tokens);
    spellings::join_literals(&mut tokens)?;
    escape_literals(&mut tokens)?;
    relations::respell(&mut tokens);
    tokens = spellings::rows_without_columns(tokens);
    if tokens.iter().any(|token| is_window_function(Some(token))) {
        tokens = windows(tokens)?;
    }
    if tokens.iter().any(|token| is_word(Some(token), "STRUCT")) {
        structs::respell(&mut tokens)?;
    }
    spellings::respell(&mut tokens)?;
    operands::respell(&mut tokens)?;
    statements::respell(&mut tokens);
    if tokens.iter().any(|token| is_word(Some(token), "GROUP")) {
        grouping::respell(&mut tokens);
    }
    if tokens.iter().any(|token| is_word(Some(token), "ASOF")) {
        tokens = asof_joins(tokens)?;
    }
    if tokens.iter().any(|token| is_word(Some(token), "OF")) {
        short_versions(&mut tokens);
    }
    if tokens.iter().any(|token| is_word(Some(token), "SYSTEM_TIME")) {
        temporal_aliases(&mut tokens);
    }
    Ok(tokens)
}

/// `1a`, `0b11`, `1_000`: a number that a word follows at once, which sqlparser reads as a number with an alias.
fn refuse_trailing_junk(tokens: &[TokenWithSpan]) -> Result<(), Failure> {
    for (at, token) in tokens.iter().enumerate() {
        let (number, is_long) = match &token.token {
            Token::Number(number, is_long) => (number.as_str(), is_long),
            // `0x1f`, which sqlparser takes for X'1f'.
            Token::HexStringLiteral(digits)
                if token.span.end.column - token.span.start.column == digits.len() as u64 + 2 =>
            {
                let message = "trailing junk after numeric literal at or near \"0x\"";
                return Err(Failure::invalid(message, token.span.start));
            }
            _ => continue,
        };
        let (number, behind) = number.split_at(number.find('_').unwrap_or(number.len()));
        let junk = match tokens.get(at + 1) {
            _ if !behind.is_empty() => behind.chars().next(),
            _ if *is_long => Some('L'),
            Some(next) if next.span.start == token.span.end => match &next.token {
                Token::Word(word) if word.quote_style.is_none() => word.value.chars().next(),
                _ => None,
            },
            _ => None,
        };
        if let Some(first) = junk {
            let message = format!("trailing junk after numeric literal at or near \"{number}{first}\"");
            return Err(Failure::invalid(message, token.span.start));
        }
    }
    Ok(())
}

/// Literals that sqlparser would not write as they are become ones with escapes (see [`crate::string_value`]). Names have no such form, and
/// are refused; so are names of no characters.
fn escape_literals(tokens: &mut [TokenWithSpan]) -> Result<(), Failure> {
    for token in tokens {
        match &mut token.token {
            Token::SingleQuotedString(text) if needs_escapes(text, '\'') => {
                token.token = Token::EscapedStringLiteral(std::mem::take(text));
            }
            Token::Word(word) if word.quote_style == Some('"') && word.value.is_empty() => {
                let message = "zero-length delimited identifier at or near \"\"\"\"";
                return Err(Failure::invalid(message, token.span.start));
            }
            Token::Word(word) if word.quote_style == Some('"') && needs_escapes(&word.value, '"') => {
                let message = "names with two quotation marks behind each other, or one behind a backslash, are not supported";
                return Err(Failure::unsupported(message, token.span.start, ""));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Words that are names to PostgreSQL: `AT`, `BEFORE` and `CHANGES` after a table are Snowflake's time travel to sqlparser; `local` after
/// INTO is Hive's place of files; TOP and QUALIFY are clauses of others, and UNNEST, CUBE and ROLLUP are calls always.
fn disarm_words_of_others(tokens: &mut [TokenWithSpan]) {
    for i in 0..tokens.len() {
        let time_zone = is_word(tokens.get(i + 1), "TIME") || is_word(tokens.get(i + 1), "LOCAL");
        let into = i > 0 && is_word(tokens.get(i - 1), "INTO");
        let is_directory = is_word(tokens.get(i + 1), "DIRECTORY");
        let is_call = is(tokens.get(i + 1), &Token::LParen);
        if let Token::Word(word) = &mut tokens[i].token {
            let disarmed = match word.keyword {
                Keyword::AT => !time_zone,
                Keyword::BEFORE | Keyword::CHANGES | Keyword::TOP | Keyword::QUALIFY => true,
                Keyword::UNNEST | Keyword::CUBE | Keyword::ROLLUP => !is_call,
                Keyword::LOCAL => into && !is_directory,
                _ => false,
            };
            if disarmed {
                word.keyword = Keyword::NoKeyword;
            }
        }
    }
}

fn is_window_function(token: Option<&TokenWithSpan>) -> bool {
    WINDOW_FUNCTIONS.iter().any(|name| is_word(token, name))
}

fn is(token: Option<&TokenWithSpan>, expected: &Token) -> bool {
    token.is_some_and(|token| token.token == *expected)
}

/// The index of the parenthesis that closes the one at `open`.
fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        depth += nesting(&token.token);
        if depth == 0 {
            return Some(i);
        }
    }
    None
}

/// Rewrites window functions, with and without `TABLE(..)` around them.
fn windows(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>, Failure> {
    let mut out = Vec::with_capacity(tokens.len());
    let mut i = 0;
    while i < tokens.len() {
        let wrapped = is_word(tokens.get(i), "TABLE")
            && is(tokens.get(i + 1), &Token::LParen)
            && is_window_function(tokens.get(i + 2));
        let name = if wrapped { i + 2 } else { i };
        let call = is_window_function(tokens.get(name)) && is(tokens.get(name + 1), &Token::LParen);
        let end = if call { closing(&tokens, name + 1) } else { None };
        let (Some(end), true) = (
            end,
            !wrapped || end.is_some_and(|e| is(tokens.get(e + 1), &Token::RParen)),
        ) else {
            out.push(tokens[i].clone());
            i += 1;
            continue;
        };
        out.push(tokens[name].clone());
        out.push(tokens[name + 1].clone());
        // Subqueries in the arguments may have windows of their own.
        let arguments = windows(tokens[name + 2..end].to_vec())?;
        out.extend(window_arguments(&tokens[name], arguments)?);
        out.push(tokens[end].clone());
        i = if wrapped { end + 2 } else { end + 1 };
    }
    Ok(out)
}

/// Splits at the commas outside of parentheses.
fn split_arguments(tokens: Vec<TokenWithSpan>) -> Vec<Vec<TokenWithSpan>> {
    let mut arguments = vec![Vec::new()];
    let mut depth = 0;
    for token in tokens {
        depth += nesting(&token.token);
        if depth == 0 && token.token == Token::Comma {
            arguments.push(Vec::new());
        } else if let Some(last) = arguments.last_mut() {
            last.push(token);
        }
    }
    arguments
}

/// The arguments of a window function in our order: relation, time, intervals, `partition_by => ARRAY[..]`.
fn window_arguments(
    function: &TokenWithSpan,
    tokens: Vec<TokenWithSpan>,
) -> Result<Vec<TokenWithSpan>, Failure> {
    let arguments = in_position(function, split_arguments(tokens))?;
    let mut arguments = arguments.into_iter();
    let mut relation = arguments.next().unwrap_or_default();
    let mut rest: Vec<Vec<TokenWithSpan>> = arguments.collect();
    if is_word(relation.first(), "TABLE") {
        relation.remove(0);
    }
    let partition = (0..relation.len()).find(|&i| starts_with(&relation[i..], &["PARTITION", "BY"]));
    let keys = match partition {
        Some(at) if relation[..at].iter().map(|t| nesting(&t.token)).sum::<i32>() == 0 => {
            let first = relation.split_off(at).split_off(2);
            partition_keys(function, first, &mut rest)?
        }
        _ => Vec::new(),
    };
    for argument in &mut rest {
        let wrapped = is_word(argument.first(), "DESCRIPTOR")
            && is(argument.get(1), &Token::LParen)
            && is(argument.last(), &Token::RParen);
        if wrapped {
            argument.pop();
            argument.drain(..2);
        }
    }
    let span = function.span;
    let mut out = relation;
    for argument in rest {
        out.push(TokenWithSpan::new(Token::Comma, span));
        out.extend(argument);
    }
    if !keys.is_empty() {
        out.push(TokenWithSpan::new(Token::Comma, span));
        out.push(word("partition_by", span));
        out.push(TokenWithSpan::new(Token::RArrow, span));
        out.push(word("ARRAY", span));
        out.push(TokenWithSpan::new(Token::LBracket, span));
        out.extend(keys);
        out.push(TokenWithSpan::new(Token::RBracket, span));
    }
    Ok(out)
}

/// The keys after `PARTITION BY`. A list ends where the time column begins: at DESCRIPTOR if it is written, else such
/// that the function keeps the arguments that it needs; or it is in parentheses.
fn partition_keys(
    function: &TokenWithSpan,
    first: Vec<TokenWithSpan>,
    rest: &mut Vec<Vec<TokenWithSpan>>,
) -> Result<Vec<TokenWithSpan>, Failure> {
    if first.is_empty() {
        return Err(Failure::invalid(
            "PARTITION BY in a window function names no column",
            function.span.start,
        ));
    }
    if is(first.first(), &Token::LParen) && closing(&first, 0) == Some(first.len() - 1) {
        return Ok(first[1..first.len() - 1].to_vec());
    }
    let needed = if is_word(Some(function), "SESSION") || is_word(Some(function), "TUMBLE") {
        2
    } else {
        3
    };
    let descriptor = rest
        .iter()
        .position(|argument| is_word(argument.first(), "DESCRIPTOR"));
    let more = descriptor.unwrap_or_else(|| rest.len().saturating_sub(needed));
    let mut keys = first;
    for argument in rest.drain(..more) {
        keys.push(TokenWithSpan::new(Token::Comma, function.span));
        keys.extend(argument);
    }
    Ok(keys)
}

/// Puts Flink's named arguments (`DATA => TABLE s, TIMECOL => DESCRIPTOR(ts), SIZE => ..`) into position.
fn in_position(
    function: &TokenWithSpan,
    arguments: Vec<Vec<TokenWithSpan>>,
) -> Result<Vec<Vec<TokenWithSpan>>, Failure> {
    const ORDER: [&str; 7] = ["DATA", "TIMECOL", "SLIDE", "STEP", "SIZE", "GAP", "OFFSET"];
    let named = |argument: &Vec<TokenWithSpan>| is(argument.get(1), &Token::RArrow);
    if !arguments.first().is_some_and(named) {
        return Ok(arguments);
    }
    let mut placed = Vec::with_capacity(arguments.len());
    for mut argument in arguments {
        let place = ORDER.iter().position(|name| is_word(argument.first(), name));
        match place.filter(|_| named(&argument)) {
            Some(place) => placed.push((place, argument.split_off(2))),
            None => {
                let at = argument.first().unwrap_or(function).span.start;
                return Err(Failure::invalid(
                    "window functions take DATA, TIMECOL, SIZE, SLIDE, STEP, GAP, OFFSET",
                    at,
                ));
            }
        }
    }
    placed.sort_by_key(|(place, _)| *place);
    Ok(placed.into_iter().map(|(_, argument)| argument).collect())
}

/// Gives `ASOF [LEFT] JOIN t ON ..` the match condition that sqlparser wants, as a marker.
fn asof_joins(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>, Failure> {
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len() + 4);
    // The depth, marker and place of joins whose ON has not come yet.
    let mut open: Vec<(i32, &str, Span)> = Vec::new();
    let mut depth = 0;
    let mut i = 0;
    while i < tokens.len() {
        let token = &tokens[i];
        depth += nesting(&token.token);
        let left = starts_with(&tokens[i..], &["ASOF", "LEFT", "JOIN"])
            || starts_with(&tokens[i..], &["ASOF", "LEFT", "OUTER", "JOIN"]);
        let inner = starts_with(&tokens[i..], &["ASOF", "JOIN"])
            || starts_with(&tokens[i..], &["ASOF", "INNER", "JOIN"]);
        if left || inner {
            open.push((depth, if left { ASOF_LEFT } else { ASOF_INNER }, token.span));
            out.push(token.clone());
            while !is_word(tokens.get(i), "JOIN") {
                i += 1;
            }
            out.push(tokens[i].clone());
            i += 1;
            continue;
        }
        let ends = is_word(Some(token), "ON") || is_word(Some(token), "USING");
        let ours = open.last().is_some_and(|(at, _, _)| *at == depth);
        if ours && is_word(Some(token), "MATCH_CONDITION") {
            let is_left = open.pop().is_some_and(|(_, marker, _)| marker == ASOF_LEFT);
            let end = if is(tokens.get(i + 1), &Token::LParen) {
                closing(&tokens, i + 1)
            } else {
                None
            };
            if let Some(end) = end.filter(|_| is_left) {
                // sqlparser has no ASOF LEFT JOIN: the last conjunct says so.
                out.extend_from_slice(&tokens[i..end]);
                out.push(word("AND", token.span));
                out.push(word(ASOF_LEFT, token.span));
                // The closing parenthesis comes next.
                depth += 1;
                i = end;
                continue;
            }
        } else if ours && ends {
            let (_, marker, span) = open.pop().expect("there is one, as was just seen");
            out.push(word("MATCH_CONDITION", span));
            out.push(TokenWithSpan::new(Token::LParen, span));
            out.push(word(marker, span));
            out.push(TokenWithSpan::new(Token::RParen, span));
        }
        out.push(token.clone());
        i += 1;
    }
    match open.pop() {
        Some((_, _, span)) => Err(Failure::invalid(
            "ASOF JOIN needs ON with the keys and one inequality",
            span.start,
        )),
        None => Ok(out),
    }
}

/// `t AS OF e` is short for `t FOR SYSTEM_TIME AS OF e`, where `e` cannot be what follows an alias that is called "of".
fn short_versions(tokens: &mut Vec<TokenWithSpan>) {
    let mut i = 1;
    while i + 2 < tokens.len() {
        let begins = match &tokens[i + 2].token {
            Token::Number(..) | Token::SingleQuotedString(_) => true,
            Token::Word(word) if word.quote_style.is_none() => {
                let is_one_of =
                    |names: &[&str]| names.iter().any(|name| word.value.eq_ignore_ascii_case(name));
                match tokens.get(i + 3).map(|token| &token.token) {
                    Some(Token::LParen) => {
                        is_one_of(&["NOW", "BEGIN", "PROCTIME", "CAST", "TO_TIMESTAMP", "DATE_TRUNC"])
                    }
                    Some(Token::SingleQuotedString(_)) => is_one_of(&["TIMESTAMP", "TIMESTAMPTZ", "DATE"]),
                    Some(Token::Period) => true,
                    _ => is_one_of(&["CURRENT_TIMESTAMP"]),
                }
            }
            _ => false,
        };
        let is_said = is_word(tokens.get(i - 1), "SYSTEM_TIME");
        if begins && !is_said && starts_with(&tokens[i..], &["AS", "OF"]) {
            let span = tokens[i].span;
            let word = |text: &str| TokenWithSpan::new(Token::make_word(text, None), span);
            tokens.splice(i..i, [word("FOR"), word("SYSTEM_TIME")]);
            i += 2;
        }
        i += 1;
    }
}

/// Moves an alias in `t AS x FOR SYSTEM_TIME AS OF e`, which is how sqlparser prints, behind `e`, where it reads it.
fn temporal_aliases(tokens: &mut [TokenWithSpan]) {
    let mut i = 2;
    while i < tokens.len() {
        if starts_with(&tokens[i..], &["FOR", "SYSTEM_TIME", "AS", "OF"])
            && is_word(tokens.get(i - 2), "AS")
            && matches!(tokens[i - 1].token, Token::Word(_))
        {
            let mut depth = 0;
            let end = (i + 4..tokens.len()).find(|&n| {
                let before = depth;
                depth += nesting(&tokens[n].token);
                depth < 0 || (before == 0 && ends_table(&tokens[n]))
            });
            let end = end.unwrap_or(tokens.len());
            tokens[i - 2..end].rotate_left(2);
        }
        i += 1;
    }
}

/// Whether a token cannot be part of the expression after `AS OF`.
fn ends_table(token: &TokenWithSpan) -> bool {
    const ENDS: [&str; 21] = [
        "ON",
        "USING",
        "JOIN",
        "LEFT",
        "RIGHT",
        "INNER",
        "FULL",
        "CROSS",
        "NATURAL",
        "ASOF",
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "OFFSET",
        "FETCH",
        "UNION",
        "EXCEPT",
        "INTERSECT",
        "WINDOW",
    ];
    token.token == Token::Comma || ENDS.iter().any(|word| is_word(Some(token), word))
}

fn word(text: &str, span: Span) -> TokenWithSpan {
    let token = match text {
        "AND" | "ARRAY" | "MATCH_CONDITION" => Token::make_keyword(text),
        name => Token::make_word(&Ident::new(name).value, None),
    };
    TokenWithSpan::new(token, span)
}

#[cfg(test)]
mod tests {
    use crate::{parse, parse_one};

    fn printed(sql: &str) -> String {
        match parse_one(sql) {
            Ok(statement) => statement.to_string(),
            Err(error) => panic!("{sql}: {error:?}"),
        }
    }

    #[test]
    fn spellings_of_windows_come_to_the_same() {
        let ours = printed("SELECT * FROM TUMBLE(bid, ts, INTERVAL '10' SECOND) AS w");
        for flink in [
            "SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS w",
            "SELECT * FROM TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND) AS w",
            "SELECT * FROM TABLE(TUMBLE(SIZE => INTERVAL '10' SECOND, DATA => TABLE bid, TIMECOL => DESCRIPTOR(ts))) AS w",
        ] {
            assert_eq!(printed(flink), ours, "{flink}");
        }
    }

    #[test]
    fn patterns_in_substring() {
        assert_eq!(
            printed("SELECT substring(x || 'a' SIMILAR '%#\"b#\"%' ESCAPE '#')"),
            printed("SELECT substring(x || 'a' FROM '%#\"b#\"%' FOR '#')")
        );
        let condition = "SELECT substring('a' FROM 1) SIMILAR TO 'a' ESCAPE '#'";
        assert_eq!(printed(condition), condition.to_uppercase().replace("'A'", "'a'"));
    }

    #[test]
    fn a_short_version_is_no_alias() {
        for (short, long) in [
            (
                "SELECT * FROM v AS OF 3",
                "SELECT * FROM v FOR SYSTEM_TIME AS OF 3",
            ),
            (
                "SELECT * FROM v AS x AS OF now()",
                "SELECT * FROM v FOR SYSTEM_TIME AS OF now() AS x",
            ),
        ] {
            assert_eq!(printed(short), printed(long));
        }
        printed("SELECT a AS of FROM t AS of JOIN (SELECT 1) AS y ON true WHERE (of.a = 1)");
    }

    #[test]
    fn partitioned_sessions() {
        let expected = "SELECT * FROM SESSION(s, ts, INTERVAL '30s', partition_by => ARRAY[a, b])";
        for sql in [
            "SELECT * FROM SESSION(s PARTITION BY a, b, ts, INTERVAL '30s')",
            "SELECT * FROM SESSION(s PARTITION BY (a, b), ts, INTERVAL '30s')",
            "SELECT * FROM TABLE(SESSION(TABLE s PARTITION BY a, b, DESCRIPTOR(ts), INTERVAL '30s'))",
        ] {
            assert_eq!(printed(sql), expected, "{sql}");
        }
        assert_eq!(printed(expected), expected);
    }

    #[test]
    fn windows_over_queries_and_in_names() {
        printed(
            "SELECT * FROM HOP((SELECT * FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '1s'))), t, INTERVAL '1s', INTERVAL '2s')",
        );
        printed("SELECT hop, session FROM t WHERE session = 1");
        printed("SET SESSION statement_timeout = 0");
    }

    #[test]
    fn asof_and_temporal_joins() {
        let sql = "SELECT * FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.ts >= b.ts";
        let once = printed(sql);
        assert!(once.contains("MATCH_CONDITION (asof_left)"), "{once}");
        assert_eq!(printed(&once), once);
        let explicit =
            printed("SELECT * FROM a ASOF LEFT JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k");
        assert!(
            explicit.contains("MATCH_CONDITION (a.ts >= b.ts AND asof_left)"),
            "{explicit}"
        );
        assert_eq!(printed(&explicit), explicit);
        printed(
            "SELECT * FROM a ASOF JOIN (SELECT * FROM x JOIN y ON x.i = y.i) b ON a.k = b.k AND a.ts >= b.ts JOIN c ON true",
        );
        let after = printed("SELECT * FROM o JOIN r FOR SYSTEM_TIME AS OF (o.ts) AS rr ON o.c = rr.c");
        let before = printed("SELECT * FROM o JOIN r AS rr FOR SYSTEM_TIME AS OF (o.ts) ON o.c = rr.c");
        assert_eq!(after, before);
        printed("SELECT * FROM (SELECT * FROM r AS rr FOR SYSTEM_TIME AS OF now()) AS x FOR UPDATE");
        printed("SELECT * FROM o LEFT JOIN r FOR SYSTEM_TIME AS OF PROCTIME() ON o.c = r.c");
        assert!(parse("SELECT * FROM a ASOF JOIN b").is_err());
    }

    #[test]
    fn aliases_that_other_dialects_take() {
        printed("SELECT * FROM t at JOIN u before ON at.x = before.x");
        printed("SELECT ts AT TIME ZONE 'UTC' FROM t changes");
    }
}
