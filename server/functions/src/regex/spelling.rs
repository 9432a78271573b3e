//! SQL's spellings of what the functions over patterns do: `~`, SIMILAR TO, SUBSTRING, and functions that make rows.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};

use super::{LIKE, MATCHES, SIMILAR, SUBSTRING};
use crate::syntax::{call, text};
use crate::text::LIKE_ESCAPE;

fn negated_if(negated: bool, expr: Expr) -> Expr {
    if !negated {
        return expr;
    }
    Expr::UnaryOp {
        op: UnaryOperator::Not,
        expr: Box::new(Expr::Nested(Box::new(expr))),
    }
}

/// The call that an expression is; `None`: it is none of these.
pub fn rewritten(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::BinaryOp { left, op, right } => {
            let (negated, ignores_case) = match op {
                BinaryOperator::PGRegexMatch => (false, false),
                BinaryOperator::PGRegexIMatch => (false, true),
                BinaryOperator::PGRegexNotMatch => (true, false),
                BinaryOperator::PGRegexNotIMatch => (true, true),
                _ => return None,
            };
            let mut arguments = vec![left.as_ref().clone(), right.as_ref().clone()];
            if ignores_case {
                arguments.push(text("i"));
            }
            Some(negated_if(negated, call(LIKE, arguments)))
        }
        // A backslash escapes without being told to.
        Expr::Like {
            escape_char: Some(escape),
            ..
        }
        | Expr::ILike {
            escape_char: Some(escape),
            ..
        } if !matches!(&escape.value, Value::SingleQuotedString(escape) | Value::EscapedStringLiteral(escape) if escape == "\\") =>
        {
            let mut plain = expr.clone();
            if let Expr::Like {
                pattern, escape_char, ..
            }
            | Expr::ILike {
                pattern, escape_char, ..
            } = &mut plain
            {
                let escape = escape_char.take().map(Expr::Value);
                let arguments = [Some(pattern.as_ref().clone()), escape].into_iter().flatten();
                **pattern = call(LIKE_ESCAPE, arguments.collect());
            }
            Some(plain)
        }
        Expr::SimilarTo {
            negated,
            expr,
            pattern,
            escape_char,
        } => {
            let mut arguments = vec![expr.as_ref().clone(), pattern.as_ref().clone()];
            arguments.extend(escape_char.clone().map(Expr::Value));
            Some(negated_if(*negated, call(SIMILAR, arguments)))
        }
        Expr::Substring {
            expr,
            substring_from,
            substring_for,
            ..
        } => {
            let from = match (substring_from, substring_for) {
                (Some(from), _) => from.as_ref().clone(),
                (None, Some(_)) => Expr::value(Value::Number("1".into(), false)),
                (None, None) => return None,
            };
            let mut arguments = vec![expr.as_ref().clone(), from];
            arguments.extend(substring_for.as_deref().cloned());
            Some(call(SUBSTRING, arguments))
        }
        _ => None,
    }
}

/// A function that makes rows, as the list of what the rows are made of.
pub fn list_of(name: &str) -> Option<&'static str> {
    match name {
        "regexp_matches" => Some(MATCHES),
        "regexp_split_to_table" => Some("regexp_split_to_array"),
        _ => None,
    }
}
