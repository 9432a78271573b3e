//! DROP, with what depends on the objects named (RESTRICT) or dropped as well (CASCADE).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_catalog::scope::Scope;
use millrace_catalog::{CatalogSnapshot, DEFAULT_DATABASE, Definition, Object, Relation, kind_name};
use millrace_database::database::ddl::DdlGuard;
use millrace_parser::ast::{DropBehavior, DropStatement, ObjectKind as Kind};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{ObjectId, ObjectKind};

use crate::functions;
use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::sequences;
use crate::session::Session;
use crate::statement::done;

/// Executes DROP.
pub async fn execute(session: &Arc<Session>, drop: &DropStatement) -> SqlResult<Outcome> {
    let (tag, wanted): (&'static str, &[ObjectKind]) = match drop.kind {
        Kind::Stream => ("DROP STREAM", &[ObjectKind::Stream]),
        Kind::Table => (
            "DROP TABLE",
            &[ObjectKind::Table, ObjectKind::ExternalTable, ObjectKind::Stream],
        ),
        Kind::View => ("DROP VIEW", &[ObjectKind::View]),
        Kind::MaterializedView => ("DROP MATERIALIZED VIEW", &[ObjectKind::MaterializedView]),
        Kind::Index => ("DROP INDEX", &[ObjectKind::Index]),
        Kind::Schema => ("DROP SCHEMA", &[ObjectKind::Schema]),
        Kind::Database => ("DROP DATABASE", &[ObjectKind::Database]),
        Kind::Sink => ("DROP SINK", &[ObjectKind::Sink]),
        Kind::Subscription => ("DROP SUBSCRIPTION", &[ObjectKind::Subscription]),
        Kind::Function => ("DROP FUNCTION", &[ObjectKind::Function]),
        Kind::Sequence => ("DROP SEQUENCE", &[ObjectKind::Sequence]),
        Kind::Secret => ("DROP SECRET", &[ObjectKind::Secret]),
        Kind::Type => ("DROP TYPE", &[ObjectKind::Type, ObjectKind::Domain]),
        Kind::Domain => ("DROP DOMAIN", &[ObjectKind::Domain]),
    };
    let guard = session.ddl().await?;
    let scope = session.scope();
    let mut targets: Vec<Arc<Object>> = vec![];
    for name in &drop.names {
        match target(session, &scope, drop.kind, name, wanted) {
            Ok(object) => {
                check_drop(&scope, &object)?;
                targets.push(object);
            }
            Err(error) if drop.if_exists && is_missing(error.code) => {
                let what = kind_name(wanted[0]);
                let what = if what == "materialized view" || what == "stream" {
                    "relation"
                } else {
                    what
                };
                session.notice(
                    Severity::Notice,
                    format!("{what} \"{name}\" does not exist, skipping"),
                );
            }
            Err(error) => return Err(error),
        }
    }
    if targets.is_empty() {
        return done(tag);
    }
    check_history(&scope.catalog, &targets)?;
    let mut ids: BTreeSet<ObjectId> = BTreeSet::new();
    for object in &targets {
        ids.extend(contents(session, &scope.catalog, object)?);
    }
    let dropping = Dropping {
        targets,
        contained: ids,
        is_of_schemas: matches!(drop.kind, Kind::Schema),
        behavior: drop.behavior,
    };
    dropping.execute(session, &guard, &scope).await?;
    done(tag)
}

/// Objects that are to be dropped, together.
pub(super) struct Dropping {
    pub targets: Vec<Arc<Object>>,
    /// They, and what is in them.
    pub contained: BTreeSet<ObjectId>,
    /// Whether what is in them is in the way.
    pub is_of_schemas: bool,
    pub behavior: DropBehavior,
}

impl Dropping {
    /// Drops them, and with CASCADE what depends on them.
    pub(super) async fn execute(
        self,
        session: &Arc<Session>,
        guard: &DdlGuard<'_>,
        scope: &Scope,
    ) -> SqlResult<()> {
        let Dropping {
            targets,
            contained: mut ids,
            is_of_schemas,
            behavior,
        } = self;
        // Indexes and sequences go with their relation, late rows and records that are none with their stream, the view of a sink with it, and the history of a view with that, whatever was said.
        let roots: Vec<ObjectId> = targets.iter().map(|object| object.id).collect();
        let implied: BTreeSet<ObjectId> = scope
            .catalog
            .objects()
            .filter(|object| {
                matches!(object.kind, ObjectKind::Index | ObjectKind::Sequence)
                    && object.depends.iter().any(|id| roots.contains(id))
            })
            .map(|object| object.id)
            .chain(
                targets
                    .iter()
                    .filter_map(|object| object.relation())
                    .flat_map(Relation::beside),
            )
            .chain(targets.iter().filter_map(|object| match &object.definition {
                Definition::Sink(sink) => sink.view,
                _ => None,
            }))
            .chain(
                (targets.iter())
                    .filter_map(|object| scope.catalog.history_of(object.id))
                    .map(|history| history.id),
            )
            .collect();
        let contained = ids.clone();
        ids.extend(implied);
        let named: BTreeSet<ObjectId> = ids.clone();
        let all = scope.catalog.closure(&ids.iter().copied().collect::<Vec<_>>());
        let references = references(&scope.catalog, &targets, &all)?;
        let in_the_way: Vec<&ObjectId> = if is_of_schemas {
            all.iter().filter(|id| !roots.contains(id)).collect()
        } else {
            all.difference(&named).collect()
        };
        if behavior == DropBehavior::Restrict && (!in_the_way.is_empty() || !references.is_empty()) {
            let first = targets
                .iter()
                .find(|object| {
                    !scope.catalog.dependents(&BTreeSet::from([object.id])).is_empty()
                        || references.iter().any(|reference| reference.on == object.id)
                        || contained.len() > 1
                })
                .unwrap_or(&targets[0]);
            let message = format!(
                "cannot drop {} because other objects depend on it",
                first.described()
            );
            return Err(if is_of_schemas {
                let lines = in_the_way
                    .iter()
                    .filter_map(|id| scope.catalog.object(**id))
                    .map(|object| format!("{} depends on schema {}", object.described(), first.name));
                with_detail(&message, lines.collect())
            } else if in_the_way.is_empty() {
                with_detail(
                    &message,
                    references
                        .iter()
                        .map(|reference| reference.line.clone())
                        .collect(),
                )
            } else {
                dependents_error(&message, first, &scope.catalog)
            });
        }
        sequences::check_unused(&scope.catalog, &all)?;
        functions::check_unused(&scope.catalog, &all)?;
        check_columns(&scope.catalog, &contained, &all)?;
        let gone: Vec<Arc<Object>> = all
            .iter()
            .filter_map(|id| scope.catalog.object(*id).cloned())
            .collect();
        let jobs = session.database().jobs().over(&gone);
        if behavior == DropBehavior::Restrict
            && let Some(job) = jobs.first()
        {
            return Err(SqlError::new(
                SqlState::DependentObjectsStillExist,
                format!("cannot drop {} because a job needs it", targets[0].described()),
            )
            .with_detail(format!("{}.", job.described()))
            .with_hint(format!(
                "Wait for it, use CANCEL JOB {}, or use DROP .. CASCADE, which also cancels it.",
                job.id
            )));
        }
        if let (Some(job), true) = (jobs.first(), guard.definitions().is_some()) {
            return Err(SqlError::unsupported(format!(
                "cannot drop {} inside a transaction because a job needs it",
                targets[0].described()
            ))
            .with_detail(format!("{}.", job.described()))
            .with_hint(format!("Wait for it, or use CANCEL JOB {}.", job.id)));
        }
        session.database().cancel_jobs(&jobs).await;
        let others = all.len() - named.len() + references.len();
        if others > 0 {
            session.notice(
                Severity::Notice,
                format!(
                    "drop cascades to {others} other object{}",
                    if others == 1 { "" } else { "s" }
                ),
            );
        }
        let mut changed: BTreeMap<ObjectId, Object> = BTreeMap::new();
        for reference in references {
            let table = changed
                .entry(reference.table.id)
                .or_insert_with(|| reference.table.as_ref().clone());
            if let Definition::Relation(relation) = &mut table.definition {
                relation.foreign_keys.retain(|key| key.name != reference.key);
            }
            table.restate();
        }
        guard.drop_and_put(&all, changed.into_values().collect()).await?;
        Ok(())
    }
}

/// Refuses to drop types with columns that are of them: these would go, and not their tables. What goes by itself may be of them.
fn check_columns(
    catalog: &CatalogSnapshot,
    contained: &BTreeSet<ObjectId>,
    all: &BTreeSet<ObjectId>,
) -> SqlResult<()> {
    let gone = || all.iter().filter_map(|id| catalog.object(*id));
    let types = gone().filter(|object| matches!(object.kind, ObjectKind::Type | ObjectKind::Domain));
    for of in types {
        let table = gone()
            .filter(|object| matches!(object.kind, ObjectKind::Table | ObjectKind::Stream))
            .filter(|object| !contained.contains(&object.id))
            .find(|object| object.needs().any(|id| id == of.id));
        if let Some(table) = table {
            return Err(SqlError::unsupported(format!(
                "cannot drop {} with the columns of {} that are of it",
                of.described(),
                table.described()
            ))
            .with_hint("Drop the columns or the table first."));
        }
    }
    Ok(())
}

/// A foreign key of a table that stays, which cannot be there without what is dropped.
struct Reference {
    /// What is dropped.
    on: ObjectId,
    table: Arc<Object>,
    key: String,
    /// How it depends.
    line: String,
}

/// The foreign keys that go when all of these objects go.
///
/// # Errors
/// An index is dropped that a constraint is made of.
fn references(
    catalog: &CatalogSnapshot,
    targets: &[Arc<Object>],
    all: &BTreeSet<ObjectId>,
) -> SqlResult<Vec<Reference>> {
    let mut found = vec![];
    for object in all.iter().filter_map(|id| catalog.object(*id)) {
        let (table, columns) = match &object.definition {
            Definition::Index(index) if !all.contains(&index.relation) => {
                let Some(table) = catalog.object(index.relation).filter(|_| index.is_unique) else {
                    continue;
                };
                if index.is_constraint && targets.iter().any(|target| target.id == object.id) {
                    let name = &object.name;
                    let of = table.described();
                    return Err(SqlError::new(
                        SqlState::DependentObjectsStillExist,
                        format!("cannot drop index {name} because constraint {name} on {of} requires it"),
                    )
                    .with_hint(format!("You can drop constraint {name} on {of} instead.")));
                }
                (table, Some(index.columns.as_slice()))
            }
            Definition::Relation(_) => (object, None),
            _ => continue,
        };
        let uniques = catalog.uniques_of(table);
        for (child, key) in catalog.references_to(table.id) {
            let needs = columns.is_none_or(|columns| key.needs(columns, &uniques));
            if needs && !all.contains(&child.id) {
                found.push(Reference {
                    on: object.id,
                    table: Arc::clone(child),
                    key: key.name.clone(),
                    line: format!(
                        "constraint {} on {} depends on {}",
                        key.name,
                        child.described(),
                        object.described()
                    ),
                });
            }
        }
    }
    Ok(found)
}

/// Refuses to drop the history of a view that stays.
fn check_history(catalog: &CatalogSnapshot, targets: &[Arc<Object>]) -> SqlResult<()> {
    for object in targets {
        if let Definition::Sink(def) = &object.definition
            && let Some(view) = catalog.object(def.relation)
            && def.is_history_of(view.id)
            && !targets.iter().any(|target| target.id == view.id)
        {
            let message = format!(
                "cannot drop {} because {} requires it",
                object.described(),
                view.described()
            );
            return Err(SqlError::new(SqlState::DependentObjectsStillExist, message)
                .with_hint("CREATE OR REPLACE the view without the option history."));
        }
    }
    Ok(())
}

/// The owner of an object drops it, or the owner of its schema.
fn check_drop(scope: &Scope, object: &Object) -> SqlResult<()> {
    let schema = scope.catalog.schema(&object.database, &object.schema);
    match schema.is_some_and(|schema| scope.check_owner(schema).is_ok()) {
        true => Ok(()),
        false => scope.check_owner(object),
    }
}

fn is_missing(code: SqlState) -> bool {
    matches!(
        code,
        SqlState::UndefinedTable
            | SqlState::UndefinedObject
            | SqlState::InvalidSchemaName
            | SqlState::InvalidCatalogName
            | SqlState::UndefinedFunction
    )
}

fn target(
    session: &Session,
    scope: &Scope,
    kind: Kind,
    name: &millrace_parser::ast::ObjectName,
    wanted: &[ObjectKind],
) -> SqlResult<Arc<Object>> {
    match kind {
        Kind::Schema => names::schema(scope, &names::last(name)),
        Kind::Database => {
            let last = names::last(name);
            if last == scope.database {
                return Err(SqlError::new(
                    SqlState::ObjectInUse,
                    "cannot drop the currently open database",
                ));
            }
            if last == DEFAULT_DATABASE {
                return Err(SqlError::new(
                    SqlState::InsufficientPrivilege,
                    format!("cannot drop database \"{last}\""),
                ));
            }
            names::database(scope, &last)
        }
        Kind::Function => names::function(session, scope, name),
        Kind::Secret => names::secret(session, scope, name),
        Kind::Type | Kind::Domain => {
            let object = names::user_type(session, scope, name)?;
            match wanted.contains(&object.kind) {
                true => Ok(object),
                false => Err(SqlError::new(
                    SqlState::WrongObjectType,
                    format!("\"{}\" is not a domain", object.name),
                )
                .with_hint("Use DROP TYPE to remove it.")),
            }
        }
        _ => {
            let object = names::resolve(session, scope, name).map_err(|mut error| {
                if error.code == SqlState::UndefinedTable && !matches!(kind, Kind::Stream) {
                    error.message = error.message.replacen("relation", kind_name(wanted[0]), 1);
                    if matches!(wanted[0], ObjectKind::Index) {
                        error.code = SqlState::UndefinedObject;
                    }
                }
                error
            })?;
            // One that was made by CREATE TABLE .. APPEND ONLY is a table to who made it.
            let is_called_so = object.kind != ObjectKind::Stream
                || !matches!(kind, Kind::Table)
                || is_made_as_table(&object.sql);
            if wanted.contains(&object.kind) && is_called_so {
                return Ok(object);
            }
            let article = |kind: ObjectKind| {
                if matches!(kind, ObjectKind::Index) {
                    "an"
                } else {
                    "a"
                }
            };
            Err(SqlError::new(
                SqlState::WrongObjectType,
                format!(
                    "\"{}\" is not {} {}",
                    object.name,
                    article(wanted[0]),
                    kind_name(wanted[0])
                ),
            )
            .with_hint(format!(
                "Use DROP {} to remove {} {}.",
                kind_name(object.kind).to_uppercase(),
                article(object.kind),
                kind_name(object.kind)
            )))
        }
    }
}

fn is_made_as_table(sql: &str) -> bool {
    let mut words = sql.split_whitespace();
    words
        .nth(1)
        .is_some_and(|word| word.eq_ignore_ascii_case("TABLE"))
}

/// An object and what is inside it: a schema's relations, a database's schemas.
fn contents(session: &Session, catalog: &CatalogSnapshot, object: &Arc<Object>) -> SqlResult<Vec<ObjectId>> {
    Ok(match object.kind {
        ObjectKind::Schema => {
            let inside = catalog
                .contents(&object.database)
                .filter(|inner| inner.schema == object.name);
            inside.map(|inner| inner.id).chain([object.id]).collect()
        }
        ObjectKind::Database => {
            let open = session
                .database()
                .sessions()
                .iter()
                .any(|other| other.info().database == object.name);
            if open {
                return Err(SqlError::new(
                    SqlState::ObjectInUse,
                    format!("database \"{}\" is being accessed by other users", object.name),
                ));
            }
            let relations = catalog.contents(&object.name).map(|inner| inner.id);
            let schemas = catalog.schemas(&object.name).map(|inner| inner.id);
            relations.chain(schemas).chain([object.id]).collect()
        }
        _ => vec![object.id],
    })
}

/// "cannot ... because other objects depend on it", naming them.
pub(crate) fn dependents_error(message: &str, object: &Arc<Object>, catalog: &CatalogSnapshot) -> SqlError {
    with_detail(message, dependents_of(object, catalog))
}

/// What depends on an object, directly or not, each with what it depends on.
pub(crate) fn dependents_of(object: &Arc<Object>, catalog: &CatalogSnapshot) -> Vec<String> {
    let mut lines = vec![];
    let mut seen = BTreeSet::from([object.id]);
    let mut next = vec![Arc::clone(object)];
    // What is kept beside it goes with it, and others may read that.
    let beside = object
        .relation()
        .into_iter()
        .flat_map(|relation| relation.beside());
    for stream in beside.filter_map(|id| catalog.object(id)) {
        seen.insert(stream.id);
        next.push(Arc::clone(stream));
    }
    while let Some(on) = next.pop() {
        for dependent in catalog.dependents(&BTreeSet::from([on.id])) {
            // What goes with it anyway is not told.
            let is_part = matches!(dependent.kind, ObjectKind::Index | ObjectKind::Sequence)
                || matches!(&dependent.definition, Definition::Sink(def) if def.is_history_of(on.id));
            if is_part || !seen.insert(dependent.id) {
                continue;
            }
            lines.push(format!("{} depends on {}", dependent.described(), on.described()));
            next.push(Arc::clone(dependent));
        }
    }
    lines
}

fn with_detail(message: &str, lines: Vec<String>) -> SqlError {
    SqlError::new(SqlState::DependentObjectsStillExist, message)
        .with_detail(lines.join("\n"))
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
}
