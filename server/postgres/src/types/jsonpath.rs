//! Paths of SQL/JSON: their syntax, and how PostgreSQL writes them.
//!
//! A crate was looked for: those for SQL/JSON compute with floats and report neither PostgreSQL's errors nor its regular expressions,
//! and the others know another language (RFC 9535).

mod parse;
mod tokens;

use std::fmt::{self, Display, Formatter};

pub use parse::parse;

use crate::types::json::quote;

/// A path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    /// `strict`: what is not there is an error, and arrays are not unwrapped.
    pub is_strict: bool,
    pub root: Expr,
}

/// What gives values, or says whether something is so.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// `$`.
    Root,
    /// `@`.
    Current,
    /// `last`.
    Last,
    /// `$name`.
    Variable(String),
    /// `null`, `true`, `false`, or a number in plain digits.
    Plain(String),
    Text(String),
    /// What steps from an expression lead to.
    Path(Box<Expr>, Vec<Step>),
    /// `+` or `-` of a number.
    Sign(Sign, Box<Expr>),
    Arithmetic(Box<Expr>, Arithmetic, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    IsUnknown(Box<Expr>),
    Compare(Box<Expr>, Comparison, Box<Expr>),
    StartsWith(Box<Expr>, Box<Expr>),
    LikeRegex {
        value: Box<Expr>,
        pattern: String,
        flags: String,
    },
    Exists(Box<Expr>),
}

/// The sign of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    Plus,
    Minus,
}

/// An operator between numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A step from a value to others.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// `.key`.
    Member(String),
    /// `.*`.
    AnyMember,
    /// `[*]`.
    AnyElement,
    /// `[1, 2 to 4]`.
    Elements(Vec<(Expr, Option<Expr>)>),
    /// `.**{from to to}`: values at these depths; `None`: `last`.
    Any(Option<u32>, Option<u32>),
    /// `?(condition)`.
    Filter(Box<Expr>),
    /// `.type()` and its like.
    Method(Method),
}

/// A method of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Type,
    Size,
    Double,
    Ceiling,
    Floor,
    Abs,
}

impl Method {
    pub const ALL: [Method; 6] = [
        Method::Type,
        Method::Size,
        Method::Double,
        Method::Ceiling,
        Method::Floor,
        Method::Abs,
    ];

    /// How it is written.
    pub fn name(self) -> &'static str {
        match self {
            Method::Type => "type",
            Method::Size => "size",
            Method::Double => "double",
            Method::Ceiling => "ceiling",
            Method::Floor => "floor",
            Method::Abs => "abs",
        }
    }
}

impl Sign {
    /// How it is written.
    pub fn symbol(self) -> &'static str {
        match self {
            Sign::Plus => "+",
            Sign::Minus => "-",
        }
    }
}

impl Arithmetic {
    /// How it is written.
    pub fn symbol(self) -> &'static str {
        match self {
            Arithmetic::Add => "+",
            Arithmetic::Subtract => "-",
            Arithmetic::Multiply => "*",
            Arithmetic::Divide => "/",
            Arithmetic::Modulo => "%",
        }
    }
}

impl Comparison {
    fn symbol(self) -> &'static str {
        match self {
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }
}

impl Expr {
    /// Whether it says that something is so, or that this is not known.
    pub fn is_predicate(&self) -> bool {
        matches!(
            self,
            Expr::And(..)
                | Expr::Or(..)
                | Expr::Not(_)
                | Expr::IsUnknown(_)
                | Expr::Compare(..)
                | Expr::StartsWith(..)
                | Expr::LikeRegex { .. }
                | Expr::Exists(_)
        )
    }

    /// How tightly it holds together, as PostgreSQL puts parentheses.
    fn priority(&self) -> u8 {
        match self {
            Expr::Or(..) => 0,
            Expr::And(..) => 1,
            Expr::Compare(..) | Expr::StartsWith(..) => 2,
            Expr::Arithmetic(_, Arithmetic::Add | Arithmetic::Subtract, _) => 3,
            Expr::Arithmetic(..) => 4,
            Expr::Sign(..) => 5,
            _ => 6,
        }
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    quote(text, &mut out);
    out
}

impl Display for JsonPath {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_strict {
            f.write_str("strict ")?;
        }
        write(&self.root, true, f)
    }
}

/// An operand, in parentheses where it does not hold together as tightly as what it is an operand of.
fn operand(expr: &Expr, of: &Expr, f: &mut Formatter<'_>) -> fmt::Result {
    write(expr, expr.priority() <= of.priority(), f)
}

fn binary(of: &Expr, left: &Expr, symbol: &str, right: &Expr, f: &mut Formatter<'_>) -> fmt::Result {
    operand(left, of, f)?;
    write!(f, " {symbol} ")?;
    operand(right, of, f)
}

/// `in_parentheses`: those around it, of what has several parts.
fn write(expr: &Expr, in_parentheses: bool, f: &mut Formatter<'_>) -> fmt::Result {
    let has_parts = matches!(
        expr,
        Expr::And(..)
            | Expr::Or(..)
            | Expr::Compare(..)
            | Expr::StartsWith(..)
            | Expr::LikeRegex { .. }
            | Expr::Arithmetic(..)
            | Expr::Sign(..)
    );
    let in_parentheses = in_parentheses && has_parts;
    if in_parentheses {
        f.write_str("(")?;
    }
    match expr {
        Expr::Root => f.write_str("$")?,
        Expr::Current => f.write_str("@")?,
        Expr::Last => f.write_str("last")?,
        Expr::Variable(name) => write!(f, "${}", quoted(name))?,
        Expr::Plain(text) => f.write_str(text)?,
        Expr::Text(text) => f.write_str(&quoted(text))?,
        Expr::Path(from, steps) => {
            // A number and a step could be read as another number.
            let is_number = matches!(&**from, Expr::Plain(text) if text.starts_with(|first: char| first.is_ascii_digit()));
            if is_number {
                f.write_str("(")?;
            }
            write(from, true, f)?;
            if is_number {
                f.write_str(")")?;
            }
            for step in steps {
                step.fmt(f)?;
            }
        }
        Expr::Sign(sign, inner) => {
            f.write_str(sign.symbol())?;
            operand(inner, expr, f)?;
        }
        Expr::Arithmetic(left, operator, right) => binary(expr, left, operator.symbol(), right, f)?,
        Expr::And(left, right) => binary(expr, left, "&&", right, f)?,
        Expr::Or(left, right) => binary(expr, left, "||", right, f)?,
        Expr::Compare(left, comparison, right) => binary(expr, left, comparison.symbol(), right, f)?,
        Expr::StartsWith(left, right) => binary(expr, left, "starts with", right, f)?,
        Expr::LikeRegex {
            value,
            pattern,
            flags,
        } => {
            operand(value, expr, f)?;
            write!(f, " like_regex {}", quoted(pattern))?;
            if !flags.is_empty() {
                write!(f, " flag {}", quoted(flags))?;
            }
        }
        Expr::Not(inner) => {
            f.write_str("!(")?;
            write(inner, false, f)?;
            f.write_str(")")?;
        }
        Expr::IsUnknown(inner) => {
            f.write_str("(")?;
            write(inner, false, f)?;
            f.write_str(") is unknown")?;
        }
        Expr::Exists(inner) => {
            f.write_str("exists (")?;
            write(inner, false, f)?;
            f.write_str(")")?;
        }
    }
    match in_parentheses {
        true => f.write_str(")"),
        false => Ok(()),
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let depth = |depth: &Option<u32>| depth.map_or_else(|| "last".to_owned(), |depth| depth.to_string());
        match self {
            Step::Member(key) => write!(f, ".{}", quoted(key)),
            Step::AnyMember => f.write_str(".*"),
            Step::AnyElement => f.write_str("[*]"),
            Step::Elements(ranges) => {
                f.write_str("[")?;
                for (index, (from, to)) in ranges.iter().enumerate() {
                    if index > 0 {
                        f.write_str(",")?;
                    }
                    write(from, false, f)?;
                    if let Some(to) = to {
                        f.write_str(" to ")?;
                        write(to, false, f)?;
                    }
                }
                f.write_str("]")
            }
            Step::Any(Some(0), None) => f.write_str(".**"),
            Step::Any(from, to) if from == to => write!(f, ".**{{{}}}", depth(from)),
            Step::Any(from, to) => write!(f, ".**{{{} to {}}}", depth(from), depth(to)),
            Step::Filter(condition) => {
                f.write_str("?(")?;
                write(condition, false, f)?;
                f.write_str(")")
            }
            Step::Method(method) => write!(f, ".{}()", method.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_postgresql_writes_them() {
        for (read, written) in [
            ("$", "$"),
            ("strict $", "strict $"),
            ("lax $.a.b[*].c", "$.\"a\".\"b\"[*].\"c\""),
            ("$.a.**{2 to last}.b", "$.\"a\".**{2 to last}.\"b\""),
            ("$.**{3}", "$.**{3}"),
            ("$[1, 2 to last - 1]", "$[1,2 to last - 1]"),
            (
                "$.g ? (@.a == 1 && @.b > $x || !(@.c < 2))",
                "$.\"g\"?(@.\"a\" == 1 && @.\"b\" > $\"x\" || !(@.\"c\" < 2))",
            ),
            ("1 + 2 * 3", "(1 + 2 * 3)"),
            ("(1 + 2) * 3", "((1 + 2) * 3)"),
            ("-$.a", "(-$.\"a\")"),
            ("$.a.type()", "$.\"a\".type()"),
            ("$ ? (exists (@.x ? (@ > 1)))", "$?(exists (@.\"x\"?(@ > 1)))"),
            ("$ ? (@ starts with \"a\")", "$?(@ starts with \"a\")"),
            (
                "$ ? (@ like_regex \"^a\" flag \"i\")",
                "$?(@ like_regex \"^a\" flag \"i\")",
            ),
            ("$ ? ((@ > 1) is unknown)", "$?((@ > 1) is unknown)"),
            ("$.\"a\\u0020b\"", "$.\"a b\""),
            ("1.5e2", "150"),
            ("($.a)[0]", "$.\"a\"[0]"),
        ] {
            let path = parse(read).unwrap_or_else(|error| panic!("{read}: {error}"));
            assert_eq!(path.to_string(), written, "{read}");
            assert_eq!(parse(written).unwrap(), path, "{written}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in [
            "",
            "$.",
            "@",
            "last",
            "$ ? (@.a)",
            "$ == ",
            "$[",
            "$ $",
            "$.a ? (1)",
            "$.a.nosuch()",
            "\"a",
            "$.1a",
            "!$.a",
            "$ ? (@ = 1)",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
