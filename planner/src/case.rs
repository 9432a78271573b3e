//! The type of a CASE: that which its branches have in common.
//!
//! DataFusion casts the branches when a plan is analysed, and takes a CASE for the type of its first branch until then. What
//! is decided by that type before — which operator is meant, how rows of a subquery are found — would be decided wrongly.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::type_coercion::other::get_coerce_type_for_case_expression;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Subquery};

/// An expression whose CASEs have branches of one type.
///
/// # Errors
/// A cast is not possible.
pub fn agreed(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expression.transform_up(|node| {
        let Expr::Case(mut case) = node else {
            return Ok(Transformed::no(node));
        };
        let branches = || case.when_then_expr.iter().map(|(_, then)| then.get_type(schema));
        let (Ok(types), Ok(otherwise)) = (
            branches().collect::<Result<Vec<_>>>(),
            case.else_expr
                .as_ref()
                .map(|expr| expr.get_type(schema))
                .transpose(),
        ) else {
            // Without a type yet, as a parameter.
            return Ok(Transformed::no(Expr::Case(case)));
        };
        let Some(common) = get_coerce_type_for_case_expression(&types, otherwise.as_ref()) else {
            return Ok(Transformed::no(Expr::Case(case)));
        };
        if types.iter().chain(&otherwise).all(|own| own == &common) {
            return Ok(Transformed::no(Expr::Case(case)));
        }
        for (_, then) in &mut case.when_then_expr {
            **then = then.as_ref().clone().cast_to(&common, schema)?;
        }
        if let Some(otherwise) = &mut case.else_expr {
            **otherwise = otherwise.as_ref().clone().cast_to(&common, schema)?;
        }
        Ok(Transformed::yes(Expr::Case(case)))
    })
}

/// A plan whose CASEs have branches of one type.
pub(crate) fn agreed_in(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut changed = false;
    plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        let schema = merge_schema(&node.inputs());
        let node = node.map_expressions(|expression| {
            let name = names.save(&expression);
            Ok(agreed(expression, &schema)?.update_data(|expression| name.restore(expression)))
        })?;
        changed |= node.transformed;
        if !changed {
            return Ok(node);
        }
        // The columns of what reads it may have other types now.
        node.map_data(|node| {
            let names = NamePreserver::new(&node);
            let node = node.map_expressions(|expression| {
                let name = names.save(&expression);
                let seen = expression.transform_up(|inner| in_subquery(inner, &schema))?;
                Ok(seen.update_data(|expression| name.restore(expression)))
            })?;
            node.data.recompute_schema()
        })
    })
    .map(|transformed| transformed.data)
}

/// A subquery in an expression, whose outer columns are as `schema` has them.
fn in_subquery(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let as_now = |expression: Expr| {
        let Expr::OuterReferenceColumn(field, column) = expression else {
            return Ok(Transformed::no(expression));
        };
        let field = match schema.qualified_field_from_column(&column) {
            Ok((_, now)) => Arc::clone(now),
            Err(_) => field,
        };
        Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
    };
    let renewed = |subquery: Subquery| -> Result<Subquery> {
        let plan = subquery.subquery.as_ref().clone();
        let plan = plan.transform_up_with_subqueries(|node| {
            let names = NamePreserver::new(&node);
            let node = node.map_expressions(|expression| {
                let name = names.save(&expression);
                let seen = expression.transform_up(as_now)?;
                Ok(seen.update_data(|expression| name.restore(expression)))
            })?;
            node.map_data(LogicalPlan::recompute_schema)
        })?;
        let outer = subquery.outer_ref_columns.into_iter();
        let outer_ref_columns = outer
            .map(|expression| expression.transform_up(as_now).map(|seen| seen.data))
            .collect::<Result<_>>()?;
        Ok(Subquery {
            subquery: Arc::new(plan.data),
            outer_ref_columns,
            spans: subquery.spans,
        })
    };
    Ok(match expression {
        Expr::ScalarSubquery(subquery) => Transformed::yes(Expr::ScalarSubquery(renewed(subquery)?)),
        Expr::Exists(mut exists) => {
            exists.subquery = renewed(exists.subquery)?;
            Transformed::yes(Expr::Exists(exists))
        }
        Expr::InSubquery(mut membership) => {
            membership.subquery = renewed(membership.subquery)?;
            Transformed::yes(Expr::InSubquery(membership))
        }
        Expr::SetComparison(mut comparison) => {
            comparison.subquery = renewed(comparison.subquery)?;
            Transformed::yes(Expr::SetComparison(comparison))
        }
        other => Transformed::no(other),
    })
}
