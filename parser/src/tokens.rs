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
    /// Its tokens; their spans count from the start of `text`.
    pub(crate) tokens: Vec<TokenWithSpan>,
    /// The characters before it.
    pub(crate) offset: usize,
    /// Where the semicolon after it is, in characters.
    pub(crate) semicolon: Option<usize>,
}

/// The tokens of a text without white space.
pub(crate) fn tokenize(source: &Source<'_>) -> Result<Vec<TokenWithSpan>, ParseError> {
    let dialect: &dyn Dialect = &DIALECT;
    let mut tokens = Tokenizer::new(dialect, source.text)
        .tokenize_with_location()
        .map_err(|error| explain_tokenizer_error(source, &error))?;
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF));
    name_all_members(&mut tokens);
    Ok(tokens)
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

/// The statements of a text. Semicolons in strings, comments and dollar quotes are inside a token and do not split.
pub(crate) fn split<'a>(source: &Source<'a>) -> Result<Vec<Piece<'a>>, ParseError> {
    let mut pieces = Vec::new();
    let mut tokens = Vec::new();
    for token in tokenize(source)? {
        if token.token == Token::SemiColon {
            let semicolon = source.char_offset(token.span.start);
            pieces.extend(piece(source, std::mem::take(&mut tokens), semicolon));
        } else {
            tokens.push(token);
        }
    }
    pieces.extend(piece(source, tokens, None));
    Ok(pieces)
}

fn piece<'a>(
    source: &Source<'a>,
    mut tokens: Vec<TokenWithSpan>,
    semicolon: Option<usize>,
) -> Option<Piece<'a>> {
    let start = tokens.first()?.span.start;
    let end = tokens.last()?.span.end;
    let text = source.slice(start, end);
    let offset = source.char_offset(start)?;
    for token in &mut tokens {
        token.span = Span::new(relative(token.span.start, start), relative(token.span.end, start));
    }
    Some(Piece {
        text,
        tokens,
        offset,
        semicolon,
    })
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
        let texts: Vec<&str> = pieces.iter().map(|piece| piece.text).collect();
        assert_eq!(texts, ["select ';'", "select $x$ ; $x$,\n E'\\';'"]);
        assert_eq!(pieces[0].offset, 1);
        assert_eq!(pieces[0].semicolon, Some(18));
        let last = pieces[1].tokens.last().expect("there are tokens");
        assert_eq!(Source::new(pieces[1].text).span(last.span), "E'\\';'");
    }
}
