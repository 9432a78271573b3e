//! OVER windows: rows are exchanged by PARTITION BY; a partition that changed is computed again by DataFusion's functions.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, new_null_array};
use arrow::compute::SortOptions;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{Column, DFSchema, TableReference};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Expr, Window, WindowFrameBound, lit};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_planner::create_window_expr;

use super::fragment::{Fragment, Part, Placement};
use super::limit::sort_columns;
use super::lower::{Lowering, arrow_schema, column};
use crate::error::{PlanError, Result};
use crate::stage::Output;
use crate::stage::closing::Closing;
use crate::stage::operator::Operator;
use crate::stage::recompute::Recompute;
use crate::watermark::ColumnWatermark;

/// What computed columns are qualified with while the functions are planned.
const COMPUTED: &str = "$window";

impl Lowering {
    pub(super) fn window(&mut self, window: &Window) -> Result<Fragment> {
        let functions = window
            .window_expr
            .iter()
            .map(window_function)
            .collect::<Result<Vec<_>>>()?;
        let Some(first) = functions.first() else {
            return Err(PlanError::Internal("a window node without functions".into()));
        };
        // The node's functions share their partitions and an order.
        let is_shared = |function: &&WindowFunction| {
            let (own, shared) = (&function.params.partition_by, &first.params.partition_by);
            own.len() == shared.len() && own.iter().all(|e| shared.contains(e))
        };
        if !functions.iter().all(is_shared) {
            return Err(PlanError::Internal(
                "a window node with several PARTITION BY".into(),
            ));
        }
        let fragment = self.node(&window.input)?;
        let (input_append_only, key) = (fragment.append_only, fragment.key.clone());
        let logical = window.input.schema();
        let width = logical.fields().len();

        // What the functions work on is computed before them, where an expression that fails on a row is NULL there.
        let mut computed: Vec<Expr> = vec![];
        for function in &functions {
            let arguments = arguments(function).filter(|e| !matches!(e, Expr::Literal(..)));
            for e in arguments.chain(keys(function)) {
                if !matches!(e, Expr::Column(_)) && !computed.contains(e) {
                    computed.push(e.clone());
                }
            }
        }
        // Rows without columns cannot be told apart when they are kept: there is one at least.
        if width == 0 && computed.is_empty() {
            computed.push(lit(0));
        }
        let (fragment, positions) = self.with_columns(fragment, logical, computed.iter())?;
        let rows_schema = Arc::clone(&fragment.schema);
        let columns = qualified(logical, &rows_schema)?;
        let over_columns = |e: &Expr| -> Expr {
            match computed.iter().position(|computed| computed == e) {
                Some(position) => Expr::Column(Column::from(columns.qualified_field(positions[position]))),
                None => e.clone(),
            }
        };
        let keys: Vec<Expr> = keys(first).map(over_columns).collect();
        let (fragment, mut partition_by) = self.with_columns(fragment, &columns, keys.iter())?;
        let order_by = partition_by.split_off(first.params.partition_by.len());
        let order_by = sort_columns(order_by, &first.params.order_by);

        let mut planned: Vec<Arc<dyn WindowExpr>> = vec![];
        for function in &functions {
            let mut over = (*function).clone();
            let params = &mut over.params;
            for e in params.args.iter_mut().chain(params.filter.as_deref_mut()) {
                if !matches!(e, Expr::Literal(..)) {
                    *e = over_columns(e);
                }
            }
            let order = params.order_by.iter_mut().map(|sort| &mut sort.expr);
            for e in params.partition_by.iter_mut().chain(order) {
                *e = over_columns(e);
            }
            let e = Expr::WindowFunction(Box::new(over));
            let e = create_window_expr(&e, &columns, &self.properties, &self.context)?;
            check(function, &e, &rows_schema)?;
            planned.push(e);
        }
        let schema = arrow_schema(&window.schema);
        let fields = rows_schema.fields().iter().chain(&schema.fields()[width..]);
        let output_schema: SchemaRef = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        let (output, placement) = if partition_by.is_empty() {
            (Output::Single, Placement::Keyed)
        } else {
            (
                Output::Hash(partition_by.clone()),
                Placement::Hash(partition_by.clone()),
            )
        };
        let watermarks = watermarks(&fragment.watermarks, &partition_by, &order_by, &planned);
        let closes = Closing::by_first(
            watermarks
                .iter()
                .filter(|known| partition_by.contains(&known.column)),
            &rows_schema,
        );
        let exchanged = self.stages.exchange(fragment, output);
        let operator = Operator::Recompute(Box::new(Recompute {
            input: exchanged,
            partition_by,
            order_by,
            functions: planned,
            input_append_only,
            closes,
            schema: Arc::clone(&output_schema),
        }));
        let fragment = Fragment {
            parts: vec![Part { operator, placement }],
            append_only: false,
            key,
            watermarks,
            schema: Arc::clone(&output_schema),
        };
        if rows_schema.fields().len() == width {
            return Ok(Fragment { schema, ..fragment });
        }
        let kept = (0..width).chain(rows_schema.fields().len()..output_schema.fields().len());
        Ok(fragment.project(kept.map(|index| column(&output_schema, index)).collect(), schema))
    }
}

/// Functions of which a row's value depends on rows behind it, whatever the frame.
const LOOKING_AHEAD: [&str; 4] = ["lead", "ntile", "percent_rank", "cume_dist"];

/// The watermarks behind the functions. A row that comes changes those of its partition; and of them only those at its
/// place or behind it, if no function looks ahead: of an order by time, those that are not earlier.
fn watermarks(
    input: &[ColumnWatermark],
    partition_by: &[usize],
    order_by: &[(usize, SortOptions)],
    functions: &[Arc<dyn WindowExpr>],
) -> Vec<ColumnWatermark> {
    let looks_back = functions.iter().all(|function| {
        let ends_here = match &function.get_window_frame().end_bound {
            WindowFrameBound::CurrentRow => true,
            WindowFrameBound::Preceding(distance) => !distance.is_null(),
            WindowFrameBound::Following(_) => false,
        };
        let name = function
            .name()
            .split('(')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        ends_here && !LOOKING_AHEAD.contains(&name.as_str())
    });
    let by_time = match order_by.first() {
        Some((column, options)) if looks_back && !options.descending => Some(*column),
        _ => None,
    };
    let holds =
        |known: &&ColumnWatermark| partition_by.contains(&known.column) || by_time == Some(known.column);
    input.iter().filter(holds).cloned().collect()
}

/// What a function reads of a row. A literal stays one: it may be an offset or a number of buckets.
fn arguments(function: &WindowFunction) -> impl Iterator<Item = &Expr> {
    function
        .params
        .args
        .iter()
        .chain(function.params.filter.as_deref())
}

/// What tells its partitions apart, then what orders their rows.
fn keys(function: &WindowFunction) -> impl Iterator<Item = &Expr> {
    let params = &function.params;
    let order = params.order_by.iter().map(|sort| &sort.expr);
    params.partition_by.iter().chain(order)
}

/// The columns of `logical`, and what was computed beside them, named by their positions.
fn qualified(logical: &DFSchema, rows: &SchemaRef) -> Result<DFSchema> {
    let width = logical.fields().len();
    let known = logical
        .iter()
        .map(|(relation, field)| (relation.cloned(), Arc::clone(field)));
    let computed = rows
        .fields()
        .iter()
        .enumerate()
        .skip(width)
        .map(|(index, field)| {
            let field = Field::clone(field).with_name(index.to_string());
            (Some(TableReference::bare(COMPUTED)), Arc::new(field))
        });
    Ok(DFSchema::new_with_metadata(
        known.chain(computed).collect(),
        HashMap::new(),
    )?)
}

/// Refuses a function that is not there for its frame: it says so when it is asked for anything.
fn check(function: &WindowFunction, planned: &Arc<dyn WindowExpr>, rows: &SchemaRef) -> Result<()> {
    let fields = rows.fields().iter();
    let nullable: Vec<_> = fields
        .map(|field| Arc::new(Field::clone(field).with_nullable(true)))
        .collect();
    let nulls = nullable.iter().map(|field| new_null_array(field.data_type(), 1));
    let columns = nulls.collect();
    let row =
        RecordBatch::try_new(Arc::new(Schema::new(nullable)), columns).map_err(DataFusionError::from)?;
    match planned.evaluate(&row) {
        Err(error) if matches!(error.find_root(), DataFusionError::NotImplemented(_)) => {
            Err(PlanError::not_incremental(
                format!(
                    "{} OVER a frame that may start after the first row of the partition",
                    function.fun.name()
                ),
                "start the frame with UNBOUNDED PRECEDING, or omit it",
            ))
        }
        _ => Ok(()),
    }
}

fn window_function(expression: &Expr) -> Result<&WindowFunction> {
    match expression {
        Expr::Alias(alias) => window_function(&alias.expr),
        Expr::WindowFunction(function) => Ok(function),
        other => Err(PlanError::Internal(format!("not a window function: {other}"))),
    }
}
