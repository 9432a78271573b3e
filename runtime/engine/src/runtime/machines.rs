//! Workers of other processes: how they are taken in, what they are told, and what they ask for.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_mesh::{Body, Incoming, Listener, Serve};
use millrace_planner::RelationId;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::driver::Event;
use millrace_schedule::id::{Part, TaskId, WorkerId};
use millrace_schedule::message::ToWorker;
use millrace_storage::ChangeBatch;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::Engine;
use crate::cluster::members::{Member, filling_of, install_on};
use crate::cluster::protocol::{Hello, Request, ToCoordinator, ToHost, decode, without_header};
use crate::cluster::{image, next_batch, rows};
use crate::error::{Result, RuntimeError};
use crate::worker::{Image, ViewInstance};

/// How often a host is told that the coordinator is there.
const ALIVE_EVERY: Duration = Duration::from_millis(500);

impl Engine {
    /// Makes a view known to all workers.
    pub fn install(&self, view: &Arc<ViewInstance>) {
        let _installing = self.cluster.installing.lock();
        self.workers.install(view);
        if !self.cluster.is_empty() {
            let members = self.cluster.all();
            members.iter().for_each(|member| install_on(member, view, true));
        }
    }

    /// Takes it from them.
    pub fn uninstall(&self, view: RelationId) {
        self.workers.uninstall(view);
        for member in self.cluster.all() {
            member.held.lock().retain(|(part, _), _| part.view != view);
            member.tell(&ToHost::Uninstall(view));
        }
    }

    /// Tells hosts how far a view is that is being filled.
    pub fn tell_filling(&self, view: &ViewInstance) {
        if !self.cluster.is_empty() {
            self.cluster.tell(&ToHost::Filling(filling_of(view)));
        }
    }

    /// Tells hosts which back-fills are urgent.
    pub fn tell_urgent(&self) {
        if !self.cluster.is_empty() {
            let urgent = self.jobs.urgent.lock().iter().copied().collect();
            self.cluster.tell(&ToHost::Urgent(urgent));
        }
    }

    /// A view failed: no worker goes on with it.
    pub fn tell_failed(&self, view: &ViewInstance) {
        if !self.cluster.is_empty() {
            self.cluster.tell(&ToHost::Failed {
                view: view.id,
                incarnation: view.shape.incarnation,
                why: view.failure().unwrap_or_default(),
            });
        }
    }

    /// A message of the driver for a worker in another process; returns whether there is one of this name.
    pub fn tell_member(&self, to: WorkerId, message: &ToWorker) -> bool {
        let Some(member) = self.cluster.get(to).filter(|member| !member.link.is_closed()) else {
            return false;
        };
        if let ToWorker::Prepare(template) = message {
            let views = template.views.iter();
            for view in views.filter_map(|shape| self.workers.view(shape.id, shape.incarnation)) {
                member.tell(&ToHost::Filling(filling_of(&view)));
            }
        }
        member.tell(&ToHost::Command(message.clone()));
        true
    }

    /// Takes hosts in that connect, while the runtime lives.
    pub fn listen(self: &Arc<Self>, mut listener: Listener, build: String) {
        let engine = Arc::downgrade(self);
        self.machine.io.spawn(async move {
            let mut beats = tokio::time::interval(ALIVE_EVERY);
            loop {
                tokio::select! {
                    incoming = listener.next() => {
                        let (Some(incoming), Some(engine)) = (incoming, engine.upgrade()) else {
                            return;
                        };
                        let build = build.clone();
                        engine.machine.io.clone().spawn(async move { engine.take_in(incoming, &build).await });
                    }
                    _ = beats.tick() => match engine.upgrade() {
                        Some(engine) => engine.cluster.tell(&ToHost::Alive),
                        None => return,
                    },
                }
            }
        });
    }

    async fn take_in(self: &Arc<Self>, incoming: Incoming, build: &str) {
        let about = match decode(&incoming.about) {
            Ok(Hello::Join(about)) => about,
            Ok(Hello::Peer { .. }) => {
                return incoming
                    .refuse("this is the coordinator, and no other worker")
                    .await;
            }
            // What it cannot say to this build is where builds differ first.
            Err(_) => {
                return incoming
                    .refuse(&format!("the coordinator is of build {build}"))
                    .await;
            }
        };
        if about.build != build {
            let why = format!(
                "the coordinator is of build {build}, and this worker of build {}",
                about.build
            );
            tracing::warn!(address = %incoming.address, "{why}");
            return incoming.refuse(&why).await;
        }
        let serving = Arc::new(Serving {
            engine: Arc::downgrade(self),
            member: OnceCell::new(),
        });
        let address = incoming.address;
        let link = match incoming.take(Arc::clone(&serving) as Arc<dyn Serve>).await {
            Ok(link) => link,
            Err(error) => {
                tracing::warn!(%address, %error, "a worker went before it was taken in");
                return;
            }
        };
        let member = Arc::new(Member {
            id: self.workers.next_id(),
            about,
            since: Instant::now(),
            link: link.clone(),
            is_leaving: AtomicBool::new(false),
            is_evicted: AtomicBool::new(false),
            held: Mutex::default(),
        });
        let id = member.id;
        member.tell(&ToHost::Welcome {
            worker: id,
            heartbeat_ns: self.options.heartbeat_every.as_nanos() as u64,
        });
        // It is the only one to set it.
        let _ = serving.member.set(Arc::clone(&member));
        {
            let _installing = self.cluster.installing.lock();
            for view in self.workers.views() {
                install_on(&member, &view, false);
            }
            self.cluster.members.write().insert(id, Arc::clone(&member));
        }
        self.tell_hosts();
        self.tell_urgent();
        tracing::info!(worker = id.0, address = %member.about.address, cores = member.about.cores, "a worker joined");
        self.post(Event::WorkerJoined {
            worker: id,
            has_sources: false,
        });
        let engine = Arc::downgrade(self);
        self.machine.io.spawn(async move {
            link.closed().await;
            let Some(engine) = engine.upgrade() else { return };
            engine
                .workers
                .views()
                .iter()
                .for_each(|view| view.kept_by(id, None));
            if !member.is_evicted() {
                tracing::warn!(worker = id.0, "the link to a worker is closed");
                engine.post(Event::WorkerLost { worker: id });
            }
            engine.tell_hosts();
        });
    }

    /// Tells hosts where the others are.
    fn tell_hosts(&self) {
        let members = self.cluster.all();
        let hosts = members
            .iter()
            .map(|member| (member.id, member.about.address.clone()));
        self.cluster.tell(&ToHost::Hosts(hosts.collect()));
    }

    /// Brings rows of a view back that were lost with a worker.
    pub async fn bring_rows_back(&self, view: &Arc<ViewInstance>, partition: usize) -> Result<()> {
        if !view.are_rows_lost(partition) {
            return Ok(());
        }
        let stage = view.graph.stages.len() - 1;
        let _turn = view.turn_to_restore(stage, partition).await;
        if !view.are_rows_lost(partition) || view.failure().is_some() {
            return Ok(());
        }
        let part = Part {
            view: view.id,
            stage,
            partition,
        };
        match self.checkpoints.store.get(part) {
            Some(image) => view.restore_rows(partition, &image),
            None => Err(RuntimeError::Internal(format!(
                "{part:?} is not in any checkpoint (rows)"
            ))),
        }
    }

    /// What a host says.
    fn heard(self: &Arc<Self>, member: &Arc<Member>, message: ToCoordinator) {
        match message {
            ToCoordinator::Report(message) => self.post(Event::Worker(message)),
            ToCoordinator::Peer { to, message } => match self.workers.get(to) {
                Some(worker) => worker.receive(message),
                None => self.post(Event::Worker(millrace_schedule::message::ToDriver::Undelivered {
                    to,
                    message,
                })),
            },
            ToCoordinator::Unfit(why) => {
                tracing::error!(worker = member.id.0, "a worker leaves: {why}");
                member.link.close();
            }
            // One of the two has to go: what they owe each other nobody can say again.
            ToCoordinator::Unlinked { from } => {
                if self.cluster.get(from).is_some() {
                    tracing::warn!(
                        worker = from.0,
                        by = member.id.0,
                        "a worker cannot be reached by another"
                    );
                    self.post(Event::WorkerLost { worker: from });
                }
            }
            ToCoordinator::Ran(ran) => {
                for ran in ran {
                    if let Some(view) = self.workers.view(ran.view, ran.incarnation) {
                        view.activity(ran.stage, ran.partition).add(&ran.counts);
                    }
                }
            }
            ToCoordinator::Keeps(keeps) => {
                for keeps in keeps {
                    if let Some(view) = self.workers.view(keeps.view, keeps.incarnation) {
                        view.kept_by(member.id, Some((keeps.in_memory, keeps.on_disk)));
                    }
                }
            }
            ToCoordinator::Due { task, due } => self.timers.set(task, due),
            ToCoordinator::EmittedFixedRows {
                view,
                incarnation,
                stage,
            } => {
                if let Some(view) = self.workers.view(view, incarnation) {
                    view.take_first(stage);
                }
            }
            ToCoordinator::Failed {
                view,
                incarnation,
                why,
                is_memory,
            } => {
                if let Some(view) = self.workers.view(view, incarnation)
                    && view.failure().is_none()
                {
                    tracing::error!(view = %view.name, worker = member.id.0, error = %why,
                        "a view failed; the others continue");
                    view.set_aside(why, is_memory);
                    self.view_failed(&view, is_memory);
                }
            }
            ToCoordinator::ExpressionErrors {
                view,
                incarnation,
                rows,
                last,
            } => {
                if let Some(view) = self.workers.view(view, incarnation) {
                    view.errors.add_counted(rows, last);
                }
            }
        }
    }

    /// A view has failed on some worker.
    pub fn view_failed(self: &Arc<Self>, view: &ViewInstance, is_memory: bool) {
        self.tell_failed(view);
        if is_memory {
            self.divide_large();
        }
    }

    async fn answer(self: Arc<Self>, member: Arc<Member>, body: Body) -> Result<Body, String> {
        let failed = |error: RuntimeError| error.to_string();
        match decode::<Request>(&body.header)? {
            Request::Fetch {
                of,
                pipeline,
                epoch,
                block,
            } => {
                let worker = self.workers.get(of).ok_or("there is no such worker")?;
                let fetched = worker.fetch(pipeline, epoch, block).map_err(failed)?;
                rows::encode(&fetched)
            }
            Request::NextBatch {
                of,
                flow,
                partition,
                done,
            } => {
                let worker = self.workers.get(of).ok_or("there is no such worker")?;
                next_batch(&worker, flow, partition, done).await
            }
            Request::Materialize { task, incarnation } => {
                let changes = rows::decode(without_header(body))?;
                let applied = self.materialize(member, task, incarnation, changes).await;
                applied.map(|()| Body::default()).map_err(failed)
            }
            Request::Keep {
                part,
                epoch,
                incarnation,
            } => {
                let held = {
                    let mut held = member.held.lock();
                    Arc::clone(held.entry((part, incarnation)).or_default())
                };
                let mut held = held.lock().await;
                let spill = self.machine.spill.as_ref();
                let operators = image::decode(without_header(body), &mut held, spill)
                    .await
                    .map_err(failed)?;
                drop(held);
                let view = self
                    .workers
                    .view(part.view, incarnation)
                    .ok_or("the view is gone")?;
                if part.stage + 1 == view.graph.stages.len() {
                    self.bring_rows_back(&view, part.partition)
                        .await
                        .map_err(failed)?;
                }
                let here = view.image(part.stage, part.partition).map_err(failed)?;
                let image = Image { operators, ..here };
                if member.is_evicted() {
                    return Err("this worker is held to be lost".into());
                }
                self.checkpoints.store.put(part, epoch, image);
                Ok(Body::default())
            }
            Request::Image { part } => {
                let kept = self
                    .checkpoints
                    .store
                    .get(part)
                    .ok_or("it is not in any checkpoint")?;
                let nothing = &mut image::Sent::default();
                image::encode(kept.operators.as_ref(), nothing)
                    .await
                    .map_err(failed)
            }
        }
    }

    /// Applies what a host's task emitted to the rows of its view.
    async fn materialize(
        self: &Arc<Self>,
        member: Arc<Member>,
        task: TaskId,
        incarnation: u64,
        changes: Vec<ChangeBatch>,
    ) -> Result<()> {
        // One that is gone is applied to by nobody, and one that failed has no rows.
        let Some(view) = self.workers.view(task.view, incarnation) else {
            return Ok(());
        };
        self.bring_rows_back(&view, task.partition).await?;
        let engine = Arc::clone(self);
        let applying = self.workers.spawn_for(task.view, QueryClass::Stream, move |_| {
            async move {
                let _turn = view.turn(task.stage, task.partition, false).await?;
                let low_water = engine.versions.low_water(view.id, false);
                view.set_low_water(low_water);
                let bytes = view.apply(task, low_water, &changes, || !member.is_evicted())?;
                view.charge_state(task.stage, task.partition, bytes);
                view.make_room().await;
                Ok(())
            }
            .boxed()
        })?;
        applying.await
    }
}

/// What one host says and asks for.
struct Serving {
    engine: Weak<Engine>,
    member: OnceCell<Arc<Member>>,
}

impl Serving {
    /// The runtime and the host, as long as the host counts.
    fn reach(&self) -> Option<(Arc<Engine>, Arc<Member>)> {
        let member = self.member.get().filter(|member| !member.is_evicted())?;
        Some((self.engine.upgrade()?, Arc::clone(member)))
    }
}

impl Serve for Serving {
    fn message(&self, message: Bytes) {
        let Some((engine, member)) = self.reach() else {
            return;
        };
        match decode(&message) {
            Ok(message) => engine.heard(&member, message),
            Err(error) => {
                tracing::error!(worker = member.id.0, %error, "a message of a worker cannot be read");
                member.link.close();
            }
        }
    }

    fn request(&self, request: Body) -> BoxFuture<'static, Result<Body, String>> {
        let reached = self.reach();
        async move {
            let (engine, member) = reached.ok_or("this worker is held to be lost")?;
            engine.answer(member, request).await
        }
        .boxed()
    }
}
