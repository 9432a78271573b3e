//! One data directory, opened: storage, runtime and catalog together, and what all sessions share.
//!
//! ```text
//! open:   Store::open -> Runtime::start -> objects in order of identity:
//!         streams and tables replay their logs; materialized views are planned again and back-filled from their inputs
//! DDL:    take the lock -> runtime -> log -> storage's catalog (the commit point) -> swap the snapshot
//! close:  refuse new sessions -> runtime finishes its epochs -> store syncs
//! ```
//!
//! A view that cannot be planned any more, or a relation whose log is damaged, fails to load with the reason, and everything else
//! comes up.

mod alter_system;
mod clients;
mod databases;
pub mod ddl;
mod deaths;
pub mod definitions;
pub mod elsewhere;
pub mod engine;
pub mod forecasts;
pub mod health;
pub mod jobs;
pub mod maintenance;
mod periodic;
mod plans;
pub mod profiles;
pub mod recovery;
pub mod replace;
pub mod rows;
pub mod sequences;
pub mod shipping;
pub mod sinks;
pub mod sources;
mod stored_types;
pub mod subscriptions;
pub mod system;
mod temporary;
pub mod view_errors;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use datafusion::execution::SessionState;
use datafusion::execution::object_store::ObjectStoreUrl;
use millrace_auth::seal::SealingKey;
use millrace_catalog::connector::ConnectorDef;
use millrace_catalog::connector::private_hosts::PrivateHosts;
use millrace_catalog::scope::Scope;
use millrace_catalog::{CatalogSnapshot, Definition, Object, Reader, Relation};
use millrace_engine::clock::{Clock, VirtualClock};
use millrace_engine::{
    EventTimeSpec, QUERY_PARTITION_ROWS, Runtime, RuntimeOptions, SourceKind, SourceSpec, ViewSpec,
};
use millrace_planner::reducer::Reducer;
use millrace_planner::stage::recursion::RecursionLimits;
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::from_internal;
use millrace_resource::memory::{Memory, Resident};
use millrace_resource::spill::state::SpillOptions;
use millrace_storage::{ObjectId, ObjectKind, Store, StoreOptions};
use parking_lot::Mutex;

use crate::database::recovery::mark_failed;
use crate::database::sequences::Sequences;
use crate::database::system::{MakeSystem, SystemCatalog};
use crate::ingest_keys;
use crate::secrets::Secrets;
use crate::sessions::Sessions;
use crate::tuning::Tuning;

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct DatabaseOptions {
    /// The data directory; it is made if it is not there.
    pub data: PathBuf,
    /// CPU slots.
    pub cores: usize,
    /// Workers in this process.
    pub workers: usize,
    /// Workers of other processes may join.
    pub has_machines: bool,
    /// How epochs are cut and grouped, where ALTER SYSTEM said nothing.
    pub tuning: Tuning,
    /// Rows of a relation that make one partition of a query that reads it.
    pub query_partition_rows: usize,
    /// The limits from which a recursion in a view counts as endless.
    pub recursion: RecursionLimits,
    /// How the store behaves.
    pub store: StoreOptions,
    /// A clock that is set by hand, in place of the machine's.
    pub virtual_clock: Option<Arc<VirtualClock>>,
    /// Aggregates of the program's own.
    pub reducers: Vec<Arc<dyn Reducer>>,
    /// State of views leaves for the disk now and then though there is memory: for tests.
    pub spill_by_chance: bool,
    /// Whether the first role has a password of the configuration.
    pub has_password: bool,
    /// With what secrets are sealed.
    pub secrets_key: Option<SealingKey>,
    /// Hosts at private addresses that webhooks may be sent to.
    pub private_hosts: Arc<PrivateHosts>,
    /// Where a copy is kept of all that is written.
    pub shipping: Option<shipping::ShippingOptions>,
    /// Whether existing materialized views are loaded; otherwise they count as failed, so that one can be dropped.
    pub run_views: bool,
}

impl DatabaseOptions {
    /// The defaults for a data directory: all cores, one worker.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        DatabaseOptions {
            data: data.into(),
            cores,
            workers: 1,
            has_machines: false,
            tuning: Tuning::default(),
            query_partition_rows: QUERY_PARTITION_ROWS,
            recursion: RecursionLimits::default(),
            store: StoreOptions::default(),
            virtual_clock: None,
            reducers: vec![],
            spill_by_chance: false,
            has_password: false,
            secrets_key: None,
            private_hosts: Arc::default(),
            shipping: None,
            run_views: true,
        }
    }

    /// Partitions of keyed state that a new view has: one a core. Where machines may join they are for these too: a view keeps
    /// the number that it was made with.
    pub fn partitions(&self) -> usize {
        let cores = (self.cores * self.workers).max(1);
        match self.has_machines {
            true => cores.max(PARTITIONS_OF_MACHINES),
            false => cores,
        }
    }
}

/// The time between two heartbeats where there may be machines; one that misses five is held to be lost.
const HEARTBEAT_OF_MACHINES: Duration = Duration::from_millis(250);

/// Partitions of a view, at the least, where machines may join.
const PARTITIONS_OF_MACHINES: usize = 16;

/// State of views that is on disk because memory is short; it is worth nothing to the next process.
const SPILL_DIRECTORY: &str = "spill";

/// An open data directory and all that runs over it.
pub struct Database {
    options: DatabaseOptions,
    tuning: Mutex<Tuning>,
    store: Store,
    runtime: Runtime,
    catalog: Arc<ArcSwap<CatalogSnapshot>>,
    state: SessionState,
    system: Box<dyn SystemCatalog>,
    javascript: Arc<millrace_javascript::Engine>,
    /// In milliseconds since 1970-01-01 00:00 UTC.
    started_at_ms: i64,
    /// Held by the one DDL statement that runs.
    ddl: Arc<tokio::sync::Mutex<()>>,
    /// Whether the transaction that has that right waits for a table.
    definer_waits: tokio::sync::watch::Sender<bool>,
    jobs: jobs::Jobs,
    sources: sources::Sources,
    sinks: sinks::Sinks,
    subscriptions: subscriptions::Subscriptions,
    ingest_keys: ingest_keys::IngestKeys,
    maintenance: periodic::Periodic,
    profiles: profiles::Profiles,
    forecasts: forecasts::Forecasts,
    recovery: recovery::Recovery,
    deaths: deaths::Deaths,
    health: health::Health,
    shipping: shipping::Shipping,
    sessions: Arc<Sessions>,
    sequences: Arc<Sequences>,
    secrets: Arc<Secrets>,
    next_session: AtomicI32,
    closing: AtomicBool,
}

impl Database {
    ///
    /// # Errors
    /// The directory is in use, of a newer format, its catalog is damaged, or it cannot be written.
    pub async fn open(options: DatabaseOptions, make: MakeSystem) -> SqlResult<Arc<Database>> {
        loop {
            let database = Database::assemble(options.clone(), make).await?;
            let Err(error) = database.start().await else {
                return Ok(database);
            };
            database.runtime.shutdown().await;
            let closed = database.store.close();
            if !database.recovery.found_damage() {
                return Err(error);
            }
            closed?;
            tracing::warn!(%error, "a log turned out to be damaged: starting again without it");
        }
    }

    /// Brings up what the catalog holds, and what looks after it.
    async fn start(self: &Arc<Self>) -> SqlResult<()> {
        self.prepare_shipping().await?;
        let notes = self.store.logs().take_notes();
        self.settle_announced(&notes)?;
        self.remove_temporary()?;
        self.bootstrap()?;
        self.restore_tuning()?;
        self.sources.restore(&notes);
        self.load().await?;
        self.ingest_keys.restore(notes);
        self.start_maintenance();
        self.start_shipping();
        self.start_health();
        Ok(())
    }

    /// Opens the store, and puts together what runs over it.
    async fn assemble(options: DatabaseOptions, make: MakeSystem) -> SqlResult<Arc<Database>> {
        let data = options.data.clone();
        let store_options = StoreOptions {
            durability: options.tuning.durability,
            ..options.store.clone()
        };
        let store = tokio::task::spawn_blocking(move || Store::open(&data, store_options))
            .await
            .map_err(|error| SqlError::internal(format!("opening the data directory: {error}")))??;
        let deaths = deaths::Deaths::open(&store)?;
        let mut runtime_options = RuntimeOptions {
            running: deaths.running().cloned(),
            workers: options.workers,
            cuts: options.tuning.cut_times(),
            group_size: options.tuning.groups(),
            spread: options.tuning.pipeline_spread,
            durable: Some(Arc::clone(store.checkpoints())),
            checkpoint_interval: options.tuning.checkpoint_interval,
            query_partition_rows: options.query_partition_rows,
            policy: options.tuning.scheduler_policy,
            patience: options.tuning.patience(),
            memory: Memory::new(options.tuning.memory_limit_bytes(), Resident::Process),
            spill: Some(SpillOptions {
                directory: options.data.join(SPILL_DIRECTORY),
                by_chance: options.spill_by_chance,
            }),
            ..RuntimeOptions::new(options.cores)
        };
        if options.has_machines {
            runtime_options.heartbeat_every = HEARTBEAT_OF_MACHINES;
        }
        if let Some(clock) = &options.virtual_clock {
            runtime_options.clock = Arc::clone(clock) as Arc<dyn Clock>;
        }
        millrace_engine::log_errors_as(from_internal::view_message);
        let runtime = Runtime::start(runtime_options, Arc::clone(store.logs()))?;
        let catalog = Arc::new(ArcSwap::from_pointee(CatalogSnapshot::default()));
        let sessions = Arc::new(Sessions::default());
        sessions.statements.charge_to(runtime.memory());
        sessions.measure_by(runtime.memory(), store.logs());
        let sequences = Arc::new(Sequences::default());
        let (state, system, javascript) = engine::build(
            &options,
            make,
            runtime.memory(),
            runtime.spill_files(),
            &catalog,
            &sessions,
            &sequences,
        )?;
        state
            .runtime_env()
            .register_object_store(ObjectStoreUrl::local_filesystem().as_ref(), runtime.files());
        let secrets = Arc::new(Secrets::new(options.secrets_key.clone(), &catalog));
        let database = Arc::new(Database {
            tuning: Mutex::new(options.tuning.clone()),
            options,
            store,
            started_at_ms: runtime.now() / 1_000,
            runtime,
            catalog,
            state,
            system,
            javascript,
            ddl: Arc::default(),
            definer_waits: tokio::sync::watch::Sender::new(false),
            jobs: jobs::Jobs::default(),
            sources: sources::Sources::default(),
            sinks: sinks::Sinks::default(),
            subscriptions: subscriptions::Subscriptions::default(),
            ingest_keys: ingest_keys::IngestKeys::default(),
            maintenance: periodic::Periodic::default(),
            profiles: profiles::Profiles::default(),
            forecasts: forecasts::Forecasts::default(),
            recovery: recovery::Recovery::default(),
            deaths,
            health: health::Health::default(),
            shipping: shipping::Shipping::default(),
            sessions,
            sequences,
            secrets,
            next_session: AtomicI32::new(1),
            closing: AtomicBool::new(false),
        });
        database.sequences.belong_to(&database);
        Ok(database)
    }

    /// Finishes what runs and syncs what was written. Statements that come later are refused.
    ///
    /// # Errors
    /// The store could not be synced.
    pub async fn close(&self) -> SqlResult<()> {
        self.closing.store(true, Ordering::Release);
        for session in self.sessions() {
            session.cancel_handle().cancel();
        }
        self.subscriptions.stop_all().await;
        self.stop_health().await;
        self.stop_maintenance().await;
        self.cancel_jobs(&self.jobs.active()).await;
        self.sources.stop_all().await;
        self.keep_failed_rows().await;
        // They note with the last checkpoint what they have delivered.
        self.sinks.flush().await;
        self.checkpoint_at_end().await;
        self.sinks.stop_all().await;
        self.runtime.shutdown().await;
        self.sequences.settle(self)?;
        let forgotten = self.deaths.forget(&self.store);
        self.finish_shipping().await;
        self.store.close()?;
        Ok(forgotten?)
    }

    /// When it was opened, in milliseconds since 1970-01-01 00:00 UTC.
    pub fn started_at_ms(&self) -> i64 {
        self.started_at_ms
    }

    /// Whether [`Self::close`] was called.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// The catalog of this moment.
    pub fn catalog(&self) -> Arc<CatalogSnapshot> {
        self.catalog.load_full()
    }

    /// The clock, if it is one that is set by hand.
    pub fn virtual_clock(&self) -> Option<&Arc<VirtualClock>> {
        self.options.virtual_clock.as_ref()
    }

    /// The session state for one statement, to which `now()` is this moment.
    pub fn statement_state(&self) -> SessionState {
        let mut state = self.state.clone();
        state.mark_start_execution();
        let now = chrono::DateTime::from_timestamp_micros(self.runtime.now());
        state.execution_props_mut().query_execution_start_time = now;
        state
    }

    /// The runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What runs functions in JavaScript.
    pub fn javascript(&self) -> &Arc<millrace_javascript::Engine> {
        &self.javascript
    }

    /// Functions, planners and options that every statement is bound and planned with.
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// What streams are fed by that others keep.
    pub fn sources(&self) -> &sources::Sources {
        &self.sources
    }

    /// The keys of requests that wrote.
    pub fn ingest_keys(&self) -> &ingest_keys::IngestKeys {
        &self.ingest_keys
    }

    /// How the database was opened.
    pub fn options(&self) -> &DatabaseOptions {
        &self.options
    }

    /// A reader of the catalog under a statement's scope.
    pub fn reader<'a>(&'a self, scope: &'a Scope) -> Reader<'a> {
        scope.reader(self, &self.state)
    }

    /// Brings up what the catalog holds: what an object needs comes before it.
    async fn load(self: &Arc<Self>) -> SqlResult<()> {
        let stored = self.store.catalog().objects();
        let known: Vec<u64> = stored.iter().map(|object| object.id.0).collect();
        // A crash between making a log and committing its relation leaves a log that nobody names.
        for orphan in self
            .store
            .logs()
            .relations()
            .into_iter()
            .filter(|relation| !known.contains(relation))
        {
            self.store.logs().remove(orphan)?;
        }
        let objects = stored
            .iter()
            .map(|stored| Ok(Arc::new(self.with_secrets(Object::from_stored(stored)?))))
            .collect::<SqlResult<Vec<_>>>()?;
        let all = CatalogSnapshot::new(0, objects);
        let ids = all.objects().map(|object| object.id).collect();
        let mut later = vec![];
        let mut place = self.deaths.place();
        for object in all.in_order(&ids) {
            let mut object = object.as_ref().clone();
            if let Some(place) = &mut place {
                place.set(Some(millrace_planner::RelationId(object.id.0)));
            }
            match self.bring_up(&mut object).await {
                Ok(rest) => later.extend(rest.map(|rest| (object.clone(), rest))),
                Err(error)
                    if matches!(object.kind, ObjectKind::Stream | ObjectKind::Table)
                        && self.store.logs().damage(object.id.0).is_none() =>
                {
                    return Err(error);
                }
                Err(error) => mark_failed(&mut object, error),
            }
            self.publish([Arc::new(object)], &[]);
        }
        drop(place);
        self.secrets.say_what_is_missing(&self.catalog());
        let mut restored = self.restored_for_sinks().await?;
        self.replay(!later.is_empty()).await?;
        // What is filled is filled from what is there now: the time of replayed epochs is before that.
        for (mut object, rest) in later {
            if let Err(error) = self.bring_up_rest(rest).await {
                mark_failed(&mut object, error);
                self.publish([Arc::new(object)], &[]);
            }
        }
        self.acquit_views().await;
        // Nothing is to come before what there is has come up.
        for object in self.catalog().objects() {
            // It tells by itself that it has failed.
            let _ = self.start_source_or_say(object);
            self.start_sink(object, restored.remove(&object.id));
        }
        Ok(())
    }

    /// Brings up what can be before the logs are replayed; returns the rest.
    async fn bring_up(&self, object: &mut Object) -> SqlResult<Option<recovery::Later>> {
        let name = object.name.clone();
        match &mut object.definition {
            Definition::Relation(relation) => match relation.query.clone() {
                None => self.create_source(&name, relation).await.map(|()| None),
                Some(query) => {
                    if let Some(refusal) = self.view_refusal(object.id) {
                        return Err(refusal);
                    }
                    let catalog = self.catalog();
                    let partitions = self.partitions_of(object.id);
                    let planned =
                        self.plan_of(&catalog, &object.database, &query, partitions, &relation.columns)?;
                    **relation = Relation::of_view(object.id, &name, &planned, &relation.columns)
                        .with_errors(relation.errors);
                    let spec = ViewSpec {
                        id: relation.info.id,
                        name,
                        graph: planned.graph,
                        definition: self.definition_of(&catalog, object),
                    };
                    self.restore_view(spec).await
                }
            },
            Definition::Index(index) => {
                let relation = millrace_planner::RelationId(index.relation.0);
                let columns = index.columns.clone();
                if !self.runtime.knows(relation) {
                    return Ok(Some(recovery::Later::Index { relation, columns }));
                }
                self.runtime.create_index(relation, columns).await?;
                Ok(None)
            }
            // What a view's columns are is known once it is bound.
            Definition::View(query) => {
                let query = Arc::clone(query);
                let catalog = self.catalog();
                let reader = Reader::of_query(self, &self.state, &catalog, &object.database, &query);
                reader.view(object, &query).map(|_| None)
            }
            Definition::Sink(_)
            | Definition::Sequence(_)
            | Definition::External(_)
            | Definition::Function(_)
            | Definition::Role(_)
            | Definition::Secret(_)
            | Definition::Type(_)
            | Definition::FailedToLoad(_)
            | Definition::Other => Ok(None),
        }
    }

    /// Makes a stream or table known to the runtime, which replays its log.
    pub async fn create_source(&self, name: &str, relation: &Relation) -> SqlResult<()> {
        let info = &relation.info;
        if !self.store.logs().contains(info.id.0) {
            self.store.logs().create(info.id.0, Arc::clone(&info.schema))?;
        }
        self.store
            .logs()
            .set_options(info.id.0, relation.keeping.for_log())?;
        let missing = relation.missing();
        if !missing.is_empty() {
            self.store.logs().widen(info.id.0, &info.schema)?;
        }
        let kind = match info.kind {
            millrace_planner::RelationKind::Stream => SourceKind::Stream {
                event_time: match self.event_time(relation)? {
                    Some(spec) => Some(EventTimeSpec {
                        at_least: self.kept_watermark(ObjectId(info.id.0))?,
                        ..spec
                    }),
                    None => None,
                },
            },
            _ => SourceKind::Table {
                key: relation.key().to_vec(),
            },
        };
        let spec = SourceSpec {
            id: info.id,
            name: name.to_string(),
            schema: Arc::clone(&info.schema),
            kind,
        };
        Ok(self.runtime.create_widened_source(spec, missing).await?)
    }

    /// What the runtime goes by for a stream's event time, if it has one.
    ///
    /// # Errors
    /// The watermark is not one.
    pub fn event_time(&self, relation: &Relation) -> SqlResult<Option<EventTimeSpec>> {
        let event_time = relation.event_time.as_ref();
        event_time
            .map(|event_time| {
                let spec = event_time.spec(&self.state, relation.schema())?;
                let is_read = relation.connector.as_ref().is_some_and(ConnectorDef::is_read);
                Ok(EventTimeSpec {
                    of_note: is_read.then_some(sources::noted),
                    ..spec
                })
            })
            .transpose()
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("data", &self.options.data)
            .finish_non_exhaustive()
    }
}
