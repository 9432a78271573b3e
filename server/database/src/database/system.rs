//! What the system shows of itself in SQL: its relations, and the functions that go with them. A layer above makes them; a
//! database is opened with them.

use std::sync::Arc;

use arc_swap::ArcSwap;
use datafusion::catalog::TableProvider;
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;
use millrace_catalog::CatalogSnapshot;
use millrace_catalog::reader::SystemRelations;
use millrace_catalog::scope::{Acting, Scope};
use millrace_catalog::settings::Settings;
use millrace_javascript::Engine;
use millrace_postgres::error::SqlResult;

use crate::database::Database;
use crate::sessions::Sessions;

/// The relations that nobody made, over a database.
pub trait SystemCatalog: Send + Sync {
    /// The relation of that name in that system schema, if there is one, as `viewer` may see it.
    ///
    /// # Errors
    /// Its rows could not be put together.
    fn relation(
        &self,
        db: &Database,
        catalog: &CatalogSnapshot,
        database: &str,
        schema: &str,
        name: &str,
        viewer: Acting,
    ) -> SqlResult<Option<Arc<dyn TableProvider>>>;

    /// As [`SystemRelations::of_session`].
    ///
    /// # Errors
    /// As there.
    fn of_session(
        &self,
        db: &Database,
        name: &str,
        settings: &Settings,
        session: Option<i32>,
    ) -> SqlResult<Option<Arc<dyn TableProvider>>>;

    /// As [`SystemRelations::asks_statement`].
    fn asks_statement(&self, name: &str) -> bool;

    /// A function that sees what the names of a statement mean; `None`: it does not depend on that.
    fn function(&self, scope: &Scope, name: &str) -> Option<Arc<ScalarUDF>>;
}

/// Relations and functions of the system.
pub struct System {
    /// The relations.
    pub catalog: Box<dyn SystemCatalog>,
    /// The functions that need the catalog or the sessions.
    pub functions: Vec<Arc<ScalarUDF>>,
}

/// Makes them for a database that is being opened: may register functions with the context, which has no others of PostgreSQL's yet.
pub type MakeSystem =
    fn(&SessionContext, &Arc<ArcSwap<CatalogSnapshot>>, &Arc<Sessions>) -> SqlResult<System>;

impl SystemRelations for Database {
    fn system_relation(
        &self,
        catalog: &CatalogSnapshot,
        database: &str,
        schema: &str,
        name: &str,
        viewer: Acting,
    ) -> SqlResult<Option<Arc<dyn TableProvider>>> {
        self.system
            .relation(self, catalog, database, schema, name, viewer)
    }

    fn asks_statement(&self, name: &str) -> bool {
        self.system.asks_statement(name)
    }

    fn function(&self, scope: &Scope, name: &str) -> Option<Arc<ScalarUDF>> {
        self.system.function(scope, name)
    }

    fn server_setting(&self, name: &str) -> Option<String> {
        self.tuning().get(&name.to_lowercase())
    }

    fn javascript(&self) -> &Arc<Engine> {
        &self.javascript
    }

    fn of_session(
        &self,
        name: &str,
        settings: &Settings,
        session: Option<i32>,
    ) -> SqlResult<Option<Arc<dyn TableProvider>>> {
        self.system.of_session(self, name, settings, session)
    }
}
