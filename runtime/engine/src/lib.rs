//! Runs what the planner planned: the driver decides, workers execute, state stays with the partition that owns it.
//!
//! ```text
//!  Runtime (handle) -- events --> driver (pure state machine) -- commands --> worker
//!                                                               local scheduler -> cpu scheduler -> tasks
//!                                                               exchange store, operators, state
//! ```
//!
//! What is deliberately absent: SQL, sessions, sled. The log comes from `millrace-storage`, plans from `millrace-planner`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod backfill;
mod checkpoint;
pub mod clock;
pub mod error;
mod event_time;
mod feed;
mod follow;
mod query;
mod relation;
mod runtime;
mod snapshot;
mod timers;
mod versions;
pub mod worker;
mod write;

pub use backfill::{BackfillOptions, JobState, JobStatus};
pub use checkpoint::{CheckpointRecord, CheckpointState, CheckpointTotals, Replayed, RestoredView};
pub use error::{CpuTask, RuntimeError};
pub use event_time::{EventTime, EventTimeSpec, Judged, LateRow, LateRows, SetBack, WatermarkStatus};
pub use feed::{FeedLimits, FeedSize};
pub use follow::{Between, Changes, Checkpointed, Follower};
pub use query::{
    BatchPlanner, ClientWait, FILE_PIECE_BYTES_MIN, GenericJoinExec, Partitions, ProfileHandle, QueryOptions,
    table_rows,
};
pub use runtime::{
    FeedStatus, Lack, PipelineStatus, QUERY_PARTITION_ROWS, Runtime, RuntimeOptions, SourceKind, SourceSpec,
    ViewSpec, ViewStatus, WorkerStatus,
};
pub use snapshot::{Snapshot, scanned_rows};
pub use worker::{ActivityCounts, Filled};
pub use write::{Note, TableLocks, WriteToken};
