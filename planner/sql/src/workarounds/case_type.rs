//! The type of a CASE, and of a column of a UNION: that which its branches have in common. A quoted literal among them, and among the arguments of
//! coalesce and the like, has the type of the others.
//!
//! DataFusion casts the branches when a plan is analysed, and takes a CASE or a UNION for the type of its first branch until then. What
//! is decided by that type before — which operator is meant, how rows of a subquery are found, what type a client is told — would be decided wrongly. (apache/datafusion#1609)

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr_rewriter::{NamePreserver, coerce_plan_expr_for_schema};
use datafusion::logical_expr::type_coercion::other::get_coerce_type_for_case_expression;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Case, Expr, ExprSchemable, LogicalPlan, Projection, Subquery, Union, cast};
use datafusion::optimizer::analyzer::type_coercion::coerce_union_schema;

/// An expression whose CASEs have branches of one type.
///
/// # Errors
/// A cast is not possible.
pub fn agreed(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expression.transform_up(|node| {
        let mut case = match node {
            Expr::Case(case) => case,
            Expr::ScalarFunction(mut call) if ALIKE.contains(&call.func.name()) => {
                let mut changed = typed_by_others(&mut call.args.iter_mut().collect::<Vec<_>>(), schema)?;
                let types = call.args.iter().map(|argument| argument.get_type(schema));
                let types = types.collect::<Result<Vec<_>>>().unwrap_or_default();
                if let Some(common) = common_float(&types).or_else(|| common_time(&types)) {
                    for argument in &mut call.args {
                        *argument = argument.clone().cast_to(&common, schema)?;
                    }
                    changed = true;
                }
                let call = Expr::ScalarFunction(call);
                return Ok(if changed {
                    Transformed::yes(call)
                } else {
                    Transformed::no(call)
                });
            }
            other => return Ok(Transformed::no(other)),
        };
        let mut results: Vec<&mut Expr> = case
            .when_then_expr
            .iter_mut()
            .map(|(_, then)| then.as_mut())
            .collect();
        results.extend(case.else_expr.as_deref_mut());
        let changed = typed_by_others(&mut results, schema)?;
        let unchanged = |case: Case| match changed {
            true => Transformed::yes(Expr::Case(case)),
            false => Transformed::no(Expr::Case(case)),
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
            return Ok(unchanged(case));
        };
        let all: Vec<DataType> = types.iter().chain(&otherwise).cloned().collect();
        let common = common_float(&all).or_else(|| common_time(&all));
        let common = common.or_else(|| get_coerce_type_for_case_expression(&types, otherwise.as_ref()));
        let Some(common) = common else {
            return Ok(unchanged(case));
        };
        if types.iter().chain(&otherwise).all(|own| own == &common) {
            return Ok(unchanged(case));
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

/// The type of numerics beside floats, which is that of the floats; DataFusion has a numeric. `None`: they are others.
fn common_float(types: &[DataType]) -> Option<DataType> {
    let is_number = |data_type: &DataType| data_type.is_numeric() || data_type.is_null();
    let has_decimal = types
        .iter()
        .any(|data_type| matches!(data_type, DataType::Decimal128(..)));
    if !has_decimal || !types.iter().all(is_number) {
        return None;
    }
    let floats = [DataType::Float64, DataType::Float32];
    floats.into_iter().find(|float| types.contains(float))
}

/// The type of dates beside timestamps; DataFusion has one of nanoseconds, which no time behind the year 2262 has. `None`: they are others.
fn common_time(types: &[DataType]) -> Option<DataType> {
    let mut common = None;
    let mut has_date = false;
    for data_type in types {
        match data_type {
            DataType::Null => {}
            DataType::Date32 => has_date = true,
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                if zone.is_some() || common.is_none() {
                    common = Some(data_type.clone());
                }
            }
            _ => return None,
        }
    }
    common.filter(|_| has_date)
}

/// Functions that give one of their arguments, or all of them in an array.
const ALIKE: [&str; 5] = ["coalesce", "greatest", "least", "nullif", "make_array"];

/// Gives quoted literals among expressions of which one is the value the type of the others. Whether there are such.
fn typed_by_others(all: &mut [&mut Expr], schema: &DFSchema) -> Result<bool> {
    let is_quoted = |expr: &Expr| matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)), _));
    let mut wanted: Option<DataType> = None;
    for expr in all.iter().filter(|expr| !is_quoted(expr)) {
        match expr.get_type(schema) {
            Ok(DataType::Null) => {}
            Ok(data_type) => wanted = wanted.or(Some(data_type)),
            Err(_) => return Ok(false),
        }
    }
    let is_text = |data_type: &DataType| {
        matches!(
            data_type,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        )
    };
    let Some(wanted) = wanted.filter(|data_type| !is_text(data_type)) else {
        return Ok(false);
    };
    let mut changed = false;
    for expr in all.iter_mut().filter(|expr| is_quoted(expr)) {
        // The digits that are written, not those of the others.
        let target = match &wanted {
            DataType::Decimal128(..) => DataType::Decimal128(38, 10),
            other => other.clone(),
        };
        **expr = cast(expr.clone(), target);
        changed = true;
    }
    Ok(changed)
}

/// A UNION in whose branches quoted literals have the type that other branches give to their columns, and each column has one type: that
/// which the branches have in common.
fn typed_branches(mut union: Union) -> Result<Transformed<LogicalPlan>> {
    let is_text = |data_type: &DataType| {
        matches!(
            data_type,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        )
    };
    let mut changed = false;
    for index in 0..union.schema.fields().len() {
        let is_quoted = |branch: &LogicalPlan| match branch {
            LogicalPlan::Projection(projection) => {
                let expr = projection.expr.get(index).cloned().map(Expr::unalias);
                matches!(expr, Some(Expr::Literal(ScalarValue::Utf8(Some(_)), _)))
            }
            _ => false,
        };
        let others = union.inputs.iter().filter(|branch| !is_quoted(branch));
        let mut types = others.map(|branch| branch.schema().field(index).data_type());
        let wanted = types.find(|data_type| !data_type.is_null()).cloned();
        let Some(wanted) = wanted.filter(|data_type| !is_text(data_type)) else {
            continue;
        };
        for branch in &mut union.inputs {
            if !is_quoted(branch) {
                continue;
            }
            if let LogicalPlan::Projection(projection) = branch.as_ref() {
                let mut expressions = projection.expr.clone();
                let name = projection.schema.field(index).name();
                expressions[index] = cast(expressions[index].clone().unalias(), wanted.clone()).alias(name);
                let typed = Projection::try_new(expressions, Arc::clone(&projection.input))?;
                *branch = Arc::new(LogicalPlan::Projection(typed));
                changed = true;
            }
        }
    }
    // Types that have nothing in common are refused elsewhere.
    if let Ok(common) =
        coerce_union_schema(&union.inputs).and_then(|common| with_common_times(common, &union))
    {
        let has_other_type = |branch: &Arc<LogicalPlan>| {
            let mut pairs = branch.schema().fields().iter().zip(common.fields());
            pairs.any(|(own, common)| own.data_type() != common.data_type())
        };
        if union.inputs.iter().any(has_other_type) {
            let cast = |branch: Arc<LogicalPlan>| {
                coerce_plan_expr_for_schema(Arc::unwrap_or_clone(branch), &common).map(Arc::new)
            };
            let inputs = union.inputs.into_iter().map(cast).collect::<Result<_>>()?;
            let schema = Arc::new(common);
            return Ok(Transformed::yes(LogicalPlan::Union(Union { inputs, schema })));
        }
    }
    Ok(match changed {
        true => Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(union.inputs)?)),
        false => Transformed::no(LogicalPlan::Union(union)),
    })
}

/// The columns of a UNION, of which those of dates and timestamps have the type of [`common_time`].
fn with_common_times(schema: DFSchema, union: &Union) -> Result<DFSchema> {
    let mut fields = vec![];
    for (index, (qualifier, field)) in schema.iter().enumerate() {
        let types = union
            .inputs
            .iter()
            .map(|input| input.schema().field(index).data_type().clone());
        let field = match common_time(&types.collect::<Vec<_>>()) {
            Some(common) => Arc::new(field.as_ref().clone().with_data_type(common)),
            None => Arc::clone(field),
        };
        fields.push((qualifier.cloned(), field));
    }
    DFSchema::new_with_metadata(fields, schema.metadata().clone())
}

/// A plan whose CASEs have branches of one type.
pub(crate) fn agreed_in(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut changed = false;
    plan.transform_up_with_subqueries(|node| {
        let node = match node {
            LogicalPlan::Union(union) => {
                let typed = typed_branches(union)?;
                changed |= typed.transformed;
                typed.data
            }
            other => other,
        };
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
