//! A cursor over a statement's tokens: sqlparser's parser with a few words more.
//!
//! Many words of ours (STREAM, EMIT, SUBSCRIBE) are no keywords of sqlparser, so words are compared as text here.

use std::ops::{Deref, DerefMut};

use sqlparser::ast::{Expr, Ident, ObjectName, ObjectNamePart, Query};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use crate::ast::OptionEntry;
use crate::dialect::{self, DIALECT};
use crate::error::Failure;
use crate::identifier::is_reserved;
use crate::rules;
use crate::source::Source;
use crate::tokens::is_word;

/// How deep sqlparser may recurse. With this, a statement fits in a stack of 2 MiB even in a debug build.
const RECURSION_LIMIT: usize = 64;

/// What stands behind the key of an option whose value is in a secret.
const SECRET: &str = ".from_secret";

/// What most parsing functions here return.
pub(crate) type Parse<T> = Result<T, Failure>;

/// The cursor. Everything that sqlparser's parser can do, it can.
pub(crate) struct Reader<'a> {
    parser: Parser<'static>,
    source: &'a Source<'a>,
}

impl Deref for Reader<'_> {
    type Target = Parser<'static>;

    fn deref(&self) -> &Self::Target {
        &self.parser
    }
}

impl DerefMut for Reader<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.parser
    }
}

impl<'a> Reader<'a> {
    /// A cursor at the first of `tokens`.
    pub(crate) fn new(source: &'a Source<'a>, tokens: Vec<TokenWithSpan>) -> Self {
        dialect::begin(tokens.len());
        let parser = Parser::new(&DIALECT)
            .with_recursion_limit(RECURSION_LIMIT)
            .with_tokens_with_locations(tokens);
        Self { parser, source }
    }

    /// Another cursor over the same text.
    pub(crate) fn over(&self, tokens: Vec<TokenWithSpan>) -> Reader<'a> {
        Reader::new(self.source, tokens)
    }

    /// The statement's text from one place up to another.
    pub(crate) fn text(&self, start: Location, end: Location) -> &'a str {
        self.source.slice(start, end)
    }

    /// All tokens that are left, which are thereby read.
    pub(crate) fn rest(&mut self) -> Vec<TokenWithSpan> {
        let mut tokens = Vec::new();
        while !self.at_end() {
            tokens.push(self.parser.next_token());
        }
        tokens
    }

    /// The tokens up to the parenthesis that closes the one just read; that one is read, too.
    pub(crate) fn rest_of_parenthesis(&mut self) -> Parse<Vec<TokenWithSpan>> {
        let mut tokens = Vec::new();
        let mut depth = 1;
        loop {
            let token = self.parser.next_token();
            match token.token {
                Token::EOF => {
                    return Err(Failure::Unexpected {
                        found: token,
                        hint: Some("Expected ).".into()),
                    });
                }
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(tokens);
            }
            tokens.push(token);
        }
    }

    /// Whether nothing is left.
    pub(crate) fn at_end(&self) -> bool {
        self.parser.peek_token_ref().token == Token::EOF
    }

    /// Where the next token stands.
    pub(crate) fn here(&self) -> Location {
        self.parser.peek_token_ref().span.start
    }

    /// Whether the next tokens are these unquoted words.
    pub(crate) fn at(&self, words: &[&str]) -> bool {
        words
            .iter()
            .enumerate()
            .all(|(i, word)| is_word(Some(self.parser.peek_nth_token_ref(i)), word))
    }

    /// Reads these words if they are next.
    pub(crate) fn take(&mut self, words: &[&str]) -> bool {
        let found = self.at(words);
        if found {
            words.iter().for_each(|_| self.parser.advance_token());
        }
        found
    }

    /// Reads one of these words if it is next, and says which.
    pub(crate) fn take_one_of(&mut self, words: &[&'static str]) -> Option<&'static str> {
        words.iter().copied().find(|word| self.take(&[word]))
    }

    /// Reads these words, which must be next.
    pub(crate) fn need(&mut self, words: &[&str]) -> Parse<()> {
        for word in words {
            if !self.take(&[word]) {
                return Err(self.unexpected(word));
            }
        }
        Ok(())
    }

    /// Reads this token if it is next.
    pub(crate) fn take_token(&mut self, token: &Token) -> bool {
        self.parser.consume_token(token)
    }

    /// Reads this token, which must be next.
    pub(crate) fn need_token(&mut self, token: &Token) -> Parse<()> {
        if self.take_token(token) {
            Ok(())
        } else {
            Err(self.unexpected(&token.to_string()))
        }
    }

    /// Requires that nothing is left.
    pub(crate) fn end(&self) -> Parse<()> {
        if self.at_end() {
            Ok(())
        } else {
            Err(self.unexpected("the end of the statement"))
        }
    }

    /// The next token is wrong; `expected` would be right.
    pub(crate) fn unexpected(&self, expected: &str) -> Failure {
        let hint = Some(format!("Expected {expected}."));
        Failure::Unexpected {
            found: self.parser.peek_token(),
            hint,
        }
    }

    /// An identifier: a word that is not reserved, or a quoted one.
    pub(crate) fn ident(&mut self) -> Parse<Ident> {
        match &self.parser.peek_token_ref().token {
            Token::Word(word) if word.quote_style.is_some() || !is_reserved(&word.value) => {
                Ok(self.parser.parse_identifier()?)
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    /// A name of one or more parts.
    pub(crate) fn name(&mut self) -> Parse<ObjectName> {
        let mut parts = vec![ObjectNamePart::Identifier(self.ident()?)];
        while self.take_token(&Token::Period) {
            if parts.len() == 3 {
                return Err(self.unexpected("at most a database, a schema and a name"));
            }
            // After a period even a reserved word is a name, as in PostgreSQL.
            let token = self.parser.peek_token_ref();
            if !matches!(token.token, Token::Word(_)) {
                return Err(self.unexpected("a name"));
            }
            parts.push(ObjectNamePart::Identifier(self.parser.parse_identifier()?));
        }
        Ok(ObjectName(parts))
    }

    /// `item [, item]*`.
    pub(crate) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.take_token(&Token::Comma) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `(item [, item]*)`.
    pub(crate) fn parenthesised<T>(&mut self, item: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        self.need_token(&Token::LParen)?;
        let items = self.list(item)?;
        self.need_token(&Token::RParen)?;
        Ok(items)
    }

    /// A string constant, in any of PostgreSQL's spellings.
    pub(crate) fn string(&mut self) -> Parse<String> {
        match string_of(&self.parser.peek_token_ref().token) {
            Some(text) => {
                self.parser.advance_token();
                Ok(text)
            }
            None => Err(self.unexpected("a string in single quotes")),
        }
    }

    /// A whole number that is not negative.
    pub(crate) fn number(&mut self) -> Parse<u64> {
        let number = match &self.parser.peek_token_ref().token {
            Token::Number(digits, _) => digits.parse().ok(),
            _ => None,
        };
        match number {
            Some(number) => {
                self.parser.advance_token();
                Ok(number)
            }
            None => Err(self.unexpected("a whole number")),
        }
    }

    /// An expression.
    pub(crate) fn expr(&mut self) -> Parse<Expr> {
        Ok(self.parser.parse_expr()?)
    }

    /// A query.
    pub(crate) fn query(&mut self) -> Parse<Box<Query>> {
        let query = self.parser.parse_query()?;
        rules::check(&query)?;
        Ok(query)
    }

    /// A boolean, which is true if it is left out.
    pub(crate) fn boolean(&mut self) -> Parse<bool> {
        if matches!(
            self.parser.peek_token_ref().token,
            Token::Comma | Token::RParen | Token::EOF
        ) {
            return Ok(true);
        }
        let at = self.here();
        let value = self.plain_value()?;
        match value.to_lowercase().as_str() {
            "true" | "on" | "1" | "yes" => Ok(true),
            "false" | "off" | "0" | "no" => Ok(false),
            _ => Err(
                Failure::invalid(format!("\"{value}\" is not a Boolean value"), at)
                    .with_hint("Use true or false."),
            ),
        }
    }

    /// A setting's or option's value as text: a string, a number with its sign, or a word in lower case.
    pub(crate) fn plain_value(&mut self) -> Parse<String> {
        let sign = if self.take_token(&Token::Minus) {
            "-"
        } else {
            let _ = self.take_token(&Token::Plus);
            ""
        };
        let token = self.parser.peek_token();
        let value = match &token.token {
            Token::Number(digits, _) => format!("{sign}{digits}"),
            Token::Word(word) if sign.is_empty() => match word.quote_style {
                Some(_) => word.value.clone(),
                None => word.value.to_lowercase(),
            },
            other => match string_of(other).filter(|_| sign.is_empty()) {
                Some(text) => text,
                None => return Err(self.unexpected("a value: a string in single quotes, a number or a word")),
            },
        };
        self.parser.advance_token();
        Ok(value)
    }

    /// The key of an option: `name`, `a.b.c`, `'a.b'` or `"a.b"`.
    pub(crate) fn option_name(&mut self) -> Parse<Ident> {
        let token = self.parser.peek_token();
        if let Some(text) = string_of(&token.token) {
            self.parser.advance_token();
            return Ok(Ident::with_quote_and_span('\'', token.span, text));
        }
        let mut name = String::new();
        let mut quoted = false;
        loop {
            match &self.parser.peek_token_ref().token {
                Token::Word(word) => {
                    quoted |= word.quote_style.is_some();
                    match word.quote_style {
                        Some(_) => name.push_str(&word.value),
                        None => name.push_str(&word.value.to_lowercase()),
                    }
                }
                _ => return Err(self.unexpected("the name of an option")),
            }
            self.parser.advance_token();
            if !self.take_token(&Token::Period) {
                break;
            }
            name.push('.');
        }
        Ok(match quoted {
            true => Ident::with_quote_and_span('\'', token.span, name),
            false => Ident::with_span(token.span, name),
        })
    }

    /// Takes `SECRET`, if the name of one follows.
    fn takes_secret(&mut self) -> bool {
        matches!(self.peek_nth_token_ref(1).token, Token::Word(_)) && self.take(&["SECRET"])
    }

    /// `(key = value, ..)`; `key = SECRET name` is `key.from_secret = 'name'`. `=` may be missing as in DataFusion's `OPTIONS ('key' 'value')`.
    pub(crate) fn option_list(&mut self) -> Parse<Vec<OptionEntry>> {
        self.need_token(&Token::LParen)?;
        let mut entries: Vec<OptionEntry> = Vec::new();
        while !self.take_token(&Token::RParen) {
            if !entries.is_empty() {
                self.need_token(&Token::Comma)?;
            }
            let at = self.here();
            let mut name = self.option_name()?;
            let _ = self.take_token(&Token::Eq);
            let value = match self.takes_secret() {
                true => {
                    name.value.push_str(SECRET);
                    self.name()?.to_string()
                }
                false => self.plain_value()?,
            };
            if entries.iter().any(|entry| entry.name.value == name.value) {
                return Err(Failure::invalid(
                    format!("option \"{}\" specified more than once", name.value),
                    at,
                ));
            }
            entries.push(OptionEntry { name, value });
        }
        Ok(entries)
    }
}

/// The content of a string token.
pub(crate) fn string_of(token: &Token) -> Option<String> {
    match token {
        Token::SingleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::UnicodeStringLiteral(text)
        | Token::NationalStringLiteral(text) => Some(text.clone()),
        Token::DollarQuotedString(text) => Some(text.value.clone()),
        _ => None,
    }
}
