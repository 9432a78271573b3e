//! Checkpoints that outlive the process: [`writer`] has those of all pipelines written, [`restore`] brings views and tables
//! back, and [`replay`] what the logs have beyond them.

pub(crate) mod replay;
pub(crate) mod restore;
pub(crate) mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use millrace_planner::RelationId;
use millrace_storage::Checkpoints;
use parking_lot::Mutex;

use self::restore::Recovery;
use self::writer::{Durable, Inbox};
use crate::checkpoint::{CheckpointStore, MemoryCheckpoints};

/// State of views and tables outside of the workers.
pub(crate) struct Checkpointing {
    /// What a lost worker's part is restored from.
    pub store: Arc<dyn CheckpointStore>,
    /// Has them written, if they are to outlive the process.
    pub durable: Option<Durable>,
    pub inbox: Mutex<Option<Inbox>>,
    /// What there is to restore, until the logs are replayed.
    pub recovery: Mutex<Option<Recovery>>,
    /// Sources that are behind where their logs ended at the start.
    pub catching_up: Mutex<BTreeMap<RelationId, u64>>,
    /// Pipelines that were restored after a loss, and views that were filled again.
    pub recoveries: [AtomicU64; 2],
}

impl Checkpointing {
    /// `files`: where checkpoints are that outlive the process, if there are any.
    pub fn new(files: Option<Arc<Checkpoints>>, every: Option<Duration>) -> Checkpointing {
        let recovery = files.clone().map(Recovery::new);
        let (durable, inbox) = files.map(|files| Durable::new(files, every)).unzip();
        Checkpointing {
            store: Arc::new(MemoryCheckpoints::default()),
            durable,
            inbox: Mutex::new(inbox),
            recovery: Mutex::new(recovery),
            catching_up: Mutex::default(),
            recoveries: Default::default(),
        }
    }

    /// The time of the oldest checkpoint from which something may go on.
    pub fn time(&self) -> Option<i64> {
        self.recovery.lock().as_ref().and_then(Recovery::oldest)
    }
}
