//! How views are planned: from what the catalog has of their queries.

use std::sync::Arc;

use millrace_catalog::flow::FlowDef;
use millrace_catalog::{CatalogSnapshot, ColumnDef, Planned, QueryDef, Reader};
use millrace_planner::growth::growth;
use millrace_planner::{ViewOptions, plan_view};
use millrace_postgres::error::SqlResult;
use millrace_storage::ObjectId;

use super::{Database, stored_types};

impl Database {
    /// What plans of views depend on besides their queries.
    pub fn view_options(&self, slides: bool, flow: FlowDef) -> ViewOptions {
        ViewOptions {
            recursion: self.options.recursion,
            slides,
            flow: flow.limits(self.options.partitions()),
            ..ViewOptions::new(self.options.partitions())
        }
    }

    /// The plan of a materialized view.
    pub fn plan_materialized(
        &self,
        catalog: &CatalogSnapshot,
        database: &str,
        query: &QueryDef,
    ) -> SqlResult<Planned> {
        self.plan_of(catalog, database, query, self.options.partitions(), &[])
    }

    /// The same for keyed state of so many partitions, and of a view that has these columns.
    pub(super) fn plan_of(
        &self,
        catalog: &CatalogSnapshot,
        database: &str,
        query: &QueryDef,
        partitions: usize,
        columns: &[ColumnDef],
    ) -> SqlResult<Planned> {
        let options = ViewOptions {
            partitions,
            ..self.view_options(query.slides, query.flow)
        };
        self.plan_with(catalog, database, query, columns, options)
    }

    /// The same, where these options are not said by the query.
    pub(super) fn plan_with(
        &self,
        catalog: &CatalogSnapshot,
        database: &str,
        query: &QueryDef,
        columns: &[ColumnDef],
        options: ViewOptions,
    ) -> SqlResult<Planned> {
        // A view over one that is not filled yet reads its rows, as soon as there are some.
        let filled = catalog.filled();
        let catalog = filled.as_ref().unwrap_or(catalog);
        let reader = Reader::of_query(self, &self.state, catalog, database, query);
        let plan = stored_types::kept(reader.bind_query_text(query)?, columns)?;
        let options = ViewOptions {
            emit: query.emit,
            priority: query.priority,
            freshness_us: query.freshness_us,
            on_error: query.on_error,
            keeps_errors: query.keeps_errors,
            ..options
        };
        let graph = plan_view(&self.state, plan, options)?;
        let growth = growth(&graph, &|info| {
            let object = catalog.object(ObjectId(info.id.0))?;
            object.relation()?.growth.endless.clone()
        });
        Ok(Planned {
            graph,
            query: Arc::new(query.with_names(reader.names())),
            growth,
        })
    }
}
