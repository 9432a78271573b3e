//! What the system shows of itself in SQL, put together for a database.

use std::sync::Arc;

use arc_swap::ArcSwap;
use datafusion::catalog::TableProvider;
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;
use millrace_catalog::CatalogSnapshot;
use millrace_catalog::scope::{Acting, Scope};
use millrace_catalog::settings::Settings;
use millrace_database::database::system::{System, SystemCatalog};
use millrace_database::sessions::Sessions;
use millrace_database::{Database, DatabaseOptions};
use millrace_postgres::error::SqlResult;

use crate::pg_catalog::{self, PgCatalog};
use crate::{cancel, information_schema, mr_catalog};

/// Opens a data directory with all that the system shows of itself.
///
/// # Errors
/// As [`Database::open`].
pub async fn open(options: DatabaseOptions) -> SqlResult<Arc<Database>> {
    Database::open(options, system).await
}

/// The relations of the system's schemas, and the functions that need the catalog or the sessions.
///
/// # Errors
/// Functions cannot be registered, which only a wrong build brings about.
pub fn system(
    context: &SessionContext,
    catalog: &Arc<ArcSwap<CatalogSnapshot>>,
    sessions: &Arc<Sessions>,
) -> SqlResult<System> {
    let schemas = Schemas {
        pg_catalog: PgCatalog::install(context)?,
        sessions: Arc::clone(sessions),
    };
    let mut functions = pg_catalog::functions::udfs(catalog);
    functions.extend(pg_catalog::sizes::udfs(catalog, sessions));
    functions.extend(cancel::udfs(sessions).into_iter().map(Arc::new));
    functions.extend(pg_catalog::statements::udfs(sessions).into_iter().map(Arc::new));
    Ok(System {
        catalog: Box::new(schemas),
        functions,
    })
}

/// The system's schemas.
struct Schemas {
    pg_catalog: PgCatalog,
    sessions: Arc<Sessions>,
}

impl SystemCatalog for Schemas {
    fn relation(
        &self,
        db: &Database,
        catalog: &CatalogSnapshot,
        database: &str,
        schema: &str,
        name: &str,
        viewer: Acting,
    ) -> SqlResult<Option<Arc<dyn TableProvider>>> {
        match schema {
            "pg_catalog" if name == "pg_stat_activity" => {
                pg_catalog::activity::relation(db, viewer).map(Some)
            }
            "pg_catalog" if name == "pg_stat_ssl" => pg_catalog::activity::encryption(db, viewer).map(Some),
            "pg_catalog" if name == "pg_stat_statements" => {
                pg_catalog::statements::relation(db, viewer).map(Some)
            }
            "pg_catalog" if name == "pg_stat_statements_info" => pg_catalog::statements::info(db).map(Some),
            "pg_catalog" if name == "pg_sequences" => {
                pg_catalog::sequences::with_values(db, catalog, database).map(Some)
            }
            "pg_catalog" if name == "pg_locks" => pg_catalog::locks::relation(db).map(Some),
            "pg_catalog" => {
                let system = || mr_catalog::shapes(db);
                self.pg_catalog.relation(catalog, database, name, system)
            }
            "information_schema" => information_schema::relation(catalog, database, name, viewer),
            "mr_catalog" => mr_catalog::relation(db, name, viewer),
            _ => Ok(None),
        }
    }

    fn asks_statement(&self, name: &str) -> bool {
        pg_catalog::functions::asks_statement(name)
            || cancel::asks_statement(name)
            || pg_catalog::statements::asks_statement(name)
    }

    fn function(&self, scope: &Scope, name: &str) -> Option<Arc<ScalarUDF>> {
        pg_catalog::functions::of_statement(scope, name)
            .or_else(|| cancel::of_statement(&self.sessions, scope, name))
            .or_else(|| pg_catalog::statements::of_statement(&self.sessions, scope, name))
    }

    fn of_session(
        &self,
        db: &Database,
        name: &str,
        settings: &Settings,
        session: Option<i32>,
    ) -> SqlResult<Option<Arc<dyn TableProvider>>> {
        match name {
            "pg_settings" => pg_catalog::settings::relation(db, settings).map(Some),
            "pg_cursors" => pg_catalog::own::cursors(&self.sessions, session).map(Some),
            "pg_prepared_statements" => {
                pg_catalog::own::prepared_statements(&self.sessions, session).map(Some)
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use datafusion::execution::SessionState;
    use millrace_database::database::engine::build;
    use millrace_functions::bounded::MemoryBudget;
    use millrace_resource::disk::Disks;
    use millrace_resource::memory::{Memory, Resident};
    use millrace_resource::query_memory::QueryMemory;
    use millrace_resource::spill::query::SpillFiles;

    fn state() -> (SessionState, Box<dyn SystemCatalog>) {
        let directory = std::path::PathBuf::from("unused");
        let catalog = Arc::new(ArcSwap::from_pointee(CatalogSnapshot::default()));
        let memory = Memory::new(None, Resident::Unknown);
        let disks = Disks::new(&directory, &memory);
        let spills = Arc::new(SpillFiles::new(&disks, directory.clone(), &Arc::default()));
        let (state, catalog, _) = build(
            &DatabaseOptions::new(directory),
            system,
            &memory,
            spills,
            &catalog,
            &Arc::default(),
            &Arc::default(),
        )
        .unwrap();
        (state, catalog)
    }

    /// The functions that come with the system's relations, by name, so that a new one is looked at: how its result grows, and
    /// its time (`functions::bounded`). Those of the layer below have a list of their own.
    #[test]
    fn every_function_was_looked_at() {
        let (state, _) = state();
        let mut below = datafusion::prelude::SessionContext::new().state();
        let memory = Memory::new(None, Resident::Unknown);
        let budget = MemoryBudget::new(&memory, QueryMemory::new(&memory));
        millrace_functions::registry::register(&mut below, &budget).unwrap();
        let names = |state: &SessionState| -> BTreeSet<String> {
            let functions = state.scalar_functions().values();
            functions.map(|function| function.name().to_owned()).collect()
        };
        let found: BTreeSet<String> = names(&state).difference(&names(&below)).cloned().collect();
        let known = include_str!("pg_catalog/functions.txt").split_whitespace();
        assert_eq!(found, known.map(str::to_owned).collect());
    }

    #[test]
    fn the_shared_state_can_be_built() {
        let (state, _) = state();
        for name in [
            "pg_cast",
            "json_get_json",
            "pg_typeof",
            "pg_get_indexdef",
            "format_type",
            "to_char",
        ] {
            assert!(state.scalar_functions().contains_key(name), "{name}");
        }
    }
}
