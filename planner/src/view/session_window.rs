//! Sessions in views.
//!
//! `SESSION(..)` in FROM is rewritten to OVER windows ([`millrace_sql::streaming::windows`]), which answer a SELECT. A view keeps them by an
//! operator of its own, at a cost that follows the session and not the history of its key: here the rewritten form is found
//! again in the bound plan.
//!
//! ```text
//!  Projection *, $session_start(min(t) OVER (keys, $session)), $session_end(max(t) OVER (keys, $session), gap)
//!    Window .. Projection .. Window .. Projection ..
//!      Window lag(t) OVER (PARTITION BY keys ORDER BY t)               ==>   SessionWindow keys, t, gap
//!        input                                                                 input
//! ```

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DFSchemaRef, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use millrace_sql::streaming::windows::functions::{END, START};

/// See the module: the rows of the input, each with the first and the last moment of its session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SessionWindow {
    pub input: Arc<LogicalPlan>,
    pub keys: Vec<Expr>,
    pub time: Expr,
    /// In microseconds.
    pub gap: i64,
    pub schema: DFSchemaRef,
}

impl PartialOrd for SessionWindow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.gap.partial_cmp(&other.gap)
    }
}

impl SessionWindow {
    /// The node of an extension, if it is one.
    pub fn of(extension: &Extension) -> Option<&SessionWindow> {
        extension.node.as_any().downcast_ref()
    }

    /// The same over another input. The two columns stay what they are.
    fn over(&self, input: LogicalPlan, keys: Vec<Expr>, time: Expr) -> Result<SessionWindow> {
        let told = self.schema.fields().len() - 2;
        let fields = input.schema().iter().chain(self.schema.iter().skip(told));
        let fields = fields.map(|(relation, field)| (relation.cloned(), Arc::clone(field)));
        let schema = DFSchema::new_with_metadata(fields.collect(), self.schema.metadata().clone())?;
        Ok(SessionWindow {
            input: Arc::new(input),
            keys,
            time,
            gap: self.gap,
            schema: Arc::new(schema),
        })
    }
}

impl UserDefinedLogicalNodeCore for SessionWindow {
    fn name(&self) -> &str {
        "SessionWindow"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.keys.iter().chain([&self.time]).cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        write!(
            f,
            "SessionWindow: by [{}], {}, gap {} us",
            keys.join(", "),
            self.time,
            self.gap
        )
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let input = self.input.schema();
        let width = input.fields().len();
        let mut needed: BTreeSet<usize> = output_columns
            .iter()
            .copied()
            .filter(|column| *column < width)
            .collect();
        for column in self.expressions().iter().flat_map(Expr::column_refs) {
            needed.extend(input.maybe_index_of_column(column));
        }
        Some(vec![needed.into_iter().collect()])
    }

    fn with_exprs_and_inputs(&self, expressions: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let [input] = <[LogicalPlan; 1]>::try_from(inputs)
            .map_err(|_| DataFusionError::Internal("sessions have one input".into()))?;
        // The optimizer gives what it rewrites the name that it had.
        let mut keys: Vec<Expr> = expressions.into_iter().map(Expr::unalias).collect();
        let time = keys
            .pop()
            .ok_or_else(|| DataFusionError::Internal("sessions without a time".into()))?;
        self.over(input, keys, time)
    }
}

/// The plan with sessions as nodes of their own.
///
/// # Errors
/// A plan cannot be put together again.
pub(crate) fn recognise(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        Ok(match session(&node)? {
            Some(session) => Transformed::yes(LogicalPlan::Extension(Extension {
                node: Arc::new(session),
            })),
            None => Transformed::no(node),
        })
    })
    .map(|transformed| transformed.data)
}

/// The session of a projection that ends with the two columns.
fn session(plan: &LogicalPlan) -> Result<Option<SessionWindow>> {
    let LogicalPlan::Projection(projection) = plan else {
        return Ok(None);
    };
    let [.., start, end] = projection.expr.as_slice() else {
        return Ok(None);
    };
    let (Some(_), Some(gap)) = (marked(start, START), marked(end, END)) else {
        return Ok(None);
    };
    let Some((input, lag)) = first_window(&projection.input) else {
        return Err(DataFusionError::Internal("sessions without their windows".into()));
    };
    let Some(time) = lag.params.order_by.first() else {
        return Err(DataFusionError::Internal("sessions without an order".into()));
    };
    if input.schema().fields().len() + 2 != projection.schema.fields().len() {
        return Err(DataFusionError::Internal(
            "sessions of other columns than their input's".into(),
        ));
    }
    Ok(Some(SessionWindow {
        input: Arc::clone(input),
        keys: lag.params.partition_by.clone(),
        time: time.expr.clone(),
        gap,
        schema: Arc::clone(&projection.schema),
    }))
}

/// The length that a marking function was given.
fn marked(expression: &Expr, name: &str) -> Option<i64> {
    match expression {
        Expr::Alias(alias) => marked(&alias.expr, name),
        Expr::ScalarFunction(call) if call.func.name() == name => match call.args.get(1) {
            Some(Expr::Literal(ScalarValue::Int64(Some(length)), _)) => Some(*length),
            Some(Expr::Literal(ScalarValue::Int32(Some(length)), _)) => Some(i64::from(*length)),
            _ => None,
        },
        _ => None,
    }
}

/// The lowest window of a chain, and what it reads.
fn first_window(plan: &LogicalPlan) -> Option<(&Arc<LogicalPlan>, &WindowFunction)> {
    match plan {
        LogicalPlan::Projection(projection) => first_window(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => first_window(&alias.input),
        LogicalPlan::Window(window) => first_window(&window.input).or_else(|| {
            let function = match window.window_expr.first()? {
                Expr::WindowFunction(function) => function,
                Expr::Alias(alias) => match alias.expr.as_ref() {
                    Expr::WindowFunction(function) => function,
                    _ => return None,
                },
                _ => return None,
            };
            (function.fun.name() == "lag").then_some((&window.input, function.as_ref()))
        }),
        _ => None,
    }
}
