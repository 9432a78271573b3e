//! CREATE VIEW and CREATE MATERIALIZED VIEW.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, CreateView};
use millrace_catalog::scope::Scope;
use millrace_catalog::sink::SinkDef;
use millrace_catalog::temporary::is_temporary;
use millrace_catalog::{Definition, Object, Planned, QueryDef, Relation};
use millrace_database::clock::now_ms;
use millrace_database::database::ddl::DdlGuard;
use millrace_database::database::jobs::Making;
use millrace_database::database::replace::check_no_circle;
use millrace_database::database::subscriptions;
use millrace_engine::ViewSpec;
use millrace_functions::sql::column_names;
use millrace_parser::ast::{CreateMaterializedView, Emit};
use millrace_planner::growth::Growth;
use millrace_planner::{Binder, Priority, RelationKind, StageGraph};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_sql::copies;
use millrace_storage::{ObjectId, ObjectKind};

use crate::constants::lasting_search_path;
use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::create_relation::{check_columns, failed_rows};
use crate::statement::new_views::make;
use crate::statement::view_options::{options, refuse_options};
use crate::statement::{create_subscription, done, select};

/// CREATE VIEW.
pub async fn plain(session: &Arc<Session>, view: CreateView, text: &str) -> SqlResult<Outcome> {
    if view.materialized {
        return Err(SqlError::internal("a materialized view reached CREATE VIEW"));
    }
    refuse_options(&view.options)?;
    let columns: Vec<String> = view
        .columns
        .iter()
        .map(|column| millrace_parser::fold(&column.name))
        .collect();
    check_names(&view.query, &columns)?;
    let mut query = QueryDef::new(view.query.to_string(), lasting_search_path(session), columns);
    let guard = session.ddl().await?;
    let scope = session.scope();
    let path_scope = millrace_catalog::scope::Scope {
        search_path: query.search_path.clone(),
        ..scope.clone()
    };
    let reader = session.database().reader(&path_scope);
    let (schema, name, is_own) = names::new_table_name(session, &scope, &view.name, view.temporary)?;
    let before = scope.catalog.relation(&scope.database, &schema, &name).cloned();
    let id = match &before {
        Some(_) if view.if_not_exists => {
            session.notice(
                Severity::Notice,
                format!("relation \"{name}\" already exists, skipping"),
            );
            return done("CREATE VIEW");
        }
        Some(old) if view.or_replace && old.kind == ObjectKind::View => {
            scope.check_owner(old)?;
            old.id
        }
        Some(old) if view.or_replace => {
            return Err(
                SqlError::new(SqlState::WrongObjectType, format!("\"{name}\" is not a view"))
                    .with_detail(format!("It is a {}.", millrace_catalog::kind_name(old.kind))),
            );
        }
        _ => {
            guard.check_free(&scope.database, &schema, &name)?;
            guard.next_id()?
        }
    };
    let plan = reader.bind_query_text(&query)?;
    check_columns((plan.schema().fields().iter()).map(|field| copies::original(field.name())))?;
    query = query.with_names(reader.names());
    let depends = query.depends();
    // What is temporary itself goes with its session, too.
    if !is_own {
        refuse_temporary(&scope, &depends)?;
    }
    session.database().jobs().check_unlocked(&depends)?;
    if let Some(old) = &before {
        check_no_circle(&scope.catalog, old, &depends)?;
    }
    let rights = match &before {
        Some(old) => old.rights.clone(),
        None => scope.rights_of_new(ObjectKind::View, &schema),
    };
    let object = Object {
        id,
        kind: ObjectKind::View,
        database: scope.database.clone(),
        schema,
        name,
        sql: text.to_string(),
        comment: before.as_ref().and_then(|old| old.comment.clone()),
        created_at_ms: now_ms(),
        depends,
        definition: Definition::View(Arc::new(query)),
        rights,
    };
    if let Definition::View(query) = &object.definition {
        reader.view(&object, query)?;
    }
    let Some(old) = before else {
        guard.put(object)?;
        return done("CREATE VIEW");
    };
    let making = guard.replace(&old, object, None)?;
    if making.specs.is_empty() {
        guard.put_all(making.put)?;
        return done("CREATE VIEW");
    }
    make(session, guard, making).await?;
    done("CREATE VIEW")
}

/// Refuses a view two of whose columns would have one name. The plan cannot tell: names are made distinct before it.
pub(super) fn check_names(query: &ast::Query, columns: &[String]) -> SqlResult<()> {
    let names = column_names::output_names(query);
    check_columns(
        columns
            .iter()
            .chain(names.iter().skip(columns.len()))
            .map(String::as_str),
    )
}

/// Refuses what lasts over what goes with a session.
///
/// # Errors
/// 0A000.
pub(super) fn refuse_temporary(scope: &Scope, depends: &[ObjectId]) -> SqlResult<()> {
    let objects = depends.iter().filter_map(|id| scope.catalog.object(*id));
    match objects.into_iter().find(|object| is_temporary(&object.schema)) {
        None => Ok(()),
        Some(table) => Err(SqlError::unsupported(format!(
            "a view over temporary table \"{}\" is not supported",
            table.name
        ))
        .with_detail("The table goes with its session.")
        .with_hint("A view made by CREATE TEMPORARY VIEW goes with it, too.")),
    }
}

/// When the rows of a view are shown.
///
/// # Errors
/// An interval is not a constant, is not positive, or has months.
pub(super) fn emit(session: &Session, clause: &Emit) -> SqlResult<millrace_planner::Emit> {
    use millrace_planner::Emit as Planned;
    let micros = |what: &str, interval: &ast::Expr| -> SqlResult<i64> {
        let wrong = |why: &str| {
            SqlError::new(SqlState::InvalidParameterValue, format!("{what} {why}"))
                .with_hint("Use a constant interval: INTERVAL '10 seconds'.")
        };
        let scope = session.scope();
        let reader = session.database().reader(&scope);
        let binder = Binder::new(session.database().state(), &reader);
        let value = binder
            .constant(interval)
            .map_err(|_| wrong("must be a constant interval"))?;
        let ScalarValue::IntervalMonthDayNano(Some(interval)) = value else {
            return Err(wrong("must be an interval"));
        };
        if interval.months != 0 {
            return Err(wrong("cannot contain months, which vary in length"));
        }
        let days = i64::from(interval.days).checked_mul(86_400_000_000);
        let micros = days.and_then(|days| days.checked_add(interval.nanoseconds / 1_000));
        micros.ok_or_else(|| wrong("is out of range"))
    };
    match clause {
        Emit::Changes => Ok(Planned::Changes),
        Emit::OnWindowClose { delay: None } => Ok(Planned::OnWindowClose { delay: 0 }),
        Emit::OnWindowClose { delay: Some(delay) } => {
            match micros("the delay of EMIT ON WINDOW CLOSE", delay)? {
                delay if delay < 0 => Err(SqlError::new(
                    SqlState::InvalidParameterValue,
                    "the delay of EMIT ON WINDOW CLOSE must not be negative",
                )),
                delay => Ok(Planned::OnWindowClose { delay }),
            }
        }
        Emit::Every(every) => match micros("the interval of EMIT EVERY", every)? {
            every if every <= 0 => Err(SqlError::new(
                SqlState::InvalidParameterValue,
                "the interval of EMIT EVERY must be positive",
            )),
            every => Ok(Planned::Every(every)),
        },
    }
}

/// Whether overlapping windows are put together from panes.
pub(super) fn slides(session: &Session) -> bool {
    session.setting("sliding_windows").as_deref() != Some("recompute")
}

/// The plan of a view that is to be made, and what it names.
///
/// # Errors
/// It cannot be maintained, two of its columns have one name, or a job is making something that it names.
pub(super) fn plan(
    session: &Session,
    scope: &Scope,
    query: &QueryDef,
) -> SqlResult<(Planned, Vec<ObjectId>)> {
    let database = session.database();
    let planned = database.plan_materialized(&scope.catalog, &scope.database, query)?;
    let fields = planned.graph.schema.fields();
    check_columns(fields.iter().map(|field| copies::original(field.name())))?;
    if fields.is_empty() {
        return Err(SqlError::unsupported(
            "a materialized view without columns is not supported",
        ));
    }
    let depends = planned.query.depends();
    refuse_temporary(scope, &depends)?;
    check_reads(scope, &depends)?;
    database.jobs().check_unlocked(&depends)?;
    Ok((planned, depends))
}

/// Refuses to make, or to explain, what reads something that whoever acts may not read, or that is where it may not look: it was planned
/// with the rights of the server.
///
/// # Errors
/// 42501.
pub(super) fn check_reads(scope: &Scope, depends: &[ObjectId]) -> SqlResult<()> {
    for object in depends.iter().filter_map(|id| scope.catalog.object(*id)) {
        scope.check_schema(&object.schema)?;
        scope.check_read(object)?;
    }
    Ok(())
}

/// CREATE MATERIALIZED VIEW: returns when the view is live.
pub(crate) async fn materialized(
    session: &Arc<Session>,
    create: CreateMaterializedView,
    text: &str,
) -> SqlResult<Outcome> {
    let emit = emit(session, &create.emit)?;
    let options = options(session, &create.options)?;
    let columns: Vec<String> = create.columns.iter().map(millrace_parser::fold).collect();
    if let Ok(ast::Statement::Query(query)) = select::parse_query(&create.query_text) {
        check_names(&query, &columns)?;
    }
    let guard = session.ddl().await?;
    let scope = session.scope();
    let (schema, name) = names::new_name(session, &scope, &create.name)?;
    if create.if_not_exists
        && let Some(job) = session.database().jobs().making(&scope.database, &schema, &name)
    {
        let what = job.described();
        session.notice(
            Severity::Notice,
            format!("relation \"{name}\" already exists, skipping: {what}"),
        );
        return done("CREATE MATERIALIZED VIEW");
    }
    let before = scope.catalog.relation(&scope.database, &schema, &name).cloned();
    match &before {
        Some(_) if create.if_not_exists => {
            session.notice(
                Severity::Notice,
                format!("relation \"{name}\" already exists, skipping"),
            );
            return done("CREATE MATERIALIZED VIEW");
        }
        Some(old) if create.or_replace && old.kind == ObjectKind::MaterializedView => {}
        Some(old) if create.or_replace => {
            return Err(SqlError::new(
                SqlState::WrongObjectType,
                format!("\"{name}\" is not a materialized view"),
            )
            .with_detail(format!("It is a {}.", millrace_catalog::kind_name(old.kind))));
        }
        _ => guard.check_free(&scope.database, &schema, &name)?,
    }
    let query =
        QueryDef::new(create.query_text.clone(), lasting_search_path(session), columns).with_emit(emit);
    let query = options.apply(query.with_slides(slides(session)));
    let (planned, depends) = plan(session, &scope, &query)?;
    if let Some(old) = &before {
        scope.check_owner(old)?;
        check_no_circle(&scope.catalog, old, &depends)?;
    }
    let id = guard.next_id()?;
    let columns_before = before.as_ref().and_then(|old| old.relation());
    let columns_before = columns_before.map_or(&[][..], |relation| &relation.columns);
    let before_errors = before
        .as_ref()
        .and_then(|old| scope.catalog.object(old.relation()?.errors?));
    let new_errors = match options.keeps_errors && before_errors.is_none() {
        true => Some(failed_rows(&scope, &guard, &schema, &name)?),
        false => None,
    };
    let errors = match (options.keeps_errors, before_errors) {
        (true, _) => new_errors.as_ref().or(before_errors.map(AsRef::as_ref)),
        (false, Some(old)) => {
            check_unread(&scope, old)?;
            None
        }
        (false, None) => None,
    };
    let relation =
        Relation::of_view(id, &name, &planned, columns_before).with_errors(errors.map(|errors| errors.id));
    say_what_grows(session, &name, &planned.growth);
    let connected = scope.catalog.connected(&depends);
    say_what_is_urgent(
        session,
        &name,
        options.priority,
        connected.into_iter().filter(|(object, _)| object.id != id),
    );
    say_what_is_gone(session, &name, &planned.graph);
    let graph = planned.graph;
    let relation_id = relation.info.id;
    let rights = match &before {
        Some(old) => old.rights.clone(),
        None => scope.rights_of_new(ObjectKind::MaterializedView, &schema),
    };
    let object = Object {
        id,
        kind: ObjectKind::MaterializedView,
        database: scope.database.clone(),
        schema,
        name,
        sql: text.to_string(),
        comment: before.as_ref().and_then(|old| old.comment.clone()),
        created_at_ms: now_ms(),
        depends,
        definition: Definition::Relation(Box::new(relation)),
        rights,
    };
    let mut making = match &before {
        Some(old) => guard.replace(old, object, Some(graph))?,
        None => Making {
            specs: vec![ViewSpec {
                id: relation_id,
                name: object.name.clone(),
                graph,
                definition: guard.database().definition_of(&scope.catalog, &object),
            }],
            put: vec![object],
            removed: vec![],
        },
    };
    let mut history = None;
    if let (Some(ms), Some(view)) = (
        options.history_ms,
        making.put.iter().find(|object| object.id == id),
    ) {
        let made = history_of(&scope, &guard, view, ms)?;
        history = Some(made.id);
        making.put.push(made);
    }
    making.put.extend(new_errors);
    if let (Some(old), false) = (before_errors, options.keeps_errors) {
        making.removed.push(old.id);
    }
    make(session, guard, making).await?;
    if let Some(history) = history {
        // What changes from now on is in it.
        session.database().sinks().begun(history).await;
    }
    done("CREATE MATERIALIZED VIEW")
}

/// The subscription that keeps what a view was.
fn history_of(scope: &Scope, guard: &DdlGuard<'_>, view: &Object, ms: i64) -> SqlResult<Object> {
    let name = format!("{}$history", view.name);
    let old = scope.catalog.relation(&view.database, &view.schema, &name);
    // Of a view that this one takes the place of, it goes with that.
    let replaced = scope.catalog.relation(&view.database, &view.schema, &view.name);
    let goes = replaced.and_then(|replaced| scope.catalog.history_of(replaced.id));
    if old.is_none() || goes.map(|goes| goes.id) != old.map(|old| old.id) {
        guard.check_free(&view.database, &view.schema, &name)?;
    }
    let relation = view
        .relation()
        .ok_or_else(|| SqlError::internal("a view without rows"))?;
    let def = SinkDef::history(ms, subscriptions::new_identity(), &relation.info);
    create_subscription::check(&def, &relation.info)
        .map_err(|error| error.with_hint("Cast it to text in the query of the view."))?;
    Ok(Object {
        id: guard.next_id()?,
        kind: ObjectKind::Subscription,
        sql: format!("-- the history of materialized view {}", view.display_name()),
        name,
        comment: None,
        depends: vec![view.id],
        definition: Definition::Sink(Arc::new(def)),
        ..view.clone()
    })
}

/// Refuses to let go of rows on which a view failed, if something reads them.
fn check_unread(scope: &Scope, errors: &Object) -> SqlResult<()> {
    let mut readers = scope.catalog.closure(&[errors.id]);
    readers.remove(&errors.id);
    let Some(reader) = readers.iter().find_map(|id| scope.catalog.object(*id)) else {
        return Ok(());
    };
    Err(SqlError::new(
        SqlState::DependentObjectsStillExist,
        format!(
            "cannot drop {} because other objects depend on it",
            errors.described()
        ),
    )
    .with_detail(format!("{} depends on it.", reader.described()))
    .with_hint("Keep the errors of the view with on_error, or drop what reads them first."))
}

/// Views with common epochs are urgent if one of them is: what was asked for and is not so is said.
fn say_what_is_urgent<'a>(
    session: &Session,
    name: &str,
    priority: Priority,
    connected: impl Iterator<Item = (&'a Arc<Object>, &'a Arc<QueryDef>)>,
) {
    let mut urgent =
        connected.filter(|(_, query)| (query.priority == Priority::Batch) != (priority == Priority::Batch));
    let Some((other, _)) = urgent.next() else { return };
    let (batch, stream) = match priority {
        Priority::Batch => (name, other.name.as_str()),
        Priority::Stream => (other.name.as_str(), name),
    };
    session.notice(
        Severity::Notice,
        format!(
            "materialized view \"{batch}\" runs at the priority of streams, because it shares inputs with \
             \"{stream}\" and views that share inputs have common epochs"
        ),
    );
}

/// State that grows forever is accepted, but said.
fn say_what_grows(session: &Session, name: &str, growth: &Growth) {
    for state in &growth.state {
        session.notice(
            Severity::Notice,
            format!(
                "the state of materialized view \"{name}\" grows without bound: {} keeps {} of stream \
                 \"{}\"; if old rows are not needed, remove them with a condition such as ts > now() - \
                 INTERVAL '1 day'",
                state.operator, state.keeps, state.stream
            ),
        );
    }
}

/// A view is made of the rows that there are; that there were others is said.
pub(super) fn say_what_is_gone(session: &Session, name: &str, graph: &StageGraph) {
    let streams = graph
        .inputs
        .iter()
        .filter(|input| input.kind == RelationKind::Stream);
    for input in streams {
        let first = session.database().store().logs().first(input.id.0);
        if first > 0 {
            session.notice(
                Severity::Notice,
                format!(
                    "\"{name}\" does not include the first {first} rows of stream \"{}\", which retention \
                     has removed",
                    input.name
                ),
            );
        }
    }
}
