//! Where set-returning functions may stand: in the select list and in ORDER BY, there also within operators and functions of a value,
//! and at the top level of FROM. The rules are those of PostgreSQL's `check_srf_call_placement`, in its words.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Distinct, Expr, Function, FunctionArg, JoinConstraint, JoinOperator, ObjectName, Query, Select,
    SetExpr, Statement, TableFactor, Visitor,
};
use millrace_parser::ast::ROWS_FROM;
use millrace_parser::walk::Walk;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

/// Those that are read, by their names; functions of SQL that return sets are known only to the catalog.
const NAMES: [&str; 20] = [
    "generate_series",
    "generate_subscripts",
    "json_array_elements",
    "json_array_elements_text",
    "json_each",
    "json_each_text",
    "json_object_keys",
    "json_to_recordset",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "jsonb_each",
    "jsonb_each_text",
    "jsonb_object_keys",
    "jsonb_path_query",
    "jsonb_to_recordset",
    "regexp_matches",
    "regexp_split_to_table",
    "string_to_table",
    "unnest",
    "aclexplode",
];

/// Refuses those that stand elsewhere.
///
/// # Errors
/// 0A000.
pub(super) fn check(node: &impl Walk) -> SqlResult<()> {
    match node.walk(&mut Clauses) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// Refuses those in a value that UPDATE assigns.
///
/// # Errors
/// 0A000.
pub fn check_assigned(value: &Expr) -> SqlResult<()> {
    match nowhere(value, "UPDATE") {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// Whether one stands outside of subqueries.
pub fn has_sets(node: &impl Walk) -> bool {
    nowhere(node, "").is_break()
}

/// Looks into the clauses of each query.
struct Clauses;

impl Visitor for Clauses {
    type Break = Box<SqlError>;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<Self::Break> {
        if let Statement::Delete(delete) = statement {
            nowhere(&delete.selection, "WHERE")?;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        if let SetExpr::Values(values) = query.body.as_ref() {
            nowhere(values, "VALUES")?;
        }
        nowhere(&query.limit_clause, "LIMIT")
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Self::Break> {
        nowhere(&select.selection, "WHERE")?;
        nowhere(&select.having, "HAVING")?;
        for join in select.from.iter().flat_map(|table| &table.joins) {
            if let Some(JoinConstraint::On(condition)) = constraint(&join.join_operator) {
                nowhere(condition, "JOIN conditions")?;
            }
        }
        if matches!(select.distinct, Some(Distinct::On(_))) && has_sets(&select.projection) {
            let message = "DISTINCT ON with a set-returning function in the select list is not supported";
            return ControlFlow::Break(refused(message));
        }
        select.projection.walk(&mut Conditions {
            within: vec![],
            depth: 0,
        })
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Self::Break> {
        match factor {
            TableFactor::Table {
                name,
                args: Some(arguments),
                ..
            } => in_from(name, &arguments.args),
            TableFactor::Function { name, args, .. } => in_from(name, args),
            TableFactor::UNNEST { array_exprs, .. } => nowhere_but(
                array_exprs,
                "set-returning functions must appear at top level of FROM",
            ),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) => Some(constraint),
        _ => None,
    }
}

/// The arguments of a function in FROM.
fn in_from(name: &ObjectName, arguments: &[FunctionArg]) -> ControlFlow<Box<SqlError>> {
    let message = "set-returning functions must appear at top level of FROM";
    let is_list = name
        .0
        .last()
        .and_then(|part| part.as_ident())
        .is_some_and(|part| part.value == ROWS_FROM);
    for argument in arguments {
        match argument {
            // Each is at the top level.
            FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(Expr::Function(function))) if is_list => {
                if let ast::FunctionArguments::List(list) = &function.args {
                    nowhere_but(&list.args, message)?;
                }
            }
            other => nowhere_but(other, message)?,
        }
    }
    ControlFlow::Continue(())
}

fn nowhere(node: &impl Walk, clause: &str) -> ControlFlow<Box<SqlError>> {
    nowhere_but(
        node,
        &format!("set-returning functions are not allowed in {clause}"),
    )
}

/// Refuses every one outside of subqueries.
fn nowhere_but(node: &impl Walk, message: &str) -> ControlFlow<Box<SqlError>> {
    struct Any(usize);
    impl Visitor for Any {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(function) if self.0 == 0 && is_set_returning(function) => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    match node.walk(&mut Any(0)) {
        ControlFlow::Break(()) => ControlFlow::Break(refused(message)),
        ControlFlow::Continue(()) => ControlFlow::Continue(()),
    }
}

/// Looks for those of a select list that a condition is in front of.
struct Conditions {
    /// The conditions around what is visited.
    within: Vec<&'static str>,
    /// How many subqueries are around it, which have select lists of their own.
    depth: usize,
}

impl Visitor for Conditions {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<Self::Break> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<Self::Break> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        if let Expr::Function(function) = expr
            && is_set_returning(function)
        {
            if let Some(condition) = self.within.last() {
                return ControlFlow::Break(refused(&format!(
                    "set-returning functions are not allowed in {condition}"
                )));
            }
            if function.over.is_some() {
                let message = format!(
                    "OVER specified, but {} is not a window function nor an aggregate function",
                    function.name
                );
                return ControlFlow::Break(Box::new(SqlError::new(SqlState::WrongObjectType, message)));
            }
        }
        self.within.extend(condition(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        if self.depth == 0 && condition(expr).is_some() {
            self.within.pop();
        }
        ControlFlow::Continue(())
    }
}

/// What decides whether the values within it are computed at all.
fn condition(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::Case { .. } => Some("CASE"),
        Expr::Function(function) if is_named(function, &["coalesce"]) => Some("COALESCE"),
        _ => None,
    }
}

fn is_set_returning(function: &Function) -> bool {
    is_named(function, &NAMES)
}

fn is_named(function: &Function, names: &[&str]) -> bool {
    let last = function.name.0.last().and_then(|part| part.as_ident());
    last.is_some_and(|name| names.contains(&millrace_parser::fold(name).as_str()))
}

fn refused(message: &str) -> Box<SqlError> {
    Box::new(
        SqlError::unsupported(message)
            .with_hint("You might be able to move the set-returning function into a LATERAL FROM item."),
    )
}
