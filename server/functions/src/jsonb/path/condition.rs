//! Whether a condition of a path holds, in three-valued logic.

use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::types::json::Node;
use millrace_postgres::types::jsonpath::{Comparison, Expr};

use super::super::value::type_of;
use super::evaluation::{Eval, Evaluation, Failure, Found, Item, Place, Truth, plain};
use super::number;
use crate::regex::engine::Regex;
use crate::regex::syntax::Options;

impl<'n> Evaluation<'n> {
    /// Whether a condition holds.
    pub fn truth(&mut self, expr: &Expr, place: Place<'_, 'n>) -> Eval<Truth> {
        self.work.steps(1)?;
        Ok(match expr {
            Expr::And(left, right) => match self.truth(left, place)? {
                Some(false) => Some(false),
                left => match self.truth(right, place)? {
                    Some(true) => left,
                    right => right,
                },
            },
            Expr::Or(left, right) => match self.truth(left, place)? {
                Some(true) => Some(true),
                left => match self.truth(right, place)? {
                    Some(false) => left,
                    right => right,
                },
            },
            Expr::Not(inner) => self.truth(inner, place)?.map(|is_so| !is_so),
            Expr::IsUnknown(inner) => Some(self.truth(inner, place)?.is_none()),
            Expr::Exists(inner) => {
                let mut found = Found {
                    items: vec![],
                    only_first: !self.is_strict,
                };
                match self.expression(inner, place, &mut found) {
                    Ok(()) => Some(!found.items.is_empty()),
                    Err(Failure::Soft(_)) => None,
                    Err(hard) => return Err(hard),
                }
            }
            Expr::Compare(left, comparison, right) => {
                let right = match self.unwrapped(right, place) {
                    Ok(items) => Some(items),
                    Err(Failure::Soft(_)) => None,
                    Err(hard) => return Err(hard),
                };
                self.any(left, place, right, &|left, right| {
                    compared(left, *comparison, right)
                })?
            }
            Expr::StartsWith(value, initial) => {
                let mut found = Found::all();
                self.expression(initial, place, &mut found)?;
                self.any(value, place, Some(found.items), &|value, initial| {
                    Ok(match (value.as_ref(), initial.as_ref()) {
                        (Node::Text(value), Node::Text(initial)) => Some(value.starts_with(initial.as_str())),
                        _ => None,
                    })
                })?
            }
            Expr::LikeRegex {
                value,
                pattern,
                flags,
            } => {
                let options = options(flags)?;
                self.any(value, place, Some(vec![plain("null")]), &|value, _| {
                    Ok(match value.as_ref() {
                        Node::Text(value) => Some(Regex::of(pattern, options)?.is_match(value)?),
                        _ => None,
                    })
                })?
            }
            other => {
                return Err(Failure::Hard(SqlError::internal(format!(
                    "{other:?} is no condition of a path"
                ))));
            }
        })
    }

    /// Whether something is so of any value on the left and any on the right.
    fn any(
        &mut self,
        left: &Expr,
        place: Place<'_, 'n>,
        right: Option<Vec<Item<'n>>>,
        is_so: &dyn Fn(&Item<'n>, &Item<'n>) -> SqlResult<Truth>,
    ) -> Eval<Truth> {
        let left = match self.unwrapped(left, place) {
            Ok(items) => items,
            Err(Failure::Soft(_)) => return Ok(None),
            Err(hard) => return Err(hard),
        };
        let Some(right) = right else {
            return Ok(None);
        };
        let (mut is_any, mut is_unknown) = (false, false);
        for left in &left {
            for right in &right {
                self.work.steps(1)?;
                match is_so(left, right)? {
                    Some(true) if !self.is_strict => return Ok(Some(true)),
                    Some(true) => is_any = true,
                    Some(false) => {}
                    None if self.is_strict => return Ok(None),
                    None => is_unknown = true,
                }
            }
        }
        Ok(match (is_any, is_unknown) {
            (true, _) => Some(true),
            (false, true) => None,
            (false, false) => Some(false),
        })
    }
}

/// The options of a regular expression whose flags are those of XQuery.
fn options(flags: &str) -> SqlResult<Options> {
    if flags.contains('x') && !flags.contains('q') {
        return Err(SqlError::unsupported(
            "XQuery \"x\" flag (expanded regular expressions) is not implemented",
        ));
    }
    let literal = flags.contains('q');
    Ok(Options {
        ignore_case: flags.contains('i'),
        newline_stops: !flags.contains('s') && !literal,
        newline_anchors: flags.contains('m') && !literal,
        literal,
        ..Options::default()
    })
}

/// How two values compare; `None`: they do not.
fn compared(left: &Item<'_>, comparison: Comparison, right: &Item<'_>) -> SqlResult<Truth> {
    let (left_type, right_type) = (type_of(left), type_of(right));
    if left_type != right_type {
        // Null is another value than any other, and neither less nor greater.
        let has_null = left_type == "null" || right_type == "null";
        return Ok(has_null.then_some(comparison == Comparison::NotEqual));
    }
    let order = match (left.as_ref(), right.as_ref()) {
        (Node::Text(left), Node::Text(right)) => left.encode_utf16().cmp(right.encode_utf16()),
        (Node::Plain(left), Node::Plain(right)) if left_type == "number" => number::compare(left, right)?,
        // `false` comes before `true`, as the words do.
        (Node::Plain(left), Node::Plain(right)) => left.cmp(right),
        _ => return Ok(None),
    };
    Ok(Some(match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }))
}
