//! Quoted literals as arguments: `left(v, '3')`, `abs('5')`, `sha256('\x61')`. They have no type of their own, and are read as what the
//! function takes there.
//!
//! `sql-tests/differential/quoted_arguments.py` makes the list from PostgreSQL's catalog: for each function and number of arguments, the types of those that are the same in all
//! functions of that name, and behind a bar the types that are chosen when all arguments are quoted. `-`: a text, or there
//! is more than one.

use std::collections::HashMap;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{Expr, LimitClause, Query, Value};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use super::literals::{number_text, quoted, typed};

struct Taken {
    always: Vec<&'static str>,
    if_all: Vec<&'static str>,
}

static TAKEN: LazyLock<HashMap<(&str, usize), Taken>> = LazyLock::new(|| {
    let lines = include_str!("quoted_arguments.txt").lines();
    let entries = lines.filter_map(|line| {
        let (name, types) = line.split_once(": ")?;
        let (always, if_all) = types.split_once(" | ").unwrap_or((types, types));
        let list = |types: &'static str| types.split(", ").collect::<Vec<_>>();
        let (always, if_all) = (list(always), list(if_all));
        Some(((name, always.len()), Taken { always, if_all }))
    });
    entries.collect()
});

/// Reads those of a call that are quoted.
pub(super) fn read(name: &str, arguments: &mut [&mut Expr]) {
    let Some(taken) = TAKEN.get(&(name, arguments.len())) else {
        return;
    };
    let types = match arguments.iter().all(|argument| quoted(argument)) {
        true => &taken.if_all,
        false => &taken.always,
    };
    for (argument, name) in arguments.iter_mut().zip(types) {
        if *name != "-" {
            read_one(argument, name);
        }
    }
}

/// Reads those of functions that have a syntax of their own.
pub(super) fn in_special(expr: &mut Expr) {
    match expr {
        Expr::Substring {
            substring_from,
            substring_for,
            shorthand,
            ..
        } => {
            // Two texts are a pattern and its escape.
            let is_number =
                |expr: &Option<Box<Expr>>| expr.as_ref().is_some_and(|expr| number_text(expr).is_some());
            if *shorthand || is_number(substring_from) || is_number(substring_for) {
                let numbers = substring_from.iter_mut().chain(substring_for);
                numbers.for_each(|number| read_one(number, "integer"));
            }
        }
        Expr::Overlay {
            overlay_from,
            overlay_for,
            ..
        } => {
            let numbers = [overlay_from].into_iter().chain(overlay_for);
            numbers.for_each(|number| read_one(number, "integer"));
        }
        Expr::Floor { expr, .. } | Expr::Ceil { expr, .. } => read_one(expr, "double precision"),
        _ => {}
    }
}

/// Reads those in LIMIT and OFFSET, and rounds numbers there.
///
/// # Errors
/// One is no number.
pub(super) fn in_limits(query: &mut Query) -> SqlResult<()> {
    let (limit, offset) = match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit, offset, .. }) => {
            (limit.as_mut(), offset.as_mut().map(|offset| &mut offset.value))
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(limit), Some(offset)),
        None => return Ok(()),
    };
    for expr in [limit, offset].into_iter().flatten() {
        let is_quoted = quoted(expr);
        if let Expr::Value(value) = expr
            && is_quoted
        {
            let text = value.value.clone().into_string().unwrap_or_default();
            let number: i64 = text.trim().parse().map_err(|_| {
                let message = format!("invalid input syntax for type bigint: \"{text}\"");
                SqlError::new(SqlState::InvalidTextRepresentation, message)
            })?;
            *expr = Expr::value(Value::Number(number.to_string(), false));
        } else if number_text(expr).is_some_and(|text| text.contains(['.', 'e', 'E'])) {
            let number = std::mem::replace(expr, Expr::value(Value::Null));
            *expr = typed(number, "bigint");
        }
    }
    Ok(())
}

fn read_one(expr: &mut Expr, name: &str) {
    if quoted(expr) {
        let old = std::mem::replace(expr, Expr::value(Value::Null));
        *expr = typed(old, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read() {
        let lines = include_str!("quoted_arguments.txt").lines().count();
        assert_eq!(TAKEN.len(), lines);
        assert!(
            TAKEN
                .values()
                .all(|taken| taken.always.len() == taken.if_all.len())
        );
    }
}
