//! The resources of a process, each with its own scheduler, and what is known of who uses them.
//!
//! ```text
//!      spill            query_memory        rows that left memory; DataFusion's pool over the accounts
//!        |                  |
//!   disk · network          |               a bounded number of monotasks in flight, in turn
//!        |     \            |
//!        |       cpu -------+               slots, classes, tasks, suspension points
//!        |     /   \
//!     memory   gate · monotask · running    accounts and the limit; what a task is offered and has used
//! ```
//!
//! A task runs on the slots ([`cpu`]), one poll at a time. What it awaits is a monotask of a disk or of the network. Each
//! scheduler writes down what its monotasks took, so that EXPLAIN can say where time goes. Decisions that need no thread (which
//! task is next, who is paused for whom) are in `millrace-schedule`, where a simulator makes them too.
//!
//! What it must not do: know of relations beyond their number, of plans, operators, epochs or messages.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cpu;
pub mod disk;
pub mod error;
pub mod gate;
pub mod memory;
pub mod monotask;
pub mod network;
pub mod query_memory;
pub mod running;
pub mod spill;
pub mod step;
