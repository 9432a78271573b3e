//! SHOW and DESCRIBE.

mod created;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast;
use millrace_catalog::scope::Scope;
use millrace_catalog::{Definition, Object, Relation, kind_name};
use millrace_database::Database;
use millrace_database::database::sinks::SinkStatus;
use millrace_database::database::sources::SourceInfo;
use millrace_database::running::Running;
use millrace_database::sessions::Activity;
use millrace_parser::ast::{ObjectName, ShowStatement, ShowTarget, Statement};
use millrace_parser::quote_literal;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::{from_internal, types};
use millrace_storage::{ObjectId, ObjectKind};
use millrace_system::pg_catalog::activity::{HIDDEN, may_see};

use crate::names;
use crate::outcome::{CommandTag, Outcome};
use crate::query::rows_of;
use crate::session::Session;
use crate::statement::select;

/// A table of texts: what SHOW answers with.
type Rows = Vec<Vec<Option<String>>>;

/// Columns of text.
pub fn schema(names: &[&str]) -> SchemaRef {
    Arc::new(Schema::new(
        names
            .iter()
            .map(|name| Field::new(*name, DataType::Utf8, true))
            .collect::<Vec<_>>(),
    ))
}

/// What PostgreSQL calls a setting, however it was written.
fn shown_name(setting: &str) -> &str {
    match setting {
        "timezone" => "TimeZone",
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        other => other,
    }
}

/// The columns that SHOW of something has, if it is not a SELECT ([`as_select`]).
pub fn columns(target: &ShowTarget) -> SchemaRef {
    match target {
        ShowTarget::Variable(name) => schema(&[shown_name(name)]),
        ShowTarget::All | ShowTarget::Parameters => schema(&["name", "setting", "description"]),
        ShowTarget::Columns(_) => schema(&["name", "type", "nullable", "default", "comment"]),
        ShowTarget::Create(_) => schema(&["name", "create_sql"]),
        ShowTarget::Indexes(_) => schema(&["name", "on", "key"]),
        ShowTarget::Processlist => schema(&[
            "id",
            "user",
            "database",
            "peer",
            "application",
            "state",
            "priority",
            "started_at",
            "info",
        ]),
        ShowTarget::Jobs
        | ShowTarget::Batches
        | ShowTarget::Workers
        | ShowTarget::Watermarks
        | ShowTarget::Backpressure
        | ShowTarget::Suspended => schema(&[]),
        ShowTarget::Secrets => schema(&["name", "schema", "owner", "state", "comment"]),
        ShowTarget::Cursors => schema(&["name", "hold", "query"]),
        ShowTarget::Databases | ShowTarget::Schemas => schema(&["name", "comment"]),
        ShowTarget::Functions => schema(&["name"]),
        ShowTarget::Streams => schema(&["name", "schema", "comment", "late_rows"]),
        ShowTarget::Sources => schema(&[
            "name",
            "schema",
            "comment",
            "late_rows",
            "connector",
            "state",
            "lag_records",
            "error",
        ]),
        ShowTarget::Sinks => schema(&["name", "schema", "comment", "state", "error", "delivery"]),
        ShowTarget::Subscriptions => schema(&["name", "schema", "comment", "relation", "state", "error"]),
        ShowTarget::Tables | ShowTarget::Views | ShowTarget::MaterializedViews => {
            schema(&["name", "schema", "comment"])
        }
    }
}

/// The SELECT over `mr_catalog` that a SHOW stands for, where it does.
///
/// # Errors
/// None for what is written here.
pub fn as_select(show: &ShowStatement) -> SqlResult<Option<ast::Statement>> {
    let (columns, relation, condition) = match &show.target {
        ShowTarget::Jobs => (
            "id, view, state, rows_done, rows_total, percent, elapsed, time_left, on_disk_bytes, error",
            "jobs",
            "true",
        ),
        ShowTarget::Batches => (
            "pipeline, epoch, sources, views, group_size, scheduling_us, execution_us, idle_us, workers, \
             writes_waiting, epochs_under_way, epoch_age_us",
            "batches",
            "true",
        ),
        ShowTarget::Workers => (
            "id, address, state, cores, partitions, tasks_waiting",
            "workers",
            "true",
        ),
        ShowTarget::Watermarks => (
            "relation, watermark, late_rows, future_rows",
            "watermarks",
            "true",
        ),
        ShowTarget::Backpressure => (
            "view, stage, waits_for, tasks_waiting, waiting_us, source",
            "flow",
            "tasks_waiting > 0",
        ),
        ShowTarget::Suspended => (
            "query, stage, partition, worker, class, pauses, paused_ms, pause_latency_max_us, cpu_ms, held_bytes",
            "tasks",
            "state = 'paused'",
        ),
        _ => return Ok(None),
    };
    let first = columns.split(',').next().unwrap_or(columns);
    let like = show.like.as_ref().map_or(String::new(), |pattern| {
        format!(" AND {first}::text LIKE {}", quote_literal(pattern))
    });
    let sql = format!("SELECT {columns} FROM mr_catalog.{relation} WHERE {condition}{like}");
    let parsed = millrace_parser::parse(&sql).map_err(SqlError::from)?;
    Ok(parsed.into_iter().find_map(|parsed| match parsed.statement {
        Statement::Sql(select) => Some(*select),
        _ => None,
    }))
}

/// Executes SHOW.
pub async fn execute(session: &Arc<Session>, show: &ShowStatement, running: Running) -> SqlResult<Outcome> {
    if let Some(mut select) = as_select(show)? {
        return Ok(match select::execute(session, &mut select, running).await? {
            Outcome::Rows { schema, stream, .. } => Outcome::Rows {
                schema,
                stream,
                tag: CommandTag::plain("SHOW"),
            },
            other => other,
        });
    }
    listing(session, show)
}

fn listing(session: &Arc<Session>, show: &ShowStatement) -> SqlResult<Outcome> {
    let scope = session.scope();
    let mut rows = rows(session, &scope, show)?;
    if let Some(pattern) = &show.like {
        rows.retain(|row| {
            row.first()
                .and_then(Option::as_deref)
                .is_some_and(|name| like(name, pattern))
        });
    }
    answer(columns(&show.target), &rows, "SHOW")
}

/// Executes DESCRIBE.
pub fn describe(session: &Arc<Session>, name: &ObjectName) -> SqlResult<Outcome> {
    let target = ShowTarget::Columns(name.clone());
    let show = ShowStatement {
        target,
        schema: None,
        like: None,
    };
    let scope = session.scope();
    let rows = rows(session, &scope, &show)?;
    answer(columns(&show.target), &rows, "DESCRIBE")
}

/// An outcome of texts.
pub fn answer(schema: SchemaRef, rows: &Rows, command: &'static str) -> SqlResult<Outcome> {
    let columns: Vec<ArrayRef> = (0..schema.fields().len())
        .map(|column| {
            let values: StringArray = rows
                .iter()
                .map(|row| row.get(column).cloned().flatten())
                .collect();
            Arc::new(values) as ArrayRef
        })
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)
        .map_err(from_internal::arrow)?;
    let stream = rows_of(Arc::clone(&schema), vec![batch]);
    Ok(Outcome::Rows {
        schema,
        stream,
        tag: CommandTag::plain(command),
    })
}

fn some(text: impl ToString) -> Option<String> {
    Some(text.to_string())
}

fn rows(session: &Arc<Session>, scope: &Scope, show: &ShowStatement) -> SqlResult<Rows> {
    let db = session.database();
    let kind = |kind: ObjectKind| relations(scope, show.schema.as_ref(), kind);
    Ok(match &show.target {
        ShowTarget::Streams => streams(db, scope, show.schema.as_ref())?,
        ShowTarget::Sources => sources(db, scope, show.schema.as_ref())?,
        ShowTarget::Tables => kind(ObjectKind::Table)?,
        ShowTarget::Views => kind(ObjectKind::View)?,
        ShowTarget::MaterializedViews => kind(ObjectKind::MaterializedView)?,
        ShowTarget::Sinks => sinks(db, scope, show.schema.as_ref())?,
        ShowTarget::Subscriptions => subscriptions(db, scope, show.schema.as_ref())?,
        ShowTarget::Secrets => secrets(db, scope, show.schema.as_ref())?,
        ShowTarget::Indexes(relation) => {
            let relation = relation
                .as_ref()
                .map(|name| names::resolve(session, scope, name))
                .transpose()?;
            scope
                .catalog
                .relations(&scope.database)
                .filter_map(|object| {
                    let Definition::Index(index) = &object.definition else {
                        return None;
                    };
                    let on = scope.catalog.object(index.relation)?;
                    if relation.as_ref().is_some_and(|relation| relation.id != on.id) {
                        return None;
                    }
                    let key = key_names(on, &index.columns).join(", ");
                    Some(vec![some(&object.name), some(&on.name), Some(key)])
                })
                .collect()
        }
        ShowTarget::Functions => {
            let state = db.state();
            let own: Vec<String> = (scope.catalog.functions(&scope.database))
                .map(|object| object.display_name())
                .collect();
            let mut names: Vec<&String> = state
                .scalar_functions()
                .keys()
                .chain(state.aggregate_functions().keys())
                .chain(state.window_functions().keys())
                .chain(&own)
                .collect();
            names.sort();
            names.dedup();
            names.into_iter().map(|name| vec![some(name)]).collect()
        }
        ShowTarget::Databases => scope
            .catalog
            .databases()
            .map(|object| vec![some(&object.name), object.comment.clone()])
            .collect(),
        ShowTarget::Schemas => {
            let system = millrace_catalog::SYSTEM_SCHEMAS
                .iter()
                .map(|name| vec![some(name), None]);
            let own = scope.catalog.schemas(&scope.database);
            let mut all: Rows = own
                .map(|object| vec![some(&object.name), object.comment.clone()])
                .chain(system)
                .collect();
            all.sort();
            all
        }
        ShowTarget::Cursors => session
            .cursors
            .lock()
            .iter()
            .map(|(name, cursor)| vec![some(name), some(cursor.hold), some(&cursor.query)])
            .collect(),
        ShowTarget::Columns(name) => columns_of(session, scope, name)?,
        ShowTarget::Create(reference) => {
            let object = created::object(session, scope, reference)?;
            vec![vec![some(object.display_name()), some(&object.sql)]]
        }
        // Selects: see `as_select`.
        ShowTarget::Jobs
        | ShowTarget::Batches
        | ShowTarget::Workers
        | ShowTarget::Watermarks
        | ShowTarget::Backpressure
        | ShowTarget::Suspended => vec![],
        ShowTarget::Processlist => processes(session),
        ShowTarget::All | ShowTarget::Parameters => session
            .settings_shown()
            .into_iter()
            .map(|shown| {
                let description = shown
                    .known
                    .map_or("Created by the session.", |known| known.description);
                vec![Some(shown.name), Some(shown.value), some(description)]
            })
            .collect(),
        ShowTarget::Variable(name) => vec![vec![Some(session.setting_shown(name)?)]],
    })
}

/// Secrets, without their values.
fn secrets(db: &Database, scope: &Scope, schema: Option<&ObjectName>) -> SqlResult<Rows> {
    let rows = objects(scope, schema, ObjectKind::Secret)?.filter_map(|object| {
        let Definition::Secret(def) = &object.definition else {
            return None;
        };
        Some(vec![
            some(&object.name),
            some(&object.schema),
            some(scope.catalog.role_name(object.rights.owner())),
            some(db.secrets().state(object.id, def)),
            object.comment.clone(),
        ])
    });
    Ok(rows.collect())
}

/// Streams, each with the rows that were too late for it since the start of the server, if it has a watermark.
fn streams(db: &Database, scope: &Scope, schema: Option<&ObjectName>) -> SqlResult<Rows> {
    let late: BTreeMap<u64, u64> = (db.runtime().watermarks().into_iter())
        .map(|status| (status.relation.0, status.late_rows))
        .collect();
    let rows = objects(scope, schema, ObjectKind::Stream)?.map(|object| {
        let late = late.get(&object.id.0).map(u64::to_string);
        vec![
            some(&object.name),
            some(&object.schema),
            object.comment.clone(),
            late,
        ]
    });
    Ok(rows.collect())
}

/// Streams, and tables that are fed, each with what feeds it. Those that keep what did not enter others are left out.
fn sources(db: &Database, scope: &Scope, schema: Option<&ObjectName>) -> SqlResult<Rows> {
    let fed: BTreeMap<ObjectId, SourceInfo> = (db.sources().list().into_iter())
        .map(|info| (info.stream, info))
        .collect();
    let late: BTreeMap<u64, u64> = (db.runtime().watermarks().into_iter())
        .map(|status| (status.relation.0, status.late_rows))
        .collect();
    let beside: BTreeSet<ObjectId> = (scope.catalog.relations(&scope.database))
        .filter_map(|object| object.relation())
        .flat_map(Relation::beside)
        .collect();
    let connector = |object: &Arc<Object>| {
        let connector = object.relation()?.connector.as_ref()?;
        Some(connector.name().to_owned())
    };
    let streams = objects(scope, schema, ObjectKind::Stream)?.filter(|object| !beside.contains(&object.id));
    let tables = objects(scope, schema, ObjectKind::Table)?.filter(|object| connector(object).is_some());
    let row = |object: &Arc<Object>| {
        // A table that follows a server is as far as that.
        let of = std::iter::once(&object.id).chain(&object.depends);
        let progress = of.filter_map(|id| fed.get(id)).map(|info| &info.progress).next();
        vec![
            some(&object.name),
            some(&object.schema),
            object.comment.clone(),
            late.get(&object.id.0).map(u64::to_string),
            connector(object),
            progress.map(|progress| progress.state.name().to_owned()),
            progress.and_then(|progress| some(progress.lag_records?)),
            progress.and_then(|progress| progress.error.clone()),
        ]
    };
    Ok(streams.chain(tables).map(row).collect())
}

fn sinks(db: &Database, scope: &Scope, schema: Option<&ObjectName>) -> SqlResult<Rows> {
    let status: BTreeMap<ObjectId, SinkStatus> = db.sinks().list().into_iter().collect();
    let rows = objects(scope, schema, ObjectKind::Sink)?.map(|object| {
        let status = status.get(&object.id);
        vec![
            some(&object.name),
            some(&object.schema),
            object.comment.clone(),
            status.map(|status| status.state().to_owned()),
            status.and_then(|status| status.error.clone()),
            delivery(object),
        ]
    });
    Ok(rows.collect())
}

fn subscriptions(db: &Database, scope: &Scope, schema: Option<&ObjectName>) -> SqlResult<Rows> {
    let status: BTreeMap<ObjectId, SinkStatus> = db.sinks().list().into_iter().collect();
    let relation = |object: &Object| match &object.definition {
        Definition::Sink(def) => Some(scope.catalog.object(def.relation)?.display_name()),
        _ => None,
    };
    let rows = objects(scope, schema, ObjectKind::Subscription)?.map(|object| {
        let status = status.get(&object.id);
        vec![
            some(&object.name),
            some(&object.schema),
            object.comment.clone(),
            relation(object),
            status.map(|status| status.state().to_owned()),
            status.and_then(|status| status.error.clone()),
        ]
    });
    Ok(rows.collect())
}

fn delivery(object: &Object) -> Option<String> {
    match &object.definition {
        Definition::Sink(def) => some(def.target.delivery().name()),
        _ => None,
    }
}

fn relations(scope: &Scope, schema: Option<&ObjectName>, kind: ObjectKind) -> SqlResult<Rows> {
    let objects = objects(scope, schema, kind)?;
    let row = |object: &Arc<Object>| vec![some(&object.name), some(&object.schema), object.comment.clone()];
    Ok(objects.map(row).collect())
}

fn objects<'a>(
    scope: &'a Scope,
    schema: Option<&ObjectName>,
    kind: ObjectKind,
) -> SqlResult<impl Iterator<Item = &'a Arc<Object>>> {
    let schema = schema.map(names::last);
    if let Some(schema) = &schema
        && !scope.catalog.has_schema(&scope.database, schema)
    {
        return Err(SqlError::new(
            SqlState::InvalidSchemaName,
            format!("schema \"{schema}\" does not exist"),
        ));
    }
    Ok(scope
        .catalog
        .contents(&scope.database)
        .filter(move |object| {
            object.kind == kind || (kind == ObjectKind::Table && object.kind == ObjectKind::ExternalTable)
        })
        .filter(move |object| schema.as_ref().is_none_or(|schema| *schema == object.schema)))
}

fn columns_of(session: &Session, scope: &Scope, name: &ObjectName) -> SqlResult<Rows> {
    let reference = names::parts(name)?;
    let reader = session.database().reader(scope);
    let (schema, table) = reader.parts(&reference)?;
    if let Some(object) = reader.object(schema, table)
        && let Some(relation) = object.relation()
    {
        return Ok(relation
            .columns
            .iter()
            .map(|column| {
                let default = match (&column.generated, &column.default, column.proctime) {
                    (Some(expression), _, _) => Some(format!("generated always as ({expression})")),
                    (None, Some(expression), _) => Some(expression.to_string()),
                    (None, None, true) => some("proctime()"),
                    (None, None, false) => None,
                };
                vec![
                    some(column.field.name()),
                    Some(types::type_name(&column.field)),
                    some(if column.field.is_nullable() { "yes" } else { "no" }),
                    default,
                    column.comment.clone(),
                ]
            })
            .collect());
    }
    let provider =
        millrace_sql::CatalogReader::table(&reader, &reference).map_err(from_internal::datafusion)?;
    Ok(provider
        .schema()
        .fields()
        .iter()
        .map(|field| {
            let nullable = if field.is_nullable() { "yes" } else { "no" };
            vec![
                some(field.name()),
                Some(types::type_name(field)),
                some(nullable),
                None,
                None,
            ]
        })
        .collect())
}

/// The names of columns by position.
pub(crate) fn key_names(object: &Object, positions: &[usize]) -> Vec<String> {
    match object.relation() {
        Some(relation) => positions
            .iter()
            .filter_map(|position| relation.columns.get(*position))
            .map(|column| column.field.name().clone())
            .collect(),
        None => vec![kind_name(object.kind).to_string()],
    }
}

fn processes(session: &Session) -> Rows {
    let scope = session.scope();
    let viewer = scope.acting;
    session
        .database()
        .sessions()
        .into_iter()
        .map(|other| {
            let info = other.info();
            let activity = other.activity();
            let running = activity.as_ref().is_some_and(Activity::is_running);
            let started = activity.as_ref().and_then(|activity| {
                chrono::DateTime::from_timestamp_millis(activity.started_at_ms).map(|time| time.to_rfc3339())
            });
            vec![
                some(other.id()),
                some(scope.catalog.role_name(other.user())),
                some(&info.database),
                some(&info.peer),
                other.setting("application_name"),
                some(if running { "active" } else { "idle" }),
                some(other.query_class()),
                started,
                activity.map(
                    |activity| match may_see(session.database(), other.as_ref(), viewer) {
                        true => activity.statement,
                        false => HIDDEN.to_owned(),
                    },
                ),
            ]
        })
        .collect()
}

/// SQL's LIKE with `%` and `_`.
fn like(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    let (mut at, mut next) = (0, 0);
    // Where to go on after the last `%`, with one character more eaten by it.
    let mut retry: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(next) {
            Some('%') => {
                retry = Some((at, next));
                next += 1;
            }
            Some(character) if *character == '_' || *character == text[at] => {
                at += 1;
                next += 1;
            }
            _ => match retry {
                Some((eaten, percent)) => {
                    retry = Some((eaten + 1, percent));
                    at = eaten + 1;
                    next = percent + 1;
                }
                None => return false,
            },
        }
    }
    pattern[next..].iter().all(|character| *character == '%')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_sql() {
        for (text, pattern, expected) in [
            ("flights", "fl%", true),
            ("flights", "%g%s", true),
            ("flights", "f_ights", true),
            ("flights", "flight", false),
            ("", "%", true),
            ("aab", "%ab", true),
            ("x", "", false),
        ] {
            assert_eq!(like(text, pattern), expected, "{text} like {pattern}");
        }
    }
}
