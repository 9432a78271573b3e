//! All that is rewritten in a statement, in order: first its text, then, once DataFusion has bound it, its plan.
//!
//! Before the first of them stand two that the parser and the server still have: the parser rewrites in the tokens what sqlparser
//! cannot read, and the server writes PostgreSQL's casts, operators and functions as calls, by their types.

use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::Statement;

use crate::binding::Binding;
use crate::postgres::{
    frame_offsets, grouping, names, outer_aggregate, read_once, records, set_returning, subquery_order,
};
use crate::streaming::{may_fail, time_join, windows};
use crate::workarounds::{
    aggregate_order, all_subquery, array_literal, case_type, counted_sets, named_windows, recursive_numbers,
    subquery, unread_clauses, values_subquery, with_recursive,
};
use crate::{balance, complexity, sql_function};

/// Something that is done to a statement.
pub struct Pass {
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Why it stands where it does.
    pub why_here: &'static str,
    step: Step,
}

/// What a pass works on. Each may ask what names mean, and may refuse.
enum Step {
    Text(fn(&mut Statement, &dyn Binding) -> Result<()>),
    /// The passes from here on are made again as often as binding tells what an item stands for.
    Again,
    /// From the text to the plan.
    Bind,
    Plan(fn(LogicalPlan, &dyn Binding) -> Result<LogicalPlan>),
}

/// The passes.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "size of the text",
        what: "refuses a statement that reads more relations than it may",
        why_here: "first: all others walk the text, and take time with its size",
        step: Step::Text(|statement, _| complexity::check_statement(statement)),
    },
    Pass {
        name: "functions of SQL",
        what: "puts the body of a function in the place of its call",
        why_here: "a body may hold anything that the passes behind rewrite",
        step: Step::Text(|statement, binding| sql_function::expand(statement, binding.catalog())),
    },
    Pass {
        name: "all attributes of values",
        what: "plans the rest again for each (value).* whose type tells what it stands for",
        why_here: "behind functions of SQL, whose bodies may have such; before any pass puts a query in several places",
        step: Step::Again,
    },
    Pass {
        name: "queries that are run once",
        what: "refuses a query of WITH that is named twice and whose functions give another value at each call",
        why_here: "behind functions of SQL, whose bodies may have such; before any pass puts a query in several places",
        step: Step::Text(|statement, _| read_once::check(statement)),
    },
    Pass {
        name: "joins in time",
        what: "makes an ordinary join with a marked condition of ASOF JOIN and of FOR SYSTEM_TIME AS OF",
        why_here: "before names, which know ordinary joins only",
        step: Step::Text(|statement, binding| time_join::rewrite(statement, binding.catalog())),
    },
    Pass {
        name: "recursive queries",
        what: "refuses WITH RECURSIVE that has no fixed point, and puts what DataFusion reads over behind parentheses",
        why_here: "it judges the query as it was written: passes behind move its parts",
        step: Step::Text(|statement, _| with_recursive::prepare(statement)),
    },
    Pass {
        name: "named windows",
        what: "copies a window of the WINDOW clause into those that are made from it",
        why_here: "before names, which look into each window by itself",
        step: Step::Text(|statement, _| named_windows::resolve(statement)),
    },
    Pass {
        name: "grouping sets",
        what: "makes sets of ROLLUP and CUBE within GROUPING SETS, and one group of HAVING without GROUP BY",
        why_here: "behind functions of SQL, which may be in them; before names, which know columns in sets and not in calls",
        step: Step::Text(|statement, _| grouping::spell_out(statement)),
    },
    Pass {
        name: "offsets of frames",
        what: "makes literals of the offsets of windows' frames that are expressions",
        why_here: "behind functions of SQL, which may be in them; DataFusion takes literals only",
        step: Step::Text(frame_offsets::computed),
    },
    Pass {
        name: "windows in time",
        what: "makes a query of TUMBLE, HOP, CUMULATE and SESSION in FROM",
        why_here: "before names: the two columns of a window are columns like others then",
        step: Step::Text(windows::as_queries),
    },
    Pass {
        name: "set-returning functions",
        what: "makes UNNEST of a series in FROM whose arguments name columns",
        why_here: "before names, which look to the left of an UNNEST and not of a function",
        step: Step::Text(|statement, _| {
            set_returning::unnested(statement);
            Ok(())
        }),
    },
    Pass {
        name: "comparisons with ALL",
        what: "makes NOT (x <= ANY (q)) of x > ALL (q)",
        why_here: "before counted sets, which copy the queries that they take apart",
        step: Step::Text(|statement, _| {
            all_subquery::as_any(statement);
            Ok(())
        }),
    },
    Pass {
        name: "counted sets",
        what: "makes a relation of EXCEPT ALL and INTERSECT ALL, which counts copies",
        why_here: "behind the passes over FROM: its relation looks like a function, and is none of theirs",
        step: Step::Text(|statement, _| counted_sets::as_relations(statement)),
    },
    Pass {
        name: "recursive numbers",
        what: "makes a relation of each term of a recursive query, which gives numerics one type",
        why_here: "as counted sets, which may be within the terms",
        step: Step::Text(|statement, _| recursive_numbers::as_relations(statement)),
    },
    Pass {
        name: "names",
        what: "says of every name which column it means, as PostgreSQL does",
        why_here: "every FROM has its last form: a relation that is put in later would be looked over",
        step: Step::Text(names::resolve),
    },
    Pass {
        name: "grouping sets, each once",
        what: "leaves the sets of GROUP BY DISTINCT out that are there already",
        why_here: "behind names: two sets are the same if their columns are",
        step: Step::Text(|statement, _| grouping::each_once(statement)),
    },
    Pass {
        name: "rows",
        what: "makes calls of ROW(..), and of the attributes of values",
        why_here: "behind names, which make rows of relations, and know their attributes",
        step: Step::Text(|statement, _| {
            records::as_calls(statement);
            Ok(())
        }),
    },
    Pass {
        name: "arrays",
        what: "makes a call of ARRAY[..]",
        why_here: "behind names, which know where the elements come from",
        step: Step::Text(|statement, _| {
            array_literal::as_calls(statement);
            Ok(())
        }),
    },
    Pass {
        name: "long conditions",
        what: "makes a tree of a long chain of AND or OR",
        why_here: "behind all that puts conditions in; binding is the first that takes time with their depth",
        step: Step::Text(|statement, _| {
            balance::balance(statement);
            Ok(())
        }),
    },
    Pass {
        name: "clauses that are not read",
        what: "refuses what DataFusion's planner reads over",
        why_here: "last of the text: only what no pass has rewritten is left",
        step: Step::Text(|statement, _| unread_clauses::check(statement)),
    },
    Pass {
        name: "bind",
        what: "DataFusion's planner makes a plan, asking for the relations of counted sets and UNNEST; what it refuses is tried once \
               more by the keys of relations, by which a query may name columns beside those that it groups by",
        why_here: "between the text and the plan",
        step: Step::Bind,
    },
    Pass {
        name: "size of the plan",
        what: "refuses a plan that is deeper or larger than one may be",
        why_here: "first of the plan: only here it is known how much a name stands for, and all others recurse",
        step: Step::Plan(|plan, _| complexity::check_plan(&plan).map(|()| plan)),
    },
    Pass {
        name: "aggregates of outer queries",
        what: "refuses an aggregate in a subquery whose arguments are columns of an outer query alone",
        why_here: "the plan is as it was bound: passes behind move columns from one query to another",
        step: Step::Plan(|plan, _| outer_aggregate::check(&plan).map(|()| plan)),
    },
    Pass {
        name: "order of subqueries",
        what: "writes the order of a subquery where LIMIT, an aggregate, a row number or the reader depends on it",
        why_here: "before the passes that move subqueries: the nodes between the order and who depends on it are as they were written",
        step: Step::Plan(|plan, binding| subquery_order::kept(plan, !binding.catalog().plans_view())),
    },
    Pass {
        name: "subqueries in VALUES",
        what: "makes a SELECT of a row of VALUES with a subquery",
        why_here: "before the passes over subqueries, which look for them in projections and filters",
        step: Step::Plan(|plan, _| values_subquery::as_selects(plan)),
    },
    Pass {
        name: "rows as values",
        what: "asks of a row whether all of its attributes are NULL, and compares rows whose attributes have other names",
        why_here: "a row is known by its type; before types that meet, which would take two rows for two types, and before subqueries become joins, which put IS NULL of their own in",
        step: Step::Plan(|plan, _| records::by_their_attributes(plan)),
    },
    Pass {
        name: "types that meet",
        what: "refuses types that PostgreSQL does not bring together",
        why_here: "before anything casts one side to the other",
        step: Step::Plan(|plan, binding| binding.catalog().check_types(&plan).map(|()| plan)),
    },
    Pass {
        name: "literals among values",
        what: "reads the quoted literals in CASE, coalesce and the like as PostgreSQL does",
        why_here: "texts beside other types are refused before; what is left is cast by the next pass",
        step: Step::Plan(|plan, binding| binding.catalog().read_literals(plan)),
    },
    Pass {
        name: "type of a CASE",
        what: "casts the branches of a CASE, and of a UNION, to the type that they have in common",
        why_here: "before all that asks what type a column has",
        step: Step::Plan(|plan, _| case_type::agreed_in(plan)),
    },
    Pass {
        name: "joins in time, found again",
        what: "makes a node of its own of each marked join",
        why_here: "before subqueries become joins, which would carry the marker elsewhere",
        step: Step::Plan(|plan, _| time_join::recognise(plan)),
    },
    Pass {
        name: "types of recursive queries",
        what: "refuses a recursive query whose sides have different types, and aggregates over the step before",
        why_here: "a CASE has its type now",
        step: Step::Plan(|plan, _| with_recursive::check(&plan).map(|()| plan)),
    },
    Pass {
        name: "aggregates in order",
        what: "leaves out what an aggregate is ordered by a second time",
        why_here: "before subqueries become joins, which look into aggregates",
        step: Step::Plan(|plan, _| aggregate_order::ordered_once(plan)),
    },
    Pass {
        name: "subqueries",
        what: "makes joins of LATERAL, and of the subqueries that DataFusion cannot plan or answers wrongly",
        why_here: "last: it builds plans by the types and nodes that the passes before have settled",
        step: Step::Plan(|plan, binding| match binding.catalog().plans_view() {
            true => may_fail::counted_as_null(plan, subquery::decorrelate),
            false => subquery::decorrelate(plan),
        }),
    },
];

/// The plan of a statement, through all passes; not yet optimised.
///
/// # Errors
/// Unknown names, type errors and unsupported SQL, in PostgreSQL's words where a pass finds them, else in DataFusion's.
pub fn plan(statement: &Statement, binding: &dyn Binding) -> Result<LogicalPlan> {
    run(statement.clone(), PASSES, binding)
}

fn run(mut statement: Statement, passes: &[Pass], binding: &dyn Binding) -> Result<LogicalPlan> {
    let mut plan = None;
    for (at, pass) in passes.iter().enumerate() {
        match &pass.step {
            Step::Text(rewrite) => rewrite(&mut statement, binding)?,
            Step::Again => {
                let rest = &passes[at + 1..];
                return records::spelled_out(statement, |statement| run(statement, rest, binding));
            }
            Step::Bind => plan = Some(binding.bind(&statement)?),
            Step::Plan(rewrite) => plan = plan.map(|plan| rewrite(plan, binding)).transpose()?,
        }
    }
    plan.ok_or_else(|| DataFusionError::Internal("no pass binds the statement".into()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::catalog::TableProvider;
    use datafusion::common::{ScalarValue, TableReference, plan_err};
    use datafusion::sql::sqlparser::ast::Expr;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::catalog::CatalogReader;

    /// Nothing is known of anything.
    struct Nothing;

    impl CatalogReader for Nothing {
        fn table(&self, name: &TableReference) -> Result<Arc<dyn TableProvider>> {
            plan_err!("nothing is known of {name}")
        }
    }

    impl Binding for Nothing {
        fn catalog(&self) -> &dyn CatalogReader {
            self
        }

        fn bind(&self, statement: &Statement) -> Result<LogicalPlan> {
            plan_err!("nothing is known of {statement}")
        }

        fn constant(&self, expression: &Expr) -> Result<ScalarValue> {
            plan_err!("nothing is known of {expression}")
        }
    }

    fn rewritten(sql: &str) -> String {
        let mut parsed = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
        for pass in PASSES {
            if let Step::Text(rewrite) = &pass.step {
                rewrite(&mut parsed, &Nothing).unwrap();
            }
        }
        parsed.to_string()
    }

    #[test]
    fn a_series_over_columns_is_unnested() {
        assert_eq!(
            rewritten("SELECT * FROM t, generate_series(1, t.n) AS g(x)"),
            "SELECT * FROM t, UNNEST(generate_series(1, t.n)) AS g (x)"
        );
        assert_eq!(
            rewritten("SELECT * FROM generate_series(1, 3)"),
            "SELECT * FROM generate_series(1, 3) AS generate_series (generate_series)"
        );
        assert_eq!(
            rewritten("SELECT * FROM generate_series(1, 3) WITH ORDINALITY AS g"),
            "SELECT * FROM UNNEST(generate_series(1, 3)) WITH ORDINALITY AS g"
        );
    }

    #[test]
    fn set_operations_that_count_copies_become_relations() {
        assert_eq!(
            rewritten("SELECT 1 EXCEPT ALL SELECT 2 UNION SELECT 3"),
            "SELECT * FROM \"EXCEPT ALL\"((SELECT 1), (SELECT 2)) UNION SELECT 3"
        );
        assert_eq!(
            rewritten("SELECT 1 EXCEPT SELECT 2 UNION ALL SELECT 3"),
            "SELECT 1 EXCEPT SELECT 2 UNION ALL SELECT 3"
        );
    }

    #[test]
    fn the_column_that_using_merges_is_that_of_the_row() {
        assert_eq!(
            rewritten(
                "SELECT k, x FROM a FULL JOIN b USING (k) LEFT JOIN c USING (k) WHERE k > 1 ORDER BY k"
            ),
            "SELECT coalesce(a.k, b.k) AS k, x FROM a FULL JOIN b ON a.k = b.k LEFT JOIN c ON coalesce(a.k, b.k) = c.k \
             WHERE coalesce(a.k, b.k) > 1 ORDER BY k"
        );
        assert_eq!(
            rewritten("SELECT * FROM a AS l RIGHT JOIN b USING (k, m)"),
            "SELECT b.k, b.m, l.* EXCEPT (k, m), b.* EXCEPT (k, m) FROM a AS l RIGHT JOIN b ON l.k = b.k AND l.m = b.m"
        );
        assert_eq!(
            rewritten("SELECT k FROM a LEFT JOIN b USING(k) GROUP BY k ORDER BY k + 1"),
            "SELECT a.k FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.k ORDER BY a.k + 1"
        );
        assert_eq!(
            rewritten(
                "SELECT 1 FROM a JOIN b USING (k) WHERE EXISTS (SELECT 1 FROM (SELECT 2 AS m) AS c WHERE c.m = k)"
            ),
            "SELECT 1 FROM a JOIN b ON a.k = b.k WHERE EXISTS (SELECT 1 FROM (SELECT 2 AS m) AS c WHERE c.m = a.k)"
        );
    }

    #[test]
    fn all_is_the_negation_of_any() {
        assert_eq!(
            rewritten("SELECT 1 > ALL (SELECT 2)"),
            "SELECT (NOT (1 <= ANY(SELECT 2)))"
        );
    }

    #[test]
    fn every_pass_says_what_it_is_and_why_it_stands_there() {
        let mut names: Vec<&str> = PASSES.iter().map(|pass| pass.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PASSES.len(), "a name is there twice");
        for pass in PASSES {
            assert!(
                !pass.what.is_empty() && !pass.why_here.is_empty(),
                "{}",
                pass.name
            );
        }
    }

    /// First the text, then the binder, then the plan.
    #[test]
    fn the_statement_is_bound_once() {
        let steps = PASSES.iter().map(|pass| match pass.step {
            Step::Text(_) | Step::Again => 0,
            Step::Bind => 1,
            Step::Plan(_) => 2,
        });
        let steps: Vec<i32> = steps.collect();
        assert!(steps.is_sorted());
        assert_eq!(steps.iter().filter(|step| **step == 1).count(), 1);
    }
}
