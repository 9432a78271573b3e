//! How large a statement may be: limits on what is written, and on what becomes of it once names are bound.
//!
//! The parser limits nesting, lists and chains of operators. What it cannot see is how much a name stands for: a chain of WITH queries
//! or of views is a plan as deep as the chain is long, and one that names its predecessor twice doubles with every step.
//! Everything that walks, optimises or frees such a plan recurses, and takes time with its size; so both are counted here, before
//! anything does. What a shared part is made of is counted once for each place in which it stands, but looked at once.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    self, GroupByExpr, Ident, ObjectName, Query, Select, Statement, Visitor,
};
use millrace_parser::walk::Walk;

use crate::error::{Fault, Faulty};

/// The most relations that a statement reads, with those of WITH queries for each place in which they are named.
pub const RELATIONS_MAX: usize = 2_000;
/// The most grouping sets of a SELECT, as in PostgreSQL. CUBE has as many as its columns have subsets.
pub const GROUPING_SETS_MAX: usize = 4_096;
/// The most operations of a plan on the way from its result to a relation.
pub const PLAN_DEPTH_MAX: usize = 1_200;
/// The most operations of a plan, with all that views and WITH queries stand for.
pub const PLAN_NODES_MAX: usize = 20_000;

/// The most dimensions of an array, as in PostgreSQL.
pub const DIMENSIONS_MAX: usize = 6;
/// Rows and arrays within each other. The text of a row doubles the quotes of one within it, and so does not grow too long.
pub const TYPES_NESTED_MAX: usize = 12;

/// How many times conditions and other operations may take turns within each other.
///
/// To say what a CASE, BETWEEN, IN, LIKE or NOT is, DataFusion 55 asks what is within it twice: for the type, and for whether it
/// may be NULL, and so do most operations with a CASE within them. Each turn takes about four times as long as the one before.
pub const TURNS_MAX: usize = 8;

/// A limit that a statement exceeds.
pub(crate) fn too_complex(message: String) -> DataFusionError {
    let fault = Fault::TooComplex;
    Faulty { fault, message }.into()
}

/// Refuses a statement that says too much.
///
/// # Errors
/// [`Fault::TooComplex`].
pub(crate) fn check_statement(statement: &Statement) -> Result<()> {
    match statement.walk(&mut Count::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(message) => Err(too_complex(message)),
    }
}

/// A query on the way from the statement to what is looked at.
#[derive(Default)]
struct Frame {
    /// How many relations it reads, with those of WITH queries for each place in which they are named.
    relations: usize,
    /// The same of its WITH queries.
    with: HashMap<String, usize>,
    /// What its WITH queries are called, by where they are in memory.
    names: HashMap<usize, String>,
}

#[derive(Default)]
struct Count {
    frames: Vec<Frame>,
    /// The expressions on the way to what is looked at: the kind of each, and how often kinds have taken turns.
    turns: Vec<(Kind, usize)>,
    /// The conditions of the CASEs among them, by where they are in memory. A CASE there is a turn, unlike one that is a result.
    conditions: HashSet<usize>,
}

/// What an expression is to those that ask for its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// These ask twice.
    Case,
    Not,
    In,
    Like,
    /// Has its first side twice, and so is a turn by itself.
    Between,
    Other,
}

impl Kind {
    /// The kind of an expression that is no leaf.
    fn of(expression: &ast::Expr) -> Option<Self> {
        use ast::Expr as E;
        Some(match expression {
            E::Case { .. } => Kind::Case,
            E::InList { .. } | E::InSubquery { .. } => Kind::In,
            E::Like { .. } | E::ILike { .. } | E::SimilarTo { .. } => Kind::Like,
            E::UnaryOp {
                op: ast::UnaryOperator::Not,
                ..
            } => Kind::Not,
            E::Between { .. } => Kind::Between,
            E::Nested(_) | E::Identifier(_) | E::CompoundIdentifier(_) | E::Value(_) => return None,
            _ => Kind::Other,
        })
    }

    /// How often kinds have taken turns once this is within what has done so `above`.
    fn within(self, above: Option<(Kind, usize)>) -> (Kind, usize) {
        match above {
            // Two changes are a turn: to another kind, and back.
            Some((_, turns)) if self == Kind::Between => (self, turns + 2),
            Some((kind, turns)) if kind == self => (self, turns),
            Some((_, turns)) => (self, turns + 1),
            None => (self, 0),
        }
    }
}

impl Count {
    fn read(&mut self, relations: usize) -> ControlFlow<String> {
        let Some(frame) = self.frames.last_mut() else {
            return ControlFlow::Continue(());
        };
        frame.relations = frame.relations.saturating_add(relations);
        match frame.relations > RELATIONS_MAX {
            true => ControlFlow::Break(format!(
                "a statement can read at most {RELATIONS_MAX} relations (the relations of a WITH query \
                 count once for each reference to it)"
            )),
            false => ControlFlow::Continue(()),
        }
    }
}

impl Visitor for Count {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        let with = query.with.as_ref().map_or(&[][..], |with| &with.cte_tables);
        let names = with
            .iter()
            .map(|with| (place(with.query.as_ref()), folded(&with.alias.name)));
        self.frames.push(Frame {
            names: names.collect(),
            ..Frame::default()
        });
        // Nobody asks through a subquery: it says at once what it gives.
        self.turns.push((Kind::Other, 0));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        self.turns.pop();
        let relations = self.frames.pop().map_or(0, |frame| frame.relations);
        if let Some(around) = self.frames.last_mut()
            && let Some(name) = around.names.get(&place(query))
        {
            around.with.insert(name.clone(), relations);
            return ControlFlow::Continue(());
        }
        self.read(relations)
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<String> {
        let GroupByExpr::Expressions(keys, _) = &select.group_by else {
            return ControlFlow::Continue(());
        };
        let sets = |key: &ast::Expr| match key {
            ast::Expr::Cube(keys) => 1_usize.checked_shl(keys.len() as u32).unwrap_or(usize::MAX),
            ast::Expr::Rollup(keys) => keys.len() + 1,
            ast::Expr::GroupingSets(sets) => sets.len(),
            _ => 1,
        };
        let sets = keys.iter().map(sets).fold(1_usize, usize::saturating_mul);
        match sets > GROUPING_SETS_MAX {
            true => ControlFlow::Break(format!(
                "too many grouping sets present (maximum {GROUPING_SETS_MAX})"
            )),
            false => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<String> {
        let mut above = self.turns.last().copied();
        if self.conditions.remove(&place(expression)) {
            above = above.map(|above| Kind::Other.within(Some(above)));
        }
        let turn = match Kind::of(expression) {
            Some(kind) => kind.within(above),
            None => above.unwrap_or((Kind::Other, 0)),
        };
        if turn.1 > 2 * TURNS_MAX {
            return ControlFlow::Break(format!(
                "conditions and other operations are nested in each other more than {TURNS_MAX} times"
            ));
        }
        self.turns.push(turn);
        if let ast::Expr::Case {
            operand, conditions, ..
        } = expression
        {
            let of_branches = conditions.iter().map(|branch| place(&branch.condition));
            self.conditions.extend(of_branches);
            self.conditions
                .extend(operand.iter().map(|operand| place(operand.as_ref())));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &ast::Expr) -> ControlFlow<String> {
        self.turns.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<String> {
        let with = match name.0.as_slice() {
            [only] => only.as_ident().map(folded),
            _ => None,
        };
        let known = with.and_then(|name| self.frames.iter().rev().find_map(|frame| frame.with.get(&name)));
        let relations = known.copied().unwrap_or(1).max(1);
        self.read(relations)
    }
}

fn place<T>(part: &T) -> usize {
    std::ptr::from_ref(part) as usize
}

fn folded(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

/// Refuses a plan that is too deep or too large, with views counted as what they stand for.
///
/// # Errors
/// [`Fault::TooComplex`].
pub fn check_plan(plan: &LogicalPlan) -> Result<()> {
    nodes(plan).map(|_| ())
}

/// How many operations a plan has, with views counted as what they stand for.
///
/// # Errors
/// As [`check_plan`].
pub(crate) fn nodes(plan: &LogicalPlan) -> Result<usize> {
    Sizes::default().of(plan, 0).map(|size| size.nodes)
}

#[derive(Debug, Clone, Copy, Default)]
struct Size {
    depth: usize,
    nodes: usize,
}

/// Sizes of parts, by where they are in memory: one that stands in several places is looked at once.
#[derive(Default)]
struct Sizes(HashMap<usize, Size>);

impl Sizes {
    fn of(&mut self, plan: &LogicalPlan, above: usize) -> Result<Size> {
        let place = std::ptr::from_ref(plan) as usize;
        let size = match self.0.get(&place) {
            Some(size) => *size,
            None => {
                let size = self.look_at(plan, above)?;
                self.0.insert(place, size);
                size
            }
        };
        if above + size.depth > PLAN_DEPTH_MAX {
            return Err(too_deep());
        }
        if size.nodes > PLAN_NODES_MAX {
            let message = format!(
                "the plan of the statement has more than {PLAN_NODES_MAX} operations: queries and views \
                 count once for each reference to them"
            );
            return Err(too_complex(message));
        }
        Ok(size)
    }

    fn look_at(&mut self, plan: &LogicalPlan, above: usize) -> Result<Size> {
        if above >= PLAN_DEPTH_MAX {
            return Err(too_deep());
        }
        for field in plan.schema().fields() {
            check_type(field.data_type())?;
        }
        let mut size = Size { depth: 1, nodes: 1 };
        let mut add = |part: Size| {
            size.depth = size.depth.max(1 + part.depth);
            size.nodes = size.nodes.saturating_add(part.nodes);
        };
        for input in plan.inputs() {
            add(self.of(input, above + 1)?);
        }
        if let LogicalPlan::TableScan(scan) = plan
            && let Some(view) = scan.source.get_logical_plan()
        {
            add(self.of(&view, above + 1)?);
        }
        for expression in plan.expressions() {
            let mut subqueries = vec![];
            expression.apply(|part| {
                match part {
                    Expr::ScalarSubquery(subquery) => subqueries.push(subquery.subquery.clone()),
                    Expr::Exists(exists) => subqueries.push(exists.subquery.subquery.clone()),
                    Expr::InSubquery(within) => subqueries.push(within.subquery.subquery.clone()),
                    Expr::SetComparison(comparison) => {
                        subqueries.push(comparison.subquery.subquery.clone());
                    }
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
            for subquery in subqueries {
                add(self.of(&subquery, above + 1)?);
            }
        }
        Ok(size)
    }
}

/// Refuses arrays of too many dimensions, and rows within rows without end.
///
/// # Errors
/// [`Fault::LimitExceeded`].
pub fn check_type(data_type: &DataType) -> Result<()> {
    fn nested(data_type: &DataType, dimensions: usize, levels: usize) -> Result<()> {
        let exceeded = |message| {
            Err(Faulty {
                fault: Fault::LimitExceeded,
                message,
            }
            .into())
        };
        if dimensions > DIMENSIONS_MAX {
            return exceeded(format!(
                "number of array dimensions ({dimensions}) exceeds the maximum allowed ({DIMENSIONS_MAX})"
            ));
        }
        if levels > TYPES_NESTED_MAX {
            return exceeded(format!("rows are nested more than {TYPES_NESTED_MAX} deep"));
        }
        match data_type {
            DataType::List(element) => nested(element.data_type(), dimensions + 1, levels + 1),
            DataType::Struct(fields) => {
                (fields.iter()).try_for_each(|field| nested(field.data_type(), 0, levels + 1))
            }
            _ => Ok(()),
        }
    }
    nested(data_type, 0, 0)
}

fn too_deep() -> DataFusionError {
    too_complex(format!(
        "queries and views are nested too deeply: their plan has more than {PLAN_DEPTH_MAX} levels of \
         operations"
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::logical_expr::LogicalPlanBuilder;
    use datafusion::prelude::lit;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn refusal(sql: &str) -> Option<String> {
        let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
        check_statement(&statement).err().map(|error| error.to_string())
    }

    #[test]
    fn grouping_sets_are_counted_before_they_are_made() {
        let cube = |columns: usize| {
            let columns: Vec<_> = (0..columns).map(|n| format!("c{n}")).collect();
            format!("SELECT 1 FROM t GROUP BY CUBE ({})", columns.join(", "))
        };
        assert_eq!(refusal(&cube(12)), None);
        for columns in [13, 40, 64, 200] {
            assert!(
                refusal(&cube(columns)).unwrap().contains("grouping sets"),
                "{columns}"
            );
        }
        let both = "SELECT 1 FROM t GROUP BY CUBE (a, b, c, d, e, f, g), ROLLUP (h, i, j), CUBE (k, l, m, n)";
        assert!(refusal(both).unwrap().contains("grouping sets"));
    }

    /// What is asked for its type twice at each turn is refused where it would be asked a million times, and not what is long.
    #[test]
    fn turns_of_conditions_are_counted() {
        let nested = |step: &str, times: usize| {
            let one = |expression: String, _| step.replace("{}", &expression);
            format!("SELECT {} FROM t", (0..times).fold("a".to_owned(), one))
        };
        let turning = [
            "abs(CASE WHEN b THEN {} ELSE 2 END)",
            "CASE WHEN ({}) IN (1, 2) THEN 1 ELSE 2 + b END",
            "CASE WHEN ({}) IN (1) THEN 1 END",
            "CASE WHEN {} THEN b END",
            "CASE (({})) WHEN 1 THEN 2 END",
            "CASE WHEN NOT ({} LIKE 'a') THEN 'b' END",
            "(({}) BETWEEN 1 AND 3)::int",
            "((NOT ({}))::int > 2)",
            "CASE WHEN ({}) BETWEEN 1 AND 4 THEN 1 ELSE 2 END",
        ];
        for step in turning {
            assert_eq!(refusal(&nested(step, 4)), None, "{step}");
            assert!(
                refusal(&nested(step, 12))
                    .unwrap()
                    .contains("nested in each other"),
                "{step}"
            );
        }
        for step in [
            "CASE WHEN b THEN {} ELSE 2 END",
            "({} + 1)",
            "abs({})",
            "(({}) > 1)::int",
        ] {
            assert_eq!(refusal(&nested(step, 20)), None, "{step}");
        }
        let within = "CASE WHEN abs(a) IN (SELECT abs(CASE WHEN b THEN {} END) FROM t) THEN 1 ELSE 2 END";
        assert_eq!(refusal(&nested(within, 3)), None);
        // Side by side is not within each other.
        let wide = vec!["abs(CASE WHEN b THEN 1 ELSE 2 END)"; 200].join(" + ");
        assert_eq!(refusal(&format!("SELECT {wide} FROM t")), None);
    }

    #[test]
    fn with_queries_count_for_each_place() {
        let doubled = |steps: usize| {
            let steps: Vec<_> = (1..=steps)
                .map(|n| format!("q{n} AS (SELECT 1 FROM q{} a, Q{} b)", n - 1, n - 1))
                .collect();
            format!("WITH q0 AS (SELECT 1 FROM t), {} SELECT 1", steps.join(", "))
        };
        assert_eq!(refusal(&doubled(10)), None);
        assert!(refusal(&doubled(11)).unwrap().contains("each reference"));
        assert!(refusal(&doubled(100)).unwrap().contains("each reference"));
        // A name that means another query inside does not count as the one outside.
        assert_eq!(
            refusal("WITH q AS (SELECT 1 FROM t) SELECT (WITH q AS (SELECT 1) SELECT 1 FROM q) FROM q"),
            None
        );
    }

    /// Sixty steps of this are more operations than there are atoms: they are counted without being walked.
    #[test]
    fn a_plan_that_doubles_is_refused_at_once() {
        let mut plan = LogicalPlanBuilder::empty(true).build().unwrap();
        for step in 0..60 {
            let shared = Arc::new(plan);
            plan = LogicalPlan::Union(datafusion::logical_expr::Union {
                schema: Arc::clone(shared.schema()),
                inputs: vec![Arc::clone(&shared), shared],
            });
            let is_small = (1_usize << (step + 2)) - 1 <= PLAN_NODES_MAX;
            assert_eq!(check_plan(&plan).is_ok(), is_small, "{step}");
        }
    }

    #[test]
    fn a_deep_plan_is_refused() {
        let filtered = |plan: LogicalPlan| {
            let builder = LogicalPlanBuilder::from(plan).filter(lit(true)).unwrap();
            builder.build().unwrap()
        };
        let check = move || {
            let mut plan = LogicalPlanBuilder::empty(true).build().unwrap();
            for _ in 0..PLAN_DEPTH_MAX - 1 {
                plan = filtered(plan);
            }
            assert!(check_plan(&plan).is_ok());
            let refused = check_plan(&filtered(plan)).unwrap_err().to_string();
            assert!(refused.contains("nested too deeply"), "{refused}");
        };
        // As much as the threads have that plan.
        let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(check);
        thread.expect("a thread starts").join().expect("nothing fails");
    }
}
