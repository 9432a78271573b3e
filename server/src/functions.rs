//! Functions that PostgreSQL has and DataFusion has not, and the rewriting of PostgreSQL's spellings into DataFusion's.
//!
//! | module | what |
//! |---|---|
//! | [`rewrite`] | the AST, before it is bound: casts, operators and names of functions |
//! | [`column_names`] | what columns are called that a query does not name |
//! | [`cancel`] | `pg_cancel_backend`, `pg_terminate_backend` |
//! | [`cast`] | `pg_cast`: casts with PostgreSQL's inputs, rounding and errors |
//! | [`operators`] | operators chosen by the types of their sides: jsonb, intervals, dates, arrays |
//! | [`jsonb`] | the functions over json and jsonb |
//! | [`sort_key`] | ORDER BY of jsonb and interval |
//! | [`equality`] | groups, sets and joins of jsonb and interval by value |
//! | [`zoned_cast`] | casts in the time zone of the session |
//! | [`zoned_shift`] | `timestamptz + interval` in the time zone of the session |
//! | [`date_part`] | `date_part`, EXTRACT |
//! | [`date_trunc`] | `date_trunc` |
//! | [`datetime`] | scaling and comparing intervals, `age`, `AT TIME ZONE`, `OVERLAPS` |
//! | [`bound`] | what is replaced in a bound plan |
//! | [`padded`] | char(n) where its padding counts |
//! | [`arrays`] | subscripts, slices, `unnest`, `@>`, `&&` |
//! | [`length`] | `length`, `array_length` |
//! | [`system`] | `version()`, `pg_typeof`, `pg_sleep`, the visibility and size functions that clients ask |
//! | [`arithmetic`] | integer operators that fail on overflow, literals beside typed expressions |
//! | [`comparisons`] | literals in IN and BETWEEN |
//! | [`quantified`] | comparisons with ANY and ALL of an array; `ARRAY(SELECT ..)` |
//! | [`row_values`] | comparisons of rows |
//! | [`type_check`] | types that are not brought together |
//! | [`ranking`] | the types of `row_number` and the like |
//! | [`division`] | division of floats and numerics |
//! | [`literals`] | the types of literals, found in the AST |
//! | [`numeric`] | rounding, logarithms, powers, `width_bucket` |
//! | [`sum`] | sums of integers that fail on overflow |
//! | [`regex`] | regular expressions, SIMILAR TO, `substring` |
//! | [`text`] | `format`, quoting, lengths |
//! | [`format`] | `to_char`, `to_number` |
//! | [`bounded`] | limits on what functions make, and on how long they take |
//! | [`by_pattern`] | `to_date`, `to_timestamp` by a pattern |
//!
//! Not there yet: the `*_populate_record` and `jsonb_path_*` families, text
//! search, ranges, and functions over large objects.

pub mod arithmetic;
pub mod arrays;
pub mod bound;
pub mod bounded;
pub mod by_pattern;
pub mod cancel;
pub mod cast;
pub mod column_names;
pub mod comparisons;
pub mod date_part;
pub mod date_trunc;
pub mod datetime;
pub mod division;
pub mod equality;
pub mod format;
pub mod jsonb;
pub mod length;
pub mod literals;
pub mod numeric;
pub mod operators;
pub mod ordered_set;
pub mod padded;
pub mod quantified;
mod ranking;
pub mod regex;
pub mod rewrite;
mod row_values;
pub mod sort_key;
pub mod sum;
pub mod system;
pub mod text;
pub mod type_check;
mod without;
pub mod zoned_cast;
pub mod zoned_shift;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs};
use datafusion::scalar::ScalarValue;

/// One node of a plan with its expressions changed from below, each by the columns that it can name. What refers to an expression
/// does so by its name, which stays.
fn in_expressions(
    plan: LogicalPlan,
    mut change: impl FnMut(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let mut schema = DFSchema::empty();
    for input in plan.inputs() {
        schema.merge(input.schema());
    }
    if let LogicalPlan::TableScan(_) = &plan {
        schema.merge(plan.schema());
    }
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let expr = expr.transform_up(|expr| change(expr, &schema))?;
        Ok(expr.update_data(|expr| name.restore(expr)))
    })
}

/// The first value of an array; of a list with all that its type says of the elements.
fn constant(values: &ArrayRef) -> Result<ScalarValue> {
    match values.as_list_opt::<i32>() {
        Some(list) => Ok(ScalarValue::List(Arc::new(list.slice(0, 1)))),
        None => ScalarValue::try_from_array(values, 0),
    }
}

/// A function's values by its arguments as arrays. If all of these are constants they have one row, and so has the answer,
/// which is a constant then.
fn on_arrays(
    args: &ScalarFunctionArgs,
    apply: impl FnOnce(&[ArrayRef], usize) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    let is_constant = args
        .args
        .iter()
        .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let arrays = args
        .args
        .iter()
        .map(|arg| arg.to_array(rows))
        .collect::<Result<Vec<_>>>()?;
    let values = apply(&arrays, rows)?;
    Ok(match is_constant {
        true => ColumnarValue::Scalar(constant(&values)?),
        false => ColumnarValue::Array(values),
    })
}

/// Registers all of them.
///
/// # Errors
/// The registry refuses a function.
pub fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    // The first planner that knows an operator has it.
    registry.register_expr_planner(Arc::new(operators::PgOperators))?;
    datafusion_functions_json::register_all(registry)?;
    registry.register_expr_planner(Arc::new(arithmetic::CheckedIntegers::default()))?;
    for function in cast::udfs() {
        registry.register_udf(function)?;
    }
    for function in jsonb::udfs()
        .into_iter()
        .chain(datetime::udfs())
        .chain([date_trunc::udf()])
        .chain(date_part::udfs())
        .chain(length::udfs())
        .chain(by_pattern::udfs())
        .chain(arithmetic::udfs())
        .chain(quantified::udfs())
        .chain(system::udfs())
        .chain(format::udfs())
        .chain(numeric::udfs())
        .chain(text::udfs())
        .chain(regex::udfs())
        .chain(arrays::udfs())
    {
        registry.register_udf(function)?;
    }
    for function in ranking::udwfs() {
        registry.register_udwf(function)?;
    }
    registry.register_udaf(sum::udaf())?;
    for function in without::udafs().into_iter().chain(ordered_set::udafs()) {
        registry.register_udaf(function)?;
    }
    Ok(())
}
