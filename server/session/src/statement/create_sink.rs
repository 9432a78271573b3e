//! CREATE SINK: files, topics or tables elsewhere that follow a relation, or a query for which a view is made.

use std::sync::Arc;

use millrace_catalog::scope::Scope;
use millrace_catalog::sink::{SinkDef, SinkOptions, Target};
use millrace_catalog::{Definition, Object, QueryDef, Relation};
use millrace_database::clock::now_ms;
use millrace_database::database::ddl::DdlGuard;
use millrace_database::database::jobs::Making;
use millrace_database::database::sinks;
use millrace_database::sink_files::directory::Directory;
use millrace_database::sink_files::encode::Encoder;
use millrace_engine::ViewSpec;
use millrace_parser::ast::{CreateSink, Emit, Query, SinkInput};
use millrace_planner::RelationInfo;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{ObjectId, ObjectKind};

use crate::constants::lasting_search_path;
use crate::names;
use crate::outcome::Outcome;
use crate::query::view_flow;
use crate::session::Session;
use crate::statement::create_view::{check_names, emit, plan, refuse_temporary, say_what_is_gone, slides};
use crate::statement::new_views::make;
use crate::statement::{done, secret};

/// Executes CREATE SINK. Of a query, returns when its view is filled.
pub async fn execute(session: &Arc<Session>, mut create: CreateSink, text: &str) -> SqlResult<Outcome> {
    let secrets = secret::bind(session, &mut create.options, create.format.as_mut())?;
    let by = session.database().secrets_for(&format!("sink {}", create.name));
    let options = SinkOptions::new(&create.options, create.format.as_ref(), sinks::new_id())?;
    if options.is_remote() {
        // Whoever cannot be written to is told so now, and nobody waits for it.
        let wanted = wanted(session, &create, options.clone())?;
        let wanted = wanted.with_secrets(by.clone());
        session.database().probe_sink(&wanted).await?;
    }
    let guard = session.ddl().await?;
    let scope = session.scope();
    let (schema, name) = names::new_name(session, &scope, &create.name)?;
    if create.if_not_exists && names::is_there(session, &scope, &schema, &name) {
        return done("CREATE SINK");
    }
    guard.check_free(&scope.database, &schema, &name)?;
    secret::check_there(&scope, &secrets)?;
    let new = NewSink {
        scope: &scope,
        kind: ObjectKind::Sink,
        schema: &schema,
        name: &name,
        text,
        secrets: &secrets,
    };
    let query = match create.input {
        SinkInput::Query(query) => query,
        SinkInput::Relation(from) => {
            if create.emit != Emit::default() {
                return Err(
                    SqlError::unsupported("EMIT is not supported in CREATE SINK .. FROM").with_hint(
                        "Use EMIT in the definition of the view, or use CREATE SINK .. AS SELECT \
                                    ..",
                    ),
                );
            }
            let from = names::resolve(session, &scope, &from)?;
            scope.check_read(&from)?;
            let relation = read(&from)?;
            refuse_temporary(&scope, &[from.id])?;
            session.database().jobs().check_unlocked(&[from.id])?;
            let info = &relation.info;
            let def = options.sink(&name, from.id, None, info)?;
            Encoder::new(&def, &info.schema)?.check()?;
            check_directory(&scope, &def)?;
            let def = def.with_secrets(by);
            guard.create(new.object(guard.next_id()?, from.id, def)).await?;
            return done("CREATE SINK");
        }
    };
    let query = query_of(session, &query, &create.emit)?;
    let def = |view: ObjectId, info: &RelationInfo| {
        let def = options.sink(&name, view, Some(view), info)?;
        Encoder::new(&def, &info.schema)?.check()?;
        check_directory(&scope, &def)?;
        Ok(def.with_secrets(by))
    };
    let (_, making) = new.over_query(session, &guard, &query, def)?;
    make(session, guard, making).await?;
    done("CREATE SINK")
}

/// A sink or subscription that is being made.
pub(super) struct NewSink<'a> {
    pub scope: &'a Scope,
    pub kind: ObjectKind,
    pub schema: &'a str,
    pub name: &'a str,
    pub text: &'a str,
    /// The secrets that its options name.
    pub secrets: &'a [ObjectId],
}

impl NewSink<'_> {
    /// As an object of the catalog, which reads another.
    pub fn object(&self, id: ObjectId, reads: ObjectId, def: SinkDef) -> Object {
        Object {
            id,
            kind: self.kind,
            database: self.scope.database.clone(),
            schema: self.schema.to_owned(),
            name: self.name.to_owned(),
            sql: self.text.to_owned(),
            comment: None,
            created_at_ms: now_ms(),
            depends: std::iter::once(reads)
                .chain(self.secrets.iter().copied())
                .collect(),
            definition: Definition::Sink(Arc::new(def)),
            rights: self.scope.rights_of_new(self.kind, self.schema),
        }
    }

    /// The same over a query, with the view that is made for it; its identity.
    ///
    /// # Errors
    /// The query cannot be maintained, or the view's name is taken.
    pub fn over_query(
        &self,
        session: &Session,
        guard: &DdlGuard<'_>,
        query: &QueryDef,
        def: impl FnOnce(ObjectId, &RelationInfo) -> SqlResult<SinkDef>,
    ) -> SqlResult<(ObjectId, Making)> {
        let (planned, depends) = plan(session, self.scope, query)?;
        let view_name = format!("{}$rows", self.name);
        guard.check_free(&self.scope.database, self.schema, &view_name)?;
        let view = guard.next_id()?;
        let relation = Relation::of_view(view, &view_name, &planned, &[]);
        let def = def(view, &relation.info)?;
        let sink = self.object(guard.next_id()?, view, def);
        say_what_is_gone(session, self.name, &planned.graph);
        let (relation_id, graph) = (relation.info.id, planned.graph);
        let mut view = Object {
            id: view,
            kind: ObjectKind::MaterializedView,
            name: view_name.clone(),
            depends,
            definition: Definition::Relation(Box::new(relation)),
            ..sink.clone()
        };
        view.restate();
        let spec = ViewSpec {
            id: relation_id,
            name: view_name,
            graph,
            definition: guard.database().definition_of(&self.scope.catalog, &view),
        };
        let id = sink.id;
        let making = Making {
            specs: vec![spec],
            put: vec![view, sink],
            removed: vec![],
        };
        Ok((id, making))
    }
}

/// The sink as it would be made now, so that one can look whether its target can be written.
fn wanted(session: &Session, create: &CreateSink, options: SinkOptions) -> SqlResult<SinkDef> {
    let scope = session.scope();
    let (_, name) = names::new_name(session, &scope, &create.name)?;
    let relation = match &create.input {
        SinkInput::Relation(from) => {
            let from = names::resolve(session, &scope, from)?;
            scope.check_read(&from)?;
            return options.sink(&name, from.id, None, &read(&from)?.info);
        }
        SinkInput::Query(query) => {
            let planned = plan(session, &scope, &query_of(session, query, &create.emit)?)?.0;
            Relation::of_view(ObjectId(0), &name, &planned, &[])
        }
    };
    options.sink(&name, ObjectId(0), None, &relation.info)
}

/// What a sink reads.
fn read(from: &Object) -> SqlResult<&Relation> {
    from.check_up()?;
    from.relation().ok_or_else(|| {
        SqlError::new(
            SqlState::WrongObjectType,
            format!("cannot create a sink from {}", from.described()),
        )
        .with_hint("A sink can read a materialized view, a table or a stream.")
    })
}

/// The query of the view that is made for a sink.
pub(super) fn query_of(session: &Session, query: &Query, clause: &Emit) -> SqlResult<QueryDef> {
    let emit = emit(session, clause)?;
    check_names(query, &[])?;
    let query = QueryDef::new(query.to_string(), lasting_search_path(session), vec![]).with_emit(emit);
    Ok(query.with_slides(slides(session)).with_flow(view_flow(session)?))
}

/// Refuses a directory that cannot be written, or whose files would be those of another sink.
fn check_directory(scope: &Scope, def: &SinkDef) -> SqlResult<()> {
    let Target::Files(files) = &def.target else {
        return Ok(());
    };
    Directory::of(files).check_new()?;
    let is_same = |other: &SinkDef| match &other.target {
        Target::Files(other) => {
            other.path == files.path && other.prefix == files.prefix && other.format == files.format
        }
        Target::Kafka(_)
        | Target::Postgres(_)
        | Target::Bucket(_)
        | Target::Webhook(_)
        | Target::Delta(_)
        | Target::Subscription(_) => false,
    };
    let other = scope.catalog.objects().find(|object| match &object.definition {
        Definition::Sink(other) => is_same(other),
        _ => false,
    });
    match other {
        None => Ok(()),
        Some(other) => Err(SqlError::new(
            SqlState::DuplicateObject,
            format!(
                "{} writes files with the same names to \"{}\"",
                other.described(),
                files.path.display()
            ),
        )
        .with_hint("Use another directory or name.")),
    }
}
