//! DELETE: one query gives the rows that go.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use datafusion::sql::sqlparser::ast::{self, Delete, With};
use millrace_catalog::scope::Scope;
use millrace_catalog::{Object, Relation};
use millrace_database::running::Running;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_storage::ChangeBatch;

use crate::access;
use crate::outcome::{CommandTag, Outcome};
use crate::session::Session;
use crate::statement::by_key;
use crate::statement::returning::{self, Beside, Changed};
use crate::statement::update::{changing_query, changing_rows, changing_statement, once_each};
use crate::{names, write};

/// Executes DELETE.
pub async fn execute(session: &Arc<Session>, delete: Delete, running: Running) -> SqlResult<Outcome> {
    let changed = change(session, session.scope(), None, delete).await?;
    Ok(changed.outcome(session, running))
}

/// Makes the change of a DELETE behind a WITH clause.
///
/// # Errors
/// Whatever is wrong with it; nothing was changed then.
pub(crate) async fn change(
    session: &Arc<Session>,
    scope: Scope,
    with: Option<&With>,
    delete: Delete,
) -> SqlResult<Changed> {
    let object = target(session, &scope, &delete)?;
    let scope = access::changing(scope, object.id);
    let relation = write::table(&object, "delete from")?;
    let Bound {
        shown,
        mut beside,
        text,
        is_joined,
    } = bind(session, &scope, with, &delete, relation)?;
    let write = session.begin_write(relation).await?;
    let by_key = match is_joined || with.is_some() {
        true => None,
        false => {
            let change = by_key::Change {
                relation,
                called: &shown,
                condition: delete.selection.as_ref(),
                assigned: vec![],
            };
            by_key::rows(session, &scope, &change, &write).await?
        }
    };
    let batches = match by_key {
        Some(batches) => batches,
        None => changing_rows(session, &scope, relation, &text, write.current().await?).await?,
    };
    let gone = once_each(batches, is_joined)?;
    Beside::take(&mut beside, relation.columns.len(), &gone)?;
    let (changes, gone) = removals(relation, gone)?;
    let count: usize = gone.iter().map(RecordBatch::num_rows).sum();
    let items = delete.returning.as_deref();
    let returned = returning::evaluate(session, &scope, relation, &shown, items, gone, beside).await?;
    write.finish(changes).await?;
    let tag = CommandTag::rows("DELETE", count as u64);
    Ok(Changed { returned, tag })
}

/// What a DELETE is about to do.
struct Bound {
    /// What the table is called in the statement.
    shown: String,
    beside: Vec<Beside>,
    /// The query for the rows that go.
    text: String,
    /// Whether a row of the table may come more than once.
    is_joined: bool,
}

fn target(session: &Session, scope: &Scope, delete: &Delete) -> SqlResult<Arc<Object>> {
    let (name, _) = names::delete_target(delete)?;
    names::resolve(session, scope, &name)
}

fn bind(
    session: &Session,
    scope: &Scope,
    with: Option<&With>,
    delete: &Delete,
    relation: &Relation,
) -> SqlResult<Bound> {
    let (name, alias) = names::delete_target(delete)?;
    if !delete.order_by.is_empty() || delete.limit.is_some() {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            "ORDER BY and LIMIT are not supported in DELETE",
        ));
    }
    let using = delete.using.as_deref().map(names::joined);
    let beside = match (delete.using.as_deref(), &delete.returning) {
        (Some(tables), Some(_)) => Beside::of(session, scope, with, tables)?,
        _ => vec![],
    };
    let shown = alias.unwrap_or_else(|| names::last(&name));
    let text = changing_query(
        with,
        relation,
        &name,
        &shown,
        &Beside::select_list(&beside),
        using.as_deref(),
        delete.selection.as_ref(),
    );
    Ok(Bound {
        shown,
        beside,
        text,
        is_joined: using.is_some(),
    })
}

/// The table of a DELETE, and the query for the rows that go.
///
/// # Errors
/// Whatever is wrong with it.
pub(crate) fn query(
    session: &Session,
    scope: &Scope,
    delete: &Delete,
) -> SqlResult<(Arc<Object>, ast::Statement)> {
    let object = target(session, scope, delete)?;
    let relation = write::table(&object, "delete from")?;
    let bound = bind(session, scope, None, delete, relation)?;
    Ok((object, changing_statement(&bound.text)?))
}

/// The changes that take rows away, and the rows under the table's own schema. Their first columns are the table's.
pub(crate) fn removals(
    relation: &Relation,
    rows: Vec<RecordBatch>,
) -> SqlResult<(Vec<ChangeBatch>, Vec<RecordBatch>)> {
    let mut changes = vec![];
    let mut gone = vec![];
    for batch in rows {
        let columns = batch.columns()[..relation.columns.len()].to_vec();
        let batch =
            RecordBatch::try_new(Arc::clone(relation.schema()), columns).map_err(from_internal::arrow)?;
        let weights = Int64Array::from_value(-1, batch.num_rows());
        changes.push(ChangeBatch::new(batch.clone(), Some(weights))?);
        gone.push(batch);
    }
    Ok((changes, gone))
}
