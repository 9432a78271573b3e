//! Temporary tables: tables in a schema of their session, which go with it.
//!
//! They are tables as others are, in a schema that has no object of its own: nobody can name it but the session whose number it has.
//! What a session leaves behind, because the server ended first, is removed at the next start, before anything is loaded.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_catalog::temporary::{is_temporary, schema_of};
use millrace_postgres::error::SqlResult;
use millrace_storage::{CatalogChange, ObjectId};

use crate::database::Database;

impl Database {
    /// The temporary tables of a session, with what goes with them.
    pub fn temporary_of(&self, session: i32) -> BTreeSet<ObjectId> {
        let (catalog, schema) = (self.catalog(), schema_of(session));
        let own = catalog.objects().filter(|object| object.schema == schema);
        own.map(|object| object.id).collect()
    }

    /// Drops the temporary tables of a session.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub async fn drop_temporary(self: &Arc<Self>, session: i32) -> SqlResult<()> {
        if self.temporary_of(session).is_empty() {
            return Ok(());
        }
        let guard = self.ddl().await;
        // Those that there are by now.
        let ids = self.temporary_of(session);
        guard.drop(&ids).await
    }

    /// Drops the temporary tables of a session that has ended, when nobody is in the way.
    pub fn forget_temporary(self: &Arc<Self>, session: i32) {
        if self.is_closing() || self.temporary_of(session).is_empty() {
            return;
        }
        let Ok(handle) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let db = Arc::clone(self);
        handle.spawn(async move {
            if let Err(error) = db.drop_temporary(session).await {
                tracing::warn!(%error, session, "temporary tables could not be dropped; the next start drops them");
            }
        });
    }

    /// Removes the temporary tables that there were when the server ended.
    pub(super) fn remove_temporary(&self) -> SqlResult<()> {
        let catalog = self.store.catalog();
        let left = catalog
            .objects()
            .into_iter()
            .filter(|object| is_temporary(&object.schema));
        let changes: Vec<CatalogChange> = left.map(|object| CatalogChange::Remove(object.id)).collect();
        match changes.is_empty() {
            true => Ok(()),
            false => Ok(catalog.apply(changes)?),
        }
    }

    /// What a backup leaves out.
    pub fn all_temporary(&self) -> BTreeSet<ObjectId> {
        let catalog = self.catalog();
        let all = catalog.objects().filter(|object| is_temporary(&object.schema));
        all.map(|object| object.id).collect()
    }
}
