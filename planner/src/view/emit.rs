//! When a view shows its rows: EMIT ON WINDOW CLOSE and EMIT EVERY hold them back above the query.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;

use super::Emit;
use super::clock::reads_clock;
use super::fragment::{Fragment, Part, Placement};
use super::lower::{Lowering, arrow_schema};
use super::ranking::over_window;
use crate::error::{PlanError, Result};
use crate::stage::Output;
use crate::stage::closing::Closing;
use crate::stage::emit::{EmitEvery, EmitOnClose};
use crate::stage::operator::Operator;

impl Lowering {
    /// The rows of a view's query, as they are shown.
    pub(super) fn emitted(&mut self, plan: &LogicalPlan) -> Result<Fragment> {
        match self.options.emit {
            Emit::Changes => self.node(plan),
            Emit::OnWindowClose { delay } => self.closed(plan, delay),
            Emit::Every(every) => {
                let fragment = self.node(plan)?;
                let fragment = self.gathered(fragment);
                let schema = Arc::clone(&fragment.schema);
                Ok(Fragment {
                    // What is shown late has old event times.
                    watermarks: vec![],
                    // Changes of one interval are emitted as one: what came and went is not seen.
                    ..over(fragment, |input| {
                        Operator::EmitEvery(Box::new(EmitEvery {
                            input,
                            every,
                            schema: Arc::clone(&schema),
                        }))
                    })
                })
            }
        }
    }

    /// The final rows of a plan. What only looks at each row by itself comes after rows have become final, so that the time
    /// by which they do need not be a column of the view.
    fn closed(&mut self, plan: &LogicalPlan, delay: i64) -> Result<Fragment> {
        match plan {
            LogicalPlan::Projection(projection) => {
                let fragment = self.closed(&projection.input, delay)?;
                return self.project(projection, fragment);
            }
            // A filter of a window's numbers may be a Top-N.
            LogicalPlan::Filter(filter)
                if !reads_clock(&filter.predicate) && over_window(&filter.input)?.is_none() =>
            {
                let fragment = self.closed(&filter.input, delay)?;
                return self.filtered(fragment, &filter.predicate, filter.input.schema());
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let fragment = self.closed(&alias.input, delay)?;
                return Ok(Fragment {
                    schema: arrow_schema(&alias.schema),
                    ..fragment
                });
            }
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => return self.closed(&sort.input, delay),
            _ => {}
        }
        let fragment = match plan {
            LogicalPlan::Aggregate(aggregate) => {
                let (fragment, is_closed) = self.aggregate_once(aggregate, Some(delay))?;
                if is_closed {
                    return Ok(fragment);
                }
                fragment
            }
            _ => self.node(plan)?,
        };
        let Some(closing) = Closing::by_first(&fragment.watermarks, &fragment.schema) else {
            return Err(PlanError::not_incremental(
                "EMIT ON WINDOW CLOSE of a query without a watermark",
                "its streams need WATERMARK FOR ts AS .., and its groups, partitions or join keys need a \
                 column that is derived from ts: window_start or window_end of TUMBLE, HOP or CUMULATE, or \
                 date_trunc('hour', ts)",
            ));
        };
        let closing = Closing {
            bound: closing.bound.delayed(delay),
            ..closing
        };
        let fragment = self.gathered(fragment);
        let schema = Arc::clone(&fragment.schema);
        let mut watermarks = fragment.watermarks.clone();
        for watermark in &mut watermarks {
            watermark.bound = watermark.bound.delayed(delay);
        }
        Ok(Fragment {
            append_only: true,
            watermarks,
            ..over(fragment, |input| {
                Operator::EmitOnClose(Box::new(EmitOnClose {
                    input,
                    closing: closing.clone(),
                    schema: Arc::clone(&schema),
                }))
            })
        })
    }

    /// The fragment behind an exchange, each row where its retraction comes too: rows are held in keyed state, and the tasks of
    /// a stage that reads relations as they arrive keep none.
    fn gathered(&mut self, fragment: Fragment) -> Fragment {
        let is_gathered = matches!(fragment.parts.as_slice(), [part] if part.placement != Placement::Arrival);
        if is_gathered {
            return fragment;
        }
        let columns = match &fragment.key {
            Some(key) if !key.is_empty() => key.clone(),
            _ => (0..fragment.schema.fields().len()).collect(),
        };
        let output = if columns.is_empty() {
            Output::Single
        } else {
            Output::Hash(columns)
        };
        self.exchange(fragment, output)
    }
}

/// Each part under an operator.
fn over(fragment: Fragment, operator: impl Fn(Operator) -> Operator) -> Fragment {
    let parts = fragment.parts.into_iter();
    let parts = parts.map(|part| Part {
        operator: operator(part.operator),
        placement: part.placement,
    });
    Fragment {
        parts: parts.collect(),
        ..fragment
    }
}
