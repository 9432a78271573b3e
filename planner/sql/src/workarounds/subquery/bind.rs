//! The outer columns of a dependent plan, and how plans and expressions refer to them.

use arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, NullEquality, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::expr_fn::coalesce;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, lit};

/// Every column outside of a plan that it or a subquery in it names, each once.
pub(super) fn outer_columns(plan: &LogicalPlan) -> Result<Vec<(FieldRef, Column)>> {
    let mut found: Vec<(FieldRef, Column)> = vec![];
    plan.apply(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|inner| {
                let named = match inner {
                    Expr::OuterReferenceColumn(field, column) => vec![(field.clone(), column.clone())],
                    Expr::Exists(Exists { subquery, .. })
                    | Expr::InSubquery(InSubquery { subquery, .. })
                    | Expr::ScalarSubquery(subquery)
                    | Expr::SetComparison(SetComparison { subquery, .. }) => {
                        let mut named = outer_columns(&subquery.subquery)?;
                        // What the operation reads is nearer than what is outside of the plan.
                        named.retain(|(_, column)| {
                            !node
                                .inputs()
                                .iter()
                                .any(|input| input.schema().has_column(column))
                        });
                        named
                    }
                    _ => vec![],
                };
                for (field, column) in named {
                    if !found.iter().any(|(_, known)| *known == column) {
                        found.push((field, column));
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// The outer columns of a subquery that `schema` has.
pub(super) fn bound_columns(subquery: &LogicalPlan, schema: &DFSchema) -> Result<Vec<(FieldRef, Column)>> {
    let mut columns = outer_columns(subquery)?;
    columns.retain(|(_, column)| schema.has_column(column));
    Ok(columns)
}

/// Whether an expression names one of these outer columns.
pub(super) fn names_outer(expression: &Expr, outer: &[(FieldRef, Column)]) -> bool {
    expression
        .exists(|inner| {
            Ok(matches!(inner, Expr::OuterReferenceColumn(_, column)
                if outer.iter().any(|(_, known)| known == column)))
        })
        .unwrap_or(true)
}

/// Whether a plan names one of these outer columns.
pub(super) fn plan_names_outer(plan: &LogicalPlan, outer: &[(FieldRef, Column)]) -> Result<bool> {
    let named = outer_columns(plan)?;
    Ok(named
        .iter()
        .any(|(_, column)| outer.iter().any(|(_, known)| known == column)))
}

/// The expression with columns of the input in place of the outer ones.
pub(super) fn bind(expression: Expr, outer: &[(FieldRef, Column)], columns: &[Column]) -> Result<Expr> {
    expression
        .transform(|inner| {
            Ok(match &inner {
                Expr::OuterReferenceColumn(_, column) => {
                    match outer.iter().position(|(_, known)| known == column) {
                        Some(position) => Transformed::yes(Expr::Column(columns[position].clone())),
                        None => Transformed::no(inner),
                    }
                }
                _ => Transformed::no(inner),
            })
        })
        .map(|transformed| transformed.data)
}

/// `left` and `right` are not distinct, as equalities that a hash join takes for keys.
///
/// `IS NOT DISTINCT FROM` would make a join in which all keys' NULLs are equal, and DataFusion's rules then mix keys of
/// both kinds (see `millrace_planner::query::logical_optimizer_rules`).
pub(super) fn not_distinct(left: Expr, right: Expr, field: &FieldRef, null_free: bool) -> Vec<Expr> {
    if null_free {
        return vec![left.eq(right)];
    }
    match ScalarValue::new_default(field.data_type()) {
        Ok(default) => {
            let or_default = |e: Expr| coalesce(vec![e, lit(default.clone())]);
            vec![
                left.clone().is_null().eq(right.clone().is_null()),
                or_default(left).eq(or_default(right)),
            ]
        }
        Err(_) => {
            let operator = datafusion::logical_expr::Operator::IsNotDistinctFrom;
            vec![datafusion::logical_expr::binary_expr(left, operator, right)]
        }
    }
}

/// A join by conditions alone; the optimizer finds the keys among them.
pub(super) fn join(
    left: LogicalPlan,
    right: LogicalPlan,
    join_type: JoinType,
    conditions: Vec<Expr>,
) -> Result<LogicalPlan> {
    let join = Join::try_new(
        left.into(),
        right.into(),
        vec![],
        conjunction(conditions),
        join_type,
        datafusion::logical_expr::JoinConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    Ok(LogicalPlan::Join(join))
}

/// The columns of a plan as expressions.
pub(super) fn columns_of(schema: &DFSchema) -> Vec<Expr> {
    schema.columns().into_iter().map(Expr::Column).collect()
}

/// The plan with only these columns.
pub(super) fn keep(plan: LogicalPlan, columns: Vec<Column>) -> Result<LogicalPlan> {
    LogicalPlanBuilder::from(plan)
        .project(columns.into_iter().map(Expr::Column).collect::<Vec<_>>())?
        .build()
}

/// Whether an expression is a subquery.
pub(super) fn is_subquery(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)
    )
}

/// Whether a subquery stands in an expression.
pub(super) fn contains_subquery(expression: &Expr) -> bool {
    expression.exists(|inner| Ok(is_subquery(inner))).unwrap_or(true)
}
