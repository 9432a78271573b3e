//! Logical nodes to incremental operators.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, Projection, TableScan};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};

use super::ViewOptions;
use super::clock::{misplaced, reads_clock};
use super::faucet;
use super::fragment::{Fragment, Part, Placement, Stages, placement_after};
use super::series;
use super::session_window::SessionWindow;
use crate::error::{PlanError, Result};
use crate::relation::{RelationInfo, relation_of};
use crate::relation_id::RelationId;
use crate::stage::operator::Operator;
use crate::stage::source::Source;
use crate::stage::values::Values;
use crate::stage::{Output, StageGraph};
use crate::watermark::{self, ColumnWatermark};
use millrace_sql::in_turn::in_turn;
use millrace_sql::streaming::time_join::TimeJoin;

/// Lowers an optimised plan and closes its last stage.
pub(super) fn lower(state: &SessionState, plan: &LogicalPlan, options: ViewOptions) -> Result<StageGraph> {
    let mut lowering = Lowering {
        properties: state.execution_props().clone(),
        context: PhysicalPlanningContext::default(),
        options,
        working_table_append_only: false,
        stages: Stages::default(),
        inputs: BTreeMap::new(),
    };
    let fragment = lowering.emitted(plan)?;
    let fields = fragment.schema.fields().iter();
    let fields: Vec<Field> = fields
        .map(|field| field.as_ref().clone().with_nullable(true))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let (key, append_only) = (fragment.key.clone(), fragment.append_only);
    let watermarks = fragment.watermarks.clone();
    lowering.materialize(fragment);
    let mut stages = lowering.stages.stages;
    if options.flow.batches > 0 {
        faucet::place(&mut stages, &lowering.inputs);
    }
    Ok(StageGraph {
        stages,
        schema,
        key,
        append_only,
        watermarks,
        inputs: lowering.inputs.into_values().collect(),
        partitions: options.partitions,
        flow: options.flow,
        priority: options.priority,
        freshness_us: options.freshness_us,
        on_error: options.on_error,
        keeps_errors: options.keeps_errors,
    })
}

/// State of one lowering.
pub(super) struct Lowering {
    pub properties: ExecutionProps,
    pub context: PhysicalPlanningContext,
    pub options: ViewOptions,
    /// Inside a recursion's body: whether its working table only grows.
    pub working_table_append_only: bool,
    pub stages: Stages,
    inputs: BTreeMap<RelationId, RelationInfo>,
}

impl Lowering {
    pub fn node(&mut self, plan: &LogicalPlan) -> Result<Fragment> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::SubqueryAlias(alias) => {
                let fragment = self.node(&alias.input)?;
                Ok(Fragment {
                    schema: arrow_schema(&alias.schema),
                    ..fragment
                })
            }
            LogicalPlan::Filter(filter) => {
                if let Some(fragment) = self.ranked(filter, None)? {
                    return Ok(fragment);
                }
                let fragment = self.node(&filter.input)?;
                self.filtered(fragment, &filter.predicate, filter.input.schema())
            }
            LogicalPlan::Projection(projection) => {
                if let LogicalPlan::Filter(filter) = projection.input.as_ref()
                    && let Some(fragment) = self.ranked(filter, Some(projection))?
                {
                    return Ok(fragment);
                }
                let fragment = self.node(&projection.input)?;
                self.project(projection, fragment)
            }
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => self.distinct(input),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Extension(extension) => {
                match (TimeJoin::of(extension), SessionWindow::of(extension)) {
                    (Some(join), _) => self.time_join(join),
                    (_, Some(session)) => self.session(session),
                    _ => Err(refused(plan)),
                }
            }
            LogicalPlan::Union(union) => {
                let schema = arrow_schema(&union.schema);
                let mut parts = vec![];
                let mut append_only = true;
                let mut watermarks = vec![];
                for input in &union.inputs {
                    let fragment = self.node(input)?;
                    append_only &= fragment.append_only;
                    parts.extend(fragment.parts);
                    watermarks.push(fragment.watermarks);
                }
                Ok(Fragment {
                    parts,
                    append_only,
                    key: None,
                    watermarks: watermark::of_union(&watermarks),
                    schema,
                })
            }
            LogicalPlan::Values(values) => {
                let rows = values
                    .values
                    .iter()
                    .map(|row| {
                        row.iter()
                            .map(|e| self.expression(e, &DFSchema::empty()))
                            .collect()
                    })
                    .collect::<Result<Vec<_>>>()?;
                Ok(fixed_rows(rows, arrow_schema(&values.schema)))
            }
            LogicalPlan::EmptyRelation(empty) => {
                let rows = if empty.produce_one_row {
                    vec![vec![]]
                } else {
                    vec![]
                };
                Ok(fixed_rows(rows, arrow_schema(&empty.schema)))
            }
            // A view is a set of rows; an order without a limit says nothing of which.
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.node(&sort.input),
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Window(window) => self.window(window),
            LogicalPlan::Unnest(unnest) => self.unnest(unnest),
            LogicalPlan::RecursiveQuery(query) => self.recursion(query),
            LogicalPlan::Repartition(repartition) => self.node(&repartition.input),
            other => Err(refused(other)),
        }
    }

    /// The fragment with these expressions as columns: what is not one of its columns already is appended.
    pub fn with_columns<'a>(
        &self,
        fragment: Fragment,
        schema: &DFSchema,
        wanted: impl Iterator<Item = &'a Expr>,
    ) -> Result<(Fragment, Vec<usize>)> {
        let input: SchemaRef = Arc::clone(&fragment.schema);
        let mut expressions: Vec<_> = (0..input.fields().len())
            .map(|index| column(&input, index))
            .collect();
        let mut fields: Vec<_> = input.fields().iter().cloned().collect();
        let mut columns = vec![];
        for wanted in wanted {
            let expression = self.expression(wanted, schema)?;
            match expression.downcast_ref::<Column>() {
                Some(column) => columns.push(column.index()),
                None => {
                    let field = expression.return_field(schema.as_arrow())?;
                    columns.push(fields.len());
                    fields.push(Arc::new(
                        field.as_ref().clone().with_name(wanted.schema_name().to_string()),
                    ));
                    expressions.push(expression);
                }
            }
        }
        if fields.len() == input.fields().len() {
            return Ok((fragment, columns));
        }
        Ok((
            fragment.project(expressions, Arc::new(Schema::new(fields))),
            columns,
        ))
    }

    /// The rows of the projection's input, projected.
    pub fn project(&self, projection: &Projection, input: Fragment) -> Result<Fragment> {
        let expressions = projection
            .expr
            .iter()
            .map(|e| self.in_turn(e, projection.input.schema()))
            .collect::<Result<Vec<_>>>()?;
        Ok(input.project(expressions, arrow_schema(&projection.schema)))
    }

    /// A physical expression over the columns of `schema`.
    pub fn expression(&self, expression: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
        if reads_clock(expression) {
            return Err(misplaced());
        }
        Ok(create_physical_expr(
            expression,
            schema,
            &self.properties,
            &self.context,
        )?)
    }

    /// The same, where it is computed for each row: what AND and OR have decided is not computed any more. Of what joins compare the
    /// planner reads more than its value.
    pub fn in_turn(&self, expression: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
        let expression = self.expression(expression, schema)?;
        Ok(in_turn(expression, schema.as_arrow())?.data)
    }

    /// Exchanges a fragment; the result is one part.
    pub fn exchange(&mut self, fragment: Fragment, output: Output) -> Fragment {
        let (append_only, key, schema) = (
            fragment.append_only,
            fragment.key.clone(),
            Arc::clone(&fragment.schema),
        );
        let watermarks = fragment.watermarks.clone();
        let placement = placement_after(&output);
        let operator = self.stages.exchange(fragment, output);
        Fragment {
            parts: vec![Part { operator, placement }],
            append_only,
            key,
            watermarks,
            schema,
        }
    }

    fn scan(&mut self, scan: &TableScan) -> Result<Fragment> {
        if let Some(rows) = self.working_table(scan)? {
            return Ok(rows);
        }
        let Some(info) = relation_of(scan) else {
            if let Some(rows) = series::rows(scan)? {
                return Ok(fixed_rows(rows, arrow_schema(&scan.projected_schema)));
            }
            return Err(PlanError::not_incremental(
                format!("reading \"{}\"", scan.table_name),
                "a materialized view reads streams, tables and materialized views",
            ));
        };
        let projection: Vec<usize> = match &scan.projection {
            Some(columns) => columns.clone(),
            None => (0..info.schema.fields().len()).collect(),
        };
        let schema = Arc::new(
            info.schema
                .project(&projection)
                .map_err(datafusion::error::DataFusionError::from)?,
        );
        let key = info.key.as_ref().and_then(|key| {
            key.iter()
                .map(|column| projection.iter().position(|kept| kept == column))
                .collect()
        });
        let append_only = info.append_only;
        let watermarks = info
            .watermarks
            .iter()
            .filter_map(|ColumnWatermark { column, bound }| {
                let column = projection.iter().position(|kept| kept == column)?;
                let bound = bound.clone();
                Some(ColumnWatermark { column, bound })
            })
            .collect();
        let operator = Operator::Source(Source {
            relation: info.id,
            name: info.name.clone(),
            projection,
            schema: Arc::clone(&schema),
        });
        self.inputs.insert(info.id, info);
        Ok(Fragment {
            parts: vec![Part {
                operator,
                placement: Placement::Arrival,
            }],
            append_only,
            key,
            watermarks,
            schema,
        })
    }

    /// Puts the rows into the view. Where a row and its retraction may come by different tasks, an exchange brings them
    /// together first.
    fn materialize(&mut self, fragment: Fragment) {
        let scattered = fragment.parts.len() > 1
            || (!fragment.append_only && fragment.parts[0].placement == Placement::Arrival);
        let mut fragment = fragment;
        if scattered {
            let columns = match &fragment.key {
                Some(key) if !key.is_empty() => key.clone(),
                _ => (0..fragment.schema.fields().len()).collect(),
            };
            fragment = self.exchange(fragment, Output::Hash(columns));
        }
        if let Some(part) = fragment.parts.pop() {
            self.stages.close(part.operator, Output::Materialize);
        }
    }
}

/// The Arrow schema of a logical node, without the metadata that only planning uses.
pub(super) fn arrow_schema(schema: &DFSchema) -> SchemaRef {
    Arc::new(Schema::new(schema.fields().clone()))
}

/// A column as a physical expression.
pub(super) fn column(schema: &SchemaRef, index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(schema.field(index).name(), index))
}

fn fixed_rows(rows: Vec<Vec<Arc<dyn PhysicalExpr>>>, schema: SchemaRef) -> Fragment {
    let operator = Operator::Values(Values {
        rows,
        schema: Arc::clone(&schema),
    });
    Fragment {
        parts: vec![Part {
            operator,
            placement: Placement::Arrival,
        }],
        append_only: true,
        key: None,
        watermarks: vec![],
        schema,
    }
}

fn refused(plan: &LogicalPlan) -> PlanError {
    PlanError::NotIncremental {
        construct: plan.display().to_string(),
        hint: None,
    }
}
