//! From the text of a path to its parts.

use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::jsonpath::tokens::{Token, syntax, tokens};
use crate::types::jsonpath::{Arithmetic, Comparison, Expr, JsonPath, Method, Sign, Step};

/// How deep parentheses and filters may nest.
const DEPTH_MAX: usize = 128;

/// Reads a path.
///
/// # Errors
/// 42601: the text is none; 0A000: it has what is not supported.
pub fn parse(text: &str) -> SqlResult<JsonPath> {
    let mut reader = Reader {
        tokens: tokens(text)?,
        at: 0,
        in_filter: 0,
        in_subscript: 0,
        depth: 0,
    };
    if reader.tokens.is_empty() {
        return Err(SqlError::new(
            SqlState::InvalidTextRepresentation,
            format!("invalid input syntax for type jsonpath: \"{text}\""),
        ));
    }
    let is_strict = match reader.word("strict") {
        true => true,
        false => {
            let _ = reader.word("lax");
            false
        }
    };
    let root = reader.either()?;
    match reader.tokens.get(reader.at) {
        None => Ok(JsonPath { is_strict, root }),
        Some(_) => Err(reader.unexpected()),
    }
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
    /// How many filters it is in.
    in_filter: usize,
    /// How many subscripts it is in.
    in_subscript: usize,
    depth: usize,
}

impl Reader {
    fn unexpected(&self) -> SqlError {
        let found = match self.tokens.get(self.at) {
            None => return syntax("syntax error at end of jsonpath input"),
            Some(Token::Word(text) | Token::Text(text) | Token::Number(text)) => text.clone(),
            Some(Token::Variable(name)) => format!("${name}"),
            Some(Token::Symbol(symbol)) => (*symbol).to_owned(),
        };
        syntax(format!("syntax error at or near \"{found}\" of jsonpath input"))
    }

    fn symbol(&mut self, wanted: &str) -> bool {
        let is_it = matches!(self.tokens.get(self.at), Some(Token::Symbol(symbol)) if *symbol == wanted);
        self.at += usize::from(is_it);
        is_it
    }

    fn need(&mut self, wanted: &str) -> SqlResult<()> {
        match self.symbol(wanted) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    fn word(&mut self, wanted: &str) -> bool {
        let is_it =
            matches!(self.tokens.get(self.at), Some(Token::Word(word)) if word.eq_ignore_ascii_case(wanted));
        self.at += usize::from(is_it);
        is_it
    }

    fn need_word(&mut self, wanted: &str) -> SqlResult<()> {
        match self.word(wanted) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> SqlResult<T>) -> SqlResult<T> {
        if self.depth >= DEPTH_MAX {
            return Err(SqlError::new(
                SqlState::StatementTooComplex,
                format!("a jsonpath is nested more than {DEPTH_MAX} deep"),
            ));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// An expression or a predicate.
    fn either(&mut self) -> SqlResult<Expr> {
        self.deeper(|reader| {
            let mut left = reader.and()?;
            while reader.symbol("||") {
                let right = reader.and()?;
                left = Expr::Or(reader.predicate(left)?, reader.predicate(right)?);
            }
            Ok(left)
        })
    }

    fn predicate(&self, expr: Expr) -> SqlResult<Box<Expr>> {
        match expr.is_predicate() {
            true => Ok(Box::new(expr)),
            false => Err(self.unexpected()),
        }
    }

    fn value(&self, expr: Expr) -> SqlResult<Box<Expr>> {
        match expr.is_predicate() {
            false => Ok(Box::new(expr)),
            true => Err(self.unexpected()),
        }
    }

    fn and(&mut self) -> SqlResult<Expr> {
        let mut left = self.comparison()?;
        while self.symbol("&&") {
            let right = self.comparison()?;
            left = Expr::And(self.predicate(left)?, self.predicate(right)?);
        }
        Ok(left)
    }

    fn comparison(&mut self) -> SqlResult<Expr> {
        if self.symbol("!") {
            let is_delimited = matches!(self.tokens.get(self.at), Some(Token::Symbol("(")))
                || matches!(self.tokens.get(self.at), Some(Token::Word(word)) if word.eq_ignore_ascii_case("exists"));
            if !is_delimited {
                return Err(self.unexpected());
            }
            let inner = self.deeper(Self::primary)?;
            return Ok(Expr::Not(self.predicate(inner)?));
        }
        let left = self.sum()?;
        let symbols = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<>", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        for (symbol, comparison) in symbols {
            if self.symbol(symbol) {
                let right = self.sum()?;
                return Ok(Expr::Compare(self.value(left)?, comparison, self.value(right)?));
            }
        }
        if self.word("starts") {
            self.need_word("with")?;
            let initial = match self.tokens.get(self.at).cloned() {
                Some(Token::Text(text)) => Expr::Text(text),
                Some(Token::Variable(name)) => Expr::Variable(name),
                _ => return Err(self.unexpected()),
            };
            self.at += 1;
            return Ok(Expr::StartsWith(self.value(left)?, Box::new(initial)));
        }
        if self.word("like_regex") {
            let pattern = self.text()?;
            let flags = match self.word("flag") {
                true => self.text()?,
                false => String::new(),
            };
            if let Some(flag) = flags.chars().find(|flag| !"ismqx".contains(*flag)) {
                return Err(syntax(format!(
                    "invalid input syntax for type jsonpath: unrecognized flag character \"{flag}\" in LIKE_REGEX predicate"
                )));
            }
            // Each flag is kept once, in the order of PostgreSQL.
            let flags = "ismxq".chars().filter(|flag| flags.contains(*flag)).collect();
            return Ok(Expr::LikeRegex {
                value: self.value(left)?,
                pattern,
                flags,
            });
        }
        Ok(left)
    }

    fn text(&mut self) -> SqlResult<String> {
        match self.tokens.get(self.at).cloned() {
            Some(Token::Text(text)) => {
                self.at += 1;
                Ok(text)
            }
            _ => Err(self.unexpected()),
        }
    }

    fn sum(&mut self) -> SqlResult<Expr> {
        let mut left = self.product()?;
        loop {
            let operator = match () {
                () if self.symbol("+") => Arithmetic::Add,
                () if self.symbol("-") => Arithmetic::Subtract,
                () => return Ok(left),
            };
            let right = self.product()?;
            left = Expr::Arithmetic(self.value(left)?, operator, self.value(right)?);
        }
    }

    fn product(&mut self) -> SqlResult<Expr> {
        let mut left = self.signed()?;
        loop {
            let operator = match () {
                () if self.symbol("*") => Arithmetic::Multiply,
                () if self.symbol("/") => Arithmetic::Divide,
                () if self.symbol("%") => Arithmetic::Modulo,
                () => return Ok(left),
            };
            let right = self.signed()?;
            left = Expr::Arithmetic(self.value(left)?, operator, self.value(right)?);
        }
    }

    fn signed(&mut self) -> SqlResult<Expr> {
        let sign = match () {
            () if self.symbol("+") => Sign::Plus,
            () if self.symbol("-") => Sign::Minus,
            () => return self.primary(),
        };
        let inner = self.deeper(Self::signed)?;
        Ok(match self.value(inner)?.as_ref() {
            Expr::Plain(number) if number.starts_with(|first: char| first.is_ascii_digit()) => match sign {
                Sign::Plus => Expr::Plain(number.clone()),
                Sign::Minus => Expr::Plain(format!("-{number}")),
            },
            other => Expr::Sign(sign, Box::new(other.clone())),
        })
    }

    fn primary(&mut self) -> SqlResult<Expr> {
        let from = match self.tokens.get(self.at).cloned() {
            Some(Token::Text(text)) => Expr::Text(text),
            Some(Token::Number(number)) => Expr::Plain(number),
            Some(Token::Variable(name)) => Expr::Variable(name),
            Some(Token::Symbol("$")) => Expr::Root,
            Some(Token::Symbol("@")) if self.in_filter == 0 => {
                return Err(syntax("@ is not allowed in root expressions"));
            }
            Some(Token::Symbol("@")) => Expr::Current,
            Some(Token::Word(word)) if matches!(word.as_str(), "null" | "true" | "false") => {
                Expr::Plain(word)
            }
            Some(Token::Word(word)) if word.eq_ignore_ascii_case("last") => {
                if self.in_subscript == 0 {
                    return Err(syntax("LAST is allowed only in array subscripts"));
                }
                Expr::Last
            }
            Some(Token::Word(word)) if word.eq_ignore_ascii_case("exists") => {
                self.at += 1;
                self.need("(")?;
                let inner = self.either()?;
                self.need(")")?;
                return Ok(Expr::Exists(self.value(inner)?));
            }
            Some(Token::Symbol("(")) => {
                self.at += 1;
                let inner = self.either()?;
                self.need(")")?;
                if inner.is_predicate() && self.word("is") {
                    self.need_word("unknown")?;
                    return Ok(Expr::IsUnknown(Box::new(inner)));
                }
                return self.steps(inner);
            }
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        self.steps(from)
    }

    fn steps(&mut self, from: Expr) -> SqlResult<Expr> {
        let mut steps = vec![];
        while let Some(step) = self.step()? {
            steps.push(step);
        }
        Ok(match (steps.is_empty(), from) {
            (true, from) => from,
            (false, Expr::Path(root, before)) => Expr::Path(root, [before, steps].concat()),
            (false, from) => Expr::Path(Box::new(from), steps),
        })
    }

    fn step(&mut self) -> SqlResult<Option<Step>> {
        if self.symbol("?") {
            self.need("(")?;
            self.in_filter += 1;
            let condition = self.either()?;
            self.in_filter -= 1;
            self.need(")")?;
            return Ok(Some(Step::Filter(self.predicate(condition)?)));
        }
        if self.symbol("[") {
            if self.symbol("*") {
                self.need("]")?;
                return Ok(Some(Step::AnyElement));
            }
            let mut ranges = vec![];
            self.in_subscript += 1;
            loop {
                let from = self.sum()?;
                let to = match self.word("to") {
                    true => Some(*self.sum().and_then(|to| self.value(to))?),
                    false => None,
                };
                ranges.push((*self.value(from)?, to));
                if !self.symbol(",") {
                    break;
                }
            }
            self.in_subscript -= 1;
            self.need("]")?;
            return Ok(Some(Step::Elements(ranges)));
        }
        if !self.symbol(".") {
            return Ok(None);
        }
        if self.symbol("*") {
            return Ok(Some(Step::AnyMember));
        }
        if self.symbol("**") {
            if !self.symbol("{") {
                return Ok(Some(Step::Any(Some(0), None)));
            }
            let from = self.depth_of()?;
            let to = match self.word("to") {
                true => self.depth_of()?,
                false => from,
            };
            self.need("}")?;
            return Ok(Some(Step::Any(from, to)));
        }
        let key = match self.tokens.get(self.at).cloned() {
            Some(Token::Text(key)) => {
                self.at += 1;
                return Ok(Some(Step::Member(key)));
            }
            Some(Token::Word(key)) => key,
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        if !self.symbol("(") {
            return Ok(Some(Step::Member(key)));
        }
        let method = Method::ALL
            .into_iter()
            .find(|method| method.name().eq_ignore_ascii_case(&key));
        match method {
            Some(method) => {
                self.need(")")?;
                Ok(Some(Step::Method(method)))
            }
            None if matches!(key.to_ascii_lowercase().as_str(), "datetime" | "keyvalue") => Err(
                SqlError::unsupported(format!("jsonpath item method .{key}() is not supported")),
            ),
            None => {
                self.at -= 1;
                Err(self.unexpected())
            }
        }
    }

    /// A depth of `.**{}`; `None`: `last`.
    fn depth_of(&mut self) -> SqlResult<Option<u32>> {
        if self.word("last") {
            return Ok(None);
        }
        match self.tokens.get(self.at) {
            Some(Token::Number(number)) => {
                let depth = number.parse().map_err(|_| self.unexpected())?;
                self.at += 1;
                Ok(Some(depth))
            }
            _ => Err(self.unexpected()),
        }
    }
}
