//! The rows of a table that a statement has locked.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::scalar::ScalarValue;
use millrace_catalog::Relation;
use millrace_engine::Found;
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::from_internal;
use millrace_storage::ChangeBatch;

use super::WriteScope;
use crate::overlay;
use crate::own_changes::OwnChanges;

impl WriteScope {
    /// The rows of the locked table, the transaction's own changes included.
    ///
    /// # Errors
    /// The table was dropped meanwhile.
    pub async fn current(&self) -> SqlResult<Arc<dyn TableProvider>> {
        if self.is_new {
            let base = overlay::nothing(&self.schema)?;
            return Ok(overlay::provider(base, &self.before));
        }
        let locks = self
            .locks
            .as_ref()
            .ok_or_else(|| SqlError::internal("the rows of a relation were requested that is not locked"))?;
        let snapshot = self.session.db.runtime().latest(locks).await?;
        let base = snapshot.table_provider_as(self.relation, &self.schema)?;
        Ok(overlay::provider(base, &self.before))
    }

    /// The rows of a table that is locked with the statement's own, the transaction's changes and `more` included.
    pub(super) async fn rows_of(
        &self,
        relation: &Relation,
        more: &[ChangeBatch],
    ) -> SqlResult<Arc<dyn TableProvider>> {
        let (id, session) = (relation.info.id, &self.session);
        let before = session.own_changes(id)?;
        let is_new = session
            .definitions()
            .is_some_and(|definitions| definitions.is_new(id));
        let base = match &self.locks {
            _ if is_new => overlay::nothing(relation.schema())?,
            Some(locks) => {
                let snapshot = session.db.runtime().latest(locks).await?;
                snapshot.table_provider_as(id, relation.schema())?
            }
            None => {
                return Err(SqlError::internal(
                    "the rows of a relation were requested that is not locked",
                ));
            }
        };
        Ok(overlay::provider(
            overlay::provider(base, &before),
            &OwnChanges::of(more).net()?,
        ))
    }

    /// The rows of the locked table in which some columns have these values, by an index. None: it has no such index, or the
    /// transaction has changed the table before.
    ///
    /// # Errors
    /// The table was dropped meanwhile.
    pub async fn look_up(&self, equal: &[(usize, ScalarValue)]) -> SqlResult<Option<Vec<RecordBatch>>> {
        let Some(locks) = &self.locks else {
            return Ok(None);
        };
        if self.is_new || !self.before.is_empty() {
            return Ok(None);
        }
        let snapshot = self.session.db.runtime().latest(locks).await?;
        let columns: Vec<usize> = (0..self.schema.fields().len()).collect();
        let Some(found) = snapshot.look_up(self.relation, equal, &columns)? else {
            return Ok(None);
        };
        let batches = found.into_iter().map(|Found { columns, .. }| {
            RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(from_internal::arrow)
        });
        batches.collect::<SqlResult<Vec<_>>>().map(Some)
    }
}
