//! WITH RECURSIVE over outer columns: one recursion for all their values, which carries them along.
//!
//! ```text
//!  the static term       made independent: its rows begin with a value of the outer columns each
//!  the working table     has the outer columns too
//!  the recursive term    made independent, where a row's outer columns are those of the working table's row
//! ```

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, TableReference};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, RecursiveQuery, TableScan};

use super::super::bind::plan_names_outer;
use super::{Independent, Unnesting, named, unsupported};

/// A working table that is to have the outer columns.
pub(super) struct Carried {
    name: String,
    /// The outer columns, as the static term has them.
    columns: Vec<FieldRef>,
    null_free: bool,
}

impl Unnesting<'_> {
    /// Whether a plan is another one for other values of the outer columns.
    pub(super) fn depends(&self, plan: &LogicalPlan) -> Result<bool> {
        if plan_names_outer(plan, &self.outer)? {
            return Ok(true);
        }
        if self.carried.is_empty() {
            return Ok(false);
        }
        let mut found = false;
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && self.carried_by(scan).is_some()
            {
                found = true;
                return Ok(TreeNodeRecursion::Stop);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(found)
    }

    /// What a scan of a working table carries; the innermost recursion of a name is the one that is meant.
    fn carried_by(&self, scan: &TableScan) -> Option<&Carried> {
        let provider = source_as_provider(&scan.source).ok()?;
        let table = provider.downcast_ref::<CteWorkTable>()?;
        let mut carried = self.carried.iter().rev();
        carried.find(|carried| carried.name == table.name())
    }

    pub(super) fn recursion(&mut self, query: &RecursiveQuery) -> Result<Independent> {
        let first = self.push(&query.static_term)?;
        let names = self.fresh();
        let static_term = with_columns(&query.static_term, first.plan, &first.columns, &names)?;
        let own = query.static_term.schema().fields().len();
        self.carried.push(Carried {
            name: query.name.clone(),
            columns: static_term.schema().fields()[own..].to_vec(),
            null_free: first.null_free,
        });
        let next = self.push(&query.recursive_term);
        self.carried.pop();
        let next = next?;
        let recursive_term = with_columns(&query.recursive_term, next.plan, &next.columns, &names)?;
        let plan = LogicalPlanBuilder::from(static_term)
            .to_recursive_query(query.name.clone(), recursive_term, query.is_distinct)?
            .build()?;
        Ok(Independent {
            plan,
            columns: names.into_iter().map(Column::new_unqualified).collect(),
            null_free: first.null_free,
        })
    }

    /// The working table, which has the outer columns behind its own.
    pub(super) fn working_table(&self, scan: &TableScan) -> Result<Independent> {
        let carried = self.carried_by(scan).ok_or_else(|| unsupported("a table"))?;
        if scan.projection.is_some() || !scan.filters.is_empty() || scan.fetch.is_some() {
            return Err(unsupported("WITH RECURSIVE"));
        }
        let own = scan.source.schema();
        let mut fields = own.fields().to_vec();
        fields.extend(carried.columns.iter().cloned());
        let table = CteWorkTable::new(&carried.name, Arc::new(Schema::new(fields)));
        let source = provider_as_source(Arc::new(table));
        let of: TableReference = scan.table_name.clone();
        let columns = carried.columns.iter();
        Ok(Independent {
            plan: LogicalPlanBuilder::scan(of.clone(), source, None)?.build()?,
            columns: columns
                .map(|field| Column::new(Some(of.clone()), field.name()))
                .collect(),
            null_free: carried.null_free,
        })
    }
}

/// The columns that a plan had, and then the outer ones under these names.
fn with_columns(
    before: &LogicalPlan,
    plan: LogicalPlan,
    columns: &[Column],
    names: &[String],
) -> Result<LogicalPlan> {
    let mut expressions = vec![];
    for (qualifier, field) in before.schema().iter() {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        expressions.push(named(column, qualifier, field.name()));
    }
    for (column, name) in columns.iter().zip(names) {
        expressions.push(Expr::Column(column.clone()).alias(name));
    }
    LogicalPlanBuilder::from(plan).project(expressions)?.build()
}
