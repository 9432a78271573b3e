//! Hosts that have joined, as the coordinator has them: what they are told, and how they go.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millrace_mesh::{Body, Link};
use millrace_planner::state_identity::state_identity;
use millrace_schedule::id::{Part, WorkerId};
use parking_lot::{Mutex, RwLock};

use super::image;
use super::protocol::{About, Filling, Installed, Request, ToHost, encode};
use crate::error::{Result, RuntimeError};
use crate::worker::ViewInstance;

/// A host that has joined.
pub(crate) struct Member {
    pub id: WorkerId,
    pub about: About,
    pub since: Instant,
    pub(crate) link: Link,
    pub(crate) is_leaving: AtomicBool,
    /// What it says from now on counts for nothing.
    pub(crate) is_evicted: AtomicBool,
    /// What is here of the state there.
    pub(crate) held: Mutex<HashMap<(Part, u64), HeldPart>>,
}

pub(crate) type HeldPart = Arc<tokio::sync::Mutex<image::Held>>;

impl Member {
    pub fn tell(&self, message: &ToHost) {
        match encode(message) {
            Ok(bytes) => self.link.send(bytes),
            Err(error) => tracing::error!(worker = self.id.0, %error, "a message cannot be sent"),
        }
    }

    /// Asks it for something.
    ///
    /// # Errors
    /// It does not answer, or cannot do it: then it is held to be lost.
    pub async fn request(&self, request: &Request) -> Result<Body> {
        let lost = || RuntimeError::worker_lost(self.id.0);
        let body = Body::of(encode(request).map_err(RuntimeError::Internal)?);
        self.link.request(body).await.map_err(|_| lost())
    }

    pub fn status(&self) -> HostStatus {
        HostStatus {
            address: self.about.address.clone(),
            build: self.about.build.clone(),
            memory_limit: self.about.memory_limit,
            process: self.about.process,
            age: self.since.elapsed(),
        }
    }

    pub fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    pub(crate) fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::SeqCst)
    }
}

/// A host as operators see it.
#[derive(Debug, Clone)]
pub struct HostStatus {
    pub address: String,
    pub build: String,
    pub memory_limit: u64,
    pub process: u32,
    /// How long it has been there.
    pub age: Duration,
}

/// Hosts that take part.
#[derive(Default)]
pub(crate) struct Cluster {
    pub(crate) members: RwLock<BTreeMap<WorkerId, Arc<Member>>>,
    /// Held while a view is made known to all workers, and while a host joins: each host is told of each view once.
    pub(crate) installing: Mutex<()>,
}

impl Cluster {
    pub fn get(&self, worker: WorkerId) -> Option<Arc<Member>> {
        self.members.read().get(&worker).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Member>> {
        self.members.read().values().cloned().collect()
    }

    pub fn is_empty(&self) -> bool {
        self.members.read().is_empty()
    }

    /// Tells all of them.
    pub fn tell(&self, message: &ToHost) {
        for member in self.members.read().values() {
            member.tell(message);
        }
    }

    /// Takes one out. What it says from now on counts for nothing.
    pub fn evict(&self, worker: WorkerId) -> bool {
        let member = self.members.write().remove(&worker);
        if let Some(member) = &member {
            member.is_evicted.store(true, Ordering::SeqCst);
            member.link.close();
        }
        member.is_some()
    }

    /// Lets one go that has nothing left to do.
    pub fn retire(&self, worker: WorkerId) -> bool {
        let member = self.members.write().remove(&worker);
        if let Some(member) = &member {
            member.is_evicted.store(true, Ordering::SeqCst);
            // It closes the link.
            member.tell(&ToHost::Leave);
        }
        member.is_some()
    }
}

pub(crate) fn filling_of(view: &ViewInstance) -> Filling {
    Filling {
        view: view.id,
        incarnation: view.shape.incarnation,
        is_filling: view.is_filling(),
        is_bulk: view.is_bulk(),
        first: (0..view.graph.stages.len())
            .map(|stage| view.is_first(stage))
            .collect(),
    }
}

/// Tells a host of a view. One without a definition cannot be where there are hosts.
pub(crate) fn install_on(member: &Member, view: &ViewInstance, is_new: bool) {
    let Some(definition) = view.definition.clone() else {
        let why = "it has no definition from which another machine could make it";
        tracing::error!(view = %view.name, "a view failed, and the others continue: {why}");
        return view.set_aside(why.to_owned(), false);
    };
    member.tell(&ToHost::Install(Installed {
        name: view.name.clone(),
        shape: Arc::clone(&view.shape),
        definition,
        identity: state_identity(&view.graph),
        is_new,
    }));
    member.tell(&ToHost::Filling(filling_of(view)));
    if let Some(why) = view.failure() {
        member.tell(&ToHost::Failed {
            view: view.id,
            incarnation: view.shape.incarnation,
            why,
        });
    }
}
