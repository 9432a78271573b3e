//! How the relation that stands for EXCEPT ALL or INTERSECT ALL of `l` and `r` is planned:
//! ```text
//!  Project(columns) <- Unnest(generate_series(1, n)) <- Project(n = copies) <- Filter(copies > 0)
//!    <- Aggregate(by columns: sum(left) as in_left, sum(right) as in_right) <- Union(l with (1, 0), r with (0, 1))
//! ```
//! with `copies = in_left - in_right`, or the lesser of both. It is linear up to the sums, so a view over it costs what
//! changes, and NULLs are equal as grouping has them.

use arrow::datatypes::DataType;
use datafusion::common::{Column, NullHandling, UnnestOptions};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::functions_nested::expr_fn::gen_series;
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, col, lit, when};
use datafusion::logical_expr_common::type_coercion::binary::type_union_coercion;
use datafusion::sql::sqlparser::ast::{self, FunctionArg, FunctionArgExpr, TableFactor};

use super::{EXCEPT_ALL, INTERSECT_ALL};
use crate::error::{Fault, Faulty};

/// Whether it is the name that stands for a set operation that counts copies.
pub(crate) fn is_multiset(name: &ast::ObjectName) -> bool {
    name.0.len() == 1 && multiset_operation(name).is_some()
}

/// The plan of the relation of this name.
pub(crate) fn plan(
    name: &ast::ObjectName,
    args: Vec<FunctionArg>,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let [left, right] = operands(args, context)?;
    let operation = multiset_operation(name).unwrap_or(Multiset::Difference);
    multiset(left, right, operation)
}

/// A set operation that counts copies.
#[derive(Debug, Clone, Copy)]
enum Multiset {
    Difference,
    Intersection,
}

fn multiset_operation(name: &ast::ObjectName) -> Option<Multiset> {
    match name.0.last()?.as_ident()?.value.as_str() {
        EXCEPT_ALL => Some(Multiset::Difference),
        INTERSECT_ALL => Some(Multiset::Intersection),
        _ => None,
    }
}

/// The plans of a relation's queries.
///
/// # Errors
/// There are more or fewer of them, or one cannot be planned.
pub(crate) fn operands<const N: usize>(
    args: Vec<FunctionArg>,
    context: &mut dyn RelationPlannerContext,
) -> Result<[LogicalPlan; N]> {
    let plans = args
        .into_iter()
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(ast::Expr::Subquery(subquery))) => {
                context.plan(TableFactor::Derived {
                    lateral: false,
                    subquery,
                    alias: None,
                    sample: None,
                })
            }
            other => Err(DataFusionError::Plan(format!("{other} is not a query"))),
        })
        .collect::<Result<Vec<_>>>()?;
    plans
        .try_into()
        .map_err(|_| DataFusionError::Plan(format!("the relation stands for {N} queries")))
}

fn multiset(left: LogicalPlan, right: LogicalPlan, operation: Multiset) -> Result<LogicalPlan> {
    if left.schema().fields().len() != right.schema().fields().len() {
        let name = match operation {
            Multiset::Difference => "EXCEPT",
            Multiset::Intersection => "INTERSECT",
        };
        return Err(DataFusionError::Plan(format!(
            "{name} queries have different number of columns"
        )));
    }
    let names: Vec<String> = left
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let internal: Vec<String> = (0..names.len())
        .map(|position| format!("__column_{position}"))
        .collect();
    let side = |plan: LogicalPlan, in_left: i64| {
        let columns = plan.schema().columns();
        let expressions: Vec<Expr> = columns
            .into_iter()
            .zip(&internal)
            .map(|(column, name)| Expr::Column(column).alias(name))
            .chain([
                lit(in_left).alias("__in_left"),
                lit(1 - in_left).alias("__in_right"),
            ])
            .collect();
        LogicalPlanBuilder::from(plan).project(expressions)?.build()
    };
    let (left, right) = coerced(left, right)?;
    let (left, right) = (side(left, 1)?, side(right, 0)?);
    let copies = match operation {
        Multiset::Difference => col("__lefts") - col("__rights"),
        Multiset::Intersection => {
            when(col("__lefts").lt(col("__rights")), col("__lefts")).otherwise(col("__rights"))?
        }
    };
    let columns = || internal.iter().map(col);
    let options = UnnestOptions::new().with_null_handling(NullHandling::Drop);
    LogicalPlanBuilder::from(left)
        .union(right)?
        .aggregate(
            columns().collect::<Vec<_>>(),
            vec![
                sum(col("__in_left")).alias("__lefts"),
                sum(col("__in_right")).alias("__rights"),
            ],
        )?
        .project(columns().chain([copies.alias("__copies")]).collect::<Vec<_>>())?
        .filter(col("__copies").gt(lit(0_i64)))?
        .project(
            columns()
                .chain([gen_series(lit(1_i64), col("__copies"), lit(1_i64)).alias("__copy")])
                .collect::<Vec<_>>(),
        )?
        .unnest_columns_with_options(vec![Column::from_name("__copy")], options)?
        .project(
            columns()
                .zip(&names)
                .map(|(column, name)| column.alias(name))
                .collect::<Vec<_>>(),
        )?
        .build()
}

/// Both sides with the types that a union of them has.
fn coerced(left: LogicalPlan, right: LogicalPlan) -> Result<(LogicalPlan, LogicalPlan)> {
    let types = left
        .schema()
        .fields()
        .iter()
        .zip(right.schema().fields())
        .map(|(l, r)| {
            let is_text = |data_type: &DataType| {
                matches!(
                    data_type,
                    DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
                )
            };
            let is_null = l.data_type().is_null() || r.data_type().is_null();
            if is_text(l.data_type()) != is_text(r.data_type()) && !is_null {
                let message = format!(
                    "types {} and {} of a set operation cannot be matched",
                    l.data_type(),
                    r.data_type()
                );
                let fault = Fault::DatatypeMismatch;
                return Err(Faulty { fault, message }.into());
            }
            type_union_coercion(l.data_type(), r.data_type()).ok_or_else(|| {
                DataFusionError::Plan(format!(
                    "columns of a set operation have types {} and {}, which have no common type",
                    l.data_type(),
                    r.data_type()
                ))
            })
        })
        .collect::<Result<Vec<DataType>>>()?;
    let cast_all = |plan: LogicalPlan| -> Result<LogicalPlan> {
        let fields = plan.schema().fields().iter();
        if fields
            .zip(&types)
            .all(|(field, data_type)| field.data_type() == data_type)
        {
            return Ok(plan);
        }
        let expressions: Vec<Expr> = plan
            .schema()
            .columns()
            .into_iter()
            .zip(&types)
            .map(|(column, data_type)| {
                let name = column.name.clone();
                cast(Expr::Column(column), data_type.clone()).alias(name)
            })
            .collect();
        LogicalPlanBuilder::from(plan).project(expressions)?.build()
    };
    Ok((cast_all(left)?, cast_all(right)?))
}
