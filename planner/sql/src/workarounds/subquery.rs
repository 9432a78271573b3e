//! LATERAL and subqueries in expressions, as joins.
//!
//! DataFusion plans uncorrelated scalar subqueries, `EXISTS` and `IN` as conditions of a WHERE, and scalar subqueries
//! whose correlation is a few equalities below one aggregate. Those are left to it. All others become joins here
//! (apache/datafusion#6140, #16137; columns of a query further out: #19816):
//!
//! * LATERAL: a join with the subquery made independent (`dependent`), or no join at all (`row_wise`);
//! * a scalar subquery: a left join with its one value for each value of the outer columns (`single_value` where
//!   there might be more);
//! * `EXISTS`: a mark join, or, uncorrelated, a join with one row that says it;
//! * `x IN`, `NOT IN`, `= ANY`: a mark join for the match, joined with whether the subquery has rows and a NULL among
//!   them, since `x IN` is NULL rather than false then;
//! * `x < ANY` and the other comparisons: a join with the least or greatest value, and the same two facts.
//!
//! In ON of an outer join they become columns of the side that they read; one that reads both sides is refused.

mod bind;
mod dependent;
mod membership;
mod native;
mod row_wise;
mod single_value;

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, Expr, FetchType, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, Sort,
    Subquery, SubqueryAlias, Window, lit, not,
};

use crate::complexity::{nodes, too_complex};

use self::bind::{bound_columns, columns_of, contains_subquery, is_subquery, join, keep, outer_columns};
use self::dependent::{Unnesting, named};
use self::native::{Place, planned_by_datafusion};
use self::row_wise::{gives_one_row, row_wise};
use self::single_value::single_value;

/// The plan without the subqueries that DataFusion cannot plan or answers wrongly.
///
/// # Errors
/// `NotImplemented` names a construct through which outer columns cannot be followed.
pub(crate) fn decorrelate(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !has_subqueries(&plan)? {
        return Ok(plan);
    }
    let mut made = Made::default();
    let plan = with_values(plan, |subquery| {
        !subquery.schema().field(0).is_nullable() && !has_one_row(subquery)
    })?;
    plan.transform_up_with_subqueries(|node| Decorrelator { made: &mut made }.node(node))
        .map(|transformed| transformed.data)
}

/// The plan in which every uncorrelated scalar subquery has at most one row: a second one is an error. (A plan that runs
/// once checks that as it runs; a view has a join in its place.)
pub fn single_rows(plan: LogicalPlan) -> Result<LogicalPlan> {
    with_values(plan, |subquery| !at_most_one_row(subquery))
}

/// The plan in which those uncorrelated scalar subqueries are aggregates of their one value. Without rows that is NULL, which DataFusion
/// takes for impossible where the column cannot be NULL.
fn with_values(plan: LogicalPlan, those: impl Fn(&LogicalPlan) -> bool) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expression| {
            expression.transform(|inner| match inner {
                Expr::ScalarSubquery(subquery)
                    if outer_columns(&subquery.subquery)?.is_empty() && those(&subquery.subquery) =>
                {
                    let plan = one_value(&subquery.subquery)?;
                    Ok(Transformed::yes(Expr::ScalarSubquery(Subquery {
                        subquery: Arc::new(plan),
                        ..subquery
                    })))
                }
                other => Ok(Transformed::no(other)),
            })
        })
    })
    .map(|transformed| transformed.data)
}

fn has_subqueries(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        found |= matches!(node, LogicalPlan::Subquery(_));
        node.apply_expressions(|expression| {
            found |= expression.exists(|inner| Ok(is_subquery(inner)))?;
            Ok(if found {
                TreeNodeRecursion::Stop
            } else {
                TreeNodeRecursion::Continue
            })
        })?;
        Ok(if found {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    })?;
    Ok(found)
}

/// What was made for a statement.
#[derive(Default)]
struct Made {
    names: usize,
    copied: usize,
}

/// Of plans that stand outside of a subquery, so many operations are read again for the values that they give it. Each level of queries
/// over queries with subqueries doubles them.
const COPIED_MAX: usize = 5_000;

impl Made {
    /// The number of one more name.
    fn name(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    /// Notes that a plan stands in one more place.
    ///
    /// # Errors
    /// There are too many of its kind.
    fn copy(&mut self, plan: &LogicalPlan) -> Result<()> {
        self.copied = self.copied.saturating_add(nodes(plan)?);
        match self.copied <= COPIED_MAX {
            true => Ok(()),
            false => Err(too_complex(format!(
                "subqueries that refer to rows outside of them are nested too deeply: the queries outside would be read again with more \
                 than {COPIED_MAX} operations"
            ))),
        }
    }
}

struct Decorrelator<'a> {
    made: &'a mut Made,
}

impl Decorrelator<'_> {
    fn node(&mut self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let node = match node {
            // Inner levels are done: what they still name belongs to this level or to one outside.
            LogicalPlan::Subquery(subquery) => {
                let outer_ref_columns = outer_columns(&subquery.subquery)?
                    .into_iter()
                    .map(|(field, column)| Expr::OuterReferenceColumn(field, column))
                    .collect();
                return Ok(Transformed::yes(LogicalPlan::Subquery(Subquery {
                    outer_ref_columns,
                    ..subquery
                })));
            }
            other => other.recompute_schema()?,
        };
        Ok(match node {
            LogicalPlan::Join(join) => match lateral(&join.right) {
                Some((subquery, alias)) => Transformed::yes(self.lateral(&join, &subquery, alias)?),
                None => self.join_condition(join)?,
            },
            LogicalPlan::Filter(filter) => self.filter(filter)?,
            LogicalPlan::Projection(projection) => self.projection(projection)?,
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate)?,
            LogicalPlan::Sort(sort) => self.sort(sort)?,
            LogicalPlan::Window(window) => self.window(window)?,
            other => Transformed::no(other),
        })
    }

    fn lateral(
        &mut self,
        original: &Join,
        subquery: &LogicalPlan,
        alias: Option<TableReference>,
    ) -> Result<LogicalPlan> {
        let right = match &alias {
            Some(alias) => {
                LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(subquery.clone()), alias.clone())?)
            }
            None => subquery.clone(),
        };
        let mut conditions: Vec<Expr> = original.on.iter().map(|(l, r)| l.clone().eq(r.clone())).collect();
        conditions.extend(original.filter.clone());
        conditions.retain(|condition| *condition != lit(true));
        let outer = bound_columns(subquery, original.left.schema())?;
        let keep_empty = original.join_type == JoinType::Left;
        if (!keep_empty || conditions.is_empty())
            && let Some(plan) = row_wise(
                &original.left,
                &right,
                right.schema(),
                &outer,
                keep_empty,
                self.made,
            )?
        {
            return match conjunction(conditions) {
                Some(predicate) => LogicalPlanBuilder::from(plan).filter(predicate)?.build(),
                None => Ok(plan),
            };
        }
        if outer.is_empty() {
            return join(
                original.left.as_ref().clone(),
                right,
                original.join_type,
                conditions,
            );
        }
        let mut unnesting = Unnesting::new(outer, &original.left, self.made)?;
        let independent = unnesting.push(&right)?;
        conditions.extend(unnesting.conditions(&independent));
        let joined = join(
            original.left.as_ref().clone(),
            independent.plan,
            original.join_type,
            conditions,
        )?;
        keep(joined, original.schema.columns())
    }

    fn filter(&mut self, filter: Filter) -> Result<Transformed<LogicalPlan>> {
        if !contains_subquery(&filter.predicate) {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let columns = filter.input.schema().columns();
        let mut input = filter.input.as_ref().clone();
        let mut conditions = vec![];
        let mut changed = false;
        for condition in split_conjunction(&filter.predicate) {
            let place = Place::in_condition(condition);
            conditions.push(self.expression(condition.clone(), &mut input, place, &mut changed)?);
        }
        if !changed {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let mut plan = LogicalPlanBuilder::from(input);
        if let Some(predicate) = conjunction(conditions) {
            plan = plan.filter(predicate)?;
        }
        Ok(Transformed::yes(keep(plan.build()?, columns)?))
    }

    fn projection(&mut self, projection: Projection) -> Result<Transformed<LogicalPlan>> {
        let mut input = projection.input.as_ref().clone();
        let mut changed = false;
        let expressions = self.expressions(&projection.expr, &mut input, Place::SelectList, &mut changed)?;
        if !changed {
            return Ok(Transformed::no(LogicalPlan::Projection(projection)));
        }
        let expressions: Vec<Expr> = expressions
            .into_iter()
            .zip(projection.schema.iter())
            .map(|(expression, (qualifier, field))| named(expression, qualifier, field.name()))
            .collect();
        Ok(Transformed::yes(
            LogicalPlanBuilder::from(input).project(expressions)?.build()?,
        ))
    }

    fn aggregate(&mut self, aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
        let mut input = aggregate.input.as_ref().clone();
        let mut changed = false;
        let groups = self.expressions(&aggregate.group_expr, &mut input, Place::Elsewhere, &mut changed)?;
        let calls = self.expressions(&aggregate.aggr_expr, &mut input, Place::Elsewhere, &mut changed)?;
        if !changed {
            return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
        }
        let plan = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(input), groups, calls)?);
        // Outputs keep their names, which are those of the expressions as written.
        let expressions: Vec<Expr> = columns_of(plan.schema())
            .into_iter()
            .zip(aggregate.schema.iter())
            .map(|(column, (qualifier, field))| named(column, qualifier, field.name()))
            .collect();
        Ok(Transformed::yes(
            LogicalPlanBuilder::from(plan).project(expressions)?.build()?,
        ))
    }

    fn sort(&mut self, sort: Sort) -> Result<Transformed<LogicalPlan>> {
        let columns = sort.input.schema().columns();
        let mut input = sort.input.as_ref().clone();
        let mut changed = false;
        let mut order = sort.expr.clone();
        for key in &mut order {
            key.expr = self.expression(key.expr.clone(), &mut input, Place::Elsewhere, &mut changed)?;
        }
        if !changed {
            return Ok(Transformed::no(LogicalPlan::Sort(sort)));
        }
        let sorted = LogicalPlan::Sort(Sort {
            expr: order,
            input: Arc::new(input),
            fetch: sort.fetch,
        });
        Ok(Transformed::yes(keep(sorted, columns)?))
    }

    fn window(&mut self, window: Window) -> Result<Transformed<LogicalPlan>> {
        let columns = window.schema.columns();
        let mut input = window.input.as_ref().clone();
        let mut changed = false;
        let functions = self.expressions(&window.window_expr, &mut input, Place::Elsewhere, &mut changed)?;
        if !changed {
            return Ok(Transformed::no(LogicalPlan::Window(window)));
        }
        let width = window.input.schema().fields().len();
        let functions: Vec<Expr> = functions
            .into_iter()
            .zip(&window.schema.fields()[width..])
            .map(|(function, field)| function.alias(field.name()))
            .collect();
        let plan = LogicalPlanBuilder::from(input).window(functions)?.build()?;
        Ok(Transformed::yes(keep(plan, columns)?))
    }

    /// A subquery in the condition of an inner join is one of the rows that it makes.
    fn join_condition(&mut self, original: Join) -> Result<Transformed<LogicalPlan>> {
        match &original.filter {
            Some(filter) if original.join_type == JoinType::Inner && contains_subquery(filter) => {
                let predicate = filter.clone();
                let joined = LogicalPlan::Join(Join {
                    filter: None,
                    ..original
                });
                let filter = Filter::try_new(predicate, Arc::new(joined))?;
                let done = self.filter(filter)?;
                Ok(Transformed::yes(done.data))
            }
            Some(filter)
                if matches!(
                    original.join_type,
                    JoinType::Left | JoinType::Right | JoinType::Full
                ) && contains_subquery(filter) =>
            {
                self.outer_join_condition(&original, filter)
            }
            _ => Ok(Transformed::no(LogicalPlan::Join(original))),
        }
    }

    /// A subquery in the condition of an outer join that reads one of its sides is a column more of that side.
    fn outer_join_condition(&mut self, original: &Join, filter: &Expr) -> Result<Transformed<LogicalPlan>> {
        let mut sides = [original.left.as_ref().clone(), original.right.as_ref().clone()];
        let mut changed = false;
        let condition = filter.clone().transform_up(|inner| {
            let read = match &inner {
                Expr::ScalarSubquery(subquery) => {
                    let outer = outer_columns(&subquery.subquery)?;
                    // DataFusion has its value in a condition.
                    if outer.is_empty() {
                        return Ok(Transformed::no(inner));
                    }
                    outer
                }
                Expr::Exists(Exists { subquery, .. })
                | Expr::InSubquery(InSubquery { subquery, .. })
                | Expr::SetComparison(SetComparison { subquery, .. }) => outer_columns(&subquery.subquery)?,
                _ => return Ok(Transformed::no(inner)),
            };
            let compared = match &inner {
                Expr::InSubquery(InSubquery { expr, .. })
                | Expr::SetComparison(SetComparison { expr, .. }) => expr.column_refs(),
                _ => HashSet::new(),
            };
            let reads = |side: &LogicalPlan| {
                let mut columns = read
                    .iter()
                    .map(|(_, column)| column)
                    .chain(compared.iter().copied());
                columns.any(|column| side.schema().has_column(column))
            };
            let [left, right] = &mut sides;
            let side = match (reads(left), reads(right)) {
                (true, true) => return Ok(Transformed::no(inner)),
                (false, true) => right,
                _ => left,
            };
            let place = Place::Elsewhere;
            Ok(Transformed::yes(self.expression(
                inner,
                side,
                place,
                &mut changed,
            )?))
        })?;
        if !changed {
            return Ok(Transformed::no(LogicalPlan::Join(original.clone())));
        }
        let [left, right] = sides;
        let mut conditions: Vec<Expr> = original.on.iter().map(|(l, r)| l.clone().eq(r.clone())).collect();
        conditions.push(condition.data);
        let joined = join(left, right, original.join_type, conditions)?;
        Ok(Transformed::yes(keep(joined, original.schema.columns())?))
    }

    fn expressions(
        &mut self,
        expressions: &[Expr],
        input: &mut LogicalPlan,
        place: Place,
        changed: &mut bool,
    ) -> Result<Vec<Expr>> {
        expressions
            .iter()
            .map(|expression| self.expression(expression.clone(), input, place, changed))
            .collect()
    }

    /// The expression over `input`, to which what its subqueries answer has been joined.
    fn expression(
        &mut self,
        expression: Expr,
        input: &mut LogicalPlan,
        place: Place,
        changed: &mut bool,
    ) -> Result<Expr> {
        if !contains_subquery(&expression) {
            return Ok(expression);
        }
        let transformed = expression.transform_up(|inner| {
            if !is_subquery(&inner) || planned_by_datafusion(&inner, input, place)? {
                return Ok(Transformed::no(inner));
            }
            let answer = match inner {
                Expr::Exists(Exists { subquery, negated }) => {
                    let exists = self.exists(input, &subquery.subquery)?;
                    if negated { not(exists) } else { exists }
                }
                Expr::InSubquery(InSubquery {
                    expr,
                    subquery,
                    negated,
                }) => {
                    let tells_null = negated || place.tells_null();
                    let is_member = self.member(input, *expr, &subquery.subquery, tells_null)?;
                    if negated { not(is_member) } else { is_member }
                }
                Expr::SetComparison(SetComparison {
                    expr,
                    subquery,
                    op,
                    quantifier,
                }) => match quantifier {
                    SetQuantifier::Any => {
                        self.any(input, *expr, op, &subquery.subquery, place.tells_null())?
                    }
                    SetQuantifier::All => match op.negate() {
                        Some(negated) => not(self.any(input, *expr, negated, &subquery.subquery, true)?),
                        None => {
                            return Ok(Transformed::no(Expr::SetComparison(SetComparison {
                                expr,
                                subquery,
                                op,
                                quantifier,
                            })));
                        }
                    },
                },
                Expr::ScalarSubquery(subquery) => self.value(input, &subquery.subquery)?,
                other => return Ok(Transformed::no(other)),
            };
            Ok(Transformed::yes(answer))
        })?;
        *changed |= transformed.transformed;
        Ok(transformed.data)
    }

    pub(super) fn fresh(&mut self, what: &str) -> String {
        format!("__{what}_{}", self.made.name())
    }

    /// Joins columns of the subquery, one row for each value of the outer columns, to the input. `make` has the plan and
    /// the outer columns by which it must group. Columns that have no row are NULL.
    pub(super) fn attach(
        &mut self,
        input: &mut LogicalPlan,
        subquery: &LogicalPlan,
        make: impl FnOnce(LogicalPlan, Vec<Expr>) -> Result<LogicalPlan>,
    ) -> Result<()> {
        let outer = bound_columns(subquery, input.schema())?;
        let left = input.clone();
        *input = if outer.is_empty() {
            let right = make(subquery.clone(), vec![])?;
            join(left, right, JoinType::Left, vec![lit(true)])?
        } else {
            let mut unnesting = Unnesting::new(outer, input, self.made)?;
            let mut independent = unnesting.push(subquery)?;
            let columns = independent.columns.iter().cloned().map(Expr::Column).collect();
            independent.plan = make(independent.plan, columns)?;
            let conditions = unnesting.conditions(&independent);
            join(left, independent.plan, JoinType::Left, conditions)?
        };
        Ok(())
    }

    /// A scalar subquery's value.
    fn value(&mut self, input: &mut LogicalPlan, subquery: &LogicalPlan) -> Result<Expr> {
        let name = self.fresh("value");
        let outer = bound_columns(subquery, input.schema())?;
        // `(SELECT t.x + 1)` needs no join.
        if !outer.is_empty() && gives_one_row(subquery) {
            let value = LogicalPlanBuilder::from(subquery.clone())
                .project([first_column(subquery).alias(&name)])?
                .build()?;
            if let Some(plan) = row_wise(input, &value, value.schema(), &outer, false, self.made)? {
                *input = plan;
                return Ok(Expr::Column(Column::new_unqualified(name)));
            }
        }
        let single = if at_most_one_row(subquery) {
            subquery.clone()
        } else {
            one_value(subquery)?
        };
        let value = first_column(&single);
        self.attach(input, &single, |plan, outer| {
            let columns = std::iter::once(value.alias(&name)).chain(outer);
            LogicalPlanBuilder::from(plan)
                .project(columns.collect::<Vec<_>>())?
                .build()
        })?;
        Ok(Expr::Column(Column::new_unqualified(name)))
    }
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

fn first_column(plan: &LogicalPlan) -> Expr {
    Expr::Column(Column::from(plan.schema().qualified_field(0)))
}

/// The first column's only value, and an error if there are two.
fn one_value(plan: &LogicalPlan) -> Result<LogicalPlan> {
    let (name, value) = (plan.schema().field(0).name().clone(), first_column(plan));
    LogicalPlanBuilder::from(plan.clone())
        .aggregate(Vec::<Expr>::new(), vec![single_value(value).alias(name)])?
        .build()
}

/// Whether the plan proves that there is at most one row.
fn at_most_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => at_most_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => at_most_one_row(&alias.input),
        LogicalPlan::Filter(filter) => at_most_one_row(&filter.input),
        LogicalPlan::Sort(sort) => at_most_one_row(&sort.input),
        LogicalPlan::Distinct(distinct) => at_most_one_row(distinct.input()),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Limit(limit) => {
            matches!(limit.get_fetch_type(), Ok(FetchType::Literal(Some(0 | 1))))
                || at_most_one_row(&limit.input)
        }
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Values(values) => values.values.len() <= 1,
        _ => false,
    }
}

/// Whether there is one row, whatever is read.
fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input),
        LogicalPlan::Sort(sort) => has_one_row(&sort.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        LogicalPlan::Values(values) => values.values.len() == 1,
        _ => false,
    }
}

/// The subquery on the right of a LATERAL join, and its alias.
fn lateral(plan: &LogicalPlan) -> Option<(LogicalPlan, Option<TableReference>)> {
    match plan {
        LogicalPlan::Subquery(subquery) => Some((subquery.subquery.as_ref().clone(), None)),
        LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
            LogicalPlan::Subquery(subquery) => {
                Some((subquery.subquery.as_ref().clone(), Some(alias.alias.clone())))
            }
            _ => None,
        },
        _ => None,
    }
}
