//! Views on workers in other processes: what such a worker is sent of a view, and how it plans that again.
//!
//! Text, bound names and settings, in the form that the catalog keeps them in; of other objects only those that the view needs. The
//! plan is the same, since both sides are of one build: the runtime compares what comes of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_catalog::{CatalogSnapshot, Definition, Object, QueryDef, Relation};
use millrace_engine::cluster::Definitions;
use millrace_planner::StageGraph;
use millrace_planner::stage::recursion::RecursionLimits;
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_storage::{CatalogObject, ObjectId, ObjectKind};
use serde::{Deserialize, Serialize};

use super::Database;

/// What is sent of a view.
#[derive(Debug, Serialize, Deserialize)]
struct Shipped {
    view: CatalogObject,
    /// What it is made of, whatever that needs included.
    needs: Vec<CatalogObject>,
    /// Partitions of keyed state of a new view there, from which limits follow.
    partitions: usize,
    recursion: RecursionLimits,
}

impl Database {
    /// What another process makes the same plan of a view from; none if that has no form as bytes.
    pub fn definition_of(&self, catalog: &CatalogSnapshot, view: &Object) -> Option<Arc<[u8]>> {
        let mut needed = BTreeSet::new();
        let mut waiting: Vec<ObjectId> = view.depends.clone();
        if let Some(query) = query_of(view) {
            waiting.extend(query.names.iter().map(|name| name.object));
        }
        while let Some(id) = waiting.pop() {
            if let Some(object) = catalog.object(id)
                && id != view.id
                && needed.insert(id)
            {
                waiting.extend(&object.depends);
            }
        }
        let is_place =
            |object: &&Arc<Object>| matches!(object.kind, ObjectKind::Database | ObjectKind::Schema);
        needed.extend(catalog.objects().filter(is_place).map(|object| object.id));
        let needs = catalog.in_order(&needed).into_iter();
        let shipped = Shipped {
            view: view.to_stored(),
            needs: needs
                // What a plan needs of these is in what names them.
                .filter(|object| !matches!(object.kind, ObjectKind::Secret | ObjectKind::User))
                .map(|object| object.to_stored())
                .collect(),
            partitions: self.options.partitions(),
            recursion: self.options.recursion,
        };
        match serde_json::to_vec(&shipped) {
            Ok(bytes) => Some(bytes.into()),
            Err(error) => {
                tracing::error!(view = %view.name, %error, "the view cannot run in other processes");
                None
            }
        }
    }

    /// The plan of a view of another database.
    ///
    /// # Errors
    /// The bytes are not one, or it cannot be planned here.
    fn plan_shipped(&self, definition: &[u8]) -> SqlResult<StageGraph> {
        let damaged =
            |error: serde_json::Error| SqlError::internal(format!("a definition cannot be read: {error}"));
        let shipped: Shipped = serde_json::from_slice(definition).map_err(damaged)?;
        let options = |query: &QueryDef| {
            let mut options = self.view_options(query.slides, query.flow);
            options.recursion = shipped.recursion;
            options.partitions = shipped.partitions;
            options.flow = query.flow.limits(shipped.partitions);
            options
        };
        let needs = shipped
            .needs
            .iter()
            .map(|stored| Ok(Arc::new(Object::from_stored(stored)?)));
        let mut catalog = CatalogSnapshot::new(0, needs.collect::<SqlResult<Vec<_>>>()?);
        let all = catalog.objects().map(|object| object.id).collect();
        let views: Vec<Arc<Object>> = (catalog.in_order(&all).into_iter())
            .filter(|object| query_of(object).is_some() && object.relation().is_some())
            .cloned()
            .collect();
        let plan = |catalog: &CatalogSnapshot, object: &Object, relation: &Relation, query: &QueryDef| {
            self.plan_with(
                catalog,
                &object.database,
                query,
                &relation.columns,
                options(query),
            )
        };
        for view in views {
            let (Some(relation), Some(query)) = (view.relation(), query_of(&view)) else {
                continue;
            };
            let planned = plan(&catalog, &view, relation, query)?;
            let relation = Relation::of_view(view.id, &view.name, &planned, &relation.columns);
            let view = Object {
                definition: Definition::Relation(Box::new(relation)),
                ..view.as_ref().clone()
            };
            catalog = catalog.with([Arc::new(view)], &[]);
        }
        let view = Object::from_stored(&shipped.view)?;
        match (view.relation(), query_of(&view)) {
            (Some(relation), Some(query)) => Ok(plan(&catalog, &view, relation, query)?.graph),
            _ => Err(SqlError::internal(format!(
                "{} is no materialized view",
                view.described()
            ))),
        }
    }
}

fn query_of(object: &Object) -> Option<&QueryDef> {
    object.relation().and_then(|relation| relation.query.as_deref())
}

/// Plans views of a coordinator, in a process that has a database for nothing else.
pub struct Planner(pub Arc<Database>);

impl Definitions for Planner {
    fn plan(&self, definition: &[u8]) -> Result<StageGraph, String> {
        self.0.plan_shipped(definition).map_err(|error| error.to_string())
    }
}
