//! LATERAL over what each outer row gives by itself: `unnest(t.a)`, `(SELECT t.x + 1)`. No join is needed: the subquery's
//! operators run over the outer rows, whose columns they pass on.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, NullHandling};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Unnest};

use super::Made;
use super::bind::{bind, columns_of};

/// The outer rows with the columns of the subquery, whose names are `columns`; `None` if the subquery reads anything.
/// `keep_empty`: an outer row for which the subquery is empty stays, with NULLs.
pub(super) fn row_wise(
    left: &LogicalPlan,
    subquery: &LogicalPlan,
    columns: &DFSchema,
    outer: &[(FieldRef, Column)],
    keep_empty: bool,
    made: &mut Made,
) -> Result<Option<LogicalPlan>> {
    if keep_empty && !keeps_each_row(subquery) {
        return Ok(None);
    }
    let mut growth = Growth {
        left,
        outer,
        keep_empty,
        made,
    };
    let Some((plan, found)) = growth.grow(subquery)? else {
        return Ok(None);
    };
    let expressions: Vec<Expr> = columns_of(left.schema())
        .into_iter()
        .chain(
            found
                .into_iter()
                .zip(columns.iter())
                .map(|(column, (qualifier, field))| {
                    Expr::Column(column).alias_qualified(qualifier.cloned(), field.name())
                }),
        )
        .collect();
    Ok(Some(
        LogicalPlanBuilder::from(plan).project(expressions)?.build()?,
    ))
}

/// Whether an outer row without rows of the subquery can be kept by its one Unnest.
fn keeps_each_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => keeps_each_row(&alias.input),
        LogicalPlan::Subquery(subquery) => keeps_each_row(&subquery.subquery),
        LogicalPlan::Projection(projection) => {
            keeps_each_row(&projection.input)
                && (gives_one_row(&projection.input) || projection.expr.iter().all(is_column))
        }
        LogicalPlan::Unnest(unnest) => gives_one_row(&unnest.input),
        other => gives_one_row(other),
    }
}

/// Whether a subquery reads nothing and has one row for each outer row.
pub(super) fn gives_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => gives_one_row(&alias.input),
        LogicalPlan::Subquery(subquery) => gives_one_row(&subquery.subquery),
        LogicalPlan::Projection(projection) => gives_one_row(&projection.input),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        _ => false,
    }
}

fn is_column(expression: &Expr) -> bool {
    match expression {
        Expr::Alias(alias) => is_column(&alias.expr),
        Expr::Column(_) => true,
        _ => false,
    }
}

struct Growth<'a> {
    left: &'a LogicalPlan,
    outer: &'a [(FieldRef, Column)],
    keep_empty: bool,
    made: &'a mut Made,
}

impl Growth<'_> {
    /// The plan over the outer rows, and where its columns are.
    fn grow(&mut self, plan: &LogicalPlan) -> Result<Option<(LogicalPlan, Vec<Column>)>> {
        match plan {
            LogicalPlan::EmptyRelation(empty) if empty.produce_one_row => {
                Ok(Some((self.left.clone(), vec![])))
            }
            LogicalPlan::SubqueryAlias(alias) => self.grow(&alias.input),
            LogicalPlan::Subquery(subquery) => self.grow(&subquery.subquery),
            LogicalPlan::Projection(projection) => {
                let Some((input, columns)) = self.grow(&projection.input)? else {
                    return Ok(None);
                };
                let mut expressions = columns_of(self.left.schema());
                let mut renamed = vec![];
                for expression in &projection.expr {
                    let name = format!("__row_wise_{}", self.made.name());
                    let expression = self.over(expression.clone(), projection.input.schema(), &columns)?;
                    expressions.push(expression.unalias().alias(&name));
                    renamed.push(Column::new_unqualified(name));
                }
                let plan = LogicalPlanBuilder::from(input).project(expressions)?.build()?;
                Ok(Some((plan, renamed)))
            }
            LogicalPlan::Filter(filter) => {
                let Some((input, columns)) = self.grow(&filter.input)? else {
                    return Ok(None);
                };
                let predicate = self.over(filter.predicate.clone(), filter.input.schema(), &columns)?;
                let plan = LogicalPlanBuilder::from(input).filter(predicate)?.build()?;
                Ok(Some((plan, columns)))
            }
            LogicalPlan::Unnest(unnest) => {
                let simple = unnest.struct_type_columns.is_empty()
                    && unnest.dependency_indices.len() == unnest.input.schema().fields().len()
                    && unnest.list_type_columns.iter().all(|(_, list)| list.depth == 1);
                if !simple {
                    return Ok(None);
                }
                let Some((input, columns)) = self.grow(&unnest.input)? else {
                    return Ok(None);
                };
                let lists = unnest
                    .list_type_columns
                    .iter()
                    .map(|(index, _)| columns[*index].clone())
                    .collect();
                let mut options = unnest.options.clone();
                options.recursions.clear();
                if self.keep_empty {
                    options.null_handling = NullHandling::PreserveAndExpandEmpty;
                }
                let grown = Unnest::try_new(Arc::new(input), lists, options)?;
                let columns = unnest
                    .dependency_indices
                    .iter()
                    .map(|index| columns[*index].clone())
                    .collect();
                Ok(Some((LogicalPlan::Unnest(grown), columns)))
            }
            _ => Ok(None),
        }
    }

    /// The expression over the outer rows and the columns found so far.
    fn over(&self, expression: Expr, schema: &DFSchema, columns: &[Column]) -> Result<Expr> {
        let moved = expression
            .transform(|inner| {
                Ok(match &inner {
                    Expr::Column(column) => {
                        let position = schema.index_of_column(column)?;
                        Transformed::yes(Expr::Column(columns[position].clone()))
                    }
                    _ => Transformed::no(inner),
                })
            })?
            .data;
        let outside: Vec<Column> = self.outer.iter().map(|(_, column)| column.clone()).collect();
        bind(moved, self.outer, &outside)
    }
}
