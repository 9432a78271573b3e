//! The incremental operators: change batches in, change batches out.
//!
//! [`OperatorInstance`] is a stage's operator tree on one partition, with its keyed state. A task runs it once an epoch.
//! Operators do no I/O and start nothing. Between chunks of work they pass a suspension point ([`Gate::checkpoint`]).

mod aggregate;
mod asof;
pub(crate) mod batches;
mod closing;
mod combiner;
mod consolidate;
mod emit;
mod expression;
mod gate;
mod generic_join;
mod group_keys;
mod groups;
pub(crate) mod image;
mod inputs;
mod join;
mod lookup;
mod multiset;
mod output;
mod partial_aggregate;
mod recompute;
mod recursion;
mod session;
mod sliding;
mod temporal;
mod top_n;
pub(crate) mod unnest;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::NullHandling;
use datafusion::physical_expr::PhysicalExpr;
use futures::future::{BoxFuture, FutureExt};
use millrace_planner::stage::{Operator, UnnestColumn};
use millrace_planner::watermark::Watermarks;
use millrace_storage::ChangeBatch;

use crate::error::Result;
use crate::schedule::message::EpochTime;
use crate::state::row_table::arrow_error;
pub(crate) use consolidate::consolidate;
pub use expression::ErrorCounter;
pub use image::OperatorImage;
pub use output::Output;

use aggregate::{AggregateInstance, Merging};
use asof::AsofJoinInstance;
pub use batches::CHUNK_ROWS;
pub(crate) use batches::concat;
use batches::{batch_of, filter_changes};
pub use combiner::{Combiner, CombinerCounts};
use emit::EmitInstance;
use expression::{Failed, evaluate_noting, evaluate_predicate};
pub use gate::Gate;
pub(crate) use generic_join::{Found, GenericJoinInstance};
pub use inputs::Inputs;
use join::{JoinInstance, Joining};
use lookup::LookupJoinInstance;
use output::{Through, push_all};
use partial_aggregate::{Combining, PartialAggregate};
use recompute::RecomputeInstance;
use recursion::RecursionInstance;
use session::SessionInstance;
use sliding::SlidingInstance;
use temporal::TemporalInstance;
use top_n::TopNInstance;
use unnest::{Listing, Unnesting};

/// An operator tree with its state.
pub enum OperatorInstance {
    Source {
        projection: Vec<usize>,
    },
    Values {
        rows: Vec<Vec<Arc<dyn PhysicalExpr>>>,
        schema: SchemaRef,
    },
    Exchange {
        stages: Vec<usize>,
    },
    Filter {
        input: Box<OperatorInstance>,
        predicate: Arc<dyn PhysicalExpr>,
    },
    Project {
        input: Box<OperatorInstance>,
        expressions: Vec<Arc<dyn PhysicalExpr>>,
        schema: SchemaRef,
    },
    PartialAggregate {
        input: Box<OperatorInstance>,
        aggregate: PartialAggregate,
    },
    Aggregate {
        input: Box<OperatorInstance>,
        aggregate: Box<AggregateInstance>,
    },
    Join {
        left: Box<OperatorInstance>,
        right: Box<OperatorInstance>,
        join: Box<JoinInstance>,
    },
    GenericJoin {
        inputs: Vec<OperatorInstance>,
        join: Box<GenericJoinInstance>,
    },
    Expand {
        input: Box<OperatorInstance>,
        projections: Vec<Vec<Arc<dyn PhysicalExpr>>>,
        schema: SchemaRef,
    },
    Unnest {
        input: Box<OperatorInstance>,
        columns: Vec<UnnestColumn>,
        null_handling: NullHandling,
        schema: SchemaRef,
    },
    TopN {
        input: Box<OperatorInstance>,
        top: Box<TopNInstance>,
    },
    Recompute {
        input: Box<OperatorInstance>,
        recompute: Box<RecomputeInstance>,
    },
    Recursion {
        base: Box<OperatorInstance>,
        body: Box<OperatorInstance>,
        recursion: Box<RecursionInstance>,
    },
    WorkingTable,
    TemporalFilter {
        input: Box<OperatorInstance>,
        filter: Box<TemporalInstance>,
    },
    LookupJoin {
        left: Box<OperatorInstance>,
        right: Box<OperatorInstance>,
        join: Box<LookupJoinInstance>,
    },
    AsofJoin {
        left: Box<OperatorInstance>,
        right: Box<OperatorInstance>,
        join: Box<AsofJoinInstance>,
    },
    Sliding {
        input: Box<OperatorInstance>,
        sliding: Box<SlidingInstance>,
    },
    Session {
        input: Box<OperatorInstance>,
        session: Box<SessionInstance>,
    },
    Emit {
        input: Box<OperatorInstance>,
        emit: Box<EmitInstance>,
    },
}

impl OperatorInstance {
    /// The instance of a plan's operator on a partition, with empty state.
    ///
    /// # Errors
    /// The plan asks for what DataFusion cannot build: an accumulator or a row format.
    pub fn new(plan: &Operator, partition: usize) -> Result<OperatorInstance> {
        let boxed = |plan: &Operator| OperatorInstance::new(plan, partition).map(Box::new);
        Ok(match plan {
            Operator::Source { projection, .. } => OperatorInstance::Source {
                projection: projection.clone(),
            },
            Operator::Values { rows, schema } => OperatorInstance::Values {
                rows: rows.clone(),
                schema: Arc::clone(schema),
            },
            Operator::Exchange { stages, .. } => OperatorInstance::Exchange {
                stages: stages.clone(),
            },
            Operator::Filter { input, predicate, .. } => OperatorInstance::Filter {
                input: boxed(input)?,
                predicate: Arc::clone(predicate),
            },
            Operator::Project {
                input,
                expressions,
                schema,
            } => OperatorInstance::Project {
                input: boxed(input)?,
                expressions: expressions.clone(),
                schema: Arc::clone(schema),
            },
            Operator::PartialAggregate(aggregation) => OperatorInstance::PartialAggregate {
                input: boxed(&aggregation.input)?,
                aggregate: PartialAggregate::new(aggregation),
            },
            Operator::Aggregate(aggregation) => OperatorInstance::Aggregate {
                input: boxed(&aggregation.input)?,
                aggregate: Box::new(AggregateInstance::new(aggregation, partition)),
            },
            Operator::Join(join) => OperatorInstance::Join {
                left: boxed(&join.left)?,
                right: boxed(&join.right)?,
                join: Box::new(JoinInstance::new(join)?),
            },
            Operator::GenericJoin(join) => OperatorInstance::GenericJoin {
                inputs: (join.inputs.iter())
                    .map(|input| OperatorInstance::new(input, partition))
                    .collect::<Result<_>>()?,
                join: Box::new(GenericJoinInstance::new(&join.shape)?),
            },
            Operator::Expand {
                input,
                projections,
                schema,
            } => OperatorInstance::Expand {
                input: boxed(input)?,
                projections: projections.clone(),
                schema: Arc::clone(schema),
            },
            Operator::Unnest {
                input,
                columns,
                null_handling,
                schema,
            } => OperatorInstance::Unnest {
                input: boxed(input)?,
                columns: columns.clone(),
                null_handling: *null_handling,
                schema: Arc::clone(schema),
            },
            Operator::TopN(top) => OperatorInstance::TopN {
                input: boxed(&top.input)?,
                top: Box::new(TopNInstance::new(top)?),
            },
            Operator::Recompute(recompute) => OperatorInstance::Recompute {
                input: boxed(&recompute.input)?,
                recompute: Box::new(RecomputeInstance::new(recompute)?),
            },
            Operator::Recursion(recursion) => OperatorInstance::Recursion {
                base: boxed(&recursion.base)?,
                body: boxed(&recursion.body)?,
                recursion: Box::new(RecursionInstance::new(recursion)?),
            },
            Operator::WorkingTable { .. } => OperatorInstance::WorkingTable,
            Operator::TemporalFilter(filter) => OperatorInstance::TemporalFilter {
                input: boxed(&filter.input)?,
                filter: Box::new(TemporalInstance::new(filter)?),
            },
            Operator::LookupJoin(join) => OperatorInstance::LookupJoin {
                left: boxed(&join.left)?,
                right: boxed(&join.right)?,
                join: Box::new(LookupJoinInstance::new(join)?),
            },
            Operator::AsofJoin(join) => OperatorInstance::AsofJoin {
                left: boxed(&join.left)?,
                right: boxed(&join.right)?,
                join: Box::new(AsofJoinInstance::new(join)?),
            },
            Operator::Sliding(sliding) => OperatorInstance::Sliding {
                input: boxed(&sliding.aggregation.input)?,
                sliding: Box::new(SlidingInstance::new(sliding)?),
            },
            Operator::Session(session) => OperatorInstance::Session {
                input: boxed(&session.input)?,
                session: Box::new(SessionInstance::new(session)?),
            },
            Operator::EmitOnClose(emit) => OperatorInstance::Emit {
                input: boxed(&emit.input)?,
                emit: Box::new(EmitInstance::on_close(emit)?),
            },
            Operator::EmitEvery(emit) => OperatorInstance::Emit {
                input: boxed(&emit.input)?,
                emit: Box::new(EmitInstance::every(emit)?),
            },
        })
    }

    /// Applies an epoch's input, or a part of it, to the state and pushes what changes in the output. Where
    /// [`OperatorInstance::is_lazy`], there is never more of it than a step's worth in memory.
    pub fn run<'a>(
        &'a mut self,
        inputs: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let is_last = !inputs.has_more;
            let changes = match self {
                OperatorInstance::Source { projection } => {
                    for batch in inputs.source.drain(..) {
                        output.push(batch.project(projection)?).await?;
                    }
                    return Ok(());
                }
                OperatorInstance::Values { rows, schema } if inputs.first => {
                    return output.push(fixed_rows(rows, schema)?).await;
                }
                OperatorInstance::Values { .. } => return Ok(()),
                OperatorInstance::Exchange { stages } => {
                    for stage in stages.iter() {
                        let batches = inputs.exchanges.remove(stage).unwrap_or_default();
                        push_all(output, batches).await?;
                    }
                    return Ok(());
                }
                OperatorInstance::Filter { input, predicate } => {
                    let mut through = Through {
                        apply: |chunk: &ChangeBatch, made: &mut Vec<ChangeBatch>| {
                            made.push(filter(chunk, predicate, errors)?);
                            Ok(())
                        },
                        gate,
                        output,
                    };
                    return input.run(inputs, gate, errors, &mut through).await;
                }
                OperatorInstance::Project {
                    input,
                    expressions,
                    schema,
                } => {
                    let mut through = Through {
                        apply: |chunk: &ChangeBatch, made: &mut Vec<ChangeBatch>| {
                            made.push(project(chunk, expressions, schema, errors)?);
                            Ok(())
                        },
                        gate,
                        output,
                    };
                    return input.run(inputs, gate, errors, &mut through).await;
                }
                OperatorInstance::Expand {
                    input,
                    projections,
                    schema,
                } => {
                    let mut through = Through {
                        apply: |chunk: &ChangeBatch, made: &mut Vec<ChangeBatch>| {
                            for expressions in projections.iter() {
                                made.push(project(chunk, expressions, schema, errors)?);
                            }
                            Ok(())
                        },
                        gate,
                        output,
                    };
                    return input.run(inputs, gate, errors, &mut through).await;
                }
                OperatorInstance::Unnest {
                    input,
                    columns,
                    null_handling,
                    schema,
                } => {
                    let mut unnesting = Unnesting {
                        columns,
                        null_handling: *null_handling,
                        schema,
                        gate,
                        output,
                    };
                    let is_element = |column: &UnnestColumn| matches!(column, UnnestColumn::Elements(_));
                    if let OperatorInstance::Project {
                        input,
                        expressions,
                        schema,
                    } = &mut **input
                        && columns.iter().any(is_element)
                    {
                        let project = |rows: &ChangeBatch| project(rows, expressions, schema, errors);
                        let mut listing = Listing::new(project, gate, &mut unnesting);
                        return input.run(inputs, gate, errors, &mut listing).await;
                    }
                    return input.run(inputs, gate, errors, &mut unnesting).await;
                }
                OperatorInstance::PartialAggregate { input, aggregate } => {
                    let combiner = Arc::clone(&inputs.combiner);
                    let mut combining =
                        Combining::new(aggregate, &combiner, input.multiplies(), gate, output);
                    input.run(inputs, gate, errors, &mut combining).await?;
                    return combining.end().await;
                }
                OperatorInstance::Aggregate { input, aggregate } => {
                    let is_bulk = inputs.is_bulk;
                    let batches = if input.is_lazy() {
                        let mut merging = Merging::new(aggregate, is_bulk, gate, errors, output);
                        input.run(inputs, gate, errors, &mut merging).await?;
                        vec![]
                    } else {
                        input.collect(inputs, gate, errors).await?
                    };
                    let changes = aggregate.run(batches, is_bulk, is_last, gate, errors).await?;
                    push_all(output, changes).await?;
                    if is_last {
                        push_all(output, aggregate.tell_time(inputs.now, is_bulk, errors)?).await?;
                        aggregate.forget(is_bulk, &inputs.watermarks)?;
                    }
                    return Ok(());
                }
                OperatorInstance::Join { left, right, join } => {
                    join.begin(inputs.is_bulk, gate, errors, output).await?;
                    for (side, input) in [(join::LEFT, left), (join::RIGHT, right)] {
                        if input.is_lazy() {
                            let mut joining = Joining::new(join, side, gate, errors, output);
                            input.run(inputs, gate, errors, &mut joining).await?;
                        } else {
                            let batches = input.collect(inputs, gate, errors).await?;
                            join.run(side, batches, gate, errors, output).await?;
                        }
                    }
                    if is_last {
                        join.forget(inputs.is_bulk, &inputs.watermarks)?;
                    }
                    return Ok(());
                }
                OperatorInstance::GenericJoin { inputs: sides, join } => {
                    for (relation, input) in sides.iter_mut().enumerate() {
                        let batches = input.collect(inputs, gate, errors).await?;
                        join.run(relation, batches, gate, output).await?;
                    }
                    return Ok(());
                }
                OperatorInstance::TopN { input, top } => {
                    let batches = input.collect(inputs, gate, errors).await?;
                    let changes = top.run(batches, gate).await?;
                    if is_last {
                        top.forget(&inputs.watermarks)?;
                    }
                    changes
                }
                OperatorInstance::Recompute { input, recompute } => {
                    let batches = input.collect(inputs, gate, errors).await?;
                    let changes = recompute.run(batches, gate, errors).await?;
                    recompute.forget(&inputs.watermarks)?;
                    changes
                }
                OperatorInstance::Recursion {
                    base,
                    body,
                    recursion,
                } => {
                    let batches = base.collect(inputs, gate, errors).await?;
                    // What the body puts out decides what it is given next.
                    let is_bulk = std::mem::take(&mut inputs.is_bulk);
                    let done = recursion.run(batches, body, inputs, gate, errors, output).await;
                    inputs.is_bulk = is_bulk;
                    return done;
                }
                OperatorInstance::WorkingTable => std::mem::take(&mut inputs.working_table),
                OperatorInstance::TemporalFilter { input, filter } => {
                    let batches = input.collect(inputs, gate, errors).await?;
                    filter.run(batches, inputs.now, gate, errors).await?
                }
                OperatorInstance::LookupJoin { left, right, join } => {
                    let left = left.collect(inputs, gate, errors).await?;
                    let right = right.collect(inputs, gate, errors).await?;
                    join.run(left, right, inputs.is_filling, gate, errors).await?
                }
                OperatorInstance::AsofJoin { left, right, join } => {
                    let left = left.collect(inputs, gate, errors).await?;
                    let right = right.collect(inputs, gate, errors).await?;
                    join.run(left, right, gate).await?
                }
                OperatorInstance::Sliding { input, sliding } => {
                    let batches = input.collect(inputs, gate, errors).await?;
                    let (is_bulk, watermarks) = (inputs.is_bulk, &inputs.watermarks);
                    sliding.run(batches, is_bulk, watermarks, gate, errors).await?
                }
                OperatorInstance::Session { input, session } => {
                    let batches = input.collect(inputs, gate, errors).await?;
                    let changes = session.run(batches, gate).await?;
                    if !inputs.is_bulk {
                        session.forget(&inputs.watermarks)?;
                    }
                    changes
                }
                OperatorInstance::Emit { input, emit } => {
                    let batches = input.collect(inputs, gate, errors).await?;
                    emit.run(batches, inputs, gate, errors).await?
                }
            };
            push_all(output, changes).await
        }
        .boxed()
    }

    /// As [`OperatorInstance::run`], with all that it puts out.
    pub(crate) async fn collect(
        &mut self,
        inputs: &mut Inputs,
        gate: &dyn Gate,
        errors: &ErrorCounter,
    ) -> Result<Vec<ChangeBatch>> {
        let mut batches = vec![];
        self.run(inputs, gate, errors, &mut batches).await?;
        Ok(batches)
    }

    /// Whether its rows come out while they are made, batch by batch, and no row is taken back before it came: whoever is
    /// behind it may work each batch off by itself.
    fn is_lazy(&self) -> bool {
        match self {
            OperatorInstance::Join { .. }
            | OperatorInstance::GenericJoin { .. }
            | OperatorInstance::Recursion { .. } => true,
            OperatorInstance::Filter { input, .. }
            | OperatorInstance::Project { input, .. }
            | OperatorInstance::Expand { input, .. }
            | OperatorInstance::Unnest { input, .. } => input.is_lazy(),
            _ => false,
        }
    }

    /// Whether there may be far more rows than come in, made while they are asked for. Of what is not lazy, a row may be taken
    /// back before it came: only what is linear may work it off in parts.
    fn multiplies(&self) -> bool {
        match self {
            OperatorInstance::Unnest { .. } => true,
            OperatorInstance::Filter { input, .. }
            | OperatorInstance::Project { input, .. }
            | OperatorInstance::Expand { input, .. } => input.multiplies(),
            _ => self.is_lazy(),
        }
    }

    /// Whether an epoch without input leaves the output as it is, time apart (see [`OperatorInstance::due`]). Not so for the
    /// first epoch of an aggregate without groups, which has a row even over nothing, and for the first after the view was
    /// filled (`is_bulk` until then), in which what was put off is put out.
    pub fn idle_without_input(&self, is_bulk: bool) -> bool {
        let is_idle = match self {
            OperatorInstance::Aggregate { aggregate, .. } => is_bulk || aggregate.idle_without_input(),
            OperatorInstance::Join { join, .. } => is_bulk || join.idle_without_input(),
            OperatorInstance::LookupJoin { join, .. } => join.idle_without_input(),
            OperatorInstance::Emit { emit, .. } => is_bulk || emit.idle_without_input(),
            OperatorInstance::Sliding { sliding, .. } => is_bulk || sliding.idle_without_input(),
            _ => true,
        };
        is_idle
            && self
                .inputs()
                .into_iter()
                .all(|input| input.idle_without_input(is_bulk))
    }

    /// When the output next changes without input, in microseconds since 1970-01-01 00:00 UTC.
    pub fn due(&self) -> Option<i64> {
        let own = match self {
            OperatorInstance::TemporalFilter { filter, .. } => filter.due(),
            OperatorInstance::Aggregate { aggregate, .. } => aggregate.due(),
            OperatorInstance::Emit { emit, .. } => emit.due(),
            _ => None,
        };
        let below = self.inputs().into_iter().filter_map(OperatorInstance::due);
        below.chain(own).min()
    }

    /// Whether the output changes at this time, without input.
    pub fn is_due(&self, time: &EpochTime) -> bool {
        self.due().is_some_and(|due| due <= time.now) || self.is_closed(&time.watermarks)
    }

    fn is_closed(&self, watermarks: &Watermarks) -> bool {
        let own = match self {
            OperatorInstance::Emit { emit, .. } => emit.is_closed(watermarks),
            OperatorInstance::Sliding { sliding, .. } => sliding.is_closed(watermarks),
            _ => false,
        };
        own || self.inputs().into_iter().any(|input| input.is_closed(watermarks))
    }

    fn inputs(&self) -> Vec<&OperatorInstance> {
        match self {
            OperatorInstance::Source { .. }
            | OperatorInstance::Values { .. }
            | OperatorInstance::Exchange { .. }
            | OperatorInstance::WorkingTable => vec![],
            OperatorInstance::Filter { input, .. }
            | OperatorInstance::Project { input, .. }
            | OperatorInstance::PartialAggregate { input, .. }
            | OperatorInstance::Aggregate { input, .. }
            | OperatorInstance::Expand { input, .. }
            | OperatorInstance::Unnest { input, .. }
            | OperatorInstance::TopN { input, .. }
            | OperatorInstance::Recompute { input, .. }
            | OperatorInstance::TemporalFilter { input, .. }
            | OperatorInstance::Sliding { input, .. }
            | OperatorInstance::Session { input, .. }
            | OperatorInstance::Emit { input, .. } => vec![input],
            OperatorInstance::Join { left, right, .. }
            | OperatorInstance::LookupJoin { left, right, .. }
            | OperatorInstance::AsofJoin { left, right, .. } => vec![left, right],
            OperatorInstance::GenericJoin { inputs, .. } => inputs.iter().collect(),
            OperatorInstance::Recursion { base, body, .. } => vec![base, body],
        }
    }

    /// Bytes of keyed state.
    pub fn state_bytes(&self) -> usize {
        let own = match self {
            OperatorInstance::Aggregate { aggregate, .. } => aggregate.state_bytes(),
            OperatorInstance::TopN { top, .. } => top.state_bytes(),
            OperatorInstance::Recompute { recompute, .. } => recompute.state_bytes(),
            OperatorInstance::TemporalFilter { filter, .. } => filter.state_bytes(),
            OperatorInstance::Sliding { sliding, .. } => sliding.state_bytes(),
            OperatorInstance::Session { session, .. } => session.state_bytes(),
            OperatorInstance::Emit { emit, .. } => emit.state_bytes(),
            OperatorInstance::Join { join, .. } => join.state_bytes(),
            OperatorInstance::GenericJoin { join, .. } => join.state_bytes(),
            OperatorInstance::LookupJoin { join, .. } => join.state_bytes(),
            OperatorInstance::AsofJoin { join, .. } => join.state_bytes(),
            OperatorInstance::Recursion { recursion, .. } => recursion.state_bytes(),
            _ => 0,
        };
        let below = self.inputs().into_iter().map(OperatorInstance::state_bytes);
        own + below.sum::<usize>()
    }
}

fn filter(
    batch: &ChangeBatch,
    predicate: &Arc<dyn PhysicalExpr>,
    errors: &ErrorCounter,
) -> Result<ChangeBatch> {
    let mask = evaluate_predicate(predicate, &batch.rows, errors)?;
    filter_changes(batch, &mask)
}

fn project(
    batch: &ChangeBatch,
    expressions: &[Arc<dyn PhysicalExpr>],
    schema: &SchemaRef,
    errors: &ErrorCounter,
) -> Result<ChangeBatch> {
    let mut failed = Failed::default();
    let columns = expressions
        .iter()
        .zip(schema.fields())
        .map(|(expression, field)| {
            evaluate_noting(expression, &batch.rows, field.data_type(), errors, &mut failed)
        })
        .collect::<Result<Vec<ArrayRef>>>()?;
    let projected = ChangeBatch {
        rows: batch_of(schema, columns, batch.num_rows())?,
        weights: batch.weights.clone(),
    };
    match failed.kept(batch.num_rows(), errors) {
        Some(kept) => filter_changes(&projected, &kept),
        None => Ok(projected),
    }
}

fn fixed_rows(rows: &[Vec<Arc<dyn PhysicalExpr>>], schema: &SchemaRef) -> Result<ChangeBatch> {
    let one_row = RecordBatch::try_new_with_options(
        Arc::new(arrow::datatypes::Schema::empty()),
        vec![],
        &RecordBatchOptions::new().with_row_count(Some(1)),
    )
    .map_err(arrow_error)?;
    let mut columns = vec![];
    for (position, field) in schema.fields().iter().enumerate() {
        let values = rows
            .iter()
            .map(|row| {
                let value = row[position].evaluate(&one_row)?.into_array(1)?;
                arrow::compute::cast(&value, field.data_type()).map_err(arrow_error)
            })
            .collect::<Result<Vec<ArrayRef>>>()?;
        let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
        columns.push(if values.is_empty() {
            arrow::array::new_empty_array(field.data_type())
        } else {
            arrow::compute::concat(&values).map_err(arrow_error)?
        });
    }
    Ok(ChangeBatch::insertions(batch_of(schema, columns, rows.len())?))
}
