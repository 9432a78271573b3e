//! Queries that somebody follows: each is a materialized view that is in no catalog.
//!
//! It is filled as others are, and is one more view of the pipeline of its inputs. Whoever follows the same query follows the same
//! view. It goes with its last subscriber, when something that it reads is dropped or replaced, and with the server: the next
//! start finds no definition of it, and passes over what checkpoints have of it.

use std::sync::Arc;

use millrace_catalog::rights::Rights;
use millrace_catalog::{Definition, Object, Planned, QueryDef, Relation};
use millrace_engine::{BackfillOptions, ViewSpec};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{ObjectId, ObjectKind};
use tokio::sync::oneshot;

use super::task::{Asked, ended};
use super::{Following, Subscription, Wish, stopping};
use crate::clock::now_ms;
use crate::database::Database;
use crate::database::ddl::DdlGuard;

/// Different queries that are followed at a time.
pub const QUERIES_MAX: usize = 256;

/// A view that was made for those who follow a query.
pub(super) struct QueryView {
    /// The relation that nobody else knows.
    pub object: Arc<Object>,
    pub text: Arc<str>,
    /// Everything that the view depends on: two queries with the same are one.
    identity: String,
    /// The relations that it reads.
    pub inputs: Vec<ObjectId>,
}

/// A view that is to be made.
pub(super) struct MadeView {
    pub view: Arc<QueryView>,
    spec: ViewSpec,
    options: BackfillOptions,
}

impl DdlGuard<'_> {
    /// Begins to make the view of a query that somebody wants to follow, unless there is one.
    ///
    /// # Errors
    /// 54000: too many queries are followed.
    pub fn follow_query(
        &self,
        planned: Planned,
        database: &str,
        options: BackfillOptions,
    ) -> SqlResult<Arc<Object>> {
        let db = self.database();
        let identity = identity(&planned.query, database);
        let mut followings = db.subscriptions.followings.lock();
        if db.is_closing() {
            return Err(stopping());
        }
        let queries = || {
            followings
                .values()
                .filter_map(|following| following.query.as_ref())
        };
        if let Some(known) = queries().find(|query| query.identity == identity) {
            return Ok(Arc::clone(&known.object));
        }
        if queries().count() >= QUERIES_MAX {
            return Err(SqlError::new(
                SqlState::ProgramLimitExceeded,
                format!("too many queries are followed: the limit is {QUERIES_MAX}"),
            )
            .with_hint("Create a materialized view, and subscribe to that."));
        }
        let id = self.next_id()?;
        let name = format!("subscription {id}");
        let relation = Relation::of_view(id, &name, &planned, &[]);
        let relation_id = relation.info.id;
        let text: Arc<str> = planned.query.text.as_str().into();
        let object = Arc::new(Object {
            id,
            kind: ObjectKind::MaterializedView,
            database: database.to_owned(),
            schema: String::new(),
            name: name.clone(),
            sql: text.to_string(),
            comment: None,
            created_at_ms: now_ms(),
            depends: vec![],
            definition: Definition::Relation(Box::new(relation)),
            rights: Rights::default(),
        });
        let mut graph = planned.graph;
        // Over views that have targets it is no fresher than they are: it does not make them so.
        let targets = graph.inputs.iter().map(|input| {
            let input = self.catalog().object(ObjectId(input.id.0)).cloned();
            input.and_then(|input| input.freshness_us())
        });
        let targets: Option<Vec<u64>> = targets.collect();
        graph.freshness_us = targets.and_then(|targets| targets.into_iter().min());
        let spec = ViewSpec {
            id: relation_id,
            name,
            graph,
            definition: db.definition_of(&self.catalog(), &object),
        };
        let view = Arc::new(QueryView {
            object: Arc::clone(&object),
            text,
            identity,
            inputs: spec
                .graph
                .inputs
                .iter()
                .map(|input| ObjectId(input.id.0))
                .collect(),
        });
        let made = MadeView { view, spec, options };
        followings.insert(id, db.follow(&object, Some(made)));
        Ok(object)
    }
}

/// Everything that decides what a query answers.
fn identity(query: &QueryDef, database: &str) -> String {
    let QueryDef {
        text,
        search_path,
        column_names,
        names,
        emit,
        slides,
        flow,
        priority,
        freshness_us: _,
        on_error,
        keeps_errors: _,
        history_ms: _,
        bound: _,
    } = query;
    format!(
        "{:?}",
        (
            database,
            text,
            search_path,
            column_names,
            names,
            emit,
            slides,
            flow,
            priority,
            on_error
        )
    )
}

impl Database {
    /// Follows the view of a query, once it is filled.
    ///
    /// # Errors
    /// It could not be filled, or has ended.
    pub async fn subscribe_to_query(self: &Arc<Self>, view: &Object, wish: Wish) -> SqlResult<Subscription> {
        let (answer, ready) = oneshot::channel();
        let is_asked = {
            let followings = self.subscriptions.followings.lock();
            let following = followings.get(&view.id);
            following.is_some_and(|following| following.asked.send(Asked::Ready(answer)).is_ok())
        };
        let gone = || {
            SqlError::new(
                SqlState::ObjectNotInPrerequisiteState,
                "the relation ended before the subscription began",
            )
            .with_hint("Subscribe again.")
        };
        if !is_asked {
            return Err(gone());
        }
        ready.await.map_err(|_| gone())??;
        self.subscribe(view, wish).await
    }

    /// Fills the view of a query, as a job would.
    pub(super) async fn fill(self: Arc<Self>, made: MadeView) -> SqlResult<()> {
        let _turn = self.jobs().turn().await?;
        self.runtime().create_views(vec![made.spec], made.options).await?;
        Ok(())
    }

    /// Ends the subscriptions to queries that read one of these objects, which are dropped or replaced.
    pub(in crate::database) async fn end_queries_over(&self, gone: &[Arc<Object>]) {
        let reads = |following: &Following| {
            let query = following.query.as_ref()?;
            gone.iter().find(|object| query.inputs.contains(&object.id))
        };
        let ending: Vec<(Following, Arc<Object>)> = {
            let mut followings = self.subscriptions.followings.lock();
            let concerned: Vec<(ObjectId, Arc<Object>)> = followings
                .iter()
                .filter_map(|(id, following)| Some((*id, Arc::clone(reads(following)?))))
                .collect();
            let taken = concerned
                .into_iter()
                .filter_map(|(id, object)| Some((followings.remove(&id)?, object)));
            taken.collect()
        };
        let catalog = self.catalog();
        for (following, object) in ending {
            let now = catalog.relation(&object.database, &object.schema, &object.name);
            let how = match now {
                Some(_) => "replaced",
                None => "dropped",
            };
            following.stop(ended(&object.described(), how)).await;
        }
    }
}
