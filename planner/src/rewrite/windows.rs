//! `TUMBLE`, `HOP` and `CUMULATE` in FROM: every row with the windows in time that it is in.
//!
//! ```text
//!  TUMBLE(bid, ts, INTERVAL '10s')  ->  (SELECT *, "$window"(ts, 10s) AS window_start, .. FROM bid WHERE ts IS NOT NULL) AS bid
//!  HOP(bid, ts, slide, size)        ->  (SELECT bid.*, w.t AS window_start, .. FROM bid, UNNEST("$windows"(ts, slide, size)) AS w (t)) AS bid
//! ```
//! A row without a time is in no window. Windows are aligned to 1970-01-01 00:00 UTC, plus an offset; their lengths are numbers
//! of microseconds in the rewritten form.

mod functions;

use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Query, SetExpr, TableAlias, TableFactor,
};

use super::syntax::parse;
use crate::error::{Fault, PlanError};
use functions::WINDOWS_MAX;
pub(crate) use functions::function;

/// Evaluates an expression without columns.
pub(super) type Constant<'a> = dyn Fn(&Expr) -> Result<ScalarValue> + 'a;

/// How a relation is cut into windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One after the other.
    Tumble,
    /// One of the size at each multiple of the slide.
    Hop,
    /// From each multiple of the largest size, one for each step.
    Cumulate,
}

/// Rewrites the item of FROM if it is a window function.
///
/// # Errors
/// Lengths that make no windows, or a form that is not supported.
pub(super) fn factor(factor: &mut TableFactor, constant: &Constant<'_>) -> Result<()> {
    let TableFactor::Table {
        name,
        args: Some(arguments),
        alias,
        ..
    } = factor
    else {
        return Ok(());
    };
    let Some(word) = name.0.last().and_then(|part| part.as_ident()) else {
        return Ok(());
    };
    let (kind, lengths) = match word.value.to_ascii_uppercase().as_str() {
        "TUMBLE" => (Kind::Tumble, 1),
        "HOP" => (Kind::Hop, 2),
        "CUMULATE" => (Kind::Cumulate, 2),
        "SESSION" => {
            return Err(DataFusionError::NotImplemented(
                "SESSION windows are not supported yet".into(),
            ));
        }
        _ => return Ok(()),
    };
    let function = word.value.to_ascii_uppercase();
    let given = arguments.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    let given: Vec<&Expr> = given.collect::<Option<_>>().unwrap_or_default();
    let [relation, time, rest @ ..] = given.as_slice() else {
        return Err(usage(&function, lengths));
    };
    if rest.len() != lengths && rest.len() != lengths + 1 {
        return Err(usage(&function, lengths));
    }
    let rest = rest
        .iter()
        .map(|length| microseconds(&function, length, constant))
        .collect::<Result<Vec<i64>>>()?;
    let windows = Windows {
        kind,
        step: rest[0],
        size: rest[lengths - 1],
        offset: rest.get(lengths).copied().unwrap_or(0),
    };
    windows.check(&function)?;
    let (relation, default_alias) = item(relation).ok_or_else(|| usage(&function, lengths))?;
    let columns = alias
        .as_ref()
        .map(|alias| alias.columns.clone())
        .unwrap_or_default();
    let name = alias.as_ref().map_or(default_alias, |alias| alias.name.clone());
    let query = windows.query(relation, &name, time)?;
    *factor = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query),
        alias: Some(TableAlias {
            explicit: true,
            name,
            columns,
            at: None,
        }),
        sample: None,
    };
    Ok(())
}

/// Lengths in microseconds.
struct Windows {
    kind: Kind,
    /// The slide of HOP, the step of CUMULATE, the size of TUMBLE.
    step: i64,
    size: i64,
    offset: i64,
}

impl Windows {
    fn check(&self, function: &str) -> Result<()> {
        let (step, size) = match self.kind {
            Kind::Tumble => ("window size", "window size"),
            Kind::Hop => ("slide", "window size"),
            Kind::Cumulate => ("step", "largest window size"),
        };
        let wrong = |message: String| Err(faulty(Fault::InvalidParameter, message));
        if self.step <= 0 {
            return wrong(format!("the {step} of {function} must be positive"));
        }
        if self.size <= 0 {
            return wrong(format!("the {size} of {function} must be positive"));
        }
        if self.step > self.size {
            return wrong(format!(
                "the {step} of {function} must not be larger than the {size}"
            ));
        }
        if self.kind == Kind::Cumulate && self.size % self.step != 0 {
            return wrong(format!("the {size} of CUMULATE must be a multiple of the step"));
        }
        if self.size / self.step > WINDOWS_MAX {
            return wrong(format!(
                "{function} would put each row into {} windows; {WINDOWS_MAX} is the limit",
                self.size / self.step
            ));
        }
        Ok(())
    }

    /// The query of the relation's rows with their windows.
    fn query(&self, relation: TableFactor, name: &Ident, time: &Expr) -> Result<Query> {
        let Windows {
            kind,
            step,
            size,
            offset,
        } = self;
        let text = match kind {
            Kind::Tumble => format!(
                "SELECT *, \"$window\"({time}, {size}, {offset}, 0) AS window_start, \
                 \"$window\"({time}, {size}, {offset}, {size}) AS window_end FROM x WHERE {time} IS NOT NULL"
            ),
            Kind::Hop => format!(
                "SELECT {name}.*, \"$\".t AS window_start, \"$shift\"(\"$\".t, {size}) AS window_end \
                 FROM x, UNNEST(\"$hop\"({time}, {step}, {size}, {offset})) AS \"$\" (t)"
            ),
            Kind::Cumulate => format!(
                "SELECT {name}.*, \"$window\"({time}, {size}, {offset}, 0) AS window_start, \"$\".t AS window_end \
                 FROM x, UNNEST(\"$cumulate\"({time}, {step}, {size}, {offset})) AS \"$\" (t)"
            ),
        };
        let mut query = parse(&text).map_err(|error| DataFusionError::SQL(Box::new(error), None))?;
        if let SetExpr::Select(select) = query.body.as_mut()
            && let Some(from) = select.from.first_mut()
        {
            from.relation = with_alias(relation, name);
        }
        Ok(query)
    }
}

/// The relation that is cut, and what it is called if nobody gives it a name.
fn item(relation: &Expr) -> Option<(TableFactor, Ident)> {
    let table = |parts: &[Ident]| {
        let name = ObjectName::from(parts.to_vec());
        let last = parts.last()?.clone();
        let plain = parse(&format!("SELECT * FROM {name}")).ok()?;
        match *plain.body {
            SetExpr::Select(select) => Some((select.from.into_iter().next()?.relation, last)),
            _ => None,
        }
    };
    match relation {
        Expr::Identifier(name) => table(std::slice::from_ref(name)),
        Expr::CompoundIdentifier(parts) => table(parts),
        Expr::Subquery(query) => {
            let name = Ident::new("windowed");
            let factor = TableFactor::Derived {
                lateral: false,
                subquery: query.clone(),
                alias: None,
                sample: None,
            };
            Some((factor, name))
        }
        _ => None,
    }
}

/// The relation under the name by which the window function calls it.
fn with_alias(mut relation: TableFactor, name: &Ident) -> TableFactor {
    if let TableFactor::Table { alias, .. } | TableFactor::Derived { alias, .. } = &mut relation {
        *alias = Some(TableAlias {
            explicit: true,
            name: name.clone(),
            columns: vec![],
            at: None,
        });
    }
    relation
}

/// A length of time as a number of microseconds.
fn microseconds(function: &str, length: &Expr, constant: &Constant<'_>) -> Result<i64> {
    let wrong = |message: String| faulty(Fault::InvalidParameter, message);
    let value = constant(length).map_err(|_| {
        wrong(format!(
            "the lengths of {function} must be constant intervals, not {length}"
        ))
    })?;
    match value {
        ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months != 0 => Err(wrong(format!(
            "the lengths of {function} must not have months, which are of different lengths"
        ))),
        ScalarValue::IntervalMonthDayNano(Some(interval)) => i64::from(interval.days)
            .checked_mul(86_400_000_000)
            .and_then(|days| days.checked_add(interval.nanoseconds / 1_000))
            .filter(|_| interval.nanoseconds % 1_000 == 0)
            .ok_or_else(|| wrong(format!("a length of {function} is out of range"))),
        _ => Err(wrong(format!(
            "the lengths of {function} must be intervals, not {length}"
        ))),
    }
}

fn usage(function: &str, lengths: usize) -> DataFusionError {
    let arguments = match (function, lengths) {
        ("HOP", _) => "slide, size",
        ("CUMULATE", _) => "step, largest size",
        _ => "size",
    };
    faulty(
        Fault::InvalidParameter,
        format!("{function} takes (relation, time column, {arguments} [, offset])"),
    )
}

fn faulty(fault: Fault, message: String) -> DataFusionError {
    PlanError::Faulty { fault, message }.into()
}
