//! PostgreSQL's advanced regular expressions, read into a tree.
//!
//! With `translate` this is the place that knows how they differ from those of Rust's engines: `.` and `[^x]` take a newline unless an option says otherwise,
//! `\y`, `\m`, `\M`, `\Z` and `\A`, `\B` is a backslash, classes by name, bounds up to 255, options at the beginning.

use std::fmt::Write;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

/// What the letters after a regular expression, or at its beginning, ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Options {
    /// `g`: all matches. The caller looks at it.
    pub global: bool,
    /// `i`.
    pub ignore_case: bool,
    /// `.` and `[^x]` take no newline (`n`, `p`).
    pub newline_stops: bool,
    /// `^` and `$` match at newlines (`n`, `w`).
    pub newline_anchors: bool,
    /// `x`: white space and comments count for nothing.
    pub expanded: bool,
    /// `q`: the text itself.
    pub literal: bool,
}

impl Options {
    /// Reads the letters.
    ///
    /// # Errors
    /// A letter is not known, or its syntax is not supported.
    pub fn read(letters: &str) -> SqlResult<Self> {
        let mut options = Options::default();
        for letter in letters.chars() {
            if letter == 'g' {
                options.global = true;
            } else if !options.set(letter)? {
                return Err(SqlError::new(
                    SqlState::InvalidParameterValue,
                    format!("invalid regular expression option: \"{letter}\""),
                ));
            }
        }
        Ok(options)
    }

    /// Takes a letter; `false`: there is no such option.
    pub(super) fn set(&mut self, letter: char) -> SqlResult<bool> {
        match letter {
            'c' => self.ignore_case = false,
            'i' => self.ignore_case = true,
            'm' | 'n' => (self.newline_stops, self.newline_anchors) = (true, true),
            'p' => (self.newline_stops, self.newline_anchors) = (true, false),
            's' => (self.newline_stops, self.newline_anchors) = (false, false),
            'w' => (self.newline_stops, self.newline_anchors) = (false, true),
            'q' => self.literal = true,
            't' => self.expanded = false,
            'x' => self.expanded = true,
            'b' | 'e' => {
                return Err(SqlError::unsupported(format!(
                    "the regular expression option \"{letter}\" is not supported"
                ))
                .with_hint("Regular expressions are PostgreSQL's advanced ones (ARE)."));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A part of a regular expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Character(char),
    /// `.`
    Any,
    /// A bracket expression: what stands in it, in Rust's syntax.
    Class {
        items: String,
        negated: bool,
    },
    /// What takes no characters, in Rust's syntax.
    Assertion(&'static str),
    Group {
        /// Whether it is counted.
        captures: bool,
        node: Box<Node>,
    },
    /// Looks ahead or back.
    Look {
        behind: bool,
        negative: bool,
        node: Box<Node>,
    },
    BackReference(usize),
    Repeat {
        node: Box<Node>,
        least: u32,
        most: Option<u32>,
        greedy: bool,
        /// Written as `{m}`: it has the preference of what it repeats.
        is_fixed: bool,
    },
    Concat(Vec<Node>),
    Alternation(Vec<Node>),
}

pub(super) fn invalid(what: &str) -> SqlError {
    SqlError::new(
        SqlState::InvalidRegularExpression,
        format!("invalid regular expression: {what}"),
    )
}

fn bad_escape() -> SqlError {
    invalid("invalid escape \\ sequence")
}

pub(super) fn bad_operand() -> SqlError {
    invalid("quantifier operand invalid")
}

/// Writes a character so that it stands for itself anywhere.
pub(super) fn write_character(character: char, out: &mut String) {
    if character.is_ascii_alphanumeric() || (!character.is_ascii() && !character.is_whitespace()) {
        out.push(character);
    } else {
        let _ = write!(out, "\\x{{{:X}}}", u32::from(character));
    }
}

/// What stands in a class of this name, in Rust's syntax. Letters are Unicode's, digits are ASCII's.
fn class(name: &str) -> Option<&'static str> {
    Some(match name {
        "alnum" => "\\p{Alphabetic}\\p{Nd}",
        "alpha" => "\\p{Alphabetic}",
        "ascii" => "\\x00-\\x7F",
        "blank" => "\\x20\\t",
        "cntrl" => "\\p{Cc}",
        "digit" => "0-9",
        "graph" => "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}",
        "lower" => "\\p{Lowercase}",
        "print" => "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Zs}",
        "punct" => "\\p{P}\\p{S}",
        "space" => {
            "\\t-\\r\\x20\\x{1680}\\x{2000}-\\x{2006}\\x{2008}-\\x{200A}\\x{2028}\\x{2029}\\x{205F}\\x{3000}"
        }
        "upper" => "\\p{Uppercase}",
        "word" => "\\p{Alphabetic}\\p{Nd}_",
        "xdigit" => "0-9A-Fa-f",
        _ => return None,
    })
}

/// The class that a letter after a backslash stands for, and whether it is that class's complement.
fn shorthand(letter: char) -> Option<(&'static str, bool)> {
    let name = match letter.to_ascii_lowercase() {
        'd' => "digit",
        's' => "space",
        'w' => "word",
        _ => return None,
    };
    Some((class(name)?, letter.is_ascii_uppercase()))
}

/// How deep groups may be nested.
const DEPTH_MAX: usize = 200;
/// The largest bound of a quantifier.
const BOUND_MAX: u32 = 255;

/// Reads an expression whose options are known.
///
/// # Errors
/// It is not one (2201B).
pub(super) fn read(text: &str, options: Options) -> SqlResult<Node> {
    if options.literal {
        return Ok(Node::Concat(text.chars().map(Node::Character).collect()));
    }
    let mut parser = Parser {
        text: text.chars().collect(),
        at: 0,
        options,
        groups: 0,
        open: vec![],
        depth: 0,
        looks_around: false,
    };
    let node = parser.alternation(0)?;
    if parser.at < parser.text.len() {
        return Err(invalid("parentheses () not balanced"));
    }
    Ok(node)
}

struct Parser {
    text: Vec<char>,
    at: usize,
    options: Options,
    /// Groups that were opened.
    groups: usize,
    /// Those of them that are still open.
    open: Vec<usize>,
    depth: usize,
    /// Inside of what looks ahead or back.
    looks_around: bool,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn looking_at(&self, text: &str) -> bool {
        text.chars()
            .enumerate()
            .all(|(index, character)| self.text.get(self.at + index) == Some(&character))
    }

    fn take(&mut self, text: &str) -> bool {
        let is_there = self.looking_at(text);
        if is_there {
            self.at += text.chars().count();
        }
        is_there
    }

    /// Skips comments, and in expanded syntax white space.
    fn skip(&mut self) {
        loop {
            if self.looking_at("(?#") {
                while self.peek().is_some_and(|character| character != ')') {
                    self.at += 1;
                }
                self.at += 1;
                continue;
            }
            match self.peek() {
                Some(space) if self.options.expanded && space.is_ascii_whitespace() => self.at += 1,
                Some('#') if self.options.expanded => {
                    while self.peek().is_some_and(|character| character != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn alternation(&mut self, depth: usize) -> SqlResult<Node> {
        if depth > DEPTH_MAX {
            return Err(invalid("regular expression is too complex"));
        }
        self.depth = depth;
        let mut branches = vec![self.branch()?];
        while self.take("|") {
            branches.push(self.branch()?);
        }
        Ok(if branches.len() == 1 {
            branches.remove(0)
        } else {
            Node::Alternation(branches)
        })
    }

    fn branch(&mut self) -> SqlResult<Node> {
        let mut parts = vec![];
        loop {
            self.skip();
            match self.peek() {
                None | Some('|') => break,
                Some(')') if self.depth > 0 => break,
                Some(_) => {
                    let atom = self.atom()?;
                    parts.push(self.quantified(atom)?);
                }
            }
        }
        Ok(Node::Concat(parts))
    }

    fn quantified(&mut self, atom: Node) -> SqlResult<Node> {
        self.skip();
        let (least, most, is_fixed) = match self.peek() {
            Some('*') => (0, None, false),
            Some('+') => (1, None, false),
            Some('?') => (0, Some(1), false),
            Some('{') if self.text.get(self.at + 1).is_some_and(char::is_ascii_digit) => {
                self.at += 1;
                let bounds = self.bounds()?;
                return self.repeated(atom, bounds);
            }
            _ => return Ok(atom),
        };
        self.at += 1;
        self.repeated(atom, (least, most, is_fixed))
    }

    fn repeated(&mut self, atom: Node, (least, most, is_fixed): (u32, Option<u32>, bool)) -> SqlResult<Node> {
        if matches!(atom, Node::Assertion(_) | Node::Look { .. }) {
            return Err(bad_operand());
        }
        let greedy = !self.take("?");
        self.skip();
        let again = match self.peek() {
            Some('*' | '+' | '?') => true,
            Some('{') => self.text.get(self.at + 1).is_some_and(char::is_ascii_digit),
            _ => false,
        };
        if again {
            return Err(bad_operand());
        }
        Ok(Node::Repeat {
            node: Box::new(atom),
            least,
            most,
            greedy,
            is_fixed,
        })
    }

    /// The bounds of a quantifier, after its opening brace.
    fn bounds(&mut self) -> SqlResult<(u32, Option<u32>, bool)> {
        let wrong = || invalid("invalid repetition count(s)");
        let number = |parser: &mut Self| -> SqlResult<Option<u32>> {
            let start = parser.at;
            let mut value = 0_u32;
            while let Some(digit) = parser.peek().and_then(|character| character.to_digit(10)) {
                value = value.saturating_mul(10).saturating_add(digit);
                parser.at += 1;
            }
            if value > BOUND_MAX {
                return Err(wrong());
            }
            Ok((parser.at > start).then_some(value))
        };
        let least = number(self)?.unwrap_or(0);
        let (most, is_fixed) = if self.take(",") {
            (number(self)?, false)
        } else {
            (Some(least), true)
        };
        if !self.take("}") {
            return Err(match self.peek() {
                None => invalid("braces {} not balanced"),
                Some(_) => wrong(),
            });
        }
        if most.is_some_and(|most| most < least) {
            return Err(wrong());
        }
        Ok((least, most, is_fixed))
    }

    fn group(&mut self, node: impl FnOnce(Box<Node>) -> Node) -> SqlResult<Node> {
        let depth = self.depth;
        let inner = self.alternation(depth + 1)?;
        self.depth = depth;
        if !self.take(")") {
            return Err(invalid("parentheses () not balanced"));
        }
        Ok(node(Box::new(inner)))
    }

    fn atom(&mut self) -> SqlResult<Node> {
        for (opening, behind, negative) in [
            ("(?=", false, false),
            ("(?!", false, true),
            ("(?<=", true, false),
            ("(?<!", true, true),
        ] {
            if self.take(opening) {
                let looks_around = std::mem::replace(&mut self.looks_around, true);
                let node = self.group(|node| Node::Look {
                    behind,
                    negative,
                    node,
                });
                self.looks_around = looks_around;
                return node;
            }
        }
        if self.take("(?:") {
            return self.group(|node| Node::Group {
                captures: false,
                node,
            });
        }
        if self.looking_at("(?") {
            return Err(bad_operand());
        }
        if self.take("[[:<:]]") {
            return Ok(Node::Assertion("\\b{start}"));
        }
        if self.take("[[:>:]]") {
            return Ok(Node::Assertion("\\b{end}"));
        }
        let Some(character) = self.peek() else {
            return Ok(Node::Concat(vec![]));
        };
        self.at += 1;
        Ok(match character {
            // What looks around has no groups of its own.
            '(' if self.looks_around => self.group(|node| Node::Group {
                captures: false,
                node,
            })?,
            '(' => {
                self.groups += 1;
                let number = self.groups;
                self.open.push(number);
                let node = self.group(|node| Node::Group { captures: true, node })?;
                self.open.retain(|open| *open != number);
                node
            }
            ')' => return Err(invalid("parentheses () not balanced")),
            '*' | '+' | '?' => return Err(bad_operand()),
            '{' if self.peek().is_some_and(|next| next.is_ascii_digit()) => return Err(bad_operand()),
            '.' => Node::Any,
            '^' if self.options.newline_anchors => Node::Assertion("(?m:^)"),
            '^' => Node::Assertion("\\A"),
            '$' if self.options.newline_anchors => Node::Assertion("(?m:$)"),
            '$' => Node::Assertion("\\z"),
            '[' => self.bracket()?,
            '\\' => self.escape()?,
            other => Node::Character(other),
        })
    }

    /// What a backslash and what follows it mean.
    fn escape(&mut self) -> SqlResult<Node> {
        let Some(letter) = self.peek() else {
            return Err(bad_escape());
        };
        if let Some((items, negated)) = shorthand(letter) {
            self.at += 1;
            return Ok(Node::Class {
                items: items.into(),
                negated,
            });
        }
        let assertion = match letter {
            'A' => "\\A",
            'Z' => "\\z",
            'm' => "\\b{start}",
            'M' => "\\b{end}",
            'y' => "\\b",
            'Y' => "\\B",
            _ => "",
        };
        if !assertion.is_empty() {
            self.at += 1;
            return Ok(Node::Assertion(assertion));
        }
        if let Some(first) = letter.to_digit(10).filter(|digit| *digit > 0) {
            // A number of one digit, or of a group that was there before, refers to a group; others are octal.
            let mut number = first as usize;
            let mut length = 1;
            while let Some(digit) = self
                .text
                .get(self.at + length)
                .and_then(|character| character.to_digit(10))
                .filter(|_| length < 3)
            {
                let longer = number * 10 + digit as usize;
                if longer > self.groups {
                    break;
                }
                number = longer;
                length += 1;
            }
            let two_digits = self.text.get(self.at + 1).is_some_and(char::is_ascii_digit);
            if number <= self.groups || !two_digits {
                self.at += length;
                if number > self.groups || self.open.contains(&number) || self.looks_around {
                    return Err(invalid("invalid backreference number"));
                }
                return Ok(Node::BackReference(number));
            }
        }
        self.escaped_character().map(Node::Character)
    }

    fn number(&mut self, base: u32, digits_max: usize, exact: bool) -> SqlResult<char> {
        let mut value = 0_u32;
        let mut digits = 0;
        while let Some(digit) = self.peek().and_then(|character| character.to_digit(base)) {
            if digits == digits_max {
                break;
            }
            value = value.saturating_mul(base).saturating_add(digit);
            digits += 1;
            self.at += 1;
        }
        if digits == 0 || (exact && digits < digits_max) {
            return Err(bad_escape());
        }
        char::from_u32(value).ok_or_else(bad_escape)
    }

    /// The character that an escape stands for, after its backslash.
    fn escaped_character(&mut self) -> SqlResult<char> {
        let letter = self.peek().ok_or_else(bad_escape)?;
        self.at += 1;
        Ok(match letter {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'B' => '\\',
            'c' => {
                let next = self.peek().ok_or_else(bad_escape)?;
                self.at += 1;
                char::from_u32(u32::from(next) & 0x1f).ok_or_else(bad_escape)?
            }
            'e' => '\u{1b}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => self.number(16, 4, true)?,
            'U' => self.number(16, 8, true)?,
            'v' => '\u{b}',
            'x' => self.number(16, 255, false)?,
            '0'..='7' => {
                self.at -= 1;
                self.number(8, 3, false)?
            }
            other if other.is_ascii_alphanumeric() => return Err(bad_escape()),
            other => other,
        })
    }

    /// A bracket expression, after its opening bracket.
    fn bracket(&mut self) -> SqlResult<Node> {
        let unbalanced = || invalid("brackets [] not balanced");
        let negated = self.take("^");
        let mut items = String::new();
        let mut is_first = true;
        loop {
            let character = self.peek().ok_or_else(unbalanced)?;
            if character == ']' && !is_first {
                self.at += 1;
                break;
            }
            is_first = false;
            if self.take("[:") {
                let start = self.at;
                while !self.looking_at(":]") {
                    if self.peek().is_none() {
                        return Err(unbalanced());
                    }
                    self.at += 1;
                }
                let name: String = self.text[start..self.at].iter().collect();
                self.at += 2;
                items.push_str(class(&name).ok_or_else(|| invalid("invalid character class"))?);
                continue;
            }
            if let ('\\', Some(next)) = (character, self.text.get(self.at + 1))
                && let Some((known, complement)) = shorthand(*next)
            {
                self.at += 2;
                if complement {
                    items.push_str("[^");
                    items.push_str(known);
                    items.push(']');
                } else {
                    items.push_str(known);
                }
                continue;
            }
            let low = self.bracket_character()?;
            let ranges =
                self.peek() == Some('-') && self.text.get(self.at + 1).is_some_and(|next| *next != ']');
            if ranges {
                self.at += 1;
                let high = self.bracket_character()?;
                if high < low {
                    return Err(invalid("invalid character range"));
                }
                write_character(low, &mut items);
                items.push('-');
                write_character(high, &mut items);
            } else {
                write_character(low, &mut items);
            }
        }
        Ok(Node::Class { items, negated })
    }

    /// One character in brackets: itself, an escape, `[.x.]` or `[=x=]`.
    fn bracket_character(&mut self) -> SqlResult<char> {
        for (opening, closing) in [("[.", ".]"), ("[=", "=]")] {
            if self.take(opening) {
                let character = self.peek().ok_or_else(|| invalid("brackets [] not balanced"))?;
                self.at += 1;
                if !self.take(closing) {
                    return Err(invalid("invalid collating element"));
                }
                return Ok(character);
            }
        }
        let character = self.peek().ok_or_else(|| invalid("brackets [] not balanced"))?;
        self.at += 1;
        if character == '\\' {
            return self.escaped_character();
        }
        Ok(character)
    }
}
