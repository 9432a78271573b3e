//! The relations of `pg_catalog`: what never changes comes from datafusion-pg-catalog, what names our objects from here.
//!
//! Each relation of ours has the columns that the crate gives to it, and is filled by name; what a row does not say gets
//! the value that PostgreSQL would have there for an ordinary object. The rows are those of the catalog snapshot of the
//! statement that reads them. An object's oid is its identity plus [`FIRST_OID`].

mod acl;
pub mod activity;
mod arrays;
pub(crate) mod constraints;
pub mod definitions;
pub mod functions;
pub mod locks;
pub mod own;
mod privileges;
mod procs;
pub(crate) mod relations;
pub mod roles;
pub(crate) mod sequences;
pub mod settings;
pub mod sizes;
pub mod statements;
pub(crate) mod table;
pub(crate) mod types;

pub use sequences::of_column as serial_sequence;

use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::prelude::SessionContext;
use datafusion_pg_catalog::pg_catalog::context::{PgCatalogContextProvider, Role};
use datafusion_pg_catalog::pg_catalog::setup_pg_catalog;
use futures::FutureExt;
use millrace_catalog::temporary::session_of;
use millrace_catalog::{CatalogSnapshot, DEFAULT_DATABASE, DEFAULT_USER};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::from_internal::{self, df};
use millrace_storage::ObjectId;

use crate::listed;

/// The oid of the role of the start, as PostgreSQL numbers the first.
const OWNER: i64 = 10;
/// Oids of the relations of `mr_catalog`: this plus their places in its list.
const SYSTEM_OID: i64 = 14_000;
/// The first oid that PostgreSQL gives to objects of users.
pub const FIRST_OID: i64 = millrace_postgres::types::FIRST_OID as i64;
/// Oids of the indexes behind primary keys: this plus the table's identity.
const KEY_INDEX_OID: i64 = 1_000_000_000;
/// Oids of constraints behind which an index is: this plus the identity of the index, or of the table whose key it is.
const CONSTRAINT_OID: i64 = 1_200_000_000;
/// Oids of the defaults of columns: from this on.
const DEFAULT_OID: i64 = 1_400_000_000;
/// Oids of CHECK constraints: from this on.
const CHECK_OID: i64 = 1_600_000_000;
/// Oids of CHECK constraints of domains: from this on.
const DOMAIN_CHECK_OID: i64 = 1_700_000_000;
/// Oids of FOREIGN KEY constraints: from this on.
const FOREIGN_KEY_OID: i64 = 1_800_000_000;

/// Oids of the schemas of temporary tables: this plus the number of their session.
const TEMPORARY_SCHEMA_OID: i64 = 1_900_000_000;

/// Whether an oid is that of a relation of `mr_catalog`.
pub fn is_system(oid: i64) -> bool {
    (SYSTEM_OID..FIRST_OID).contains(&oid)
}

/// The oid of an object.
pub fn oid(id: ObjectId) -> i64 {
    FIRST_OID + i64::try_from(id.0).unwrap_or(i64::MAX - FIRST_OID)
}

/// The oid of a schema; 0: there is none of that name.
pub fn namespace_oid(catalog: &CatalogSnapshot, database: &str, schema: &str) -> i64 {
    match schema {
        "pg_catalog" => 11,
        "public" => 2200,
        "information_schema" => 13_000,
        "mr_catalog" => 13_001,
        other => match session_of(other) {
            Some(session) => TEMPORARY_SCHEMA_OID + session,
            None => catalog.schema(database, other).map_or(0, |object| oid(object.id)),
        },
    }
}

/// There is one role.
#[derive(Debug, Clone)]
struct Roles;

#[async_trait]
impl PgCatalogContextProvider for Roles {
    async fn roles(&self) -> Vec<String> {
        vec![DEFAULT_USER.to_string()]
    }

    async fn role(&self, name: &str) -> Option<Role> {
        Some(Role {
            name: name.to_string(),
            is_superuser: true,
            can_login: true,
            can_create_db: true,
            can_create_role: true,
            can_create_user: true,
            can_replication: false,
            grants: vec![],
            inherited_roles: vec![],
        })
    }
}

const EMPTY: &str = include_str!("pg_catalog/empty.txt");

/// The relations of `pg_catalog`.
pub struct PgCatalog {
    fixed: Arc<dyn SchemaProvider>,
    /// The relations of `mr_catalog`, whose columns never change.
    system: OnceLock<Vec<SystemRelation>>,
}

/// A relation of `mr_catalog`: its name and its columns.
pub type SystemRelation = (&'static str, SchemaRef);

impl PgCatalog {
    /// Registers the functions that go with the relations, and keeps the relations that never change.
    ///
    /// # Errors
    /// The crate refuses the context.
    pub fn install(context: &SessionContext) -> SqlResult<Self> {
        setup_pg_catalog(context, DEFAULT_DATABASE, Roles)
            .map_err(|error| from_internal::datafusion(*error))?;
        let fixed = context
            .catalog(DEFAULT_DATABASE)
            .and_then(|catalog| catalog.schema("pg_catalog"))
            .ok_or_else(|| SqlError::internal("pg_catalog was not registered"))?;
        Ok(PgCatalog {
            fixed,
            system: OnceLock::new(),
        })
    }

    /// A relation by name; `None`: there is none. `system`: what there is in `mr_catalog`.
    ///
    /// # Errors
    /// Its rows could not be put together.
    pub fn relation(
        &self,
        catalog: &CatalogSnapshot,
        database: &str,
        name: &str,
        system: impl FnOnce() -> SqlResult<Vec<SystemRelation>>,
    ) -> SqlResult<Option<Arc<dyn TableProvider>>> {
        // The crate's future does nothing but build the table: it is ready at once.
        let fixed = match self.fixed.table(name).now_or_never() {
            Some(found) => df(found)?,
            None => return Err(SqlError::internal(format!("pg_catalog.{name} was not ready"))),
        };
        let system = match self.system.get() {
            Some(known) => known,
            None => {
                let found = system()?;
                self.system.get_or_init(|| found)
            }
        };
        let Some(rows) = relations::rows(catalog, system, database, name) else {
            let fixed = match fixed {
                Some(fixed) => Some(arrays::provider(name, fixed)?),
                None => listed::schema(EMPTY, name)?
                    .map(|schema| table::provider(&schema, &[]))
                    .transpose()?,
            };
            return match fixed {
                Some(fixed) if name == "pg_proc" => procs::provider(catalog, database, fixed).map(Some),
                Some(fixed) if name == "pg_type" => types::provider(catalog, database, fixed).map(Some),
                other => Ok(other),
            };
        };
        let schema = match (roles::schema(name), &fixed) {
            (Some(own), _) => own,
            (None, Some(provider)) => arrays::schema(name, &provider.schema())?,
            (None, None) => relations::schema(name),
        };
        table::provider(&schema, &rows).map(Some)
    }

    /// The names of the relations.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.fixed.table_names();
        names.extend(listed::names(EMPTY).map(ToOwned::to_owned));
        names
    }
}

impl std::fmt::Debug for PgCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PgCatalog")
    }
}
