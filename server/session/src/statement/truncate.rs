//! TRUNCATE: all rows of tables go.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::sql::sqlparser::ast::{CascadeOption, Truncate, TruncateIdentityOption};
use millrace_catalog::rights::Privileges;
use millrace_catalog::scope::Scope;
use millrace_catalog::{Definition, Object};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::from_internal::df;
use millrace_storage::ObjectId;

use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::query::Providers;
use crate::session::Session;
use crate::statement::delete::removals;
use crate::statement::done;
use crate::{names, write};

/// Executes TRUNCATE. Several tables are emptied together.
pub async fn execute(session: &Arc<Session>, truncate: &Truncate) -> SqlResult<Outcome> {
    let restarts = truncate.identity == Some(TruncateIdentityOption::Restart);
    if restarts && session.transaction_is_open() {
        return Err(SqlError::unsupported(
            "TRUNCATE .. RESTART IDENTITY is not supported in a transaction block",
        )
        .with_detail("ROLLBACK would not give the sequences their values back.")
        .with_hint("Run it by itself."));
    }
    let scope = session.scope();
    let mut objects = truncate
        .table_names
        .iter()
        .map(|target| names::resolve(session, &scope, &target.name))
        .collect::<SqlResult<Vec<_>>>()?;
    let is_cascade = truncate.cascade == Some(CascadeOption::Cascade);
    with_references(session, &scope, &mut objects, is_cascade)?;
    for object in &objects {
        write::table(object, "truncate")?;
    }
    let sequences = match restarts {
        true => sequences_of(session, &scope, &objects)?,
        false => vec![],
    };
    session
        .in_transaction(async {
            for object in &objects {
                empty(session, object).await?;
            }
            Ok(())
        })
        .await?;
    for (sequence, first) in sequences {
        let sequences = session.database().sequences();
        sequences.altered(sequence, Some(first), session.id())?;
    }
    done("TRUNCATE TABLE")
}

/// The sequences that belong to tables, and where they start.
fn sequences_of(session: &Session, scope: &Scope, tables: &[Arc<Object>]) -> SqlResult<Vec<(ObjectId, i64)>> {
    let mut found = vec![];
    for object in session
        .catalog()
        .dependents(&tables.iter().map(|table| table.id).collect())
    {
        if let Definition::Sequence(sequence) = &object.definition
            && sequence
                .owner
                .is_some_and(|owner| tables.iter().any(|table| table.id == owner))
        {
            scope.check_owner(object)?;
            found.push((object.id, sequence.restart(None)?));
        }
    }
    Ok(found)
}

/// Adds the tables that refer to those that are named, or refuses to leave them as they are.
///
/// # Errors
/// 0A000; 42501: whoever acts may not empty one that refers to them.
fn with_references(
    session: &Session,
    scope: &Scope,
    objects: &mut Vec<Arc<Object>>,
    is_cascade: bool,
) -> SqlResult<()> {
    let catalog = session.catalog();
    let mut known: BTreeSet<ObjectId> = objects.iter().map(|object| object.id).collect();
    let mut at = 0;
    while let Some(object) = objects.get(at).cloned() {
        at += 1;
        for (child, _) in catalog.references_to(object.id) {
            if !known.insert(child.id) {
                continue;
            }
            if !is_cascade {
                return Err(SqlError::unsupported(
                    "cannot truncate a table referenced in a foreign key constraint",
                )
                .with_detail(format!(
                    "Table \"{}\" references \"{}\".",
                    child.name, object.name
                ))
                .with_hint(format!(
                    "Truncate table \"{}\" at the same time, or use TRUNCATE ... CASCADE.",
                    child.name
                )));
            }
            session.notice(
                Severity::Notice,
                format!("truncate cascades to table \"{}\"", child.name),
            );
            scope.check(child, Privileges::TRUNCATE)?;
            objects.push(Arc::clone(child));
        }
    }
    Ok(())
}

async fn empty(session: &Arc<Session>, object: &Object) -> SqlResult<()> {
    let relation = write::table(object, "truncate")?;
    let write = session.begin_write(relation).await?;
    let source = provider_as_source(write.current().await?);
    let plan =
        df(LogicalPlanBuilder::scan(object.name.as_str(), source, None).and_then(LogicalPlanBuilder::build))?;
    let rows = session.collect(plan, &Providers::new()).await?;
    let (changes, _) = removals(relation, rows)?;
    write.finish_unchecked(changes).await
}
