//! Reading: relations at one committed epoch, as DataFusion tables.

mod keys;
mod look_up;
mod parts;
mod provider;
mod scan;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use millrace_planner::RelationId;
use millrace_resource::disk::DiskScheduler;
use millrace_schedule::id::Version;
use millrace_state::row_table::TableView;
use millrace_storage::{LogHold, LogStore};

use crate::error::{Result, RuntimeError};
use crate::relation::Relation;
use crate::versions::Pin;
pub use look_up::Found;
use provider::SnapshotTable;
pub(crate) use scan::SnapshotScan;
pub use scan::scanned_rows;

/// One epoch of some relations. While it lives, what it reads is kept.
#[derive(Clone)]
pub struct Snapshot {
    epoch: u64,
    relations: BTreeMap<RelationId, Frozen>,
}

/// A relation at a version.
#[derive(Clone)]
pub(crate) struct Frozen {
    pub relation: Arc<Relation>,
    pub version: Version,
    pub rows: FrozenRows,
    /// How often the view had lost rows by then: its tables are those of now only as long as that is so.
    losses: u64,
    _pin: Arc<Pin>,
    /// Of a stream: what of its log was there when the snapshot was taken stays.
    hold: Option<Arc<LogHold>>,
}

/// Where the rows are.
#[derive(Clone)]
pub(crate) enum FrozenRows {
    /// In memory, one view a partition.
    Table(Vec<TableView>),
    /// In the log, up to the version.
    Log(Arc<LogStore>, Arc<DiskScheduler>),
}

impl Frozen {
    pub(crate) fn new(
        relation: &Arc<Relation>,
        version: Version,
        pin: &Arc<Pin>,
        logs: &Arc<LogStore>,
        disk: &Arc<DiskScheduler>,
    ) -> Frozen {
        let losses = relation.losses();
        let hold = match relation.as_ref() {
            Relation::Stream(stream) => logs.hold(stream.id.0, 0).ok().map(Arc::new),
            Relation::Table(_) | Relation::View(_) => None,
        };
        let rows = match relation.as_ref() {
            Relation::Stream(_) => FrozenRows::Log(Arc::clone(logs), Arc::clone(disk)),
            Relation::Table(table) => FrozenRows::Table(vec![table.rows.read().view(version)]),
            Relation::View(view) => FrozenRows::Table(
                view.contents
                    .partitions
                    .iter()
                    .map(|table| table.read().view(version))
                    .collect(),
            ),
        };
        Frozen {
            relation: Arc::clone(relation),
            version,
            rows,
            losses,
            _pin: Arc::clone(pin),
            hold,
        }
    }

    pub fn schema(&self) -> SchemaRef {
        self.relation.schema()
    }

    /// Of a stream, what keeps its log as it was.
    pub fn hold(&self) -> Option<Arc<LogHold>> {
        self.hold.clone()
    }

    /// Rows that it may have, dead ones included.
    pub fn rows_max(&self) -> usize {
        match &self.rows {
            FrozenRows::Table(views) => views.iter().map(TableView::rows_max).sum(),
            FrozenRows::Log(..) => self.version as usize,
        }
    }

    /// Whether a later look at the relation sees the same tables: rows of the one are rows of the other, at other versions.
    pub fn is_same_incarnation(&self, later: &Frozen) -> bool {
        let is_same = match (self.relation.as_ref(), later.relation.as_ref()) {
            (Relation::View(before), Relation::View(now)) => Arc::ptr_eq(before, now),
            _ => true,
        };
        is_same && self.losses == later.losses
    }

    /// Whether the relation's tables and indexes still hold what was seen. If not, the rows are still here.
    pub fn is_current(&self) -> bool {
        self.losses == self.relation.losses()
    }
}

impl Snapshot {
    pub(crate) fn new(epoch: u64, relations: BTreeMap<RelationId, Frozen>) -> Self {
        Snapshot { epoch, relations }
    }

    /// The epoch of the first relation's pipeline; 0 if nothing was asked for.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The version of a relation that it shows: of streams and tables, the offset in their log.
    pub fn version(&self, relation: RelationId) -> Option<Version> {
        self.relations.get(&relation).map(|frozen| frozen.version)
    }

    /// Rows that the largest of the relations may have.
    pub fn rows_max(&self) -> usize {
        let rows = self.relations.values().map(Frozen::rows_max);
        rows.max().unwrap_or(0)
    }

    /// Scans and key look-ups of a relation at this epoch.
    ///
    /// # Errors
    /// The snapshot was not asked for this relation, or the relation is a view that failed.
    pub fn table_provider(&self, relation: RelationId) -> Result<Arc<dyn TableProvider>> {
        let schema = self.frozen(relation)?.schema();
        self.table_provider_as(relation, &schema)
    }

    /// The same with the columns that a statement knows: it may have been bound before a column was renamed or added.
    ///
    /// # Errors
    /// As [`Snapshot::table_provider`].
    pub fn table_provider_as(
        &self,
        relation: RelationId,
        known: &SchemaRef,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(Arc::new(SnapshotTable::new(
            self.readable(relation)?.clone(),
            known,
        )?))
    }

    fn readable(&self, relation: RelationId) -> Result<&Frozen> {
        let frozen = self.frozen(relation)?;
        match frozen.relation.as_ref() {
            Relation::View(view) if let Some(why) = view.failure() => Err(RuntimeError::ViewFailed {
                view: view.name.clone(),
                why,
            }),
            _ => Ok(frozen),
        }
    }

    pub(crate) fn frozen(&self, relation: RelationId) -> Result<&Frozen> {
        self.relations
            .get(&relation)
            .ok_or(RuntimeError::UnknownRelation(relation))
    }
}
