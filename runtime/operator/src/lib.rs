//! The incremental operators: change batches in, change batches out.
//!
//! ```text
//!  list      plan's operator -> instance: the one place that names them all
//!    |
//!  source exchange values working_table            leaves
//!  filter project expand unnest                    row by row
//!  partial_aggregate aggregate sliding             over groups (groups: a state for each kind of aggregate)
//!  join generic_join lookup asof                   over several inputs
//!  top_n recompute session temporal emit recursion
//!    |
//!  instance  the tree, and the trait `Operator` that each of them implements
//!    |
//!  image     state for the checkpoint store        output     where rows go, batch by batch
//!  inputs    what an epoch brings                  expression closing consolidate projection
//!  batches combiner group_keys multiset             windows   window functions over rows of any width
//! ```
//! [`OperatorInstance`] is a stage's operator tree on one partition, with its keyed state. A task runs it once an epoch.
//! Operators do no I/O and start nothing. Between chunks of work they pass a suspension point ([`Gate::checkpoint`](millrace_resource::gate::Gate::checkpoint)).
//!
//! A new operator is a folder here with what implements `instance::Operator`, and a line in `list`.
//!
//! What it must not do: know of workers, epochs' numbers or messages; wait for anything but memory and its gate.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod aggregate;
mod asof;
mod batches;
mod closing;
mod combiner;
mod consolidate;
mod emit;
pub mod error;
mod exchange;
mod expand;
mod expression;
mod failed_rows;
mod filter;
mod generic_join;
mod group_keys;
mod groups;
pub mod image;
mod inputs;
mod instance;
mod join;
mod list;
mod lookup;
mod multiset;
mod output;
mod partial_aggregate;
mod project;
mod projection;
mod recompute;
mod recursion;
mod session;
mod sliding;
mod source;
mod temporal;
mod top_n;
pub mod unnest;
mod values;
pub mod windows;
pub mod words;
mod working_table;
mod written;

pub use batches::concat;
pub use combiner::{Combiner, CombinerCounts};
pub use consolidate::{consolidate, consolidate_parts};
pub use expression::ErrorCounter;
pub use failed_rows::{FailedRow, Failures};
pub use generic_join::{Found, GenericJoinInstance};
pub use image::OperatorImage;
pub use inputs::Inputs;
pub use instance::OperatorInstance;
pub use output::Output;
