//! `OVER (w ROWS ..)` and `WINDOW x AS (w ORDER BY ..)`: a window made from a named one.
//!
//! DataFusion's planner reads over the name and takes the rest for the whole window, so that it is copied in before.

use std::ops::ControlFlow;

use datafusion::common::plan_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowExpr, Select, Statement, Value, VisitorMut, WindowSpec, WindowType,
};
use millrace_parser::ast::Exclusion;
use millrace_parser::walk::{Walk, walk_expressions_mut};

/// Replaces every window that is made from a named one by what it stands for.
///
/// # Errors
/// There is no such window, or it may not be changed so; in PostgreSQL's words.
pub(crate) fn resolve(statement: &mut Statement) -> Result<()> {
    match statement.walk_mut(&mut Resolver) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Resolver;

impl VisitorMut for Resolver {
    type Break = Box<DataFusionError>;

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        match windows_of(select) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

fn windows_of(select: &mut Select) -> Result<()> {
    let mut known: Vec<(Ident, WindowSpec)> = vec![];
    for definition in &mut select.named_window {
        // A name for another name is refused by the planner.
        if let NamedWindowExpr::WindowSpec(spec) = &mut definition.1 {
            complete(spec, &known)?;
            known.push((definition.0.clone(), spec.clone()));
        }
    }
    let outcome = walk_expressions_mut(&mut select.projection, |e| {
        if let Expr::Function(function) = e
            && let Some(WindowType::WindowSpec(spec)) = &mut function.over
            && let Err(error) = complete(spec, &known)
        {
            return ControlFlow::Break(error);
        }
        ControlFlow::Continue(())
    });
    match outcome {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Copies the window that a specification names into it.
fn complete(spec: &mut WindowSpec, known: &[(Ident, WindowSpec)]) -> Result<()> {
    let Some(name) = spec.window_name.take() else {
        return Ok(());
    };
    let fold = |name: &Ident| match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    };
    let Some((_, base)) = known.iter().find(|(other, _)| fold(other) == fold(&name)) else {
        return Err(plan_datafusion_err!("window \"{}\" does not exist", name.value));
    };
    let refused = |what: &str| plan_datafusion_err!("cannot {what} window \"{}\"", name.value);
    // The mark of an EXCLUDE is none of its columns.
    let (marks, columns): (Vec<Expr>, Vec<Expr>) = spec.partition_by.drain(..).partition(is_exclusion);
    if !columns.is_empty() {
        return Err(refused("override PARTITION BY clause of"));
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        return Err(refused("override ORDER BY clause of"));
    }
    if base.window_frame.is_some() {
        return Err(plan_datafusion_err!(
            "cannot copy window \"{}\" because it has a frame clause",
            name.value
        ));
    }
    spec.partition_by = marks;
    spec.partition_by.extend(base.partition_by.iter().cloned());
    if spec.order_by.is_empty() {
        spec.order_by = base.order_by.clone();
    }
    Ok(())
}

fn is_exclusion(column: &Expr) -> bool {
    let Expr::IsNull(text) = column else { return false };
    matches!(text.as_ref(), Expr::Value(value) if matches!(&value.value, Value::SingleQuotedString(text) if Exclusion::of_mark(text).is_some()))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn resolved(select: &str, windows: &str) -> Result<String, String> {
        let sql = format!("SELECT {select} FROM t WINDOW {windows}");
        let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, &sql).unwrap().remove(0);
        match resolve(&mut statement) {
            Ok(()) => {
                let text = statement.to_string();
                Ok(text["SELECT ".len()..text.find(" FROM").unwrap()].to_owned())
            }
            Err(error) => Err(error.strip_backtrace()),
        }
    }

    #[test]
    fn a_named_window_is_copied_into_those_made_from_it() {
        assert_eq!(
            resolved(
                "sum(v) OVER (W ROWS 1 PRECEDING), 1 + count(*) OVER (w), rank() OVER w",
                "w AS (PARTITION BY g ORDER BY id)"
            ),
            Ok("sum(v) OVER (PARTITION BY g ORDER BY id ROWS 1 PRECEDING), \
                1 + count(*) OVER (PARTITION BY g ORDER BY id), rank() OVER w"
                .to_owned())
        );
        assert_eq!(
            resolved(
                "sum(v) OVER (x ROWS 1 PRECEDING)",
                "w AS (PARTITION BY g), x AS (w ORDER BY id)"
            ),
            Ok("sum(v) OVER (PARTITION BY g ORDER BY id ROWS 1 PRECEDING)".to_owned())
        );
    }

    #[test]
    fn what_may_not_be_changed_is_refused() {
        for (select, windows, words) in [
            (
                "sum(v) OVER (z ORDER BY v)",
                "w AS ()",
                "window \"z\" does not exist",
            ),
            (
                "sum(v) OVER (w PARTITION BY v)",
                "w AS ()",
                "cannot override PARTITION BY clause",
            ),
            (
                "sum(v) OVER (w ORDER BY v)",
                "w AS (ORDER BY id)",
                "cannot override ORDER BY clause",
            ),
            (
                "sum(v) OVER (w)",
                "w AS (ORDER BY id ROWS 1 PRECEDING)",
                "because it has a frame clause",
            ),
        ] {
            let error = resolved(select, windows).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
