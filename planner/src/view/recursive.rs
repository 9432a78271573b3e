//! WITH RECURSIVE: a fix-point inside the epoch.
//!
//! ```text
//!  base ==> single -> Recursion  ==> the rows of the query
//!                        | body: the recursive term
//!                        |   Join <- WorkingTable (what changed in it)
//!                        |        <- Exchange (what changed in the other relations)
//! ```
//! PostgreSQL evaluates the recursive term T step by step: W(0) = base, W(i+1) = T(W(i)), for UNION without the rows that
//! were there before. To maintain that, the rows of all W(i) are one relation with the iteration `i` as a further column,
//! which the recursive term carries along: `T({(row, i)}) = {(row', i)}` for every operator that handles each row of the
//! working table by itself, and for those that do not (grouping, DISTINCT, OVER) once the iteration is part of their key.
//! So the term is an ordinary incremental plan, and is lowered as one; what cannot carry the iteration is refused.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Column, TableReference};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Filter, Join as LogicalJoin, JoinType, LogicalPlan, LogicalPlanBuilder,
    Projection, RecursiveQuery, SubqueryAlias, TableScan, TableScanBuilder, Window,
};

use super::fragment::{Fragment, Part, Placement};
use super::lower::{Lowering, arrow_schema};
use crate::error::{PlanError, Result};
use crate::stage::Output;
use crate::stage::operator::Operator;
use crate::stage::recursion::Recursion;
use crate::stage::working_table::WorkingTable;

/// The column that holds a row's iteration inside a recursion.
const ITERATION: &str = "$iteration";

impl Lowering {
    pub(super) fn recursion(&mut self, query: &RecursiveQuery) -> Result<Fragment> {
        let schema = arrow_schema(&query.schema);
        let term = Term { name: &query.name };
        let Some(carried) = term.carry(&query.recursive_term)? else {
            return self.without_recursion(query, &schema);
        };
        let carried = in_order(&query.recursive_term, carried)?;
        let base = self.node(&query.static_term)?;
        // Whether anything is ever taken away again shows in the term, if nothing is taken away from what it works on.
        let closed = self.stages.stages.len();
        let append_only = base.append_only && self.body(&carried, true)?.append_only;
        self.stages.stages.truncate(closed);
        // A row that is reached in fewer steps than before moves to an earlier iteration.
        let body = self.body(&carried, append_only && !query.is_distinct)?;
        for (side, fragment) in [("non-recursive", &base), ("recursive", &body)] {
            let types = |schema: &SchemaRef| -> Vec<DataType> {
                let fields = schema.fields()[..query.schema.fields().len()].iter();
                fields.map(|field| field.data_type().clone()).collect()
            };
            if types(&fragment.schema) != types(&schema) {
                return Err(PlanError::Internal(format!(
                    "the types of the {side} term of \"{}\" differ from those of the query",
                    query.name
                )));
            }
        }
        let base = self.stages.exchange(base, Output::Single);
        let body = self.stages.exchange(body, Output::Single);
        if !body.reads_working_table() {
            return Err(PlanError::Internal(format!(
                "the recursive term of \"{}\" was cut at an exchange",
                query.name
            )));
        }
        if body.keeps_time() {
            return Err(PlanError::not_incremental(
                format!(
                    "now() over recursive query \"{}\" in its own recursive term",
                    query.name
                ),
                "compare with now() in a subquery over the other relations, or outside the recursive query",
            ));
        }
        let columns = (0..schema.fields().len()).collect();
        let operator = Operator::Recursion(Box::new(Recursion {
            name: query.name.clone(),
            base,
            body,
            distinct: query.is_distinct,
            limits: self.options.recursion,
            schema: Arc::clone(&schema),
        }));
        Ok(Fragment {
            parts: vec![Part {
                operator,
                placement: Placement::Keyed,
            }],
            append_only,
            key: query.is_distinct.then_some(columns),
            watermarks: vec![],
            schema,
        })
    }

    /// The recursive term over a working table from which rows go, or never do.
    fn body(&mut self, term: &LogicalPlan, append_only: bool) -> Result<Fragment> {
        let outer = std::mem::replace(&mut self.working_table_append_only, append_only);
        let body = self.node(term);
        self.working_table_append_only = outer;
        body
    }

    /// The optimizer found that the recursive term never has rows.
    fn without_recursion(&mut self, query: &RecursiveQuery, schema: &SchemaRef) -> Result<Fragment> {
        if !matches!(query.recursive_term.as_ref(), LogicalPlan::EmptyRelation(empty) if !empty.produce_one_row)
        {
            return Err(PlanError::Internal(format!(
                "the recursive term of \"{}\" does not read it",
                query.name
            )));
        }
        let fragment = if query.is_distinct {
            self.distinct(&query.static_term)?
        } else {
            self.node(&query.static_term)?
        };
        Ok(Fragment {
            schema: Arc::clone(schema),
            ..fragment
        })
    }

    /// The rows of the working table with their iterations, if the scan is one that [`Term::carry`] made.
    pub(super) fn working_table(&self, scan: &TableScan) -> Result<Option<Fragment>> {
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<CteWorkTable>() else {
            return Ok(None);
        };
        let schema = table.schema();
        let operator = Operator::WorkingTable(WorkingTable {
            schema: Arc::clone(&schema),
        });
        let fragment = Fragment {
            parts: vec![Part {
                operator,
                placement: Placement::Keyed,
            }],
            append_only: self.working_table_append_only,
            key: None,
            watermarks: vec![],
            schema: Arc::clone(&schema),
        };
        Ok(Some(match &scan.projection {
            Some(columns) if !columns.iter().copied().eq(0..schema.fields().len()) => {
                let kept = schema
                    .project(columns)
                    .map_err(datafusion::error::DataFusionError::from)?;
                let expressions = columns.iter().map(|index| super::lower::column(&schema, *index));
                fragment.project(expressions.collect(), Arc::new(kept))
            }
            _ => fragment,
        }))
    }
}

/// A recursive term, while the iteration is made part of it.
struct Term<'a> {
    name: &'a str,
}

impl Term<'_> {
    /// The node with the iteration as one more column, wherever that is; `None` if the node does not read the working
    /// table.
    fn carry(&self, plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        if let LogicalPlan::TableScan(scan) = plan {
            return self.scan(scan);
        }
        if let LogicalPlan::Join(join) = plan {
            return self.join(join);
        }
        let mut inputs = plan.inputs().into_iter();
        let carried = match inputs.next() {
            Some(first) => self.carry(first)?,
            None => None,
        };
        for input in inputs {
            if self.carry(input)?.is_some() {
                return Err(self.refused(plan, None));
            }
        }
        let Some(input) = carried else { return Ok(None) };
        let iteration = iteration(&input)?;
        let input = Arc::new(input);
        Ok(Some(match plan {
            LogicalPlan::SubqueryAlias(alias) => {
                LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(input, alias.alias.clone())?)
            }
            LogicalPlan::Projection(projection) => {
                let mut expressions = projection.expr.clone();
                expressions.push(iteration);
                LogicalPlan::Projection(Projection::try_new(expressions, input)?)
            }
            LogicalPlan::Filter(filter) => {
                LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), input)?)
            }
            LogicalPlan::Distinct(Distinct::All(_)) => LogicalPlan::Distinct(Distinct::All(input)),
            LogicalPlan::Aggregate(aggregate)
                if !aggregate.group_expr.is_empty()
                    && !matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]) =>
            {
                let mut groups = aggregate.group_expr.clone();
                groups.push(iteration);
                LogicalPlan::Aggregate(Aggregate::try_new(input, groups, aggregate.aggr_expr.clone())?)
            }
            LogicalPlan::Window(window) => {
                let functions = window.window_expr.iter().map(|e| within_iteration(e, &iteration));
                LogicalPlan::Window(Window::try_new(functions.collect::<Result<_>>()?, input)?)
            }
            LogicalPlan::Unnest(unnest) => LogicalPlanBuilder::from(input.as_ref().clone())
                .unnest_columns_with_options(unnest.exec_columns.clone(), unnest.options.clone())?
                .build()?,
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => input.as_ref().clone(),
            LogicalPlan::Aggregate(_) => {
                return Err(self.refused(plan, Some("an aggregate without GROUP BY")));
            }
            LogicalPlan::Limit(_) | LogicalPlan::Sort(_) => return Err(self.refused(plan, Some("LIMIT"))),
            LogicalPlan::Union(_) => return Err(self.refused(plan, Some("UNION"))),
            LogicalPlan::RecursiveQuery(_) => {
                return Err(self.refused(plan, Some("another recursive query that reads it")));
            }
            other => return Err(self.refused(other, None)),
        }))
    }

    fn scan(&self, scan: &TableScan) -> Result<Option<LogicalPlan>> {
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<CteWorkTable>() else {
            return Ok(None);
        };
        if table.name() != self.name {
            return Ok(None);
        }
        let mut fields: Vec<_> = table.schema().fields().iter().cloned().collect();
        let projection = scan.projection.as_ref().map(|columns| {
            let mut columns = columns.clone();
            columns.push(fields.len());
            columns
        });
        fields.push(Arc::new(Field::new(ITERATION, DataType::Int64, false)));
        let carried = CteWorkTable::new(self.name, Arc::new(Schema::new(fields)));
        let source = provider_as_source(Arc::new(carried));
        let scan = TableScanBuilder::new(scan.table_name.clone(), source)
            .with_projection(projection)
            .with_filters(scan.filters.clone())
            .with_fetch(scan.fetch)
            .build()?;
        Ok(Some(LogicalPlan::TableScan(scan)))
    }

    fn join(&self, join: &LogicalJoin) -> Result<Option<LogicalPlan>> {
        use JoinType::*;
        let (left, right) = (self.carry(&join.left)?, self.carry(&join.right)?);
        // The side of the working table must be the one whose rows appear, and appear by themselves.
        let (left, right, is_kept) = match (left, right) {
            (None, None) => return Ok(None),
            (Some(left), None) => {
                let is_kept = matches!(join.join_type, Inner | Left | LeftSemi | LeftAnti | LeftMark);
                (Arc::new(left), Arc::clone(&join.right), is_kept)
            }
            (None, Some(right)) => {
                let is_kept = matches!(join.join_type, Inner | Right | RightSemi | RightAnti | RightMark);
                (Arc::clone(&join.left), Arc::new(right), is_kept)
            }
            (Some(_), Some(_)) => {
                let construct = format!(
                    "a second reference to recursive query \"{}\" in itself",
                    self.name
                );
                return Err(PlanError::NotIncremental {
                    construct,
                    hint: None,
                });
            }
        };
        if !is_kept {
            let construct = format!(
                "recursive query \"{}\" on the nullable or tested side of a {} join",
                self.name, join.join_type
            );
            return Err(PlanError::not_incremental(
                construct,
                "put the recursive query on the other side",
            ));
        }
        Ok(Some(LogicalPlan::Join(LogicalJoin::try_new(
            left,
            right,
            join.on.clone(),
            join.filter.clone(),
            join.join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?)))
    }

    fn refused(&self, plan: &LogicalPlan, construct: Option<&str>) -> PlanError {
        let construct = construct.map_or_else(|| plan.display().to_string(), str::to_owned);
        PlanError::not_incremental(
            format!(
                "{construct} over recursive query \"{}\" in its own recursive term",
                self.name
            ),
            "move it to where the recursive query is read",
        )
    }
}

/// The iteration among the columns of a node that carries it.
fn iteration(plan: &LogicalPlan) -> Result<Expr> {
    let mut columns = plan
        .schema()
        .iter()
        .filter(|(_, field)| field.name() == ITERATION);
    match columns.next() {
        Some((relation, field)) => Ok(Expr::Column(Column::from((relation, field)))),
        None => Err(PlanError::Internal("a recursive term lost its iteration".into())),
    }
}

/// The columns of `plan`, and the iteration as the last.
fn in_order(plan: &LogicalPlan, carried: LogicalPlan) -> Result<LogicalPlan> {
    let mut columns: Vec<Expr> = plan
        .schema()
        .iter()
        .map(|column: (Option<&TableReference>, _)| Expr::Column(Column::from(column)))
        .collect();
    columns.push(iteration(&carried)?);
    let names = carried.schema().columns().into_iter().map(Expr::Column);
    if names.eq(columns.iter().cloned()) {
        return Ok(carried);
    }
    Ok(LogicalPlan::Projection(Projection::try_new(
        columns,
        Arc::new(carried),
    )?))
}

/// A window function over the rows of one iteration, under the name that it had.
fn within_iteration(function: &Expr, iteration: &Expr) -> Result<Expr> {
    let name = function.schema_name().to_string();
    match function.clone().unalias() {
        Expr::WindowFunction(mut call) => {
            call.params.partition_by.push(iteration.clone());
            Ok(Expr::WindowFunction(call).alias(name))
        }
        other => Err(PlanError::Internal(format!("not a window function: {other}"))),
    }
}
