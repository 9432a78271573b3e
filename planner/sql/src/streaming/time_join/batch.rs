//! Joins in time at one moment, by nodes of DataFusion.
//!
//! A lookup join is the ordinary join then. An ASOF join is one sorted pass over the rows of both sides, as the rows of a left
//! side at a time are joined with those of the right side before it:
//!
//! ```text
//!  left rows  -.                   sorted by key and time    a number for each     of each number, the columns
//!               union, each with --> right rows count up  --> right row and the --> of its first row, which is the
//!  right rows -'  empty columns                               left rows behind it   right row; left rows stay
//! ```
//! Of right rows at one time the greatest wins, as in a view, so they are sorted by all their columns.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::expr_fn::coalesce;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_window::expr_fn::first_value;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, Operator, SortExpr, WindowFrame,
    WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, cast, lit, when,
};

use super::{Parts, TimeJoin};

/// Whether a row is one of the right side.
const IS_RIGHT: &str = "$is_right";
const TIME: &str = "$time";
/// How many right rows there are up to a row.
const NUMBER: &str = "$number";

/// A node of a plan that is run once.
///
/// # Errors
/// It is a join that is none.
pub fn in_batch(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Extension(extension) = &node else {
        return Ok(Transformed::no(node));
    };
    let Some(join) = TimeJoin::of(extension) else {
        return Ok(Transformed::no(node));
    };
    let mut parts = join.parts()?;
    let plan = match parts.time.take() {
        None => LogicalPlanBuilder::from(Arc::clone(&join.left))
            .join_on(
                join.right.as_ref().clone(),
                join.join_type(),
                join.conditions.clone(),
            )?
            .build()?,
        Some((left, op, right)) => nearest(join, parts, &left, op, &right)?,
    };
    Ok(Transformed::yes(plan))
}

fn nearest(join: &TimeJoin, parts: Parts, left: &Expr, op: Operator, right: &Expr) -> Result<LogicalPlan> {
    let keys: Vec<String> = (0..parts.keys.len()).map(|key| format!("$key_{key}")).collect();
    let (left_keys, right_keys): (Vec<Expr>, Vec<Expr>) = parts.keys.into_iter().unzip();
    // NULL is equal to nothing, and at no time.
    let there: Vec<Expr> = right_keys
        .iter()
        .chain([right])
        .cloned()
        .map(Expr::is_not_null)
        .collect();
    let of_left = side(
        join,
        Side::Left,
        filtered(&join.left, parts.left)?,
        left_keys,
        left,
    )?;
    let of_right = filtered(&join.right, parts.right.into_iter().chain(there).collect())?;
    let of_right = side(join, Side::Right, of_right, right_keys, right)?;

    // A right row at the time of a left row comes before it where it matches. NULL comes first, before all right rows.
    let is_forward = matches!(op, Operator::Gt | Operator::GtEq);
    let is_strict = matches!(op, Operator::Gt | Operator::Lt);
    let mut order = vec![
        SortExpr::new(column(TIME), is_forward, true),
        SortExpr::new(column(IS_RIGHT), is_strict, false),
    ];
    let right_names: Vec<String> = names(Side::Right, join);
    order.extend(
        right_names
            .iter()
            .map(|name| SortExpr::new(column(name), true, true)),
    );

    let rows_so_far = || {
        WindowFrame::new_bounds(
            WindowFrameUnits::Rows,
            WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
            WindowFrameBound::CurrentRow,
        )
    };
    let keys: Vec<Expr> = keys.iter().map(|key| column(key)).collect();
    let rights = when(column(IS_RIGHT), lit(1_i64)).end()?;
    let counted = WindowFunctionDefinition::AggregateUDF(count_udaf());
    let number = Expr::from(WindowFunction::new(counted, vec![rights]))
        .partition_by(keys.clone())
        .order_by(order.clone())
        .window_frame(rows_so_far())
        .build()?
        .alias(NUMBER);
    let mut of_number = keys;
    of_number.push(column(NUMBER));
    let firsts = right_names.iter().map(|name| {
        first_value(column(name))
            .partition_by(of_number.clone())
            .order_by(order.clone())
            .window_frame(rows_so_far())
            .build()
            .map(|first| first.alias(format!("$first {name}")))
    });
    let mut kept = column(IS_RIGHT).is_false();
    if !join.is_outer {
        kept = kept.and(column(NUMBER).gt(lit(0_i64)));
    }
    LogicalPlanBuilder::from(of_left)
        .union(of_right)?
        .window(vec![number])?
        .window(firsts.collect::<Result<Vec<_>>>()?)?
        .filter(kept)?
        .project(columns_of(join)?)?
        .build()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}

fn names(side: Side, join: &TimeJoin) -> Vec<String> {
    let (prefix, plan) = match side {
        Side::Left => ("$left", &join.left),
        Side::Right => ("$right", &join.right),
    };
    (0..plan.schema().fields().len())
        .map(|number| format!("{prefix}_{number}"))
        .collect()
}

fn filtered(plan: &Arc<LogicalPlan>, conditions: Vec<Expr>) -> Result<LogicalPlan> {
    let plan = LogicalPlanBuilder::from(Arc::clone(plan));
    match conjunction(conditions) {
        Some(condition) => plan.filter(condition)?.build(),
        None => plan.build(),
    }
}

/// The rows of one side with keys, time and the columns of both: those of the other side are empty.
fn side(join: &TimeJoin, side: Side, plan: LogicalPlan, keys: Vec<Expr>, time: &Expr) -> Result<LogicalPlan> {
    let mut columns: Vec<Expr> = (keys.into_iter().enumerate())
        .map(|(number, key)| key.alias(format!("$key_{number}")))
        .collect();
    columns.push(time.clone().alias(TIME));
    columns.push(lit(side == Side::Right).alias(IS_RIGHT));
    for of in [Side::Left, Side::Right] {
        let schema = match of {
            Side::Left => join.left.schema(),
            Side::Right => join.right.schema(),
        };
        for (name, (qualifier, field)) in names(of, join).into_iter().zip(schema.iter()) {
            let value = match of == side {
                true => Expr::Column(Column::new(qualifier.cloned(), field.name())),
                // A left column that has no NULL has none here: what is read of it are left rows.
                false if of == Side::Left && !field.is_nullable() => default_of(field.data_type()),
                false => nothing(field.data_type()),
            };
            columns.push(value.alias_with_metadata(name, Some(FieldMetadata::from(field.as_ref()))));
        }
    }
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

fn nothing(kind: &DataType) -> Expr {
    cast(lit(ScalarValue::Null), kind.clone())
}

/// A value of a type that has one by default, else none.
fn default_of(kind: &DataType) -> Expr {
    ScalarValue::new_default(kind).map_or_else(|_| nothing(kind), lit)
}

/// The columns of the join, under their names.
fn columns_of(join: &TimeJoin) -> Result<Vec<Expr>> {
    let lefts = names(Side::Left, join).into_iter();
    let rights = names(Side::Right, join)
        .into_iter()
        .map(|name| format!("$first {name}"));
    let columns = lefts.chain(rights).zip(join.schema.iter());
    columns
        .map(|(name, (qualifier, field))| {
            let is_first = name.starts_with("$first");
            let value = match is_first && !field.is_nullable() {
                true => coalesce(vec![column(&name), default_of(field.data_type())]),
                false => column(&name),
            };
            let metadata = Some(FieldMetadata::from(field.as_ref()));
            Ok(value.alias_qualified_with_metadata(qualifier.cloned(), field.name(), metadata))
        })
        .collect()
}
