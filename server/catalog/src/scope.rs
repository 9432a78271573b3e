//! What the names of one statement mean.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use millrace_planner::RelationId;
use millrace_postgres::types::zone::Zone;
use millrace_storage::ObjectId;

use crate::names::BOOTSTRAP;
use crate::settings::Settings;
use crate::snapshot::CatalogSnapshot;

/// Who acts, and whether it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acting {
    /// The current user.
    pub role: ObjectId,
    /// Whether privileges are enforced.
    pub is_checked: bool,
}

impl Acting {
    /// One who may do everything: the system itself.
    pub const SYSTEM: Acting = Acting {
        role: BOOTSTRAP,
        is_checked: false,
    };
}

/// What the names of one statement mean: one catalog, one search path.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The catalog.
    pub catalog: Arc<CatalogSnapshot>,
    /// The database of the session.
    pub database: String,
    /// The schemas in which unqualified names are looked for.
    pub search_path: Vec<String>,
    /// The time zone of the session, if it is not UTC: texts without a zone are assigned to timestamptz in it.
    pub zone: Option<Zone>,
    /// Who acts.
    pub acting: Acting,
    /// The number of the session, if it is one's.
    pub session: Option<i32>,
    /// The relation of which the statement has said already that it may be read: what UPDATE and DELETE change.
    pub target: Option<ObjectId>,
    /// The settings of the session.
    pub settings: Settings,
    /// Names that stand for rows which the statement has at hand, whatever the catalog says.
    pub given: BTreeMap<String, Arc<dyn TableProvider>>,
    /// The rows of relations that the statement has changed already, from before it: they are what it reads.
    pub before: BTreeMap<RelationId, Arc<dyn TableProvider>>,
}
