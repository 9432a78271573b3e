//! What a statement needs before it runs: the one list of statements and what whoever gives them must be allowed.
//!
//! What is read is checked where names become relations ([`millrace_catalog::access`]), and what an ALTER or DROP is about where the
//! object is found, under the right to change definitions: [`Need::InPlace`] says so. A statement that the list does not know needs a
//! superuser.

mod locked;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, MergeAction, OnConflictAction, OnInsert, TableFactor, UpdateTableFromKind,
};
use millrace_catalog::access::denied;
use millrace_catalog::connector::ConnectorDef;
use millrace_catalog::rights::Privileges;
use millrace_catalog::role;
use millrace_catalog::scope::Scope;
use millrace_parser::ast::{
    CopyDirection, CopyEnd, CopySource, ExplainTarget, FunctionBody, ObjectName, Options, Statement,
};
use millrace_parser::walk::{Walk, walk_expressions};
use millrace_postgres::error::SqlResult;
use millrace_storage::ObjectId;

use crate::changes;
use crate::names;
use crate::session::Session;

/// Something that a statement needs.
#[derive(Debug, Clone, PartialEq)]
enum Need {
    /// It is checked where the objects of the statement are found.
    InPlace,
    /// All of these privileges on a relation.
    All(ObjectName, Privileges),
    /// One of these privileges on a relation.
    Any(ObjectName, Privileges),
    /// The right to lock the rows of a relation, inside of views as well.
    Lock(ObjectName),
    /// The privileges of a role that is there for this; what for.
    Role(ObjectId, &'static str),
    /// A superuser; what for.
    Superuser(&'static str),
    /// The right to make databases.
    CreateDatabase,
    /// CREATE on the database.
    CreateSchema,
}

/// Refuses a statement that whoever acts may not give.
///
/// # Errors
/// 42501.
pub(crate) fn check(session: &Session, statement: &Statement) -> SqlResult<()> {
    let scope = session.scope();
    if !scope.acting.is_checked {
        return Ok(());
    }
    needs(statement)
        .into_iter()
        .try_for_each(|need| check_one(session, &scope, need))
}

fn check_one(session: &Session, scope: &Scope, need: Need) -> SqlResult<()> {
    match need {
        Need::InPlace => Ok(()),
        // What is not there the statement itself says.
        Need::All(name, wanted) => match names::resolve(session, scope, &name) {
            Ok(object) => scope.check(&object, wanted),
            Err(_) => Ok(()),
        },
        Need::Any(name, wanted) => match names::resolve(session, scope, &name) {
            Ok(object) => scope.check_any(&object, wanted),
            Err(_) => Ok(()),
        },
        Need::Lock(name) => match names::resolve(session, scope, &name) {
            Ok(object) => scope.check_lock(&object),
            Err(_) => Ok(()),
        },
        Need::Role(role, what) => check_role(scope, role, what),
        Need::Superuser(what) if !scope.is_superuser() => {
            Err(denied(format!("permission denied to {what}")).with_detail("Only superusers may do that."))
        }
        Need::CreateDatabase => {
            let own = scope.catalog.role_def(scope.acting.role);
            match scope.is_superuser() || own.is_some_and(|own| own.create_db) {
                true => Ok(()),
                false => Err(denied("permission denied to create database")),
            }
        }
        Need::CreateSchema => match scope.catalog.database(&scope.database) {
            Some(database) => scope.check(database, Privileges::CREATE),
            None => Ok(()),
        },
        Need::Superuser(_) => Ok(()),
    }
}

/// Whether the current user has the privileges of a role, which it needs for something.
pub(crate) fn check_role(scope: &Scope, role: ObjectId, what: &str) -> SqlResult<()> {
    if scope.has_role(role) {
        return Ok(());
    }
    let role = scope.catalog.role_name(role);
    Err(
        denied(format!("permission denied to {what}")).with_detail(format!(
            "Only superusers and roles with privileges of the \"{role}\" role may do that."
        )),
    )
}

fn needs(statement: &Statement) -> Vec<Need> {
    match statement {
        Statement::Sql(sql) => needs_of_sql(sql),
        Statement::CreateStream(create) => connector(&create.options),
        Statement::CreateTable(create) => {
            let mut needs = connector(&create.options);
            needs.extend(locks(&create.as_query));
            needs
        }
        Statement::CreateSink(_) => vec![
            Need::InPlace,
            Need::Role(role::WRITE_SERVER_FILES, "create a sink"),
        ],
        Statement::CreateExternalTable(_) => vec![
            Need::InPlace,
            Need::Role(role::READ_SERVER_FILES, "read files of the server"),
        ],
        Statement::Copy(copy) => {
            let (end, is_in) = match &copy.direction {
                CopyDirection::From(end) => (end, true),
                CopyDirection::To(end) => (end, false),
            };
            let mut needs = vec![match (&copy.source, is_in) {
                (CopySource::Relation { name, .. }, true) => Need::All(name.clone(), Privileges::INSERT),
                (CopySource::Relation { name, .. }, false) => Need::All(name.clone(), Privileges::SELECT),
                (CopySource::Query(_) | CopySource::Subscribe(_), _) => Need::InPlace,
            }];
            if let CopySource::Query(query) = &copy.source {
                needs.extend(needs_of_sql(query));
            }
            match end {
                CopyEnd::Client => {}
                CopyEnd::File(_) if is_in => {
                    needs.push(Need::Role(role::READ_SERVER_FILES, "COPY from a file"));
                }
                CopyEnd::File(_) => needs.push(Need::Role(role::WRITE_SERVER_FILES, "COPY to a file")),
                CopyEnd::Program(_) => needs.push(Need::Superuser("COPY to or from a program")),
            }
            needs
        }
        Statement::Explain(explain) => match &explain.target {
            ExplainTarget::Statement(inner) => needs(inner),
            ExplainTarget::MaterializedView(name) | ExplainTarget::Sink(name) => {
                vec![Need::All(name.clone(), Privileges::SELECT)]
            }
            // Those that may be read are shown.
            ExplainTarget::MaterializedViews => vec![Need::InPlace],
            // Everybody may see their own.
            ExplainTarget::Profile(_) => vec![Need::InPlace],
        },
        // Its text runs on the server's cores, for whoever calls it.
        Statement::CreateFunction(create) if matches!(create.body, FunctionBody::Javascript(_)) => vec![
            Need::InPlace,
            Need::Role(role::EXECUTE_SERVER_PROGRAM, "create a function in JavaScript"),
        ],
        Statement::AlterSystemSet(_) => vec![Need::Superuser("set a parameter of the server")],
        Statement::CancelJob(_) => vec![Need::Role(role::SIGNAL_BACKEND, "cancel a job")],
        Statement::Checkpoint => vec![Need::Role(role::CHECKPOINT, "execute CHECKPOINT command")],
        Statement::AddWorker => vec![Need::Superuser("add a worker")],
        Statement::DropWorker(_) => vec![Need::Superuser("drop a worker")],
        Statement::KillWorker(_) => vec![Need::Superuser("kill a worker")],
        Statement::Backup { .. } => vec![Need::Superuser("make a backup")],
        // What they are about is found under the right to change definitions.
        Statement::CreateMaterializedView(_)
        | Statement::CreateFunction(_)
        | Statement::CreateSubscription(_)
        | Statement::CreateEnum(_)
        | Statement::CreateComposite(_)
        | Statement::CreateDomain(_)
        | Statement::Drop(_)
        | Statement::AlterRelation(_)
        | Statement::CreateRole(_)
        | Statement::AlterRole(_)
        | Statement::DropRole(_)
        | Statement::ReassignOwned(_)
        | Statement::DropOwned(_)
        | Statement::GrantRole(_)
        | Statement::Grant(_)
        | Statement::AlterDefaultPrivileges(_)
        | Statement::CreateToken(_)
        | Statement::DropToken(_)
        | Statement::CreateSecret(_)
        | Statement::AlterSecret(_)
        | Statement::Pause(_)
        | Statement::Refresh(_)
        | Statement::Resume(_)
        | Statement::Subscribe(_)
        | Statement::DeclareSubscribeCursor(_)
        | Statement::DeclareSubscriptionCursor(_) => vec![Need::InPlace],
        // They are the session's own, or look at the catalog, which everybody may.
        Statement::Fetch(_)
        | Statement::Show(_)
        | Statement::Describe(_)
        | Statement::SetVariable(_)
        | Statement::ResetVariable(_)
        | Statement::SetConstraintsAll { .. }
        | Statement::Wait
        | Statement::Flush => vec![Need::InPlace],
    }
}

/// A stream or table of its own; one that is filled by others reads files or other systems by way of the server.
fn connector(options: &Options) -> Vec<Need> {
    let named = options
        .0
        .iter()
        .find(|option| option.name.value.eq_ignore_ascii_case("connector"));
    let reads = named.is_some_and(|option| !ConnectorDef::makes_rows(&option.value.to_lowercase()));
    match reads {
        true => vec![
            Need::InPlace,
            Need::Role(role::READ_SERVER_FILES, "read other systems"),
        ],
        false => vec![Need::InPlace],
    }
}

/// What the queries of a statement lock, wherever they are in it.
fn locks(node: &impl Walk) -> impl Iterator<Item = Need> {
    locked::locked(node).into_iter().map(Need::Lock)
}

fn needs_of_sql(sql: &ast::Statement) -> Vec<Need> {
    let mut needs = needs_by_kind(sql);
    // A query that is kept locks when it is run.
    if !matches!(
        sql,
        ast::Statement::Prepare { .. } | ast::Statement::CreateView(_)
    ) {
        needs.extend(locks(sql));
    }
    needs
}

fn needs_by_kind(sql: &ast::Statement) -> Vec<Need> {
    match sql {
        ast::Statement::Query(query) if changes::has_changes(query) => {
            let in_with = query.with.iter().flat_map(|with| &with.cte_tables);
            let queries = in_with.map(|table| table.query.as_ref()).chain([query.as_ref()]);
            queries.filter_map(changes::change_of).flat_map(needs_by_kind).collect()
        }
        ast::Statement::Query(_) => vec![Need::InPlace],
        ast::Statement::Insert(insert) => {
            let ast::TableObject::TableName(name) = &insert.table else {
                return vec![Need::InPlace];
            };
            let mut wanted = Privileges::INSERT;
            if insert.returning.is_some() {
                wanted = wanted | Privileges::SELECT;
            }
            if let Some(OnInsert::OnConflict(conflict)) = &insert.on {
                if conflict.conflict_target.is_some() {
                    wanted = wanted | Privileges::SELECT;
                }
                if matches!(conflict.action, OnConflictAction::DoUpdate(_)) {
                    wanted = wanted | Privileges::UPDATE | Privileges::SELECT;
                }
            }
            vec![Need::All(name.clone(), wanted)]
        }
        ast::Statement::Update(update) => {
            let reads = update.selection.is_some()
                || update.returning.is_some()
                || update.from.as_ref().is_some_and(|from| match from {
                    UpdateTableFromKind::BeforeSet(tables) | UpdateTableFromKind::AfterSet(tables) => {
                        !tables.is_empty()
                    }
                })
                || update.assignments.iter().any(|assignment| names_columns(&assignment.value));
            let privileges = with_reading(Privileges::UPDATE, reads);
            let name = named(&update.table.relation);
            name.map(|name| Need::All(name, privileges)).into_iter().collect()
        }
        ast::Statement::Delete(delete) => {
            let reads = delete.selection.is_some() || delete.returning.is_some() || delete.using.is_some();
            let privileges = with_reading(Privileges::DELETE, reads);
            let name = names::delete_target(delete).ok().map(|(name, _)| name);
            name.map(|name| Need::All(name, privileges)).into_iter().collect()
        }
        ast::Statement::Merge(merge) => {
            let mut wanted = Privileges::SELECT;
            for clause in &merge.clauses {
                wanted = wanted
                    | match &clause.action {
                        MergeAction::Insert(_) => Privileges::INSERT,
                        MergeAction::Update(_) => Privileges::UPDATE,
                        MergeAction::Delete { .. } => Privileges::DELETE,
                    };
            }
            named(&merge.table)
                .map(|name| Need::All(name, wanted))
                .into_iter()
                .collect()
        }
        ast::Statement::Truncate(truncate) => truncate
            .table_names
            .iter()
            .map(|target| Need::All(target.name.clone(), Privileges::TRUNCATE))
            .collect(),
        ast::Statement::Lock(lock) => {
            let writing = Privileges::UPDATE | Privileges::DELETE | Privileges::TRUNCATE;
            let one = lock.tables.iter();
            one.map(|target| Need::Any(target.name.clone(), writing)).collect()
        }
        ast::Statement::CreateDatabase { .. } => vec![Need::CreateDatabase],
        ast::Statement::CreateSchema { .. } => vec![Need::CreateSchema],
        // Where they find what they are about.
        ast::Statement::CreateView(_)
        | ast::Statement::CreateIndex(_)
        | ast::Statement::CreateSequence { .. }
        | ast::Statement::Comment { .. }
        // What is prepared or declared is looked at when it is bound and run.
        | ast::Statement::Prepare { .. }
        | ast::Statement::Execute { .. }
        | ast::Statement::Declare { .. }
        // The session's own.
        | ast::Statement::StartTransaction { .. }
        | ast::Statement::Commit { .. }
        | ast::Statement::Rollback { .. }
        | ast::Statement::Savepoint { .. }
        | ast::Statement::ReleaseSavepoint { .. }
        | ast::Statement::Deallocate { .. }
        | ast::Statement::Close { .. }
        | ast::Statement::Discard { .. }
        | ast::Statement::Set(_)
        | ast::Statement::LISTEN { .. }
        | ast::Statement::UNLISTEN { .. }
        | ast::Statement::NOTIFY { .. }
        | ast::Statement::Vacuum(_)
        | ast::Statement::Analyze(_)
        | ast::Statement::CreateExtension(_) => vec![Need::InPlace],
        _ => vec![Need::Superuser("run this statement")],
    }
}

fn with_reading(privileges: Privileges, reads: bool) -> Privileges {
    match reads {
        true => privileges | Privileges::SELECT,
        false => privileges,
    }
}

fn named(table: &TableFactor) -> Option<ObjectName> {
    match table {
        TableFactor::Table { name, .. } => Some(name.clone()),
        _ => None,
    }
}

/// Whether a value is made of something that is read.
fn names_columns(value: &Expr) -> bool {
    let reads = |expr: &Expr| match expr {
        Expr::Identifier(name)
            if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default") =>
        {
            ControlFlow::Continue(())
        }
        Expr::Identifier(_)
        | Expr::CompoundIdentifier(_)
        | Expr::Subquery(_)
        | Expr::Exists { .. }
        | Expr::InSubquery { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    walk_expressions(value, reads).is_break()
}

/// The scope in which an UPDATE or DELETE reads the relation that it changes: what it needs for that was checked before.
pub(crate) fn changing(scope: Scope, target: ObjectId) -> Scope {
    Scope {
        target: Some(target),
        ..scope
    }
}
