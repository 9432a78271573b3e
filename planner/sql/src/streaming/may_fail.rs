//! What may fail on a row can be NULL.
//!
//! In a running view an expression that fails on a row is NULL for it. DataFusion knows of no such NULL: over columns that are `NOT
//! NULL` it takes `10 / v` for one that cannot be NULL, and makes `false` of `10 / v IS NULL`; so does the pass that makes joins of
//! `NOT IN`. While these look at a view's plan, what may fail stands in a call of `may_fail`, which gives its argument and can be
//! NULL. After that the calls are taken away, since how a view follows time is read from the expressions themselves.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, exec_datafusion_err};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TableScan, Volatility,
};

use crate::postgres::records::{FIELD, NAMED_ROW, ROW};

const NAME: &str = "may_fail";

/// Functions that choose among their arguments, or put them together, and fail on none.
const NEVER_FAIL: [&str; 8] = [
    NAME,
    "coalesce",
    "nvl",
    "nvl2",
    "make_array",
    ROW,
    NAMED_ROW,
    FIELD,
];

/// What `change` makes of a view's plan if it takes nothing that may fail for one that cannot be NULL.
///
/// # Errors
/// Those of `change`.
pub fn counted_as_null(
    plan: LogicalPlan,
    change: impl FnOnce(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<LogicalPlan> {
    match marked(plan.clone())? {
        Some(marked) => unmarked(change(marked)?),
        None => change(plan),
    }
}

/// The plan with what may fail in calls; `None`: it has nothing that would be taken for one that cannot be NULL.
fn marked(plan: LogicalPlan) -> Result<Option<LogicalPlan>> {
    let mut has_marks = false;
    let function = Arc::new(ScalarUDF::from(MayFail {
        signature: Signature::any(1, Volatility::Immutable),
    }));
    plan.transform_up_with_subqueries(|node| {
        // Constants, which are computed before the view runs.
        if matches!(node, LogicalPlan::Limit(_) | LogicalPlan::Values(_)) {
            return Ok(Transformed::no(node));
        }
        // What stands below was marked, so that its schema has to be made again. What a recursion reads of itself may be NULL.
        let node = match node {
            LogicalPlan::TableScan(scan) if is_working_table(&scan) => nullable(scan)?,
            other => other.recompute_schema()?,
        };
        let schema = input_schema(&node)?;
        let names = NamePreserver::new(&node);
        let groups = match &node {
            LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.clone(),
            _ => vec![],
        };
        let node = node.map_expressions(|expression| {
            let name = names.save(&expression);
            let marked = match is_grouping(&expression) {
                true => Transformed::no(expression),
                false => with_marks(expression, &schema, &function)?,
            };
            has_marks |= marked.transformed;
            Ok(marked.update_data(|expression| name.restore(expression)))
        })?;
        let node = match node.data {
            LogicalPlan::Aggregate(aggregate) => {
                LogicalPlan::Aggregate(of_groups(aggregate, &groups, &names)?)
            }
            other => other,
        };
        Ok(Transformed::yes(node.recompute_schema()?))
    })
    .map(|marked| has_marks.then_some(marked.data))
}

fn is_grouping(expression: &Expr) -> bool {
    match expression {
        Expr::Alias(alias) => is_grouping(&alias.expr),
        Expr::AggregateFunction(call) => call.func.name() == "grouping",
        _ => false,
    }
}

/// GROUPING is asked for keys as they stand in GROUP BY now; `groups` are the keys as they stood there.
fn of_groups(mut aggregate: Aggregate, groups: &[Expr], names: &NamePreserver) -> Result<Aggregate> {
    for call in aggregate.aggr_expr.iter_mut().filter(|call| is_grouping(call)) {
        let name = names.save(call);
        let asked = call.clone().transform_down(|part| {
            let place = groups.iter().position(|group| *group == part);
            Ok(match place.and_then(|place| aggregate.group_expr.get(place)) {
                Some(group) => Transformed::new(group.clone(), true, TreeNodeRecursion::Jump),
                None => Transformed::no(part),
            })
        })?;
        *call = name.restore(asked.data);
    }
    Ok(aggregate)
}

fn is_working_table(scan: &TableScan) -> bool {
    let provider = source_as_provider(&scan.source);
    provider.is_ok_and(|provider| provider.downcast_ref::<CteWorkTable>().is_some())
}

fn nullable(mut scan: TableScan) -> Result<LogicalPlan> {
    let fields = scan.projected_schema.iter().map(|(qualifier, field)| {
        let field = field.as_ref().clone().with_nullable(true);
        (qualifier.cloned(), Arc::new(field))
    });
    let metadata = scan.projected_schema.metadata().clone();
    scan.projected_schema = Arc::new(DFSchema::new_with_metadata(fields.collect(), metadata)?);
    Ok(LogicalPlan::TableScan(scan))
}

fn unmarked(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let bare = expression.transform_up(|part| match argument(&part) {
                Some(argument) => Ok(Transformed::yes(argument.clone())),
                None => Ok(Transformed::no(part)),
            })?;
            Ok(bare.update_data(|expression| name.restore(expression)))
        })
    })
    .map(|bare| bare.data)
}

/// What the expressions of an operation are computed over.
fn input_schema(node: &LogicalPlan) -> Result<DFSchema> {
    let mut schema = DFSchema::empty();
    for input in node.inputs() {
        schema.merge(input.schema());
    }
    if let LogicalPlan::TableScan(scan) = node {
        schema.merge(&DFSchema::try_from_qualified_schema(
            scan.table_name.clone(),
            &scan.source.schema(),
        )?);
    }
    Ok(schema)
}

fn with_marks(expression: Expr, schema: &DFSchema, function: &Arc<ScalarUDF>) -> Result<Transformed<Expr>> {
    // Keys of sets of groups can be NULL in any case, and are found again by their names.
    if matches!(expression, Expr::GroupingSet(_)) {
        return Ok(Transformed::no(expression));
    }
    expression.transform_up(|part| {
        if may_fail(&part, schema) && matches!(part.nullable(schema), Ok(false)) {
            return Ok(Transformed::yes(function.call(vec![part])));
        }
        Ok(Transformed::no(part))
    })
}

fn may_fail(expression: &Expr, schema: &DFSchema) -> bool {
    match expression {
        Expr::BinaryExpr(operation) => !matches!(
            operation.op,
            Operator::Eq
                | Operator::NotEq
                | Operator::Lt
                | Operator::LtEq
                | Operator::Gt
                | Operator::GtEq
                | Operator::And
                | Operator::Or
                | Operator::IsDistinctFrom
                | Operator::IsNotDistinctFrom
        ),
        Expr::Negative(_) => true,
        Expr::ScalarFunction(call) => !NEVER_FAIL.contains(&call.func.name()),
        Expr::Cast(Cast { expr, field }) => match expr.get_type(schema) {
            Ok(from) => !always_casts(&from, field.data_type()),
            Err(_) => false,
        },
        _ => false,
    }
}

/// Whether every value of a type has one in the other.
fn always_casts(from: &DataType, to: &DataType) -> bool {
    use DataType::{Float32, Float64, Int8, Int16, Int32, Int64, LargeUtf8, Utf8, Utf8View};
    from == to
        || match (from, to) {
            (_, Utf8 | LargeUtf8 | Utf8View) => !from.is_nested(),
            (Int8, Int16 | Int32 | Int64)
            | (Int16, Int32 | Int64)
            | (Int32, Int64)
            | (Int8 | Int16 | Int32 | Int64, Float32 | Float64)
            | (Float32, Float64) => true,
            _ => false,
        }
}

fn argument(expression: &Expr) -> Option<&Expr> {
    match expression {
        Expr::ScalarFunction(call) if call.func.name() == NAME => call.args.first(),
        _ => None,
    }
}

/// `may_fail(value)`: the value, which can be NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct MayFail {
    signature: Signature,
}

impl ScalarUDFImpl for MayFail {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let value = arg_types.first().cloned();
        value.ok_or_else(|| exec_datafusion_err!("{NAME} takes a value"))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let value = args
            .arg_fields
            .first()
            .ok_or_else(|| exec_datafusion_err!("{NAME} takes a value"))?;
        let field = Field::new(self.name(), value.data_type().clone(), true);
        Ok(Arc::new(field.with_metadata(value.metadata().clone())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let value = args.args.into_iter().next();
        value.ok_or_else(|| exec_datafusion_err!("{NAME} takes a value"))
    }
}
