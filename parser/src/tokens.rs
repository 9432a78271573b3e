//! From text to the tokens of each statement.
//!
//! White space and comments are dropped: nothing after this stage needs them, and what needs the text slices it.

use sqlparser::dialect::Dialect;
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer, TokenizerError};

use crate::dialect::DIALECT;
use crate::error::{ParseError, ParseErrorKind, explain_tokenizer_error};
use crate::source::Source;

/// What the member is called that stands for all members of a value.
pub const ALL_MEMBERS: &str = "*";

/// One statement of a text.
#[derive(Debug)]
pub(crate) struct Piece<'a> {
    /// Its text, from its first token to its last.
    pub(crate) text: &'a str,
    /// The characters before it.
    pub(crate) offset: usize,
    /// Where the semicolon after it is, in characters.
    pub(crate) semicolon: Option<usize>,
}

/// The tokens of a text without white space.
pub(crate) fn tokenize(source: &Source<'_>) -> Result<Vec<TokenWithSpan>, ParseError> {
    let dialect: &dyn Dialect = &DIALECT;
    let mut tokens = Vec::with_capacity(TextSize::of(source.text).tokens);
    Tokenizer::new(dialect, source.text)
        .tokenize_with_location_into_buf(&mut tokens)
        .map_err(|error| {
            wrong_escape(source, &error).unwrap_or_else(|| explain_tokenizer_error(source, &error))
        })?;
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF));
    join_signs(&mut tokens);
    tokens.shrink_to_fit();
    name_all_members(&mut tokens);
    Ok(tokens)
}

/// `E'\\u00'`: a literal that ends, which the tokenizer takes for one that does not.
fn wrong_escape(source: &Source<'_>, error: &TokenizerError) -> Option<ParseError> {
    let rest = &source.text[source.byte_offset(error.location)?..];
    (is_escaped(rest) && escaped(rest).is_some()).then(|| ParseError {
        message: "invalid Unicode escape".to_owned(),
        position: source.char_offset(error.location).map(|chars| chars + 1),
        hint: Some("Unicode escapes must be \\uXXXX or \\UXXXXXXXX.".to_owned()),
        kind: ParseErrorKind::Syntax,
    })
}

/// How large what is made of a text can become, found without making any of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TextSize {
    /// The most tokens that it has, white space and comments among them.
    pub tokens: usize,
    /// The most statements and queries within others: their trees are large, however short their text is.
    pub queries: usize,
}

impl TextSize {
    /// Counts them. Where it is not sure whether a quote begins or ends something, every character behind it counts as a token.
    pub fn of(sql: &str) -> TextSize {
        let mut size = TextSize {
            tokens: 0,
            queries: 1,
        };
        let mut rest = sql;
        let mut before = Before::Other;
        while let Some(first) = rest.chars().next() {
            size.tokens += 1;
            let is_quote = matches!(first, '\'' | '"' | '$') || is_escaped(rest);
            // Behind a name such as X a backslash may stand for what follows.
            let has_backslash = || quoted(rest, first).is_none_or(|length| rest[..length].contains('\\'));
            let is_unsure = match before {
                Before::Unsure => is_quote,
                Before::Name => first == '\'' && has_backslash(),
                // It may be the end of the operator.
                Before::Operator => rest.starts_with("--") || rest.starts_with("/*"),
                Before::Other => false,
            };
            if is_unsure {
                size.tokens += rest.len();
                return size;
            }
            let mut now = Before::Other;
            let length = match first {
                '\'' | '"' => quoted(rest, first),
                // Behind a name it is a part of that.
                '$' if before == Before::Name => {
                    now = Before::Unsure;
                    Some(1)
                }
                '$' => {
                    let length = dollar_quoted(rest);
                    now = if length == 1 {
                        Before::Unsure
                    } else {
                        Before::Other
                    };
                    Some(length)
                }
                _ if is_escaped(rest) && before != Before::Name => escaped(rest),
                '-' if rest.starts_with("--") => rest.find('\n'),
                '/' if rest.starts_with("/*") => comment(rest),
                ';' => {
                    size.queries += 1;
                    Some(1)
                }
                first if first.is_ascii_alphabetic() || first == '_' => {
                    let length = rest.find(|next| !is_name(next)).unwrap_or(rest.len());
                    now = if before == Before::Other || before == Before::Operator {
                        Before::Name
                    } else {
                        Before::Unsure
                    };
                    let is_query = ["select", "values", "table"]
                        .iter()
                        .any(|query| rest[..length].eq_ignore_ascii_case(query));
                    size.queries += usize::from(is_query);
                    Some(length)
                }
                // Numbers, and what may be a name or not.
                '0'..='9' => {
                    now = Before::Unsure;
                    rest.find(|next: char| !next.is_ascii_digit())
                }
                other => {
                    now = match other {
                        _ if !other.is_ascii() => Before::Unsure,
                        _ if is_operator(other) => Before::Operator,
                        _ => Before::Other,
                    };
                    Some(other.len_utf8())
                }
            };
            before = now;
            rest = length.map_or("", |length| &rest[length..]);
        }
        size
    }
}

/// What stands in front of a token, without space between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Name,
    Operator,
    /// A number, or what may be a part of a name: a prefix of a quote may belong to it.
    Unsure,
    Other,
}

/// Whether it is `E'..'`.
fn is_escaped(text: &str) -> bool {
    text.starts_with("e'") || text.starts_with("E'")
}

fn is_operator(character: char) -> bool {
    "+-*/<>=~!@#%^&|`?:".contains(character)
}

fn is_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The length of what is quoted at the start of a text. Two quotes within it are one.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let mut at = 1;
    loop {
        at += text[at..].find(quote)? + 1;
        if !text[at..].starts_with(quote) {
            return Some(at);
        }
        at += 1;
    }
}

/// The length of `E'..'` at the start of a text.
fn escaped(text: &str) -> Option<usize> {
    let mut characters = text.char_indices().skip(2).peekable();
    while let Some((at, character)) = characters.next() {
        let is_pair = match character {
            '\\' => true,
            '\'' => characters.peek().is_some_and(|(_, next)| *next == '\''),
            _ => continue,
        };
        if !is_pair {
            return Some(at + 1);
        }
        characters.next();
    }
    None
}

/// A text without the space and the comments before its first word.
pub fn from_first_word(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let end = match rest {
            _ if rest.starts_with("--") => rest.find('\n'),
            _ if rest.starts_with("/*") => comment(rest),
            _ => None,
        };
        match end {
            Some(end) => rest = rest[end..].trim_start(),
            None => return rest,
        }
    }
}

/// The length of `/* .. */` at the start of a text, with the comments within it.
fn comment(text: &str) -> Option<usize> {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 {
        at += text[at..].find(['*', '/'])?;
        let is_end = text[at..].starts_with("*/");
        if is_end || text[at..].starts_with("/*") {
            depth = if is_end { depth - 1 } else { depth + 1 };
            at += 2;
        } else {
            at += 1;
        }
    }
    Some(at)
}

/// The length of `$tag$ .. $tag$` at the start of a text, or of its dollar where it is none.
fn dollar_quoted(text: &str) -> usize {
    let tag = text[1..].find(|next| !is_name(next)).map(|end| end + 1);
    let quote = tag
        .filter(|end| text[*end..].starts_with('$'))
        .map(|end| &text[..=end]);
    let body = quote.and_then(|quote| text[quote.len()..].find(quote).map(|end| end + 2 * quote.len()));
    body.unwrap_or(1)
}

/// `|-` is one operator and `>-` are two: PostgreSQL cuts a sign off the end of an operator that has none of the characters which the
/// operators of the standard do not have.
fn join_signs(tokens: &mut Vec<TokenWithSpan>) {
    tokens.dedup_by(|sign, before| {
        let is_sign = matches!(sign.token, Token::Plus | Token::Minus);
        if !is_sign || before.span.end != sign.span.start || !keeps_sign(&before.token) {
            return false;
        }
        before.token = Token::CustomBinaryOperator(format!("{}{}", before.token, sign.token));
        before.span.end = sign.span.end;
        true
    });
}

fn keeps_sign(token: &Token) -> bool {
    if let Token::Word(_) | Token::Number(..) | Token::SingleQuotedString(_) = token {
        return false;
    }
    let text = token.to_string();
    text.chars().all(is_operator) && text.contains(['~', '!', '@', '#', '%', '^', '&', '|', '`', '?'])
}

/// `(value).*`, which sqlparser does not read after what is no name, is the member [`ALL_MEMBERS`] of the value.
fn name_all_members(tokens: &mut [TokenWithSpan]) {
    for at in 2..tokens.len() {
        let is_after = |back: usize, token: Token| tokens[at - back].token == token;
        if tokens[at].token == Token::Mul && is_after(1, Token::Period) && is_after(2, Token::RParen) {
            tokens[at].token = Token::make_word(ALL_MEMBERS, Some('"'));
        }
    }
}

/// The statements of a text, each with its tokens, whose spans count from the start of the statement's text. Semicolons in strings,
/// comments and dollar quotes are inside a token and do not split.
pub(crate) fn split<'a>(source: &Source<'a>) -> Result<Vec<(Piece<'a>, Vec<TokenWithSpan>)>, ParseError> {
    let mut tokens = tokenize(source)?;
    let semicolons: Vec<usize> = tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| token.token == Token::SemiColon)
        .map(|(at, _)| at)
        .collect();
    // From the end, so that the tokens of the first and perhaps only statement stay where they are.
    let mut pieces = Vec::new();
    let mut after = None;
    for semicolon in semicolons.into_iter().rev() {
        let behind = tokens.split_off(semicolon + 1);
        pieces.extend(piece(source, behind, after));
        after = tokens
            .pop()
            .and_then(|semicolon| source.char_offset(semicolon.span.start));
    }
    pieces.extend(piece(source, tokens, after));
    pieces.reverse();
    Ok(pieces)
}

fn piece<'a>(
    source: &Source<'a>,
    mut tokens: Vec<TokenWithSpan>,
    semicolon: Option<usize>,
) -> Option<(Piece<'a>, Vec<TokenWithSpan>)> {
    let start = tokens.first()?.span.start;
    let end = tokens.last()?.span.end;
    let text = source.slice(start, end);
    let offset = source.char_offset(start)?;
    for token in &mut tokens {
        token.span = Span::new(relative(token.span.start, start), relative(token.span.end, start));
    }
    let piece = Piece {
        text,
        offset,
        semicolon,
    };
    Some((piece, tokens))
}

/// `location`, counted from `start`.
fn relative(location: Location, start: Location) -> Location {
    let column = if location.line == start.line {
        location.column + 1 - start.column
    } else {
        location.column
    };
    Location {
        line: location.line + 1 - start.line,
        column,
    }
}

/// Whether a token is this unquoted word, in any case.
pub(crate) fn is_word(token: Option<&TokenWithSpan>, word: &str) -> bool {
    matches!(token.map(|token| &token.token),
        Some(Token::Word(w)) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
}

/// Whether `tokens` starts with these unquoted words.
pub(crate) fn starts_with(tokens: &[TokenWithSpan], words: &[&str]) -> bool {
    words
        .iter()
        .enumerate()
        .all(|(i, word)| is_word(tokens.get(i), word))
}

/// The change of parenthesis depth that a token makes.
pub(crate) fn nesting(token: &Token) -> i32 {
    match token {
        Token::LParen | Token::LBracket => 1,
        Token::RParen | Token::RBracket => -1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_split_outside_of_quotes() {
        let sql = " select ';' -- ;\n ; /* ; */ ;\n\n  select $x$ ; $x$,\n E'\\';'\n;";
        let pieces = split(&Source::new(sql)).expect("it is split");
        let texts: Vec<&str> = pieces.iter().map(|(piece, _)| piece.text).collect();
        assert_eq!(texts, ["select ';'", "select $x$ ; $x$,\n E'\\';'"]);
        assert_eq!(pieces[0].0.offset, 1);
        assert_eq!(pieces[0].0.semicolon, Some(18));
        let last = pieces[1].1.last().expect("there are tokens");
        assert_eq!(Source::new(pieces[1].0.text).span(last.span), "E'\\';'");
    }

    #[test]
    fn an_escape_that_stands_for_nothing_is_told() {
        let error = tokenize(&Source::new("SELECT E'wrong \\u00'")).expect_err("no character");
        assert_eq!(error.message, "invalid Unicode escape");
        let error = tokenize(&Source::new("SELECT E'wrong \\u00")).expect_err("no end");
        assert!(error.message.starts_with("unterminated"), "{error}");
    }

    #[test]
    fn a_sign_ends_an_operator_of_the_standard_and_no_other() {
        for (sql, expected) in [
            ("a>-1", "a > - 1"),
            ("a<>-1", "a <> - 1"),
            ("a>=+1", "a >= + 1"),
            ("a<-1", "a < - 1"),
            ("a*-1", "a * - 1"),
            ("j->-1", "j -> - 1"),
            ("j->>-1", "j ->> - 1"),
            ("a<->1", "a <-> 1"),
            ("a>--1\n2", "a > 2"),
            ("a>/* 1 */-2", "a > - 2"),
            ("a|-1", "a |- 1"),
            ("a||-1", "a ||- 1"),
            ("a| -1", "a | - 1"),
            ("a@>-1", "a @>- 1"),
            ("a%-1", "a %- 1"),
            ("j#-p", "j #- p"),
        ] {
            let tokens = tokenize(&Source::new(sql)).expect("it is SQL");
            let written: Vec<String> = tokens.iter().map(|token| token.token.to_string()).collect();
            assert_eq!(written.join(" "), expected, "{sql}");
        }
    }

    fn made(sql: &str) -> Option<usize> {
        let dialect: &dyn Dialect = &DIALECT;
        let mut tokens = vec![];
        let outcome = Tokenizer::new(dialect, sql).tokenize_with_location_into_buf(&mut tokens);
        // One that fails has made tokens, too.
        (outcome.is_ok() || !tokens.is_empty()).then_some(tokens.len())
    }

    #[test]
    fn tokens_are_counted_without_making_them() {
        for (sql, queries) in [
            ("", 1),
            (
                "SELECT 1, 'a b  c', \"d e\" FROM t -- and a comment\n WHERE a_1 >= 2.5e3",
                2,
            ),
            (
                "SELECT E'it\\'s', 'a''b', $$ SELECT 1; $$, $t$ a $ b $t$ /* x y */ || ä",
                2,
            ),
            ("INSERT INTO t VALUES (1,2),(3,4); table a", 4),
            ("SELECT a::int[], b->>'c', $1, (SELECT 2)", 3),
        ] {
            let (size, made) = (TextSize::of(sql), made(sql).unwrap_or(0));
            assert_eq!(size.queries, queries, "{sql}");
            assert!(
                size.tokens >= made && size.tokens <= made + made / 2,
                "{sql}: {size:?}, {made}"
            );
        }
        for unfinished in ["'", "$a$ b", "/* c", "E'\\'", "$a", "date'\\'"] {
            let tokens = format!("{unfinished}{}", ",1".repeat(1_000));
            assert!(
                TextSize::of(&tokens).tokens >= made(&tokens).unwrap_or(0),
                "{unfinished}"
            );
        }
    }

    #[test]
    fn no_text_has_more_tokens_than_are_counted() {
        const PARTS: [&str; 41] = [
            "'", "\"", "$", "$$", "$a$", "$1", "E'", "e", "date'", "U&'", "N'", "X'", "\\", "\\'", "''",
            "--", "\n", "/*", "*/", "/**/", ";", " ", ",", "1", "1a", "1e5", ".5", "0x1F", "a", "_b", "ä",
            "€", "\u{a0}", "::", "->>", "SELECT", "(", ")", "@>", "?|", "`",
        ];
        // A linear congruential generator: its numbers are the same everywhere.
        let number = |name: &str, or: u64| {
            let given = std::env::var(name).ok();
            given.and_then(|text| text.parse().ok()).unwrap_or(or)
        };
        let seed = number("MILLRACE_SEED", 20_261_127);
        println!("MILLRACE_SEED={seed}");
        let mut state = seed;
        let mut below = |end: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % end
        };
        for _ in 0..number("MILLRACE_TEXTS", 200_000) {
            let sql: String = (0..below(12)).map(|_| PARTS[below(PARTS.len())]).collect();
            let counted = TextSize::of(&sql).tokens;
            let made = made(&sql).unwrap_or(0);
            assert!(counted >= made, "{sql:?}: {counted} counted, {made} made");
        }
    }
}
