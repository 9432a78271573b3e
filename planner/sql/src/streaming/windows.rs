//! `TUMBLE`, `HOP`, `CUMULATE` and `SESSION` in FROM: every row with the windows in time that it is in.
//!
//! ```text
//!  TUMBLE(bid, ts, INTERVAL '10s')  ->  (SELECT *, "$window"(ts, 10s) AS window_start, .. FROM bid WHERE ts IS NOT NULL) AS bid
//!  HOP(bid, ts, slide, size)        ->  (SELECT bid.*, w.t AS window_start, .. FROM bid, UNNEST("$windows"(ts, slide, size)) AS w (t)) AS bid
//! ```
//! A session begins at a row whose time is later than the one before it by more than the gap: sessions are numbered by OVER
//! windows, which views compute again for the partitions that changed.
//!
//! A row without a time is in no window. Windows are aligned to 1970-01-01 00:00 UTC, plus an offset; their lengths are numbers
//! of microseconds in the rewritten form.

pub mod functions;

use std::ops::ControlFlow;

use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    ExceptSelectItem, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Query, SelectItem, SetExpr,
    Statement, TableAlias, TableFactor, VisitorMut, WildcardAdditionalOptions,
};
use millrace_parser::walk::Walk;

use crate::binding::Binding;
use crate::error::{Fault, Faulty};
use crate::template::parse;
use functions::WINDOWS_MAX;

/// Evaluates an expression without columns.
type Constant<'a> = dyn Fn(&Expr) -> Result<ScalarValue> + 'a;

/// How a relation is cut into windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One after the other.
    Tumble,
    /// One of the size at each multiple of the slide.
    Hop,
    /// From each multiple of the largest size, one for each step.
    Cumulate,
    /// Rows of which none is later than another by more than the gap, which stands for the size.
    Session,
}

/// Rewrites the window functions in every FROM of a statement.
///
/// # Errors
/// Lengths that make no windows, or a form that is not supported.
pub(crate) fn as_queries(statement: &mut Statement, names: &dyn Binding) -> Result<()> {
    match statement.walk_mut(&mut WindowFunctions { names }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct WindowFunctions<'a> {
    names: &'a dyn Binding,
}

impl VisitorMut for WindowFunctions<'_> {
    type Break = DataFusionError;

    fn post_visit_table_factor(&mut self, item: &mut TableFactor) -> ControlFlow<DataFusionError> {
        match factor(item, &|length| self.names.constant(length)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// Rewrites the item of FROM if it is a window function.
///
/// # Errors
/// Lengths that make no windows, or a form that is not supported.
fn factor(factor: &mut TableFactor, constant: &Constant<'_>) -> Result<()> {
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
        "SESSION" => (Kind::Session, 1),
        _ => return Ok(()),
    };
    let function = word.value.to_ascii_uppercase();
    let mut given: Vec<&Expr> = vec![];
    let mut keys: Vec<Expr> = vec![];
    for argument in &arguments.args {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => given.push(expr),
            // As the parser writes SESSION(t PARTITION BY a, b, ..).
            FunctionArg::Named {
                name,
                arg: FunctionArgExpr::Expr(Expr::Array(array)),
                ..
            } if kind == Kind::Session && name.value.eq_ignore_ascii_case("partition_by") => {
                keys.clone_from(&array.elem);
            }
            _ => return Err(usage(&function, lengths)),
        }
    }
    let [relation, time, rest @ ..] = given.as_slice() else {
        return Err(usage(&function, lengths));
    };
    let has_offset = rest.len() == lengths + 1 && kind != Kind::Session;
    if rest.len() != lengths && !has_offset {
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
        keys,
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
    /// The slide of HOP, the step of CUMULATE, the size of the others.
    step: i64,
    size: i64,
    offset: i64,
    /// Sessions are those of rows with equal keys.
    keys: Vec<Expr>,
}

impl Windows {
    fn check(&self, function: &str) -> Result<()> {
        let (step, size) = match self.kind {
            Kind::Tumble => ("window size", "window size"),
            Kind::Hop => ("slide", "window size"),
            Kind::Cumulate => ("step", "largest window size"),
            Kind::Session => ("gap", "gap"),
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
                "{function} would put each row into {} windows; the limit is {WINDOWS_MAX}",
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
            keys,
        } = self;
        let keys: String = keys.iter().map(|key| format!("{key}, ")).collect();
        let partition = match keys.trim_end_matches(", ") {
            "" => String::new(),
            keys => format!("PARTITION BY {keys}"),
        };
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
            Kind::Session => format!(
                "SELECT *, \"$session_start\"(min({time}) OVER (PARTITION BY {keys}\"$session\"), 0) AS window_start, \
                 \"$session_end\"(max({time}) OVER (PARTITION BY {keys}\"$session\"), {size}) AS window_end \
                 FROM (SELECT *, sum(\"$begins\") OVER ({partition} ORDER BY {time}) AS \"$session\" \
                 FROM (SELECT *, CASE WHEN \"$shift\"(lag({time}) OVER ({partition} ORDER BY {time}), {size}) >= {time} \
                 THEN 0 ELSE 1 END AS \"$begins\" FROM x WHERE {time} IS NOT NULL) AS {name}) AS {name}"
            ),
        };
        let mut query = parse(&text).map_err(|error| DataFusionError::SQL(Box::new(error), None))?;
        put_relation(&mut query, with_alias(relation, name));
        if *kind == Kind::Session
            && let SetExpr::Select(select) = query.body.as_mut()
            && let Some(all) = select.projection.first_mut()
        {
            *all = SelectItem::Wildcard(WildcardAdditionalOptions {
                opt_except: Some(ExceptSelectItem {
                    first_element: Ident::with_quote('"', "$begins"),
                    additional_elements: vec![Ident::with_quote('"', "$session")],
                }),
                ..Default::default()
            });
        }
        Ok(query)
    }
}

/// Puts the relation in the place of the first one that the innermost query reads.
fn put_relation(query: &mut Query, relation: TableFactor) {
    let SetExpr::Select(select) = query.body.as_mut() else {
        return;
    };
    let Some(from) = select.from.first_mut() else {
        return;
    };
    match &mut from.relation {
        TableFactor::Derived { subquery, .. } => put_relation(subquery, relation),
        place => *place = relation,
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
            "the lengths of {function} cannot contain months, which vary in length"
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
        ("SESSION", _) => {
            let message = "SESSION takes (relation [PARTITION BY key, ..], time column, gap)";
            return faulty(Fault::InvalidParameter, message.into());
        }
        _ => "size",
    };
    faulty(
        Fault::InvalidParameter,
        format!("{function} takes (relation, time column, {arguments} [, offset])"),
    )
}

fn faulty(fault: Fault, message: String) -> DataFusionError {
    Faulty { fault, message }.into()
}
