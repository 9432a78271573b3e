//! The messages between driver and workers. Values: a process boundary could carry them ([`encode`], [`decode`]).

use std::sync::Arc;

use millrace_planner::RelationId;
use millrace_planner::watermark::Watermarks;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::template::Template;
use crate::id::{PipelineId, TaskId, WorkerId};
use crate::task::{Ended, Source};

/// From the driver to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Makes a pipeline's tasks known, in place of what was known of it. Sent once; launches refer to it.
    Prepare(Arc<Template>),
    /// A group: these epochs may run, as soon as there is input for them. The driver is not asked again.
    Launch {
        pipeline: PipelineId,
        version: u64,
        first: u64,
        last: u64,
        /// After which of these epochs, if any, tasks put their state into the checkpoint store.
        checkpoints: Vec<u64>,
        /// The first epoch is to be started even without input.
        is_forced: bool,
    },
    /// To the cutter: start no further epoch, and say which was the last. `is_checkpoint`: the last one is to be a checkpoint,
    /// for which one more is started if need be, with or without input.
    Close {
        pipeline: PipelineId,
        version: u64,
        is_checkpoint: bool,
    },
    /// To the cutter: the next epoch is a checkpoint, and comes with or without input.
    Checkpoint { pipeline: PipelineId, version: u64 },
    /// The pipeline, or the worker's part in it, is gone.
    Forget { pipeline: PipelineId, version: u64 },
    /// From this version on other workers have all of these views: what is kept of them here is of no use.
    Discard {
        pipeline: PipelineId,
        version: u64,
        views: Vec<RelationId>,
    },
    /// A checkpoint contains everything up to this epoch: what was left of it is wanted by nobody any more.
    Release {
        pipeline: PipelineId,
        version: u64,
        to: u64,
    },
    /// A message of a peer that could not reach this worker itself.
    Relay(ToPeer),
    /// A task that could not fetch what it reads is to run again: whoever has it is alive.
    Retry {
        pipeline: PipelineId,
        version: u64,
        task: TaskId,
    },
    /// This worker's tasks of a map stage that have not ended are to be run on worker `to`, too.
    CopyTo {
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        view: RelationId,
        stage: usize,
        to: WorkerId,
    },
}

/// From a worker to the driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToDriver {
    /// All tasks of the epoch on this worker ended.
    EpochDone {
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        worker: WorkerId,
        costs: EpochCosts,
        /// At the end of a group, what its tasks did, by stage.
        stages: Vec<StageCosts>,
        /// Its state after this epoch is in the checkpoint store.
        is_checkpoint: bool,
    },
    /// The cutter will soon have used up the epochs that it may start.
    NeedEpochs {
        pipeline: PipelineId,
        version: u64,
        last: u64,
    },
    /// The answer to [`ToWorker::Close`]: the last epoch that was started.
    Closed {
        pipeline: PipelineId,
        version: u64,
        last: u64,
    },
    /// After a loss: what this worker has of the pipeline is there again, as of the checkpoint or later.
    Restored {
        pipeline: PipelineId,
        version: u64,
        worker: WorkerId,
    },
    /// Task `task` of worker `by` could not fetch its rows: worker `lost` did not answer.
    Unreachable {
        pipeline: PipelineId,
        version: u64,
        task: TaskId,
        lost: WorkerId,
        by: WorkerId,
    },
    /// Tasks here wait for a map stage on worker `worker` far longer than it took most of the others.
    Straggling {
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        view: RelationId,
        stage: usize,
        worker: WorkerId,
    },
    /// A message that could not be delivered to worker `to`, or of which that is not known.
    Undelivered { to: WorkerId, message: ToPeer },
    /// The worker is there. Sent from time to time, whatever happens.
    Heartbeat { worker: WorkerId, load: WorkerLoad },
    /// Bytes of state that the worker keeps, by partition, of all views. Sent with each heartbeat.
    State { worker: WorkerId, bytes: Vec<u64> },
}

/// How a worker is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerLoad {
    /// Thousandths of the time of its cpu slots in which they were busy, smoothed over the last seconds.
    pub busy_per_mille: u32,
    /// Tasks that are ready and wait for a slot.
    pub tasks_waiting: u32,
    /// Bytes of the partitions that live there: operators' state and the contents of views.
    pub state_bytes: u64,
    /// Bytes that tasks of queries hold there, smoothed.
    pub query_bytes: u64,
    /// Bytes of rows there that wait for other tasks.
    pub in_flight_bytes: u64,
    /// Time in which its slots were busy since it was started, in nanoseconds.
    pub cpu_ns: u64,
    /// How much of its process's memory is in use, in thousandths of the limit.
    pub memory_permille: u32,
}

/// What an epoch cost one worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochCosts {
    /// Input rows, at the cutter.
    pub rows: u64,
    /// Nanoseconds that the cutter had input and waited for the driver's next group.
    pub waited_ns: u64,
    /// Nanoseconds for which the oldest of its input had waited when the cut was taken, whatever for.
    pub input_waited_ns: u64,
    /// Nanoseconds in which tasks of the epoch ran.
    pub busy_ns: u64,
    /// Nanoseconds from the cut to the end of the epoch's last task here.
    pub elapsed_ns: u64,
    /// Tasks that ran, and tasks that had nothing to do.
    pub tasks: u32,
    pub tasks_skipped: u32,
    /// Tasks that were run elsewhere too, because they took long, and those of them that ended there first.
    pub tasks_copied: u32,
    pub copies_won: u32,
}

/// What the tasks of a stage did in the epochs of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageCosts {
    pub view: RelationId,
    pub stage: usize,
    pub tasks: u64,
    /// Changes that they were given, and that they emit, with the memory that these take.
    pub rows_in: u64,
    pub rows_out: u64,
    pub bytes_out: u64,
    /// The most that one task emitted in an epoch.
    pub rows_out_max: u64,
    /// Nanoseconds in which they ran: all of them, and those of the partition that took longest.
    pub busy_ns: u64,
    pub busiest_ns: u64,
}

impl StageCosts {
    pub fn new(view: RelationId, stage: usize) -> Self {
        StageCosts {
            view,
            stage,
            tasks: 0,
            rows_in: 0,
            rows_out: 0,
            bytes_out: 0,
            rows_out_max: 0,
            busy_ns: 0,
            busiest_ns: 0,
        }
    }

    /// Adds what tasks on other partitions did.
    pub fn merge(&mut self, other: &StageCosts) {
        self.tasks += other.tasks;
        self.rows_in += other.rows_in;
        self.rows_out += other.rows_out;
        self.bytes_out += other.bytes_out;
        self.rows_out_max = self.rows_out_max.max(other.rows_out_max);
        self.busy_ns += other.busy_ns;
        self.busiest_ns = self.busiest_ns.max(other.busiest_ns);
    }
}

/// What time it is in an epoch, for all of its tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochTime {
    /// In microseconds since 1970-01-01 00:00 UTC; never less than in the epoch before.
    pub now: i64,
    /// The watermarks of the pipeline's streams, as of the cut.
    pub watermarks: Arc<Watermarks>,
}

/// From one worker to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToPeer {
    /// The epoch has its cut: so many rows of each source. Its maps may run.
    Cut {
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        time: EpochTime,
        rows: Vec<(RelationId, u64)>,
        is_checkpoint: bool,
    },
    /// All tasks of a stage on worker `from` ended; these partitions of the reader have rows to fetch there.
    StageDone {
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        view: RelationId,
        stage: usize,
        from: WorkerId,
        filled: Vec<u32>,
        /// Some of its rows went on in batches: see [`ToPeer::StageFlows`].
        is_flowing: bool,
    },
    /// A task of a stage emits more than it may hold back: from now on its rows go on in batches, while
    /// it makes them. The reader's tasks are to run and take them.
    StageFlows {
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        view: RelationId,
        stage: usize,
    },
    /// A partition of a view has this epoch's changes.
    Materialized {
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        view: RelationId,
        partition: usize,
        from: WorkerId,
        is_filled: bool,
    },
    /// To the cutter: all tasks of the epoch on worker `from` ended.
    EpochDone {
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        from: WorkerId,
    },
    /// Tasks of worker `from` take long: they are to be run here, too. For each its partition, and what it reads.
    Copy {
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        view: RelationId,
        stage: usize,
        from: WorkerId,
        time: EpochTime,
        tasks: Vec<(usize, Vec<Source>)>,
    },
    /// A copy ended on worker `by`; its rows are there until they are dropped.
    CopyEnded {
        pipeline: PipelineId,
        version: u64,
        task: TaskId,
        by: WorkerId,
        ended: Ended,
    },
    /// A copy is not needed any more: its rows were taken, or the task ended before it.
    DropCopy {
        pipeline: PipelineId,
        version: u64,
        task: TaskId,
    },
    /// From the cutter, where nothing is retained: the epoch is done everywhere, nobody will fetch rows of it any more.
    Release {
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
    },
}

impl ToWorker {
    /// The pipeline and the template's version that it is about.
    pub fn about(&self) -> (PipelineId, u64) {
        match self {
            ToWorker::Prepare(template) => (template.pipeline, template.version),
            ToWorker::Relay(message) => (message.about().0, message.about().1),
            ToWorker::Launch {
                pipeline, version, ..
            }
            | ToWorker::Release {
                pipeline, version, ..
            }
            | ToWorker::Retry {
                pipeline, version, ..
            }
            | ToWorker::CopyTo {
                pipeline, version, ..
            }
            | ToWorker::Close {
                pipeline, version, ..
            }
            | ToWorker::Discard {
                pipeline, version, ..
            }
            | ToWorker::Checkpoint { pipeline, version }
            | ToWorker::Forget { pipeline, version } => (*pipeline, *version),
        }
    }
}

impl ToDriver {
    /// The pipeline and the template's version that it is about, if it is about one.
    pub fn about(&self) -> Option<(PipelineId, u64)> {
        match self {
            ToDriver::EpochDone {
                pipeline, version, ..
            }
            | ToDriver::NeedEpochs {
                pipeline, version, ..
            }
            | ToDriver::Closed {
                pipeline, version, ..
            }
            | ToDriver::Restored {
                pipeline, version, ..
            }
            | ToDriver::Straggling {
                pipeline, version, ..
            } => Some((*pipeline, *version)),
            ToDriver::Unreachable { .. }
            | ToDriver::Undelivered { .. }
            | ToDriver::Heartbeat { .. }
            | ToDriver::State { .. } => None,
        }
    }
}

impl ToPeer {
    /// The pipeline, the template's version and the epoch that it is about.
    pub fn about(&self) -> (PipelineId, u64, u64) {
        match self {
            ToPeer::Cut {
                pipeline,
                version,
                epoch,
                ..
            }
            | ToPeer::StageDone {
                pipeline,
                version,
                epoch,
                ..
            }
            | ToPeer::StageFlows {
                pipeline,
                version,
                epoch,
                ..
            }
            | ToPeer::Materialized {
                pipeline,
                version,
                epoch,
                ..
            }
            | ToPeer::EpochDone {
                pipeline,
                version,
                epoch,
                ..
            }
            | ToPeer::Copy {
                pipeline,
                version,
                epoch,
                ..
            }
            | ToPeer::Release {
                pipeline,
                version,
                epoch,
            } => (*pipeline, *version, *epoch),
            ToPeer::CopyEnded {
                pipeline,
                version,
                task,
                ..
            }
            | ToPeer::DropCopy {
                pipeline,
                version,
                task,
            } => (*pipeline, *version, task.epoch),
        }
    }
}

/// A message that has no form as bytes, or bytes that are no message.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    #[error("encoding a message: {0}")]
    Encode(#[from] rmp_serde::encode::Error),
    #[error("decoding a message: {0}")]
    Decode(#[from] rmp_serde::decode::Error),
}

/// A message as bytes.
///
/// # Errors
/// The message is too large for its encoding.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, CodecError> {
    Ok(rmp_serde::to_vec(message)?)
}

/// A message from bytes.
///
/// # Errors
/// The bytes are not one.
pub fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, CodecError> {
    Ok(rmp_serde::from_slice(bytes)?)
}
