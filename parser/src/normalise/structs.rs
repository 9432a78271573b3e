//! `STRUCT<a INT, b STRUCT<c TEXT>>`, RisingWave's type of records, as the type [`STRUCT`] with the names and types of its attributes as
//! words.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::is;
use crate::ast::STRUCT;
use crate::error::Failure;
use crate::identifier::type_word;
use crate::tokens::is_word;

/// How deep they may stand in each other.
const DEPTH_MAX: usize = 8;

/// Rewrites all of them.
pub(super) fn respell(tokens: &mut Vec<TokenWithSpan>) -> Result<(), Failure> {
    let mut i = 0;
    while i < tokens.len() {
        if is_word(tokens.get(i), "STRUCT") && is(tokens.get(i + 1), &Token::Lt) {
            let mut read = Read {
                tokens,
                at: i,
                left_open: false,
            };
            let words = read.attributes(1)?;
            let (end, left_open) = (read.at, read.left_open);
            if left_open {
                return Err(unclosed(&tokens[i]));
            }
            let span = tokens[i].span;
            let token = |token: Token| TokenWithSpan::new(token, span);
            let mut new = vec![token(Token::make_word(STRUCT, Some('"'))), token(Token::LParen)];
            for (place, word) in words.into_iter().enumerate() {
                if place > 0 {
                    new.push(token(Token::Comma));
                }
                new.push(token(Token::make_word(&type_word(&word), None)));
            }
            new.push(token(Token::RParen));
            tokens.splice(i..end, new);
        }
        i += 1;
    }
    Ok(())
}

fn unclosed(at: &TokenWithSpan) -> Failure {
    Failure::invalid("STRUCT< has no >", at.span.start)
}

struct Read<'a> {
    tokens: &'a [TokenWithSpan],
    at: usize,
    /// `>>` closed what is within, and has to close what is around it.
    left_open: bool,
}

impl Read<'_> {
    /// The names and types from STRUCT on, by turns.
    fn attributes(&mut self, depth: usize) -> Result<Vec<String>, Failure> {
        let start = &self.tokens[self.at];
        if depth > DEPTH_MAX {
            let message = format!("STRUCT stands more than {DEPTH_MAX} deep in others");
            return Err(Failure::unsupported(message, start.span.start, ""));
        }
        self.at += 2;
        let mut words = vec![];
        loop {
            let Some(Token::Word(name)) = self.tokens.get(self.at).map(|token| &token.token) else {
                let at = self.tokens.get(self.at).unwrap_or(start);
                return Err(Failure::invalid(
                    "an attribute of STRUCT<..> has a name and a type",
                    at.span.start,
                ));
            };
            words.push(match name.quote_style {
                Some(_) => name.value.clone(),
                None => name.value.to_lowercase(),
            });
            self.at += 1;
            words.push(self.data_type(depth, start)?);
            if self.left_open {
                self.left_open = false;
                return Ok(words);
            }
            match self.tokens.get(self.at).map(|token| &token.token) {
                Some(Token::Comma) => self.at += 1,
                Some(Token::Gt) => {
                    self.at += 1;
                    return Ok(words);
                }
                Some(Token::ShiftRight) if depth > 1 => {
                    self.at += 1;
                    self.left_open = true;
                    return Ok(words);
                }
                _ => return Err(unclosed(start)),
            }
        }
    }

    /// The type of an attribute as a text.
    fn data_type(&mut self, depth: usize, start: &TokenWithSpan) -> Result<String, Failure> {
        let mut text = String::new();
        let mut open = 0_usize;
        while let Some(token) = self.tokens.get(self.at) {
            if is_word(Some(token), "STRUCT") && is(self.tokens.get(self.at + 1), &Token::Lt) {
                let words = self.attributes(depth + 1)?;
                let words: Vec<String> = words.iter().map(|word| type_word(word)).collect();
                text.push_str(&format!("\"{STRUCT}\"({})", words.join(", ")));
                if self.left_open {
                    return Ok(text);
                }
                continue;
            }
            match &token.token {
                Token::LParen | Token::LBracket => open += 1,
                Token::RParen | Token::RBracket if open > 0 => open -= 1,
                Token::Comma | Token::Gt | Token::ShiftRight if open == 0 => break,
                Token::RParen | Token::RBracket | Token::SemiColon => return Err(unclosed(start)),
                _ => {}
            }
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(&token.token.to_string());
            self.at += 1;
        }
        match text.is_empty() {
            true => Err(unclosed(start)),
            false => Ok(text),
        }
    }
}
