//! The checkpoint store: state of views outside of the workers, as of an epoch after which all of it was put here.
//!
//! ```text
//!  task of epoch e ends: put(part, e) --.
//!                                        >-- every task has: complete(views, e) --> get(part): what is restored
//!  task of epoch e ends: put(part, e) --'
//! ```
//! One commit point: until an epoch is complete the one before it is what is restored. This store is in memory, and shares
//! what it keeps with the tables that it shows: it outlives a worker, not the process.
//!
//! What outlives the process is written from it, now and then, in the background, and brought back at the start
//! ([`crate::runtime::durable`]); here is how images become blocks ([`encode`]) and blocks images ([`decode`]).

pub(crate) mod decode;
pub(crate) mod encode;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use millrace_planner::RelationId;
use millrace_schedule::id::Part;
use parking_lot::Mutex;

use crate::worker::Image;

/// Where images are kept.
pub trait CheckpointStore: Send + Sync {
    /// Keeps what a part was after an epoch.
    fn put(&self, part: Part, epoch: u64, image: Image);

    /// All parts of these views are here as of this epoch: from now on that is what they are restored to.
    fn complete(&self, views: &[RelationId], epoch: u64);

    /// The last complete image of a part.
    fn get(&self, part: Part) -> Option<Arc<Image>>;

    /// The complete image of a part as of exactly this epoch.
    fn get_at(&self, part: Part, epoch: u64) -> Option<Arc<Image>>;

    /// Forgets a view.
    fn remove(&self, view: RelationId);
}

#[derive(Debug, Default)]
struct Images {
    /// With its epoch.
    complete: Option<(u64, Arc<Image>)>,
    /// Of epochs that are not complete, by epoch: a second checkpoint may be under way before the first one is complete.
    pending: BTreeMap<u64, Arc<Image>>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct MemoryCheckpoints {
    parts: Mutex<HashMap<Part, Images>>,
}

impl CheckpointStore for MemoryCheckpoints {
    fn put(&self, part: Part, epoch: u64, image: Image) {
        let mut parts = self.parts.lock();
        let images = parts.entry(part).or_default();
        // A worker that is held to be lost may still be at an older one.
        if images
            .complete
            .as_ref()
            .is_none_or(|(complete, _)| *complete < epoch)
        {
            images.pending.insert(epoch, Arc::new(image));
        }
    }

    fn complete(&self, views: &[RelationId], epoch: u64) {
        let mut parts = self.parts.lock();
        let of_views = parts.iter_mut().filter(|(part, _)| views.contains(&part.view));
        for (_, images) in of_views {
            let later = images.pending.split_off(&(epoch + 1));
            if let Some(image) = images.pending.remove(&epoch) {
                images.complete = Some((epoch, image));
            }
            images.pending = later;
        }
    }

    fn get(&self, part: Part) -> Option<Arc<Image>> {
        let parts = self.parts.lock();
        let (_, image) = parts.get(&part)?.complete.as_ref()?;
        Some(Arc::clone(image))
    }

    fn get_at(&self, part: Part, epoch: u64) -> Option<Arc<Image>> {
        let parts = self.parts.lock();
        let (of, image) = parts.get(&part)?.complete.as_ref()?;
        (*of == epoch).then(|| Arc::clone(image))
    }

    fn remove(&self, view: RelationId) {
        self.parts.lock().retain(|part, _| part.view != view);
    }
}
