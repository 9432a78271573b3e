//! The database and the schema that exist at the start, and what clients call them.

use millrace_catalog::rights::Rights;
use millrace_catalog::{DEFAULT_DATABASE, DEFAULT_SCHEMA, Definition, Object};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{CatalogChange, ObjectKind};

use crate::clock::now_ms;
use crate::database::Database;

/// The fact of [`Database::login_secret`].
const LOGIN_SECRET: &str = "login secret";

impl Database {
    /// Makes the database and the schema that exist at the start, and what is random in this data directory.
    pub(super) fn bootstrap(&self) -> SqlResult<()> {
        let catalog = self.store.catalog();
        if catalog.fact(LOGIN_SECRET)?.is_none() {
            catalog.put_fact(LOGIN_SECRET, &millrace_auth::random::<32>())?;
        }
        if catalog
            .objects()
            .iter()
            .any(|object| object.kind == ObjectKind::Database)
        {
            return Ok(());
        }
        let object = |kind, database: &str, name: &str, sql: &str| -> SqlResult<CatalogChange> {
            let object = Object {
                id: catalog.next_id()?,
                kind,
                database: database.to_string(),
                schema: String::new(),
                name: name.to_string(),
                sql: sql.to_string(),
                comment: None,
                created_at_ms: now_ms(),
                depends: vec![],
                definition: Definition::Other,
                rights: Rights::default(),
            };
            Ok(CatalogChange::Put(object.to_stored()))
        };
        let changes = vec![
            object(
                ObjectKind::Database,
                "",
                DEFAULT_DATABASE,
                "CREATE DATABASE millrace",
            )?,
            object(
                ObjectKind::Schema,
                DEFAULT_DATABASE,
                DEFAULT_SCHEMA,
                "CREATE SCHEMA public",
            )?,
        ];
        Ok(catalog.apply(changes)?)
    }

    /// What makes the salts of those who are not known: the same after each start.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn login_secret(&self) -> SqlResult<Vec<u8>> {
        Ok(self.store.catalog().fact(LOGIN_SECRET)?.unwrap_or_default())
    }

    /// A name that a session asked for as its database, as it is called here.
    ///
    /// # Errors
    /// There is no such database.
    pub fn resolve_database(&self, name: &str) -> SqlResult<String> {
        let catalog = self.catalog();
        let name = if name.is_empty() { DEFAULT_DATABASE } else { name };
        if catalog.database(name).is_some() {
            return Ok(name.to_string());
        }
        if name == millrace_catalog::DATABASE_ALIAS {
            return Ok(DEFAULT_DATABASE.to_string());
        }
        let hint = millrace_postgres::names::did_you_mean(
            name,
            catalog.databases().map(|object| object.name.as_str()),
        );
        Err(SqlError::new(
            SqlState::InvalidCatalogName,
            format!("database \"{name}\" does not exist"),
        )
        .with_hint_opt(hint))
    }
}
