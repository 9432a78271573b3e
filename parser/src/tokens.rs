//! From text to the tokens of each statement.
//!
//! White space and comments are dropped: nothing after this stage needs them, and what needs the text slices it.

use sqlparser::dialect::Dialect;
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};

use crate::dialect::DIALECT;
use crate::error::{ParseError, explain_tokenizer_error};
use crate::source::Source;

/// What the member is called that stands for all members of a value.
pub const ALL_MEMBERS: &str = "*";

/// One statement of a text.
#[derive(Debug)]
pub(crate) struct Piece<'a> {
    /// Its text, from its first token to its last.
    pub(crate) text: &'a str,
    /// How many tokens it has.
    pub(crate) tokens: usize,
    /// The characters before it.
    pub(crate) offset: usize,
    /// Where the semicolon after it is, in characters.
    pub(crate) semicolon: Option<usize>,
}

/// The tokens of a text without white space.
pub(crate) fn tokenize(source: &Source<'_>) -> Result<Vec<TokenWithSpan>, ParseError> {
    let dialect: &dyn Dialect = &DIALECT;
    let mut tokens = Vec::with_capacity(count(source.text));
    Tokenizer::new(dialect, source.text)
        .tokenize_with_location_into_buf(&mut tokens)
        .map_err(|error| explain_tokenizer_error(source, &error))?;
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF));
    tokens.shrink_to_fit();
    name_all_members(&mut tokens);
    Ok(tokens)
}

/// How many tokens a text has at most, white space and comments among them, without making any.
///
/// A text that is none of SQL may have more or fewer.
pub(crate) fn count(sql: &str) -> usize {
    let bytes = sql.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..);
    let from = |at: usize, end: &str| {
        sql.get(at..)
            .and_then(|rest| rest.find(end))
            .map_or(bytes.len(), |found| at + found + end.len())
    };
    let (mut at, mut count) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        count += 1;
        at = match byte {
            b'\'' => {
                let has_escapes = matches!(
                    at.checked_sub(1).and_then(|before| bytes.get(before)),
                    Some(b'e' | b'E')
                );
                let mut end = at + 1;
                while let Some(byte) = bytes.get(end)
                    && *byte != b'\''
                {
                    end += if *byte == b'\\' && has_escapes { 2 } else { 1 };
                }
                end + 1
            }
            b'"' => from(at + 1, "\""),
            b'-' if bytes.get(at + 1) == Some(&b'-') => from(at, "\n"),
            b'/' if bytes.get(at + 1) == Some(&b'*') => from(at + 2, "*/"),
            b'$' if matches!(bytes.get(at + 1), Some(b'$' | b'a'..=b'z' | b'A'..=b'Z' | b'_')) => {
                let tag = from(at + 1, "$");
                sql.get(at..tag)
                    .map_or(bytes.len(), |tag_text| from(tag, tag_text))
            }
            byte if is_word(*byte) => {
                let word = bytes[at..].iter().take_while(|byte| is_word(**byte));
                at + word.count()
            }
            _ => at + 1,
        };
    }
    count
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
        tokens: tokens.len(),
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
    fn tokens_are_counted_without_making_them() {
        for sql in [
            "",
            "SELECT 1, 'a b  c', \"d e\" FROM t -- and a comment\n WHERE a_1 >= 2.5e3",
            "SELECT E'it\\'s', 'a''b', $$ SELECT 1; $$, $t$ a $ b $t$ /* x y */ || ä",
            "INSERT INTO t VALUES (1,2),(3,4)",
            "SELECT a::int[], b->>'c', $1",
        ] {
            let made = Tokenizer::new(&DIALECT as &dyn Dialect, sql)
                .tokenize()
                .unwrap()
                .len();
            let counted = count(sql);
            assert!(
                counted >= made && counted <= made + made / 2,
                "{sql}: {counted}, {made}"
            );
        }
        assert_eq!(count("'").max(count("$a$ b")).max(count("/* c")), 1);
    }
}
