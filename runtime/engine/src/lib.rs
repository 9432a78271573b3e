//! Runs what the planner planned: the driver decides, workers execute, state stays with the partition that owns it.
//!
//! ```text
//!   runtime      the handle; writes, relations, back-fills, checkpoints that outlive the process; carries out what the
//!      |         driver (millrace-schedule) decides
//!   query   timers   checkpoint         batch queries; views that change with time; images of state
//!      |      |         |
//!   snapshot  |         |               relations at one epoch, as DataFusion tables
//!      |      |         |
//!   workers --+---------+               which workers there are, and which takes a task
//!      |
//!   worker   machine                    tasks of epochs: cuts, shuffle, flow, views; memory, disks, threads
//!      |
//!   feed · versions · event_time · clock · error
//! ```
//! Below are the crates that know nothing of all this together: `millrace-schedule` (who runs what, where and when),
//! `millrace-resource` (slots, disks, network, memory), `millrace-state` (row tables), `millrace-operator`.
//!
//! What it must not do: parse SQL, know sessions or sled. The log comes from `millrace-storage`, plans from
//! `millrace-planner`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod checkpoint;
pub mod clock;
pub mod cluster;
pub mod error;
mod event_time;
mod feed;
mod machine;
mod monotasks;
mod query;
mod relation;
mod runtime;
mod snapshot;
mod stream_values;
mod timers;
mod versions;
pub mod worker;
mod workers;

pub use error::{CpuTask, RuntimeError};
pub use event_time::{
    EventTime, EventTimeSpec, Judged, LateRow, LateRows, Noted, OfNote, SetBack, WatermarkStatus,
};
pub use feed::{FeedLimits, FeedSize};
pub use millrace_operator::words::log_errors_as;
pub use millrace_operator::{FailedRow, Failures};
pub use query::{
    BatchPlanner, ClientWait, FILE_PIECE_BYTES_MIN, GenericJoinExec, Partitions, ProfileHandle,
    QUERY_PARTITION_ROWS, QueryOptions, table_rows,
};
pub use runtime::backfill::{BackfillOptions, JobState, JobStatus};
pub use runtime::durable::replay::Replayed;
pub use runtime::durable::restore::RestoredView;
pub use runtime::durable::writer::{CheckpointRecord, CheckpointState, CheckpointTotals};
pub use runtime::follow::{Between, Changes, Checkpointed, Follower};
pub use runtime::testing;
pub use runtime::watching::{EpochWatch, Watched};
pub use runtime::write::{Note, TableLocks, WriteOptions, WriteToken};
pub use runtime::{
    FeedStatus, Lack, PipelineStatus, Runtime, RuntimeOptions, SourceKind, SourceSpec, ViewStatus,
    WorkerStatus,
};
pub use snapshot::{Found, Snapshot, scanned_rows};
pub use versions::UnderWay;
pub use worker::{ActivityCounts, Filled, ViewSpec};
pub use workers::CutTimes;
