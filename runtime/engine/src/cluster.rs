//! Workers in other processes, which may be on other machines.
//!
//! ```text
//!   coordinator                                      host
//!   driver, sources, rows of views,   -- ToHost -->  a worker, the state of the partitions that are placed on it
//!   sessions, checkpoints, a worker  <-- ToCoordinator --
//!                                    <--- Request -->         rows that tasks left, rows of views, images of state
//! ```
//! The driver and the workers are the same as in one process ([`Transport`](crate::worker::Transport)); here is how what they say gets across. What
//! is placed on a host is the work on rows and the state of operators. The rows of a view stay with the coordinator, whichever
//! worker makes them: a reader never waits for another machine, and finds them when one is lost.
//!
//! A host that is lost takes nothing with it that cannot be made again: its partitions are restored elsewhere from the last
//! checkpoint. It keeps nothing over a loss of its link, and joins again as a new worker.

mod host;
pub(crate) mod image;
pub(crate) mod members;
pub(crate) mod protocol;
pub(crate) mod rows;

pub use host::{Definitions, Host, HostOptions, JoinError, Left};
pub(crate) use host::{batch_of, next_batch};
pub(crate) use members::Cluster;
pub use members::HostStatus;
pub(crate) use protocol::{Request, ToHost};
