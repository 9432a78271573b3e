//! The other side: a process with a worker that belongs to a coordinator elsewhere.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_mesh::{Access, Body, Link, Listener, MeshError, Serve, connect};
use millrace_planner::state_identity::state_difference;
use millrace_planner::{RelationId, StageGraph};
use millrace_resource::cpu::CpuScheduler;
use millrace_resource::memory::Memory;
use millrace_resource::spill::state::SpillOptions;
use millrace_schedule::id::{Part, PipelineId, WorkerId};
use millrace_schedule::template::ViewShape;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::sync::mpsc;

mod others;
mod transport;

use self::others::Other;
use self::transport::OverLinks;
use super::protocol::{
    About, Hello, Installed, Keeps, Ran, Request, ToCoordinator, ToHost, ToOther, decode, encode, with_header,
};
use super::{image, rows};
use crate::error::{Result, RuntimeError};
use crate::machine::Machine;
use crate::worker::flow::{Batch, BatchId, FlowId};
use crate::worker::{ViewInstance, ViewSpec, Worker};

/// A coordinator that says nothing for so long is gone, or cannot be reached.
const SILENCE_MAX: Duration = Duration::from_millis(2_500);

/// Makes plans of views out of what the coordinator sends.
pub trait Definitions: Send + Sync + 'static {
    /// The graph of a view, from [`ViewSpec::definition`].
    ///
    /// # Errors
    /// It cannot be planned here.
    fn plan(&self, definition: &[u8]) -> Result<StageGraph, String>;
}

/// How a host is laid out.
pub struct HostOptions {
    /// Where the coordinator listens for workers.
    pub coordinator: String,
    /// What it knows and whether it encrypts.
    pub access: Access,
    /// Has to be that of the coordinator.
    pub build: String,
    /// Where other hosts reach this one; none: where it listens.
    pub advertised: Option<String>,
    /// CPU slots.
    pub cores: usize,
    pub memory: Arc<Memory>,
    pub memory_limit: u64,
    /// Where state goes when memory is short.
    pub spill: Option<SpillOptions>,
    /// A directory of its own.
    pub directory: PathBuf,
}

/// Why a host has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// The coordinator does not need it any more.
    Dismissed,
    /// The coordinator is gone, cannot be reached, or holds this host to be lost.
    Lost,
    /// It cannot make a view that the coordinator has, and would not be able to another time.
    Unfit(String),
}

/// A worker that has joined. Dropping it takes it out.
pub struct Host {
    inner: Arc<Inner>,
    working: tokio::task::JoinHandle<Left>,
}

struct Inner {
    machine: Machine,
    definitions: Arc<dyn Definitions>,
    access: Access,
    started: Instant,
    heartbeat: Duration,
    link: Link,
    id: WorkerId,
    /// Set once, right after this is made.
    worker: OnceCell<Arc<Worker>>,
    urgent: Mutex<BTreeSet<PipelineId>>,
    others: Mutex<HashMap<WorkerId, Other>>,
    /// Errors of expressions that the coordinator was told of, by view.
    told_errors: Mutex<HashMap<(RelationId, u64), u64>>,
    /// What tasks did since the coordinator was last told.
    ran: Mutex<Vec<Ran>>,
    told_keeps: Mutex<Vec<Keeps>>,
    /// What the coordinator has of the state here.
    sent: Mutex<HashMap<(Part, u64), SentPart>>,
}

type SentPart = Arc<tokio::sync::Mutex<image::Sent>>;

/// Hands on what the coordinator says, in order.
struct FromCoordinator {
    messages: mpsc::UnboundedSender<ToHost>,
    inner: Arc<OnceCell<Weak<Inner>>>,
}

impl Serve for FromCoordinator {
    fn message(&self, message: Bytes) {
        match decode(&message) {
            // Nobody listens any more: it has ended.
            Ok(message) => _ = self.messages.send(message),
            Err(error) => {
                tracing::error!(%error, "a message of the coordinator cannot be read");
                if let Some(inner) = self.inner.get().and_then(Weak::upgrade) {
                    inner.link.close();
                }
            }
        }
    }

    fn request(&self, request: Body) -> BoxFuture<'static, Result<Body, String>> {
        answer(self.inner.get().and_then(Weak::upgrade), request)
    }
}

/// What another host says.
struct FromOther(Weak<Inner>);

impl Serve for FromOther {
    fn message(&self, message: Bytes) {
        let Some(inner) = self.0.upgrade() else { return };
        match decode::<ToOther>(&message) {
            Ok(ToOther { to, message }) if to == inner.id => inner.worker().receive(message),
            Ok(_) => tracing::error!("a message for another worker"),
            Err(error) => tracing::error!(%error, "a message of another worker cannot be read"),
        }
    }

    fn request(&self, request: Body) -> BoxFuture<'static, Result<Body, String>> {
        answer(self.0.upgrade(), request)
    }
}

/// Rows that wait here.
fn answer(inner: Option<Arc<Inner>>, request: Body) -> BoxFuture<'static, Result<Body, String>> {
    async move {
        let inner = inner.ok_or("this worker has left")?;
        match decode::<Request>(&request.header)? {
            Request::Fetch {
                of,
                pipeline,
                epoch,
                block,
            } if of == inner.id => {
                let fetched = inner.worker().fetch(pipeline, epoch, block);
                rows::encode(&fetched.map_err(|error| error.to_string())?)
            }
            Request::NextBatch {
                of,
                flow,
                partition,
                done,
            } if of == inner.id => next_batch(inner.worker(), flow, partition, done).await,
            _ => Err("this worker does not have what was requested".into()),
        }
    }
    .boxed()
}

/// The next batch of a channel as bytes; without parts if there are no more.
pub(crate) async fn next_batch(
    worker: &Worker,
    flow: FlowId,
    partition: usize,
    done: Option<BatchId>,
) -> Result<Body, String> {
    let batch = worker.next_batch(flow, partition, done).await;
    match batch.map_err(|error| error.to_string())? {
        None => Ok(Body::default()),
        Some(Batch { id, rows }) => with_header(&id, rows::encode(&rows)?),
    }
}

/// What [`next_batch`] made.
pub(crate) fn batch_of(body: Body) -> Result<Option<Batch>, String> {
    if body.header.is_empty() {
        return Ok(None);
    }
    let id = decode(&body.header)?;
    let rows = rows::decode(super::protocol::without_header(body))?;
    Ok(Some(Batch { id, rows }))
}

impl Host {
    /// Joins a coordinator.
    ///
    /// # Errors
    /// The coordinator cannot be reached, or does not take this process.
    pub async fn join(
        options: HostOptions,
        definitions: Arc<dyn Definitions>,
        mut listener: Listener,
    ) -> Result<Host, JoinError> {
        let machine = Machine::start(
            options.cores,
            &options.memory,
            options.spill.as_ref(),
            &options.directory,
        )?;
        let about = About {
            build: options.build,
            address: options
                .advertised
                .unwrap_or_else(|| listener.address().to_string()),
            cores: options.cores,
            memory_limit: options.memory_limit,
            process: std::process::id(),
        };
        let about = encode(&Hello::Join(about)).map_err(RuntimeError::Internal)?;
        let (messages, mut heard) = mpsc::unbounded_channel();
        let serving = Arc::new(FromCoordinator {
            messages,
            inner: Arc::default(),
        });
        let link = connect(
            &options.coordinator,
            &options.access,
            &about,
            Arc::clone(&serving) as Arc<dyn Serve>,
        );
        let link = link.await?;
        let welcome = tokio::time::timeout(SILENCE_MAX, heard.recv()).await;
        let Ok(Some(ToHost::Welcome {
            worker: id,
            heartbeat_ns,
        })) = welcome
        else {
            return Err(MeshError::Closed.into());
        };
        let inner = Arc::new(Inner {
            machine,
            definitions,
            access: options.access,
            started: Instant::now(),
            heartbeat: Duration::from_nanos(heartbeat_ns),
            link,
            id,
            worker: OnceCell::new(),
            urgent: Mutex::default(),
            others: Mutex::default(),
            told_errors: Mutex::default(),
            ran: Mutex::default(),
            told_keeps: Mutex::default(),
            sent: Mutex::default(),
        });
        let cpu = CpuScheduler::start(inner.machine.cores, Some(inner.machine.waits()))?;
        cpu.watch(&inner.machine.memory);
        let transport = Arc::new(OverLinks(Arc::downgrade(&inner)));
        // It is the only one to set them.
        let _ = inner.worker.set(Worker::new(id, cpu, transport, inner.started));
        let _ = serving.inner.set(Arc::downgrade(&inner));
        {
            let (link, inner) = (inner.link.clone(), Arc::downgrade(&inner));
            tokio::spawn(async move {
                loop {
                    let incoming = tokio::select! {
                        incoming = listener.next() => incoming,
                        // It has left.
                        () = link.closed() => return,
                    };
                    let (Some(incoming), Some(inner)) = (incoming, inner.upgrade()) else {
                        return;
                    };
                    match decode(&incoming.about) {
                        Ok(Hello::Peer { .. }) => {
                            let taken = incoming.take(Arc::new(FromOther(Arc::downgrade(&inner)))).await;
                            if let Ok(link) = taken {
                                // It lives as long as the other side has it.
                                let own = inner.link.clone();
                                tokio::spawn(async move {
                                    tokio::select! {
                                        () = link.closed() => {}
                                        () = own.closed() => link.close(),
                                    }
                                });
                            }
                        }
                        _ => incoming.refuse("this is a worker, and no coordinator").await,
                    }
                }
            });
        }
        let working = tokio::spawn(Arc::clone(&inner).work(heard));
        Ok(Host { inner, working })
    }

    /// Its name.
    pub fn id(&self) -> u32 {
        self.inner.id.0
    }

    /// Resolves when it has ended.
    pub async fn ended(mut self) -> Left {
        (&mut self.working).await.unwrap_or(Left::Lost)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.inner.link.close();
        self.working.abort();
        self.inner.end();
    }
}

/// Why a host has not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(transparent)]
    Mesh(#[from] MeshError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Resource(#[from] millrace_resource::error::ResourceError),
}

impl Inner {
    fn worker(&self) -> &Arc<Worker> {
        match self.worker.get() {
            Some(worker) => worker,
            None => unreachable!("it is set before anybody else has this"),
        }
    }

    fn tell(&self, message: &ToCoordinator) {
        match encode(message) {
            Ok(bytes) => self.link.send(bytes),
            Err(error) => tracing::error!(%error, "a message cannot be sent"),
        }
    }

    fn end(&self) {
        self.worker().die();
        self.worker().cpu.lose(self.id.0);
        self.machine.stop();
    }

    /// Does what the coordinator says until that is over.
    async fn work(self: Arc<Self>, mut heard: mpsc::UnboundedReceiver<ToHost>) -> Left {
        let mut beats = tokio::time::interval(self.heartbeat);
        beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last_heard = Instant::now();
        loop {
            tokio::select! {
                message = heard.recv() => match message {
                    Some(ToHost::Leave) => return Left::Dismissed,
                    Some(message) => {
                        last_heard = Instant::now();
                        if let Err(why) = self.hear(message) {
                            self.tell(&ToCoordinator::Unfit(why.clone()));
                            // The coordinator closes the link once it has read why.
                            let _ = tokio::time::timeout(SILENCE_MAX, self.link.closed()).await;
                            return Left::Unfit(why);
                        }
                    }
                    None => return Left::Lost,
                },
                () = self.link.closed() => return Left::Lost,
                _ = beats.tick() => {
                    if last_heard.elapsed() > SILENCE_MAX {
                        tracing::warn!("the coordinator says nothing");
                        return Left::Lost;
                    }
                    self.worker().beat();
                    self.tell_errors();
                    self.tell_ran();
                    self.tell_keeps();
                }
            }
        }
    }

    /// Does what a message says.
    ///
    /// # Errors
    /// A view cannot be made here.
    fn hear(self: &Arc<Self>, message: ToHost) -> Result<(), String> {
        match message {
            ToHost::Welcome { .. } | ToHost::Alive | ToHost::Leave => {}
            ToHost::Command(message) => self.worker().command(message),
            ToHost::Peer(message) => self.worker().receive(message),
            ToHost::Install(installed) => return self.install(installed),
            ToHost::Uninstall(view) => {
                self.sent.lock().retain(|(part, _), _| part.view != view);
                self.worker().uninstall(view);
            }
            ToHost::Filling(filling) => {
                if let Some(view) = self.worker().view(filling.view, filling.incarnation) {
                    view.set_filling(filling.is_filling, filling.is_bulk, &filling.first);
                }
            }
            ToHost::Failed {
                view,
                incarnation,
                why,
            } => {
                if let Some(view) = self.worker().view(view, incarnation)
                    && view.failure().is_none()
                {
                    view.set_aside(why, false);
                }
            }
            ToHost::Urgent(jobs) => *self.urgent.lock() = jobs,
            ToHost::Hosts(hosts) => self.know_others(hosts),
        }
        Ok(())
    }

    /// Makes a view's operators.
    ///
    /// # Errors
    /// The plan is not the coordinator's, or there is none.
    fn install(&self, installed: Installed) -> Result<(), String> {
        let Installed {
            name,
            shape,
            definition,
            identity,
            is_new,
        } = installed;
        if self.worker().view(shape.id, shape.incarnation).is_some() {
            return Ok(());
        }
        let made = self.make(name.clone(), &shape, definition, &identity);
        let made = made.map_err(|why| format!("view \"{name}\" cannot be made on another machine: {why}"))?;
        if !is_new {
            (0..shape.partitions).for_each(|partition| made.let_go(partition));
        }
        self.worker().install(Arc::new(made));
        Ok(())
    }

    fn make(
        &self,
        name: String,
        shape: &Arc<ViewShape>,
        definition: Arc<[u8]>,
        identity: &[String],
    ) -> Result<ViewInstance, String> {
        let mut graph = self.definitions.plan(&definition)?;
        graph.partitions = shape.partitions;
        if let Some(difference) = state_difference(
            identity,
            &millrace_planner::state_identity::state_identity(&graph),
        ) {
            return Err(format!("its plan differs there: {difference}"));
        }
        if *shape.as_ref() != ViewShape::of(shape.id, shape.incarnation, &graph) {
            return Err("its stages are others there".into());
        }
        let spec = ViewSpec {
            id: shape.id,
            name,
            graph,
            definition: Some(definition),
        };
        let memory = &self.machine.memory;
        ViewInstance::new(spec, shape.incarnation, memory, self.machine.spill.clone())
            .map_err(|error| error.to_string())
    }

    async fn request_of(self: Arc<Self>, worker: WorkerId, request: Request) -> Result<Body> {
        let lost = || RuntimeError::worker_lost(worker.0);
        let body = Body::of(encode(&request).map_err(RuntimeError::Internal)?);
        // A worker of the coordinator, unless it is another host.
        let is_host = self.others.lock().contains_key(&worker);
        let link = match is_host {
            true => self.link_to(worker).await?,
            false => self.link.clone(),
        };
        link.request(body).await.map_err(|_| lost())
    }

    async fn request_with(self: Arc<Self>, request: Request, what: Body) -> Result<Body> {
        let body = with_header(&request, what).map_err(RuntimeError::Internal)?;
        self.link.request(body).await.map_err(|error| {
            if !self.link.is_closed() {
                tracing::error!(%error, ?request, "the coordinator refuses what this worker has done");
                // It would go on with what nobody has.
                self.link.close();
            }
            RuntimeError::worker_lost(self.id.0)
        })
    }

    fn tell_ran(&self) {
        let ran = std::mem::take(&mut *self.ran.lock());
        if !ran.is_empty() {
            self.tell(&ToCoordinator::Ran(ran));
        }
    }

    /// Tells what is kept here, if that has changed.
    fn tell_keeps(&self) {
        let views = self.worker().views().into_iter();
        let keeps = views.map(|view| Keeps {
            view: view.id,
            incarnation: view.shape.incarnation,
            in_memory: view.state_bytes() as u64,
            on_disk: view.account.on_disk() as u64,
        });
        let mut keeps: Vec<Keeps> = keeps.collect();
        keeps.sort_unstable_by_key(|keeps| keeps.view);
        let mut told = self.told_keeps.lock();
        if *told != keeps {
            self.tell(&ToCoordinator::Keeps(keeps.clone()));
            *told = keeps;
        }
    }

    /// Tells of rows on which expressions failed since the last time.
    fn tell_errors(&self) {
        let mut told = self.told_errors.lock();
        let views = self.worker().views();
        told.retain(|of, _| views.iter().any(|view| (view.id, view.shape.incarnation) == *of));
        for view in views {
            let incarnation = view.shape.incarnation;
            let known = told.entry((view.id, incarnation)).or_default();
            let all = view.errors.rows();
            if all > *known {
                self.tell(&ToCoordinator::ExpressionErrors {
                    view: view.id,
                    incarnation,
                    rows: all - *known,
                    last: view.errors.last().unwrap_or_default(),
                });
                *known = all;
            }
        }
    }
}
