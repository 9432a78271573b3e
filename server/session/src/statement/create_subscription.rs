//! CREATE SUBSCRIPTION: the changes of a relation, or of a query for which a view is made, kept for those who read them later.

use std::sync::Arc;

use millrace_catalog::sink::SinkDef;
use millrace_database::database::subscriptions;
use millrace_database::sink_files::encode::Encoder;
use millrace_parser::ast::{CreateSubscription, Emit, SinkInput};
use millrace_planner::RelationInfo;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{ObjectId, ObjectKind};

use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::create_sink::{NewSink, query_of};
use crate::statement::create_view::refuse_temporary;
use crate::statement::done;
use crate::statement::new_views::make;

const TAG: &str = "CREATE SUBSCRIPTION";

/// Executes CREATE SUBSCRIPTION. Returns when every later change is kept.
pub async fn execute(session: &Arc<Session>, create: CreateSubscription, text: &str) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let scope = session.scope();
    let (schema, name) = names::new_name(session, &scope, &create.name)?;
    if create.if_not_exists && names::is_there(session, &scope, &schema, &name) {
        return done(TAG);
    }
    guard.check_free(&scope.database, &schema, &name)?;
    let new = NewSink {
        scope: &scope,
        kind: ObjectKind::Subscription,
        schema: &schema,
        name: &name,
        text,
        secrets: &[],
    };
    let def = |view: Option<ObjectId>, info: &RelationInfo| {
        let identity = subscriptions::new_identity();
        let def = SinkDef::subscription(&create.options, identity, view, info)?;
        check(&def, info).map_err(|error| {
            error.with_hint("Cast it to text in a query: CREATE SUBSCRIPTION .. AS SELECT ..")
        })?;
        Ok(def)
    };
    let id = match &create.input {
        SinkInput::Relation(from) => {
            let from = names::resolve(session, &scope, from)?;
            scope.check_read(&from)?;
            from.check_up()?;
            let relation = from.relation().ok_or_else(|| {
                SqlError::new(
                    SqlState::WrongObjectType,
                    format!("cannot create a subscription to {}", from.described()),
                )
                .with_hint("A subscription can be to a materialized view, a table, a stream or a query.")
            })?;
            refuse_temporary(&scope, &[from.id])?;
            session.database().jobs().check_unlocked(&[from.id])?;
            // What was written before is no change.
            let after = session.read_after(&[relation.info.id]);
            let runtime = session.database().runtime();
            drop(runtime.snapshot(&[relation.info.id], after.as_ref()).await?);
            let id = guard.next_id()?;
            let object = new.object(id, from.id, def(None, &relation.info)?);
            guard.create(object).await?;
            drop(guard);
            id
        }
        SinkInput::Query(query) => {
            let query = query_of(session, query, &Emit::default())?;
            let def = |view: ObjectId, info: &RelationInfo| def(Some(view), info);
            let (id, making) = new.over_query(session, &guard, &query, def)?;
            make(session, guard, making).await?;
            id
        }
    };
    if let Some(why) = session.database().sinks().begun(id).await {
        session.notice(
            Severity::Warning,
            format!("subscription \"{name}\" has not begun and will retry: {why}"),
        );
    }
    done(TAG)
}

/// Refuses columns of types that cannot be kept, by their names.
///
/// # Errors
/// There is one.
pub(super) fn check(def: &SinkDef, info: &RelationInfo) -> SqlResult<()> {
    let fields = info.schema.fields().iter();
    let named = SinkDef {
        columns: fields.map(|field| field.name().clone()).collect(),
        ..def.clone()
    };
    Encoder::new(&named, &info.schema)?.check()
}
