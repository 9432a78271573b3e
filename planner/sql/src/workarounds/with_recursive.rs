//! WITH RECURSIVE before it is planned: what PostgreSQL refuses is refused in its words, and what DataFusion's planner
//! would read over is put where it sees it.
//!
//! The planner takes the two sides of a recursive query's UNION and nothing else of it, and looks for the query's own name
//! only at the right side's top. So it would drop ORDER BY, LIMIT and an inner WITH, and take a table of the same name
//! where a reference is not allowed. PostgreSQL's rules are those of `checkWellFormedRecursion` in its parse_cte.c.

use std::ops::ControlFlow;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    Cte, Ident, JoinOperator, ObjectName, Query, Select, SetExpr, SetOperator, Statement, TableFactor,
    TableWithJoins, Visitor, VisitorMut, With,
};
use millrace_parser::walk::Walk;

use crate::error::{Fault, Faulty};
use crate::template::{bare, nothing};

/// What PostgreSQL refuses of a recursive query.
macro_rules! refused {
    ($($message:tt)*) => {
        Err(Faulty {
            fault: Fault::InvalidRecursion,
            message: format!($($message)*),
        }
        .into())
    };
}

/// Checks every WITH RECURSIVE of a statement and makes it plannable.
///
/// # Errors
/// A recursive query that has no form in which it can be computed.
pub(crate) fn prepare(statement: &mut Statement) -> Result<()> {
    match statement.walk_mut(&mut Preparer) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Preparer;

impl VisitorMut for Preparer {
    type Break = Box<DataFusionError>;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        match &mut query.with {
            Some(with) if with.recursive => match clause(with) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(Box::new(error)),
            },
            _ => ControlFlow::Continue(()),
        }
    }
}

fn clause(with: &mut With) -> Result<()> {
    let names: Vec<String> = with.cte_tables.iter().map(|cte| fold(&cte.alias.name)).collect();
    for (position, cte) in with.cte_tables.iter_mut().enumerate() {
        for later in &names[position + 1..] {
            if references(cte.query.as_ref(), later) > 0 {
                return Err(DataFusionError::NotImplemented(format!(
                    "WITH query \"{}\" refers to \"{later}\", which comes after it; mutual and forward \
                     references are not supported: put \"{later}\" first",
                    names[position]
                )));
            }
        }
        if references(cte.query.as_ref(), &names[position]) > 0 {
            recursive(cte, &names[position])?;
        } else if matches!(cte.query.body.as_ref(), SetExpr::SetOperation { .. }) {
            // Not recursive: behind parentheses it is planned like any other query, with its ORDER BY and LIMIT.
            let whole = std::mem::replace(&mut *cte.query, bare(nothing()));
            *cte.query = bare(SetExpr::Query(Box::new(whole)));
        }
    }
    Ok(())
}

fn recursive(cte: &mut Cte, name: &str) -> Result<()> {
    let Query {
        with,
        body,
        order_by,
        limit_clause,
        fetch,
        locks,
        ..
    } = cte.query.as_mut();
    let SetExpr::SetOperation {
        op: SetOperator::Union,
        left,
        right,
        ..
    } = body.as_mut()
    else {
        return refused!(
            "recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term"
        );
    };
    for (construct, is_there) in [
        ("ORDER BY", order_by.is_some()),
        ("LIMIT or OFFSET", limit_clause.is_some() || fetch.is_some()),
        ("FOR UPDATE or SHARE", !locks.is_empty()),
    ] {
        if is_there {
            return Err(DataFusionError::NotImplemented(format!(
                "{construct} in a recursive query is not supported; use it where \"{name}\" is read"
            )));
        }
    }
    if references(left.as_ref(), name) > 0 {
        return refused!(
            "recursive reference to query \"{name}\" must not appear within its non-recursive term"
        );
    }
    let mut found = References {
        name,
        allowed: 0,
        refused: None,
    };
    found.set_expr(right, None);
    let total = references(right.as_ref(), name);
    let place = match found.refused {
        Some(place) => Some(place),
        None if total > found.allowed => Some("a subquery"),
        None => None,
    };
    if let Some(place) = place {
        return refused!("recursive reference to query \"{name}\" must not appear within {place}");
    }
    if total > 1 {
        return refused!("recursive reference to query \"{name}\" must not appear more than once");
    }
    if let Some(inner) = with.take() {
        if references(&inner, name) > 0 {
            return Err(DataFusionError::NotImplemented(format!(
                "a reference to recursive query \"{name}\" in a nested WITH clause is not supported; \
                 use a subquery in FROM"
            )));
        }
        for side in [left, right] {
            let body = std::mem::replace(side.as_mut(), nothing());
            let mut query = bare(body);
            query.with = Some(inner.clone());
            **side = SetExpr::Query(Box::new(query));
        }
    }
    Ok(())
}

fn fold(name: &Ident) -> String {
    if name.quote_style.is_some() {
        name.value.clone()
    } else {
        name.value.to_lowercase()
    }
}

fn names(relation: &ObjectName, name: &str) -> bool {
    match relation.0.as_slice() {
        [part] => part.as_ident().is_some_and(|ident| fold(ident) == name),
        _ => false,
    }
}

/// How often a part of a statement names a relation.
fn references(node: &impl Walk, name: &str) -> usize {
    struct Counter<'a> {
        name: &'a str,
        count: usize,
    }
    impl Visitor for Counter<'_> {
        type Break = ();

        fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
            self.count += usize::from(names(relation, self.name));
            ControlFlow::Continue(())
        }
    }
    let mut counter = Counter { name, count: 0 };
    let _ = node.walk(&mut counter);
    counter.count
}

/// Finds a recursive query's references to itself in FROM clauses. What is elsewhere is in a subquery.
struct References<'a> {
    name: &'a str,
    allowed: usize,
    /// Where a reference is that must not be there.
    refused: Option<&'static str>,
}

impl References<'_> {
    /// `place` says why a reference here would be refused.
    fn set_expr(&mut self, body: &SetExpr, place: Option<&'static str>) {
        match body {
            SetExpr::Select(select) => self.select(select, place),
            SetExpr::Query(query) => self.query(query, place),
            SetExpr::SetOperation { op, left, right, .. } => {
                self.set_expr(left, place);
                let right_place = match op {
                    SetOperator::Except | SetOperator::Minus => Some("EXCEPT"),
                    SetOperator::Union | SetOperator::Intersect => place,
                };
                self.set_expr(right, right_place);
            }
            _ => {}
        }
    }

    fn query(&mut self, query: &Query, place: Option<&'static str>) {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.query(&cte.query, place);
        }
        self.set_expr(&query.body, place);
    }

    fn select(&mut self, select: &Select, place: Option<&'static str>) {
        for table in &select.from {
            self.joined(table, place);
        }
    }

    fn joined(&mut self, table: &TableWithJoins, place: Option<&'static str>) {
        const OUTER: Option<&str> = Some("an outer join");
        // A later join decides over everything to its left.
        let left_of = |from: usize| {
            let later = table.joins[from..].iter();
            let mut operators = later.map(|join| &join.join_operator);
            let is_outer = operators.any(|operator| {
                matches!(
                    operator,
                    JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_)
                )
            });
            if is_outer { OUTER } else { place }
        };
        self.factor(&table.relation, left_of(0));
        for (position, join) in table.joins.iter().enumerate() {
            let own = match &join.join_operator {
                JoinOperator::Left(_) | JoinOperator::LeftOuter(_) | JoinOperator::FullOuter(_) => OUTER,
                JoinOperator::Semi(_)
                | JoinOperator::LeftSemi(_)
                | JoinOperator::Anti(_)
                | JoinOperator::LeftAnti(_) => Some("a semi or anti join"),
                _ => left_of(position + 1),
            };
            self.factor(&join.relation, own);
        }
    }

    fn factor(&mut self, factor: &TableFactor, place: Option<&'static str>) {
        match factor {
            TableFactor::Table { name, .. } if names(name, self.name) => {
                self.allowed += 1;
                self.refused = self.refused.or(place);
            }
            TableFactor::Derived { subquery, .. } => self.query(subquery, place),
            TableFactor::NestedJoin { table_with_joins, .. } => self.joined(table_with_joins, place),
            _ => {}
        }
    }
}

/// Refuses recursive terms that PostgreSQL refuses for their types or their aggregates.
///
/// # Errors
/// As PostgreSQL says it.
pub(crate) fn check(plan: &LogicalPlan) -> Result<()> {
    check_aggregates(plan)?;
    check_types(plan)
}

/// Refuses aggregates without GROUP BY over the rows of the step before: one row is made of no rows, too, and the query would never
/// end. With GROUP BY there are none of none, and it goes on where PostgreSQL refuses it.
///
/// # Errors
/// As PostgreSQL says it.
fn check_aggregates(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        let LogicalPlan::RecursiveQuery(query) = node else {
            return Ok(TreeNodeRecursion::Continue);
        };
        query.recursive_term.apply(|node| match node {
            LogicalPlan::Aggregate(aggregate)
                if aggregate.group_expr.is_empty() && reads_in_from(&aggregate.input, &query.name) =>
            {
                refused!("aggregate functions are not allowed in a recursive query's recursive term")
            }
            _ => Ok(TreeNodeRecursion::Continue),
        })
    })?;
    Ok(())
}

/// Whether a relation is one of those that a FROM clause names: not within a subquery of it.
fn reads_in_from(from: &LogicalPlan, name: &str) -> bool {
    match from {
        LogicalPlan::TableScan(scan) => scan.table_name.table() == name,
        LogicalPlan::SubqueryAlias(alias) => {
            matches!(alias.input.as_ref(), LogicalPlan::TableScan(scan) if scan.table_name.table() == name)
        }
        LogicalPlan::Filter(_) | LogicalPlan::Join(_) => {
            from.inputs().into_iter().any(|input| reads_in_from(input, name))
        }
        _ => false,
    }
}

/// Refuses a recursive query whose recursive term has another type than the other term, where the planner's cast to the
/// latter would change values. Explicit casts are function calls when they come here.
///
/// # Errors
/// As PostgreSQL says it.
fn check_types(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        let LogicalPlan::RecursiveQuery(query) = node else {
            return Ok(TreeNodeRecursion::Continue);
        };
        let LogicalPlan::Projection(projection) = query.recursive_term.as_ref() else {
            return Ok(TreeNodeRecursion::Continue);
        };
        for (column, expression) in projection.expr.iter().enumerate() {
            let Expr::Cast(cast) = expression.clone().unalias() else {
                continue;
            };
            let (from, to) = (
                cast.expr.get_type(projection.input.schema())?,
                cast.field.data_type(),
            );
            if loses(&from, to) {
                return refused!(
                    "recursive query \"{}\" column {} has type {to} in non-recursive term but type {from} overall; \
                     cast the output of the non-recursive term to the correct type",
                    query.name,
                    column + 1
                );
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether a cast may change a value instead of failing on it.
fn loses(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    match (from, to) {
        (Decimal128(_, from), Decimal128(_, to)) => to < from,
        (Decimal128(_, scale), to) => to.is_integer() && *scale > 0,
        (Float16 | Float32 | Float64, to) => {
            to.is_integer() || matches!(to, Decimal128(..)) || (*from == Float64 && *to == Float32)
        }
        (Timestamp(..), Date32 | Date64 | Time32(_) | Time64(_)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn prepared(sql: &str) -> Result<String, String> {
        let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
        match prepare(&mut statement) {
            Ok(()) => Ok(statement
                .to_string()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")),
            Err(error) => Err(error.strip_backtrace()),
        }
    }

    #[test]
    fn references_are_allowed_where_postgresql_allows_them() {
        for term in [
            "SELECT n + 1 FROM r",
            "SELECT n + 1 FROM e JOIN R x ON e.a = x.n LEFT JOIN f ON true",
            "SELECT e.b FROM f RIGHT JOIN (e CROSS JOIN r) ON true",
            "SELECT n FROM (SELECT DISTINCT n FROM r WHERE n < 3) x WHERE EXISTS (SELECT 1 FROM e)",
        ] {
            let sql = format!("WITH RECURSIVE r (n) AS (SELECT 1 UNION {term}) SELECT * FROM r");
            assert_eq!(prepared(&sql), Ok(sql));
        }
    }

    #[test]
    fn references_elsewhere_are_refused_in_postgresqls_words() {
        for (query, words) in [
            (
                "SELECT 1 UNION SELECT n FROM e LEFT JOIN r ON true",
                "within an outer join",
            ),
            (
                "SELECT 1 UNION SELECT n FROM r RIGHT JOIN e ON true",
                "within an outer join",
            ),
            (
                "SELECT 1 UNION SELECT n FROM r, e FULL JOIN r x ON true",
                "within an outer join",
            ),
            (
                "SELECT 1 UNION SELECT 1 FROM e WHERE a IN (SELECT n FROM r)",
                "within a subquery",
            ),
            (
                "SELECT 1 UNION SELECT (SELECT max(n) FROM r)",
                "within a subquery",
            ),
            (
                "SELECT 1 UNION SELECT a.n FROM r a JOIN r b ON a.n = b.n",
                "more than once",
            ),
            ("SELECT n FROM r UNION SELECT 1", "within its non-recursive term"),
            (
                "SELECT 1 UNION SELECT n FROM r UNION SELECT n FROM r",
                "within its non-recursive term",
            ),
            (
                "SELECT 1 UNION (SELECT a FROM e EXCEPT SELECT n FROM r)",
                "within EXCEPT",
            ),
            ("SELECT 1 EXCEPT SELECT n FROM r", "does not have the form"),
            ("SELECT n FROM r", "does not have the form"),
            (
                "SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 10",
                "LIMIT or OFFSET in a recursive query",
            ),
            (
                "SELECT 1 UNION ALL SELECT n + 1 FROM r ORDER BY 1",
                "ORDER BY in a recursive query",
            ),
        ] {
            let sql = format!("WITH RECURSIVE r(n) AS ({query}) SELECT * FROM r");
            let error = prepared(&sql).unwrap_err();
            assert!(error.contains(words), "{sql}: {error}");
        }
        let forward = prepared("WITH RECURSIVE a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a");
        assert!(forward.unwrap_err().contains("put \"b\" first"));
    }

    #[test]
    fn what_the_planner_would_drop_is_put_where_it_looks() {
        assert_eq!(
            prepared("WITH RECURSIVE a AS (SELECT 1 UNION SELECT 2 LIMIT 1) SELECT * FROM a").unwrap(),
            "WITH RECURSIVE a AS ((SELECT 1 UNION SELECT 2 LIMIT 1)) SELECT * FROM a".to_string()
        );
        let inner = prepared(
            "WITH RECURSIVE a(n) AS (WITH b AS (SELECT 1 AS x) SELECT x FROM b UNION SELECT n + x FROM a, b) SELECT 1",
        )
        .unwrap();
        assert_eq!(inner.matches("WITH b AS").count(), 2, "{inner}");
    }
}
