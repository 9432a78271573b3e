//! LATERAL and subqueries in expressions, as joins.
//!
//! DataFusion plans uncorrelated scalar subqueries, `EXISTS` and `IN` as conditions of a WHERE, and scalar subqueries
//! whose correlation is a few equalities below one aggregate. Those are left to it. All others become joins here:
//!
//! * LATERAL: a join with the subquery made independent ([`super::dependent`]), or no join at all ([`super::row_wise`]);
//! * a scalar subquery: a left join with its one value for each value of the outer columns ([`super::single_value`] where
//!   there might be more);
//! * `EXISTS`: a mark join, or, uncorrelated, a join with one row that says it;
//! * `x IN`, `NOT IN`, `= ANY`: a mark join for the match, joined with whether the subquery has rows and a NULL among
//!   them, since `x IN` is NULL rather than false then;
//! * `x < ANY` and the other comparisons: a join with the least or greatest value, and the same two facts.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue, TableReference};
use datafusion::error::Result;
use datafusion::functions::expr_fn::coalesce;
use datafusion::functions_aggregate::expr_fn::{count, max, min};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, FetchType, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder,
    Operator, Projection, Sort, Subquery, SubqueryAlias, Window, binary_expr, lit, not, when,
};

use super::bind::{bound_columns, columns_of, join, keep, outer_columns};
use super::dependent::{Unnesting, named};
use super::row_wise::row_wise;
use super::single_value::single_value;

/// The plan without the subqueries that DataFusion cannot plan or answers wrongly.
///
/// # Errors
/// `NotImplemented` names a construct through which outer columns cannot be followed.
pub(crate) fn decorrelate(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !has_subqueries(&plan)? {
        return Ok(plan);
    }
    let mut names = 0;
    plan.transform_up_with_subqueries(|node| Decorrelator { names: &mut names }.node(node))
        .map(|transformed| transformed.data)
}

/// The plan in which every uncorrelated scalar subquery has at most one row: a second one is an error. (A plan that runs
/// once checks that as it runs; a view has a join in its place.)
pub(crate) fn single_rows(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expression| {
            expression.transform(|inner| match inner {
                Expr::ScalarSubquery(subquery)
                    if outer_columns(&subquery.subquery)?.is_empty()
                        && !at_most_one_row(&subquery.subquery) =>
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

fn is_subquery(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)
    )
}

/// Where an expression stands, which decides what DataFusion plans there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A condition of a WHERE by itself.
    Condition,
    /// Within a condition of a WHERE.
    WithinCondition,
    /// A select list.
    SelectList,
    Elsewhere,
}

struct Decorrelator<'a> {
    names: &'a mut usize,
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
                self.names,
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
        let mut unnesting = Unnesting::new(outer, &original.left, self.names)?;
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
            let place = match condition {
                Expr::Exists(_) | Expr::InSubquery(_) => Place::Condition,
                Expr::Not(inner) if matches!(inner.as_ref(), Expr::Exists(_)) => Place::Condition,
                _ => Place::WithinCondition,
            };
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
            _ => Ok(Transformed::no(LogicalPlan::Join(original))),
        }
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
                    let is_member = self.member(input, *expr, &subquery.subquery)?;
                    if negated { not(is_member) } else { is_member }
                }
                Expr::SetComparison(SetComparison {
                    expr,
                    subquery,
                    op,
                    quantifier,
                }) => match quantifier {
                    SetQuantifier::Any => self.any(input, *expr, op, &subquery.subquery)?,
                    SetQuantifier::All => match op.negate() {
                        Some(negated) => not(self.any(input, *expr, negated, &subquery.subquery)?),
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

    fn fresh(&mut self, what: &str) -> String {
        *self.names += 1;
        format!("__{what}_{}", self.names)
    }

    /// Joins columns of the subquery, one row for each value of the outer columns, to the input. `make` has the plan and
    /// the outer columns by which it must group. Columns that have no row are NULL.
    fn attach(
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
            let mut unnesting = Unnesting::new(outer, input, self.names)?;
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

    /// Whether the subquery has rows.
    fn exists(&mut self, input: &mut LogicalPlan, subquery: &LogicalPlan) -> Result<Expr> {
        let outer = bound_columns(subquery, input.schema())?;
        if outer.is_empty() {
            let name = self.fresh("exists");
            let rows = self.fresh("rows");
            self.attach(input, subquery, |plan, _| {
                LogicalPlanBuilder::from(plan)
                    .aggregate(Vec::<Expr>::new(), vec![count(lit(1_i64)).alias(&rows)])?
                    .project(vec![column(&rows).gt(lit(0_i64)).alias(&name)])?
                    .build()
            })?;
            return Ok(column(&name));
        }
        let alias = self.fresh("exists");
        let mut unnesting = Unnesting::new(outer, input, self.names)?;
        let mut independent = unnesting.push(subquery)?;
        independent.plan = keep(independent.plan, independent.columns.clone())?;
        let right = independent.plan.clone();
        let (plan, mark) = mark(input.clone(), right, &alias, |qualify| {
            independent.columns = independent.columns.iter().map(qualify).collect();
            Ok(unnesting.conditions(&independent))
        })?;
        *input = plan;
        Ok(mark)
    }

    /// `value IN (subquery)`.
    fn member(&mut self, input: &mut LogicalPlan, value: Expr, subquery: &LogicalPlan) -> Result<Expr> {
        let value_nullable = value.nullable(input.schema())?;
        let (element, element_nullable) = (first_column(subquery), subquery.schema().field(0).is_nullable());
        let alias = self.fresh("member");
        let outer = bound_columns(subquery, input.schema())?;
        let name = self.fresh("element");
        let (plan, is_match) = if outer.is_empty() {
            let right = LogicalPlanBuilder::from(subquery.clone())
                .project(vec![element.clone().alias(&name)])?
                .build()?;
            mark(input.clone(), right, &alias, |qualify| {
                Ok(vec![
                    value
                        .clone()
                        .eq(Expr::Column(qualify(&Column::new_unqualified(&name)))),
                ])
            })?
        } else {
            let mut unnesting = Unnesting::new(outer, input, self.names)?;
            let mut independent = unnesting.push(subquery)?;
            let columns = std::iter::once(element.clone().alias(&name))
                .chain(independent.columns.iter().cloned().map(Expr::Column))
                .collect::<Vec<_>>();
            independent.plan = LogicalPlanBuilder::from(independent.plan)
                .project(columns)?
                .build()?;
            let right = independent.plan.clone();
            mark(input.clone(), right, &alias, |qualify| {
                independent.columns = independent.columns.iter().map(qualify).collect();
                let mut conditions = vec![
                    value
                        .clone()
                        .eq(Expr::Column(qualify(&Column::new_unqualified(&name)))),
                ];
                conditions.extend(unnesting.conditions(&independent));
                Ok(conditions)
            })?
        };
        *input = plan;
        let unknown = self.unknown(input, &value, value_nullable, subquery, element_nullable, vec![])?;
        three_valued(is_match, unknown)
    }

    /// `value op ANY (subquery)`.
    fn any(
        &mut self,
        input: &mut LogicalPlan,
        value: Expr,
        operator: Operator,
        subquery: &LogicalPlan,
    ) -> Result<Expr> {
        if operator == Operator::Eq {
            return self.member(input, value, subquery);
        }
        let element = first_column(subquery);
        let (least, greatest) = (self.fresh("least"), self.fresh("greatest"));
        let (calls, is_match) = match operator {
            Operator::Gt | Operator::GtEq => (
                vec![min(element).alias(&least)],
                binary_expr(value.clone(), operator, column(&least)),
            ),
            Operator::Lt | Operator::LtEq => (
                vec![max(element).alias(&greatest)],
                binary_expr(value.clone(), operator, column(&greatest)),
            ),
            Operator::NotEq => (
                vec![min(element.clone()).alias(&least), max(element).alias(&greatest)],
                value
                    .clone()
                    .not_eq(column(&least))
                    .or(value.clone().not_eq(column(&greatest))),
            ),
            other => {
                return Err(datafusion::error::DataFusionError::NotImplemented(format!(
                    "{other} ANY (subquery) is not supported; compare with =, <>, <, <=, > or >="
                )));
            }
        };
        let nullable = value.nullable(input.schema())?;
        let element_nullable = subquery.schema().field(0).is_nullable();
        let unknown = self.unknown(input, &value, nullable, subquery, element_nullable, calls)?;
        three_valued(is_match.is_true(), unknown)
    }

    /// The condition under which a comparison of `value` with each of the subquery's is NULL if it is true for none:
    /// there is a NULL among them, or `value` is NULL and there are any. `calls` are joined along.
    fn unknown(
        &mut self,
        input: &mut LogicalPlan,
        value: &Expr,
        value_nullable: bool,
        subquery: &LogicalPlan,
        element_nullable: bool,
        calls: Vec<Expr>,
    ) -> Result<Expr> {
        if !value_nullable && !element_nullable && calls.is_empty() {
            return Ok(lit(false));
        }
        let names = ["rows", "values", "any_row", "any_null"].map(|what| self.fresh(what));
        let [rows, values, any_row, any_null] = &names;
        let element = first_column(subquery);
        let further: Vec<Expr> = calls
            .iter()
            .map(|call| Expr::Column(Column::new_unqualified(call.qualified_name().1)))
            .collect();
        self.attach(input, subquery, |plan, outer| {
            let mut aggregates = vec![count(lit(1_i64)).alias(rows), count(element).alias(values)];
            aggregates.extend(calls);
            // Two facts that seldom change, rather than two counts that always do.
            let mut columns = vec![
                column(rows).gt(lit(0_i64)).alias(any_row),
                column(values).lt(column(rows)).alias(any_null),
            ];
            columns.extend(further);
            columns.extend(outer.iter().cloned());
            LogicalPlanBuilder::from(plan)
                .aggregate(outer, aggregates)?
                .project(columns)?
                .build()
        })?;
        let or_false = |name: &str| coalesce(vec![column(name), lit(false)]);
        let mut unknown = if element_nullable {
            or_false(any_null)
        } else {
            lit(false)
        };
        if value_nullable {
            unknown = unknown.or(value.clone().is_null().and(or_false(any_row)));
        }
        Ok(unknown)
    }
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

/// True, NULL or false.
fn three_valued(is_match: Expr, unknown: Expr) -> Result<Expr> {
    if unknown == lit(false) {
        return Ok(is_match);
    }
    when(is_match, lit(true))
        .when(unknown, lit(ScalarValue::Boolean(None)))
        .otherwise(lit(false))
}

/// Every row of `left` with whether a row of `right` meets the conditions, which see the columns of `right` qualified.
fn mark(
    left: LogicalPlan,
    right: LogicalPlan,
    alias: &str,
    conditions: impl FnOnce(&dyn Fn(&Column) -> Column) -> Result<Vec<Expr>>,
) -> Result<(LogicalPlan, Expr)> {
    let right = LogicalPlanBuilder::from(right).alias(alias)?.build()?;
    let qualify = |column: &Column| Column::new(Some(alias), column.name.clone());
    let joined = join(left, right, JoinType::LeftMark, conditions(&qualify)?)?;
    // Several marks of one name would be told apart by their qualifiers alone, which rules of the optimizer drop.
    let name = format!("{alias}_mark");
    let mut expressions = columns_of(joined.schema());
    let Some(last) = expressions.pop() else {
        return Err(datafusion::error::DataFusionError::Internal(
            "a mark join without a mark".into(),
        ));
    };
    expressions.push(last.alias(&name));
    let plan = LogicalPlanBuilder::from(joined).project(expressions)?.build()?;
    Ok((plan, column(&name)))
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

fn contains_subquery(expression: &Expr) -> bool {
    expression.exists(|inner| Ok(is_subquery(inner))).unwrap_or(true)
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

/// Whether DataFusion makes a right join of the subquery.
fn planned_by_datafusion(expression: &Expr, input: &LogicalPlan, place: Place) -> Result<bool> {
    Ok(match expression {
        Expr::ScalarSubquery(subquery) => {
            let outer = outer_columns(&subquery.subquery)?;
            let is_here = outer.iter().all(|(_, column)| input.schema().has_column(column));
            match place {
                Place::Elsewhere => false,
                _ if outer.is_empty() => true,
                _ => is_here && is_equated_aggregate(&subquery.subquery),
            }
        }
        Expr::Exists(Exists { subquery, .. }) => {
            matches!(place, Place::Condition)
                && !outer_columns(&subquery.subquery)?.is_empty()
                && is_filtered(&subquery.subquery, input)?
        }
        Expr::InSubquery(InSubquery {
            subquery, negated, ..
        }) => {
            place == Place::Condition
                && !negated
                && (outer_columns(&subquery.subquery)?.is_empty() || is_filtered(&subquery.subquery, input)?)
        }
        _ => false,
    })
}

/// `SELECT f(agg(..)) FROM .. WHERE x = outer`: an aggregate over everything, below it filters by equality.
fn is_equated_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            !projection.expr.iter().any(Expr::contains_outer) && is_equated_aggregate(&projection.input)
        }
        LogicalPlan::SubqueryAlias(alias) => is_equated_aggregate(&alias.input),
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.group_expr.is_empty()
                && !aggregate.aggr_expr.iter().any(Expr::contains_outer)
                && filters_above(&aggregate.input, &|condition| match condition {
                    Expr::BinaryExpr(binary) => {
                        binary.op == Operator::Eq
                            && matches!(
                                (binary.left.as_ref(), binary.right.as_ref()),
                                (Expr::Column(_), Expr::OuterReferenceColumn(..))
                                    | (Expr::OuterReferenceColumn(..), Expr::Column(_))
                            )
                    }
                    _ => false,
                })
        }
        _ => false,
    }
}

/// Only filters name outer columns, and only such of the input.
fn is_filtered(plan: &LogicalPlan, input: &LogicalPlan) -> Result<bool> {
    let is_here = outer_columns(plan)?
        .iter()
        .all(|(_, column)| input.schema().has_column(column));
    Ok(is_here && filters_above(plan, &|condition| !contains_subquery(condition)))
}

/// Whether all that is correlated is a condition, for which `fits` holds, above projections, filters and inner joins.
fn filters_above(plan: &LogicalPlan, fits: &dyn Fn(&Expr) -> bool) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            !projection.expr.iter().any(Expr::contains_outer) && filters_above(&projection.input, fits)
        }
        LogicalPlan::SubqueryAlias(alias) => filters_above(&alias.input, fits),
        LogicalPlan::Filter(filter) => {
            split_conjunction(&filter.predicate)
                .into_iter()
                .all(|condition| !names_any_outer(condition) || fits(condition))
                && filters_above(&filter.input, fits)
        }
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
            !join.filter.iter().any(names_any_outer)
                && filters_above(&join.left, fits)
                && filters_above(&join.right, fits)
        }
        other => outer_columns(other).is_ok_and(|columns| columns.is_empty()),
    }
}

/// Whether an expression or a subquery in it names an outer column.
fn names_any_outer(expression: &Expr) -> bool {
    expression
        .exists(|inner| {
            Ok(match inner {
                Expr::OuterReferenceColumn(..) => true,
                Expr::Exists(Exists { subquery, .. })
                | Expr::InSubquery(InSubquery { subquery, .. })
                | Expr::ScalarSubquery(subquery)
                | Expr::SetComparison(SetComparison { subquery, .. }) => {
                    !outer_columns(&subquery.subquery)?.is_empty()
                }
                _ => false,
            })
        })
        .unwrap_or(true)
}
