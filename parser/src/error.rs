//! What is reported when SQL does not parse, in PostgreSQL's words and with PostgreSQL's positions.
//!
//! [`ParseError`] is public; [`Failure`] is what parsing code returns before the place is known in characters. The
//! conversion reads sqlparser's messages (`Expected: a, found: b at Line: 1, Column: 2`), because that is the only
//! form in which it tells a place.

use std::borrow::Cow;

use sqlparser::parser::ParserError;
use sqlparser::tokenizer::{Location, Span, TokenWithSpan, TokenizerError};

use crate::source::Source;

/// SQL that does not parse: what is wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// What is wrong, as in `syntax error at or near "selct"`.
    pub message: String,
    /// The character at which it is, from 1, in the whole text that was parsed.
    pub position: Option<usize>,
    /// What to do about it.
    pub hint: Option<String>,
    /// Whether it is a feature that is not supported (SQLSTATE 0A000), a limit (54001), or bad syntax (42601).
    pub kind: ParseErrorKind,
}

/// The class of a [`ParseError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseErrorKind {
    /// The text is not SQL (SQLSTATE 42601).
    Syntax,
    /// A known construct that is not supported (0A000).
    Unsupported,
    /// The text is too long or too deeply nested (54001).
    TooComplex,
}

/// An error inside one statement, its place still as sqlparser counts.
#[derive(Debug)]
pub(crate) enum Failure {
    /// From sqlparser.
    Parser(ParserError),
    /// An unexpected token; `hint` says what would be right.
    Unexpected {
        found: TokenWithSpan,
        hint: Option<String>,
    },
    /// From this crate.
    Own {
        kind: ParseErrorKind,
        message: String,
        at: Option<Location>,
        hint: Option<String>,
    },
}

impl Failure {
    /// Whether a token was not what may stand there.
    pub(crate) fn is_of_syntax(&self) -> bool {
        match self {
            Failure::Parser(error) => !matches!(error, ParserError::RecursionLimitExceeded),
            Failure::Unexpected { .. } => true,
            Failure::Own { .. } => false,
        }
    }

    /// A wrong value or combination, with its place.
    pub(crate) fn invalid(message: impl Into<String>, at: Location) -> Self {
        Failure::Own {
            kind: ParseErrorKind::Syntax,
            message: message.into(),
            at: Some(at),
            hint: None,
        }
    }

    /// A construct that is not supported.
    pub(crate) fn unsupported(message: impl Into<String>, at: Location, hint: &str) -> Self {
        let hint = (!hint.is_empty()).then(|| hint.to_string());
        Failure::Own {
            kind: ParseErrorKind::Unsupported,
            message: message.into(),
            at: Some(at),
            hint,
        }
    }

    /// Something beyond a limit.
    pub(crate) fn too_complex(message: impl Into<String>, at: Option<Location>, hint: &str) -> Self {
        let hint = Some(hint.to_string());
        Failure::Own {
            kind: ParseErrorKind::TooComplex,
            message: message.into(),
            at,
            hint,
        }
    }

    /// The same with this hint, if it is a syntax error.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        match self {
            Failure::Unexpected { found, .. } => Failure::Unexpected {
                found,
                hint: Some(hint.into()),
            },
            Failure::Own {
                kind, message, at, ..
            } => Failure::Own {
                kind,
                message,
                at,
                hint: Some(hint.into()),
            },
            other => other,
        }
    }
}

impl From<ParserError> for Failure {
    fn from(error: ParserError) -> Self {
        Failure::Parser(error)
    }
}

/// What is needed to tell a place in one statement as a place in the whole text.
pub(crate) struct Place<'a> {
    /// The statement.
    pub(crate) source: &'a Source<'a>,
    /// Makes the tokens of the statement.
    pub(crate) tokens: &'a dyn Fn() -> Vec<TokenWithSpan>,
    /// The characters before the statement in the whole text.
    pub(crate) offset: usize,
    /// The place of the semicolon that ended the statement, in characters of the whole text.
    pub(crate) semicolon: Option<usize>,
    /// The number of characters in the whole text.
    pub(crate) total: usize,
}

impl Place<'_> {
    /// Says `failure` to the user.
    pub(crate) fn explain(&self, failure: Failure) -> ParseError {
        match failure {
            Failure::Parser(ParserError::RecursionLimitExceeded) => ParseError {
                message: "the statement is nested too deeply".into(),
                position: None,
                hint: Some("Split it with WITH, or write it with fewer levels of parentheses.".into()),
                kind: ParseErrorKind::TooComplex,
            },
            Failure::Parser(ParserError::TokenizerError(message) | ParserError::ParserError(message)) => {
                self.explain_message(&message)
            }
            Failure::Unexpected { found, hint } => self.near(found.span, hint),
            Failure::Own {
                kind,
                message,
                at,
                hint,
            } => ParseError {
                message,
                position: at.and_then(|at| self.position(at)),
                hint,
                kind,
            },
        }
    }

    fn position(&self, location: Location) -> Option<usize> {
        self.source
            .char_offset(location)
            .map(|chars| self.offset + chars + 1)
    }

    /// `syntax error at or near "token"`, or `at end of input` when there is no token.
    fn near(&self, span: Span, hint: Option<String>) -> ParseError {
        let (message, position) = match (self.position(span.start), self.semicolon) {
            (Some(position), _) => (
                format!("syntax error at or near \"{}\"", self.source.span(span)),
                position,
            ),
            (None, Some(semicolon)) => ("syntax error at or near \";\"".to_string(), semicolon + 1),
            (None, None) => ("syntax error at end of input".to_string(), self.total + 1),
        };
        ParseError {
            message,
            position: Some(position),
            hint,
            kind: ParseErrorKind::Syntax,
        }
    }

    fn explain_message(&self, message: &str) -> ParseError {
        let (text, location) = split_location(message);
        let expectation = text
            .strip_prefix("Expected")
            .map(|rest| rest.trim_start_matches([':', ' ']));
        if let Some((expected, found)) = expectation.and_then(|rest| rest.rsplit_once(", found: ")) {
            let hint = Some(format!("Expected {}.", readable(expected)));
            match location {
                Some(location) => return self.near(self.span_at(location), hint),
                None if found == "EOF" => return self.near(Span::empty(), hint),
                None => {}
            }
        }
        let mut text = text.trim_start_matches("sql parser error: ").to_string();
        if let Some(first) = text.get(..1) {
            text = first.to_lowercase() + &text[1..];
        }
        let position = location.and_then(|location| self.position(location));
        ParseError {
            message: text,
            position,
            hint: None,
            kind: ParseErrorKind::Syntax,
        }
    }

    /// The span of the token at `location`.
    fn span_at(&self, location: Location) -> Span {
        // Made again: while there is no error, nobody needs them and their memory.
        let tokens = (self.tokens)();
        let token = tokens.iter().find(|token| token.span.start == location);
        token.map_or(Span::new(location, location), |token| token.span)
    }
}

/// Splits `.. at Line: 1, Column: 2` off a message.
fn split_location(message: &str) -> (&str, Option<Location>) {
    let parts = message.rsplit_once(" at Line: ").and_then(|(text, place)| {
        let (line, column) = place.split_once(", Column: ")?;
        Some((
            text,
            Location {
                line: line.parse().ok()?,
                column: column.trim().parse().ok()?,
            },
        ))
    });
    match parts {
        Some((text, location)) => (text, Some(location)),
        None => (message, None),
    }
}

/// sqlparser's "expected" texts, a little more like a sentence.
fn readable(expected: &str) -> Cow<'_, str> {
    match expected {
        "end of statement" => Cow::Borrowed("the end of the statement"),
        "identifier" => Cow::Borrowed("an identifier"),
        other => Cow::Borrowed(other.trim_end_matches('.')),
    }
}

/// Says an error of the tokenizer in PostgreSQL's words.
pub(crate) fn explain_tokenizer_error(source: &Source<'_>, error: &TokenizerError) -> ParseError {
    let position = source.char_offset(error.location);
    let message = error.message.as_str();
    let lower = message.to_lowercase();
    let what = if lower.contains("comment") {
        "unterminated /* comment"
    } else if lower.contains("close delimiter") {
        "unterminated quoted identifier"
    } else if lower.contains("dollar") {
        "unterminated dollar-quoted string"
    } else if lower.contains("unterminated") {
        "unterminated quoted string"
    } else {
        message.trim_end_matches('.')
    };
    let rest: String = position
        .map(|chars| source.text.chars().skip(chars).take(40).collect())
        .unwrap_or_default();
    let rest = rest.lines().next().unwrap_or_default();
    let near = if rest.is_empty() {
        String::new()
    } else {
        format!(" at or near \"{rest}\"")
    };
    ParseError {
        message: format!("{what}{near}"),
        position: Some(position.unwrap_or_else(|| source.chars()) + 1),
        hint: None,
        kind: ParseErrorKind::Syntax,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_split_off() {
        let (text, location) = split_location("Expected: a at Line: x, found: b at Line: 3, Column: 14");
        assert_eq!(text, "Expected: a at Line: x, found: b");
        assert_eq!(location, Some(Location { line: 3, column: 14 }));
        assert_eq!(split_location("plain"), ("plain", None));
    }
}
