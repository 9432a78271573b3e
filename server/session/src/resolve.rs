//! What happens to COPY and ingest rows whose key exists: the type of the function that decides it, which is INSERT's.

use std::sync::Arc;

use arrow::array::RecordBatch;
use futures::future::BoxFuture;
use millrace_catalog::Relation;
use millrace_catalog::scope::Scope;
use millrace_postgres::error::SqlResult;
use millrace_storage::ChangeBatch;

use crate::session::Session;
use crate::write::WriteScope;

/// The changes to make for rows.
pub(crate) type Resolve = for<'a> fn(
    &'a Arc<Session>,
    &'a Scope,
    &'a Relation,
    &'a WriteScope,
    Vec<RecordBatch>,
) -> BoxFuture<'a, SqlResult<Vec<ChangeBatch>>>;
