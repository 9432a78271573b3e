//! What a plan knows of a stored relation, and the placeholder by which logical plans name one.
//!
//! A logical plan is bound against [`RelationTable`]s, which have a schema but no data, so that one optimised plan can
//! be kept and run many times: [`attach`] replaces each placeholder by a provider over one epoch's snapshot.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Constraint, Constraints, FunctionalDependencies};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableScan, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::relation_id::RelationId;
use crate::watermark::ColumnWatermark;
use millrace_sql::streaming::time_join;

/// What kind of stored relation it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelationKind {
    /// Append-only rows.
    Stream,
    /// Rows with full DML.
    Table,
    /// A materialized view.
    View,
}

/// What planning needs to know of a stored relation.
#[derive(Debug, Clone)]
pub struct RelationInfo {
    pub id: RelationId,
    /// The name as shown in plans.
    pub name: String,
    pub kind: RelationKind,
    pub schema: SchemaRef,
    /// Columns whose values are unique together, if known: a table's primary key, a view's inferred key.
    pub key: Option<Vec<usize>>,
    /// Whether rows are only ever added.
    pub append_only: bool,
    /// What is known of the values that are still to come.
    pub watermarks: Vec<ColumnWatermark>,
}

/// A relation in a logical plan before a snapshot is chosen. Scanning it is an error.
#[derive(Debug)]
pub struct RelationTable {
    pub info: RelationInfo,
    constraints: Constraints,
}

impl RelationTable {
    pub fn new(info: RelationInfo) -> Self {
        // DataFusion treats a primary key as a promise of uniqueness and of not being null, so a view's inferred key,
        // which may hold NULLs, is announced only for tables.
        let constraints = match (&info.key, info.kind) {
            (Some(key), RelationKind::Table) => {
                Constraints::new_unverified(vec![Constraint::PrimaryKey(key.clone())])
            }
            _ => Constraints::default(),
        };
        RelationTable { info, constraints }
    }

    /// The relation, without telling of its key.
    pub(crate) fn keyless(info: RelationInfo) -> Self {
        RelationTable {
            info,
            constraints: Constraints::default(),
        }
    }
}

#[async_trait]
impl TableProvider for RelationTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.info.schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Every filter stays in the plan and is shown to the snapshot too, which may use it for a key look-up.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Err(DataFusionError::Internal(format!(
            "relation {} was scanned before a snapshot was attached",
            self.info.name
        )))
    }
}

/// The relation behind a scan, if it is a placeholder.
pub fn relation_of(scan: &TableScan) -> Option<RelationInfo> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider
        .downcast_ref::<RelationTable>()
        .map(|table| table.info.clone())
}

/// The plan without the keys of what it reads, for plans in which a key would be believed of more rows than it is one of.
pub(crate) fn without_keys(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::TableScan(mut scan) => {
            let schema = scan.projected_schema.as_ref().clone();
            let schema = schema.with_functional_dependencies(FunctionalDependencies::empty())?;
            scan.projected_schema = Arc::new(schema);
            if let Some(info) = relation_of(&scan) {
                scan.source = provider_as_source(Arc::new(RelationTable::keyless(info)));
            }
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        other => other.recompute_schema().map(Transformed::yes),
    })
}

/// Every stored relation that a plan reads, subqueries included, in order of identity.
pub fn relations(plan: &LogicalPlan) -> Result<Vec<RelationId>> {
    let mut found = BTreeSet::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(info) = relation_of(scan)
        {
            found.insert(info.id);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found.into_iter().collect())
}

/// Replaces each placeholder by the provider that `snapshot` gives for it, and each join in time by what it is at one
/// moment.
pub fn attach(
    plan: LogicalPlan,
    snapshot: &dyn Fn(RelationId) -> Result<Arc<dyn TableProvider>>,
) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::TableScan(mut scan) => match relation_of(&scan) {
            Some(info) => {
                scan.source = provider_as_source(snapshot(info.id)?);
                Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
            }
            None => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
        },
        other => time_join::in_batch(other),
    })
    .map(|transformed| transformed.data)
}
