//! The statements, one kind a file, and the dispatch to them.

pub mod alter;
pub mod alter_system;
mod as_of;
pub mod backup;
mod by_key;
pub mod clock;
pub mod comment;
pub(crate) mod constant_row;
pub mod copy;
pub mod create_external;
mod create_function;
mod create_index;
pub mod create_namespace;
pub mod create_relation;
mod create_sequence;
mod create_sink;
mod create_subscription;
pub mod create_view;
pub mod cursor;
pub mod delete;
pub mod drop;
pub mod explain;
mod extension;
mod grant;
pub mod insert;
pub mod job;
mod lock;
pub(crate) mod merge;
mod new_views;
mod owned;
pub mod prepare;
pub mod returning;
mod role;
mod secret;
pub mod select;
pub mod set;
pub mod show;
pub mod subscribe;
pub mod token;
pub mod transaction;
pub mod truncate;
pub mod update;
mod user_type;
mod view_options;
pub(crate) mod with_changes;

use std::sync::Arc;

use datafusion::sql::sqlparser::ast;
use millrace_database::running::Running;
use millrace_functions::own;
use millrace_parser::Parsed;
use millrace_parser::ast::{AlterOperation, ObjectKind, Statement};
use millrace_postgres::error::{SqlError, SqlResult};

use crate::changes;
use crate::news;
use crate::outcome::{CommandTag, Outcome};
use crate::session::Session;
use crate::transaction::{Transaction, ddl_in_transaction, read_only};
use crate::withheld::withheld;
use crate::{access, audit, types};

/// Executes one statement, and writes down who did what.
pub async fn execute(
    session: &Arc<Session>,
    statement: Statement,
    parsed: &Parsed,
    running: Running,
) -> SqlResult<Outcome> {
    let is_ddl = ddl_command(&statement).is_some();
    let entry = audit::begin(session, &statement, &parsed.text, is_ddl);
    let outcome = execute_unnoted(session, statement, parsed, running).await;
    // Before the transaction fails, which may change who acts.
    let outcome = outcome.map_err(|error| withheld(session, error));
    if let Some(entry) = entry {
        entry.end(session, &outcome);
    }
    outcome
}

/// Executes one statement. Each kind's future is boxed: together they would make every statement's stack frame as large
/// as the largest.
async fn execute_unnoted(
    session: &Arc<Session>,
    mut statement: Statement,
    parsed: &Parsed,
    running: Running,
) -> SqlResult<Outcome> {
    if let Some(command) = ddl_command(&statement) {
        if session.is_read_only() {
            return Err(read_only(command));
        }
        let implicit = match &*session.transaction.lock() {
            Transaction::Active(active) => Some(active.implicit),
            _ => None,
        };
        if let Some(implicit) = implicit
            && acts_at_once(&statement, implicit)
        {
            begin_ddl(session, command, implicit).await?;
        }
    }
    if let Statement::Sql(sql) = &statement {
        own::check(sql.as_ref())?;
    }
    if reads(&statement)
        && let Some(active) = session.transaction.lock().active()
    {
        active.has_read = true;
    }
    access::check(session, &statement)?;
    types::resolve(session, &mut statement)?;
    match statement {
        Statement::Sql(sql) => Box::pin(execute_sql(session, *sql, parsed, running)).await,
        Statement::CreateStream(create) => {
            Box::pin(create_relation::stream(session, *create, &parsed.text)).await
        }
        Statement::CreateTable(create) => {
            Box::pin(create_relation::table(session, *create, &parsed.text)).await
        }
        Statement::CreateMaterializedView(create) => {
            Box::pin(create_view::materialized(session, *create, &parsed.text)).await
        }
        Statement::Copy(copy) => Box::pin(copy::execute(session, *copy, running)).await,
        Statement::Explain(explain) => Box::pin(explain::execute(session, *explain)).await,
        Statement::Show(show) => Box::pin(show::execute(session, &show, running)).await,
        Statement::Describe(name) => show::describe(session, &name),
        Statement::SetVariable(variable) => set::variable(session, &variable),
        Statement::ResetVariable(name) => set::reset(session, name.as_deref()),
        Statement::SetConstraintsAll { .. } => transaction::set_constraints(session),
        Statement::Drop(drop) => Box::pin(drop::execute(session, &drop)).await,
        Statement::Fetch(fetch) => Box::pin(cursor::fetch(session, &fetch, running)).await,
        Statement::Refresh(name) => Box::pin(job::refresh(session, &name)).await,
        Statement::Flush => Box::pin(transaction::flush(session)).await,
        Statement::Checkpoint => Box::pin(transaction::checkpoint(session)).await,
        Statement::Wait => Box::pin(job::wait(session)).await,
        Statement::CreateSink(create) => Box::pin(create_sink::execute(session, *create, &parsed.text)).await,
        Statement::CreateSubscription(create) => {
            Box::pin(create_subscription::execute(session, *create, &parsed.text)).await
        }
        Statement::CreateExternalTable(create) => {
            Box::pin(create_external::execute(session, *create, &parsed.text)).await
        }
        Statement::CreateFunction(create) => {
            Box::pin(create_function::execute(session, *create, &parsed.text)).await
        }
        Statement::CreateEnum(create) => {
            Box::pin(user_type::create_enum(session, &create, &parsed.text)).await
        }
        Statement::CreateComposite(create) => {
            Box::pin(user_type::create_composite(session, *create, &parsed.text)).await
        }
        Statement::CreateDomain(create) => {
            Box::pin(user_type::create_domain(session, *create, &parsed.text)).await
        }
        Statement::Subscribe(subscribe) => Box::pin(subscribe::execute(session, &subscribe, running)).await,
        Statement::DeclareSubscribeCursor(declare) => {
            Box::pin(cursor::declare_subscribe(session, &declare, &parsed.text)).await
        }
        Statement::DeclareSubscriptionCursor(declare) => {
            Box::pin(cursor::declare_subscription(session, &declare, &parsed.text)).await
        }
        Statement::AlterRelation(alter) => Box::pin(alter::execute(session, *alter)).await,
        Statement::AlterSystemSet(alter) => alter_system::execute(session, &alter).await,
        Statement::CreateRole(create) => Box::pin(role::create(session, &create)).await,
        Statement::AlterRole(alter) => Box::pin(role::alter(session, &alter)).await,
        Statement::DropRole(drop) => Box::pin(role::drop(session, &drop)).await,
        Statement::ReassignOwned(reassign) => Box::pin(owned::reassign(session, &reassign)).await,
        Statement::DropOwned(drop) => Box::pin(owned::drop(session, &drop)).await,
        Statement::GrantRole(grant) => Box::pin(role::grant(session, &grant)).await,
        Statement::Grant(grant) => Box::pin(grant::execute(session, &grant)).await,
        Statement::AlterDefaultPrivileges(alter) => Box::pin(grant::defaults(session, &alter)).await,
        Statement::CreateToken(create) => Box::pin(token::create(session, &create)).await,
        Statement::DropToken(drop) => Box::pin(token::drop(session, &drop)).await,
        Statement::CreateSecret(create) => Box::pin(secret::create(session, &create)).await,
        Statement::AlterSecret(alter) => Box::pin(secret::alter(session, &alter)).await,
        Statement::CancelJob(number) => Box::pin(job::cancel(session, number)).await,
        Statement::Pause(of) => Box::pin(job::pause(session, &of)).await,
        Statement::Resume(of) => Box::pin(job::resume(session, &of)).await,
        Statement::AddWorker => job::add_worker(session),
        Statement::DropWorker(number) => job::drop_worker(session, number),
        Statement::KillWorker(number) => job::kill_worker(session, number).await,
        Statement::Backup { to } => Box::pin(backup::execute(session, &to)).await,
    }
}

async fn execute_sql(
    session: &Arc<Session>,
    mut sql: ast::Statement,
    parsed: &Parsed,
    running: Running,
) -> SqlResult<Outcome> {
    match sql {
        ast::Statement::Query(query) if changes::has_changes(&query) => {
            Box::pin(with_changes::execute(session, *query, running)).await
        }
        ast::Statement::Query(_) => Box::pin(select::execute(session, &mut sql, running)).await,
        ast::Statement::Insert(insert) => Box::pin(insert::execute(session, insert, running)).await,
        ast::Statement::Update(update) => Box::pin(update::execute(session, update, running)).await,
        ast::Statement::Delete(delete) => Box::pin(delete::execute(session, delete, running)).await,
        ast::Statement::Merge(merge) => Box::pin(merge::execute(session, merge, running)).await,
        ast::Statement::Truncate(truncate) => Box::pin(truncate::execute(session, &truncate)).await,
        ast::Statement::StartTransaction { modes, begin, .. } => {
            transaction::begin(session, &modes, if begin { "BEGIN" } else { "START TRANSACTION" })
        }
        ast::Statement::Commit { chain, .. } => Box::pin(transaction::commit(session, chain)).await,
        ast::Statement::Rollback {
            savepoint: Some(name),
            ..
        } => transaction::rollback_to(session, &name),
        ast::Statement::Rollback { chain, .. } => transaction::rollback(session, chain),
        ast::Statement::Savepoint { name } => transaction::savepoint(session, &name),
        ast::Statement::ReleaseSavepoint { name } => transaction::release(session, &name),
        ast::Statement::Prepare {
            name,
            data_types,
            statement,
        } => prepare::prepare(session, &name, &data_types, *statement, &parsed.text, &running),
        ast::Statement::Execute { name, parameters, .. } => {
            Box::pin(prepare::execute(session, name.as_ref(), &parameters, running)).await
        }
        ast::Statement::Deallocate { name, .. } => prepare::deallocate(session, &name),
        ast::Statement::Declare { stmts } => {
            Box::pin(cursor::declare(session, stmts, &parsed.text, running)).await
        }
        ast::Statement::Close { cursor } => cursor::close(session, &cursor),
        ast::Statement::Discard { object_type } => Box::pin(set::discard(session, &object_type)).await,
        ast::Statement::Comment {
            object_type,
            object_name,
            comment,
            if_exists,
        } => {
            Box::pin(comment::execute(
                session,
                object_type,
                &object_name,
                comment,
                if_exists,
            ))
            .await
        }
        ast::Statement::CreateView(view) => Box::pin(create_view::plain(session, view, &parsed.text)).await,
        ast::Statement::CreateIndex(index) => {
            Box::pin(create_index::execute(session, index, &parsed.text)).await
        }
        ast::Statement::CreateSchema {
            schema_name,
            if_not_exists,
            ..
        } => {
            Box::pin(create_namespace::schema(
                session,
                &schema_name,
                if_not_exists,
                &parsed.text,
            ))
            .await
        }
        ast::Statement::CreateDatabase {
            db_name,
            if_not_exists,
            ..
        } => {
            Box::pin(create_namespace::database(
                session,
                &db_name,
                if_not_exists,
                &parsed.text,
            ))
            .await
        }
        ast::Statement::CreateSequence {
            name,
            if_not_exists,
            data_type,
            sequence_options,
            owned_by,
            temporary,
        } => {
            let new = create_sequence::NewSequence {
                name,
                temporary,
                if_not_exists,
                data_type,
                options: sequence_options,
                owned_by,
            };
            Box::pin(create_sequence::execute(session, new, &parsed.text)).await
        }
        ast::Statement::Lock(lock) => Box::pin(lock::table(session, &lock)).await,
        ast::Statement::LISTEN { channel } => {
            news::listen(session, &channel)?;
            done("LISTEN")
        }
        ast::Statement::UNLISTEN { channel } => {
            news::unlisten(session, &channel);
            done("UNLISTEN")
        }
        ast::Statement::NOTIFY { channel, payload } => {
            let channel = millrace_parser::fold(&channel);
            news::notify(session, &channel, payload.as_deref().unwrap_or_default())?;
            done("NOTIFY")
        }
        ast::Statement::Set(set) => set::other(session, &set),
        ast::Statement::CreateExtension(create) => extension::create(session, &create),
        other => match lock::upkeep(session, &other)? {
            Some(done) => Ok(done),
            None => unsupported(&first_words(&other.to_string())),
        },
    }
}

/// The first words of a statement: what it is called in a message.
fn first_words(text: &str) -> String {
    let upper = |word: &&str| word.chars().all(|character| character.is_ascii_uppercase());
    let words: Vec<&str> = text.split_whitespace().take(3).take_while(upper).collect();
    words.join(" ")
}

fn unsupported(what: &str) -> SqlResult<Outcome> {
    Err(SqlError::unsupported(format!("{what} is not supported")))
}

/// An outcome without rows.
pub fn done(command: &'static str) -> SqlResult<Outcome> {
    Ok(Outcome::Done {
        tag: CommandTag::plain(command),
    })
}

/// Whether the statement ends a transaction.
pub(crate) fn ends_transaction(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Sql(sql) if matches!(**sql, ast::Statement::Commit { .. } | ast::Statement::Rollback { .. })
    )
}

/// Whether it is a query that changes nothing, and so holds no lock that others wait for.
pub(crate) fn is_query(statement: &Statement) -> bool {
    match statement {
        Statement::Sql(sql) => match sql.as_ref() {
            ast::Statement::Query(query) => !changes::has_changes(query),
            _ => false,
        },
        _ => false,
    }
}

/// Whether it reads or changes rows.
fn reads(statement: &Statement) -> bool {
    match statement {
        Statement::Copy(_) | Statement::Fetch(_) | Statement::Subscribe(_) => true,
        Statement::Sql(sql) => matches!(
            sql.as_ref(),
            ast::Statement::Query(_)
                | ast::Statement::Insert(_)
                | ast::Statement::Update(_)
                | ast::Statement::Delete(_)
                | ast::Statement::Merge(_)
                | ast::Statement::Declare { .. }
        ),
        _ => false,
    }
}

/// Whether the statement begins one.
pub(crate) fn begins_transaction(statement: &Statement) -> bool {
    matches!(statement, Statement::Sql(sql) if matches!(**sql, ast::Statement::StartTransaction { .. }))
}

/// What the statement is called if it changes definitions.
fn ddl_command(statement: &Statement) -> Option<&'static str> {
    Some(match statement {
        Statement::CreateStream(_) => "CREATE STREAM",
        Statement::CreateTable(_) => "CREATE TABLE",
        Statement::CreateExternalTable(_) => "CREATE EXTERNAL TABLE",
        Statement::CreateFunction(_) => "CREATE FUNCTION",
        Statement::CreateEnum(_) | Statement::CreateComposite(_) => "CREATE TYPE",
        Statement::CreateDomain(_) => "CREATE DOMAIN",
        Statement::CreateMaterializedView(_) => "CREATE MATERIALIZED VIEW",
        Statement::CreateSink(_) => "CREATE SINK",
        Statement::CreateSubscription(_) => "CREATE SUBSCRIPTION",
        Statement::Drop(_) => "DROP",
        Statement::AlterRelation(_) => "ALTER",
        Statement::CreateRole(_) => "CREATE ROLE",
        Statement::AlterRole(_) => "ALTER ROLE",
        Statement::DropRole(_) => "DROP ROLE",
        Statement::ReassignOwned(_) => "REASSIGN OWNED",
        Statement::DropOwned(_) => "DROP OWNED",
        Statement::GrantRole(_) | Statement::Grant(_) => "GRANT",
        Statement::AlterDefaultPrivileges(_) => "ALTER DEFAULT PRIVILEGES",
        Statement::CreateToken(_) => "CREATE TOKEN",
        Statement::DropToken(_) => "DROP TOKEN",
        Statement::CreateSecret(_) => "CREATE SECRET",
        Statement::AlterSecret(_) => "ALTER SECRET",
        Statement::Sql(sql) => match **sql {
            ast::Statement::CreateView(_) => "CREATE VIEW",
            ast::Statement::CreateIndex(_) => "CREATE INDEX",
            ast::Statement::CreateSchema { .. } => "CREATE SCHEMA",
            ast::Statement::CreateSequence { .. } => "CREATE SEQUENCE",
            ast::Statement::CreateDatabase { .. } => "CREATE DATABASE",
            ast::Statement::Comment { .. } => "COMMENT",
            _ => return None,
        },
        _ => return None,
    })
}

/// Whether a statement that defines something does more than that, so that it cannot wait for COMMIT.
fn acts_at_once(statement: &Statement, implicit: bool) -> bool {
    match statement {
        Statement::CreateSink(_) | Statement::CreateSubscription(_) | Statement::DropOwned(_) => true,
        // In one query with others it is a job like any other.
        Statement::CreateMaterializedView(_) => implicit,
        Statement::Drop(drop) => matches!(
            drop.kind,
            ObjectKind::Database | ObjectKind::Sink | ObjectKind::Subscription
        ),
        Statement::AlterRelation(alter) => match alter.operations.as_slice() {
            [AlterOperation::SetOptions(options)] => options
                .0
                .iter()
                .any(|option| option.name.value.eq_ignore_ascii_case("watermark")),
            _ => false,
        },
        Statement::Sql(sql) => matches!(**sql, ast::Statement::CreateDatabase { .. }),
        _ => false,
    }
}

/// What acts at once commits what an implicit transaction holds, and is refused in any other.
async fn begin_ddl(session: &Arc<Session>, command: &'static str, implicit: bool) -> SqlResult<()> {
    if !implicit {
        return Err(ddl_in_transaction(command));
    }
    session.commit().await?;
    // What came before lasts; the definition can still be abandoned.
    session.running().reopen()
}
