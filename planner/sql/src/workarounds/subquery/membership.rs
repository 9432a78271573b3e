//! EXISTS, IN and comparisons with ANY over a subquery, as columns joined to the rows that ask.

use datafusion::common::{Column, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::expr_fn::coalesce;
use datafusion::functions_aggregate::expr_fn::{count, max, min};
use datafusion::logical_expr::{
    Expr, ExprSchemable, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr, lit, when,
};

use super::bind::{bound_columns, columns_of, join, keep};
use super::dependent::Unnesting;
use super::{Decorrelator, column, first_column};

impl Decorrelator<'_> {
    /// Whether the subquery has rows.
    pub(super) fn exists(&mut self, input: &mut LogicalPlan, subquery: &LogicalPlan) -> Result<Expr> {
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
        let mut unnesting = Unnesting::new(outer, input, self.made)?;
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

    /// `value IN (subquery)`; where NULL is as good as false, it may be false for NULL.
    pub(super) fn member(
        &mut self,
        input: &mut LogicalPlan,
        value: Expr,
        subquery: &LogicalPlan,
        tells_null: bool,
    ) -> Result<Expr> {
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
            let mut unnesting = Unnesting::new(outer, input, self.made)?;
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
        if !tells_null {
            return Ok(is_match);
        }
        let unknown = self.unknown(input, &value, value_nullable, subquery, element_nullable, vec![])?;
        three_valued(is_match, unknown)
    }

    /// `value op ANY (subquery)`; `tells_null` as for [`Self::member`].
    pub(super) fn any(
        &mut self,
        input: &mut LogicalPlan,
        value: Expr,
        operator: Operator,
        subquery: &LogicalPlan,
        tells_null: bool,
    ) -> Result<Expr> {
        if operator == Operator::Eq {
            return self.member(input, value, subquery, tells_null);
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
                return Err(DataFusionError::NotImplemented(format!(
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
        return Err(DataFusionError::Internal("a mark join without a mark".into()));
    };
    expressions.push(last.alias(&name));
    let plan = LogicalPlanBuilder::from(joined).project(expressions)?.build()?;
    Ok((plan, column(&name)))
}
