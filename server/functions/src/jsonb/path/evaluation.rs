//! What the steps and the expressions of a path lead to.

use std::borrow::Cow;

use millrace_postgres::error::{SqlError, SqlState};
use millrace_postgres::types::json::Node;
use millrace_postgres::types::jsonpath::{Expr, Method, Sign, Step};
use millrace_postgres::types::parse;

use super::super::value::{member, type_of};
use super::number;
use crate::bounded::work::Work;

/// A value that a path has come to.
pub(super) type Item<'n> = Cow<'n, Node<'n>>;

/// Why there is no answer.
pub(super) enum Failure {
    /// What a silent query does not say, and a condition does not know.
    Soft(SqlError),
    Hard(SqlError),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Failure::Hard(error)
    }
}

pub(super) type Eval<T> = Result<T, Failure>;

fn soft<T>(code: SqlState, message: impl Into<String>) -> Eval<T> {
    Err(Failure::Soft(SqlError::new(code, message)))
}

/// Values that a path, or a part of one, may find.
const ITEMS_MAX: usize = 1_000_000;

/// What was found.
pub(super) struct Found<'n> {
    pub items: Vec<Item<'n>>,
    /// Whether one is enough.
    pub only_first: bool,
}

impl<'n> Found<'n> {
    pub fn all() -> Self {
        Found {
            items: vec![],
            only_first: false,
        }
    }

    /// Takes one more.
    ///
    /// # Errors
    /// There are too many: `.**` of `.**` finds each value in as many ways as there are.
    fn push(&mut self, item: Item<'n>) -> Eval<()> {
        if self.items.len() == ITEMS_MAX {
            return Err(Failure::Hard(SqlError::new(
                SqlState::ProgramLimitExceeded,
                format!("a jsonpath finds more than {ITEMS_MAX} values"),
            )));
        }
        self.items.push(item);
        Ok(())
    }

    fn is_enough(&self) -> bool {
        self.only_first && !self.items.is_empty()
    }
}

/// The truth of a condition; `None`: it is not known.
pub(super) type Truth = Option<bool>;

pub(super) struct Evaluation<'n> {
    pub root: &'n Node<'n>,
    pub vars: Option<&'n Node<'n>>,
    pub is_strict: bool,
    /// Whether it counts for nothing that something is not there.
    pub ignores_structure: bool,
    pub work: Work,
}

/// Where a step is taken from: what `@` and `last` mean.
#[derive(Clone, Copy)]
pub(super) struct Place<'p, 'n> {
    pub current: &'p Item<'n>,
    /// The length of the innermost array.
    pub length: usize,
}

pub(super) fn plain<'n>(text: impl Into<String>) -> Item<'n> {
    Cow::Owned(Node::Plain(Cow::Owned(text.into())))
}

/// The number that an item is.
fn numeric<'i>(item: &'i Item<'_>) -> Option<&'i str> {
    match item.as_ref() {
        Node::Plain(text) if type_of(item) == "number" => Some(text),
        _ => None,
    }
}

/// The elements of an array.
fn elements<'n>(item: &Item<'n>) -> Option<Vec<Item<'n>>> {
    match item {
        Cow::Borrowed(Node::Array(items)) => Some(items.iter().map(Cow::Borrowed).collect()),
        Cow::Owned(Node::Array(items)) => Some(items.iter().cloned().map(Cow::Owned).collect()),
        _ => None,
    }
}

/// The values of an object.
fn values<'n>(item: &Item<'n>) -> Option<Vec<Item<'n>>> {
    match item {
        Cow::Borrowed(Node::Object(members)) => {
            Some(members.iter().map(|(_, value)| Cow::Borrowed(value)).collect())
        }
        Cow::Owned(Node::Object(members)) => Some(
            members
                .iter()
                .map(|(_, value)| Cow::Owned(value.clone()))
                .collect(),
        ),
        _ => None,
    }
}

impl<'n> Evaluation<'n> {
    /// What an expression gives.
    pub fn expression(&mut self, expr: &Expr, place: Place<'_, 'n>, found: &mut Found<'n>) -> Eval<()> {
        self.work.steps(1)?;
        let item = match expr {
            Expr::Root => Cow::Borrowed(self.root),
            Expr::Current => place.current.clone(),
            Expr::Last => plain((i64::try_from(place.length).unwrap_or(i64::MAX) - 1).to_string()),
            Expr::Variable(name) => self.variable(name)?,
            Expr::Plain(text) => plain(text.clone()),
            Expr::Text(text) => Cow::Owned(Node::Text(text.clone())),
            Expr::Path(from, steps) => {
                let mut starts = Found::all();
                self.expression(from, place, &mut starts)?;
                for start in starts.items {
                    self.steps(start, steps, place, found, !self.is_strict)?;
                    if found.is_enough() {
                        break;
                    }
                }
                return Ok(());
            }
            Expr::Sign(sign, inner) => return self.signed(*sign, inner, place, found),
            Expr::Arithmetic(left, operator, right) => {
                let mut sides = vec![];
                for (side, name) in [(left, "left"), (right, "right")] {
                    let items = self.unwrapped(side, place)?;
                    match items.as_slice() {
                        [item] if numeric(item).is_some() => sides.push(item.clone()),
                        _ => {
                            return soft(
                                SqlState::SingletonSqlJsonItemRequired,
                                format!(
                                    "{name} operand of jsonpath operator {} is not a single numeric value",
                                    operator.symbol()
                                ),
                            );
                        }
                    }
                }
                let [left, right] = [&sides[0], &sides[1]].map(|side| numeric(side).unwrap_or_default());
                match number::compute(left, *operator, right) {
                    Ok(number) => plain(number),
                    Err(error) => return Err(Failure::Soft(error)),
                }
            }
            predicate => match self.truth(predicate, place)? {
                Some(true) => plain("true"),
                Some(false) => plain("false"),
                None => plain("null"),
            },
        };
        found.push(item)
    }

    fn variable(&self, name: &str) -> Eval<Item<'n>> {
        match self.vars.and_then(|vars| member(vars, name)) {
            Some(value) => Ok(Cow::Borrowed(value)),
            None => Err(Failure::Hard(SqlError::new(
                SqlState::UndefinedObject,
                format!("could not find jsonpath variable \"{name}\""),
            ))),
        }
    }

    fn signed(&mut self, sign: Sign, inner: &Expr, place: Place<'_, 'n>, found: &mut Found<'n>) -> Eval<()> {
        for item in self.unwrapped(inner, place)? {
            let Some(text) = numeric(&item) else {
                return soft(
                    SqlState::SqlJsonNumberNotFound,
                    format!(
                        "operand of unary jsonpath operator {} is not a numeric value",
                        sign.symbol()
                    ),
                );
            };
            found.push(match sign {
                Sign::Plus => item,
                Sign::Minus => plain(number::written(&-number::read(text)?)),
            })?;
            if found.is_enough() {
                break;
            }
        }
        Ok(())
    }

    /// What an expression gives, and of arrays their elements unless the path is strict.
    pub fn unwrapped(&mut self, expr: &Expr, place: Place<'_, 'n>) -> Eval<Vec<Item<'n>>> {
        let mut found = Found::all();
        self.expression(expr, place, &mut found)?;
        if self.is_strict {
            return Ok(found.items);
        }
        let mut all = vec![];
        for item in found.items {
            match elements(&item) {
                Some(elements) => all.extend(elements),
                None => all.push(item),
            }
        }
        self.work.steps(all.len() as u64)?;
        Ok(all)
    }

    /// What steps from a value lead to. `unwraps`: of an array the first step is taken from its elements, where it is for none.
    fn steps(
        &mut self,
        item: Item<'n>,
        steps: &[Step],
        place: Place<'_, 'n>,
        found: &mut Found<'n>,
        unwraps: bool,
    ) -> Eval<()> {
        self.work.steps(1)?;
        let Some((step, rest)) = steps.split_first() else {
            return found.push(item);
        };
        let is_lax = !self.is_strict;
        match step {
            Step::Member(key) => {
                let is_object = matches!(item.as_ref(), Node::Object(_));
                let of_object = is_object.then(|| match &item {
                    Cow::Borrowed(node) => member(node, key).map(Cow::Borrowed),
                    Cow::Owned(node) => member(node, key).cloned().map(Cow::Owned),
                });
                match of_object {
                    Some(Some(value)) => self.steps(value, rest, place, found, is_lax),
                    Some(None) if self.ignores_structure => Ok(()),
                    Some(None) => soft(
                        SqlState::SqlJsonMemberNotFound,
                        format!("JSON object does not contain key \"{key}\""),
                    ),
                    None => self.other(
                        (&item, steps, place, found, unwraps),
                        SqlState::SqlJsonMemberNotFound,
                        "jsonpath member accessor can only be applied to an object",
                    ),
                }
            }
            Step::AnyMember => match values(&item) {
                Some(values) => self.each(values, rest, place, found, is_lax),
                None => self.other(
                    (&item, steps, place, found, unwraps),
                    SqlState::SqlJsonObjectNotFound,
                    "jsonpath wildcard member accessor can only be applied to an object",
                ),
            },
            Step::AnyElement => match elements(&item) {
                Some(elements) => self.each(elements, rest, place, found, is_lax),
                None if is_lax => self.steps(item, rest, place, found, is_lax),
                None if self.ignores_structure => Ok(()),
                None => soft(
                    SqlState::SqlJsonArrayNotFound,
                    "jsonpath wildcard array accessor can only be applied to an array",
                ),
            },
            Step::Elements(ranges) => self.subscripts(&item, ranges, rest, place, found),
            Step::Any(from, to) => self.descendants(item, (*from, *to), rest, place, found),
            Step::Filter(condition) => {
                if unwraps && let Some(elements) = elements(&item) {
                    return self.each(elements, steps, place, found, false);
                }
                let inside = Place {
                    current: &item,
                    length: place.length,
                };
                match self.truth(condition, inside)? {
                    Some(true) => self.steps(item, rest, place, found, is_lax),
                    _ => Ok(()),
                }
            }
            Step::Method(method) => self.method(*method, item, steps, place, found, unwraps),
        }
    }

    /// A step from what it is not for: from the elements of an array, or nothing, or an error.
    fn other(
        &mut self,
        (item, steps, place, found, unwraps): (&Item<'n>, &[Step], Place<'_, 'n>, &mut Found<'n>, bool),
        code: SqlState,
        message: &str,
    ) -> Eval<()> {
        if unwraps && let Some(elements) = elements(item) {
            return self.each(elements, steps, place, found, false);
        }
        match self.ignores_structure {
            true => Ok(()),
            false => soft(code, message),
        }
    }

    fn each(
        &mut self,
        items: Vec<Item<'n>>,
        steps: &[Step],
        place: Place<'_, 'n>,
        found: &mut Found<'n>,
        unwraps: bool,
    ) -> Eval<()> {
        for item in items {
            self.steps(item, steps, place, found, unwraps)?;
            if found.is_enough() {
                break;
            }
        }
        Ok(())
    }

    fn subscripts(
        &mut self,
        item: &Item<'n>,
        ranges: &[(Expr, Option<Expr>)],
        rest: &[Step],
        place: Place<'_, 'n>,
        found: &mut Found<'n>,
    ) -> Eval<()> {
        let items = match elements(item) {
            Some(items) => items,
            // What is no array is the one element of itself.
            None if !self.is_strict => vec![item.clone()],
            None if self.ignores_structure => return Ok(()),
            None => {
                return soft(
                    SqlState::SqlJsonArrayNotFound,
                    "jsonpath array accessor can only be applied to an array",
                );
            }
        };
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        for (from, to) in ranges {
            let inside = Place {
                current: item,
                length: items.len(),
            };
            let from = self.subscript(from, inside)?;
            let to = match to {
                Some(to) => self.subscript(to, inside)?,
                None => from,
            };
            if !self.ignores_structure && (from < 0 || from > to || to >= length) {
                return soft(
                    SqlState::InvalidSqlJsonSubscript,
                    "jsonpath array subscript is out of bounds",
                );
            }
            let within = from.max(0)..(to + 1).min(length);
            let within = within.filter_map(|index| items.get(usize::try_from(index).ok()?).cloned());
            self.each(within.collect(), rest, place, found, !self.is_strict)?;
            if found.is_enough() {
                break;
            }
        }
        Ok(())
    }

    fn subscript(&mut self, expr: &Expr, place: Place<'_, 'n>) -> Eval<i64> {
        let mut found = Found::all();
        self.expression(expr, place, &mut found)?;
        let number = match found.items.as_slice() {
            [item] => numeric(item),
            _ => None,
        };
        let Some(number) = number else {
            return soft(
                SqlState::InvalidSqlJsonSubscript,
                "jsonpath array subscript is not a single numeric value",
            );
        };
        match number::subscript(number)? {
            Some(index) => Ok(index),
            None => soft(
                SqlState::InvalidSqlJsonSubscript,
                "jsonpath array subscript is out of integer range",
            ),
        }
    }

    /// `.**`: a value, what is in it, what is in that, and so on.
    fn descendants(
        &mut self,
        item: Item<'n>,
        (from, to): (Option<u32>, Option<u32>),
        rest: &[Step],
        place: Place<'_, 'n>,
        found: &mut Found<'n>,
    ) -> Eval<()> {
        let before = std::mem::replace(&mut self.ignores_structure, true);
        let outcome = self.levels(item, (from, to), 0, rest, place, found);
        self.ignores_structure = before;
        outcome
    }

    fn levels(
        &mut self,
        item: Item<'n>,
        (from, to): (Option<u32>, Option<u32>),
        level: u32,
        rest: &[Step],
        place: Place<'_, 'n>,
        found: &mut Found<'n>,
    ) -> Eval<()> {
        let inside = elements(&item).or_else(|| values(&item));
        // `last` is what has nothing in it.
        let counts = match from {
            Some(from) => level >= from,
            None => to.is_none() && inside.is_none() && level > 0,
        };
        if counts {
            self.steps(item, rest, place, found, !self.is_strict)?;
        }
        if to.is_some_and(|to| level >= to) || found.is_enough() {
            return Ok(());
        }
        for item in inside.into_iter().flatten() {
            self.levels(item, (from, to), level + 1, rest, place, found)?;
            if found.is_enough() {
                break;
            }
        }
        Ok(())
    }

    fn method(
        &mut self,
        method: Method,
        item: Item<'n>,
        steps: &[Step],
        place: Place<'_, 'n>,
        found: &mut Found<'n>,
        unwraps: bool,
    ) -> Eval<()> {
        let wrong = |what: &str| {
            format!(
                "jsonpath item method .{}() can only be applied to {what}",
                method.name()
            )
        };
        let out = match method {
            Method::Type => Cow::Owned(Node::Text(type_of(&item).to_owned())),
            Method::Size => match item.as_ref() {
                Node::Array(items) => plain(items.len().to_string()),
                _ if !self.is_strict => plain("1"),
                _ if self.ignores_structure => return Ok(()),
                _ => return soft(SqlState::SqlJsonArrayNotFound, wrong("an array")),
            },
            _ => {
                if unwraps && let Some(elements) = elements(&item) {
                    return self.each(elements, steps, place, found, false);
                }
                match (method, numeric(&item), item.as_ref()) {
                    (Method::Abs, Some(text), _) => plain(text.trim_start_matches('-').to_owned()),
                    (Method::Floor, Some(text), _) => plain(number::whole(text, false)?),
                    (Method::Ceiling, Some(text), _) => plain(number::whole(text, true)?),
                    (Method::Double, Some(text), _) => match parse::number::double(text) {
                        Ok(_) => item.clone(),
                        Err(_) => {
                            return soft(
                                SqlState::NonNumericSqlJsonItem,
                                "numeric argument of jsonpath item method .double() is out of range for type double precision",
                            );
                        }
                    },
                    (Method::Double, None, Node::Text(text)) => match double(text) {
                        Some(number) => plain(number),
                        None => {
                            return soft(
                                SqlState::NonNumericSqlJsonItem,
                                "string argument of jsonpath item method .double() is not a valid representation of a double precision number",
                            );
                        }
                    },
                    (Method::Double, ..) => {
                        return soft(
                            SqlState::NonNumericSqlJsonItem,
                            wrong("a string or numeric value"),
                        );
                    }
                    _ => return soft(SqlState::NonNumericSqlJsonItem, wrong("a numeric value")),
                }
            }
        };
        self.steps(out, &steps[1..], place, found, !self.is_strict)
    }
}

/// A text as a number of 15 digits; `None`: it is none, or not finite.
fn double(text: &str) -> Option<String> {
    let value = parse::number::double(text)
        .ok()
        .filter(|value| value.is_finite())?;
    millrace_postgres::types::json::normalize(&format!("{value:.14e}"))
        .ok()
        .map(|digits| match digits.contains('.') {
            true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => digits,
        })
}
