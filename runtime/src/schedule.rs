//! Scheduling, without data, threads or clocks: what driver and workers say to each other, and how each decides.
//!
//! ```text
//!  driver --Prepare(template), Launch(epochs a..=b), Close--> worker      once a group
//!  worker --Cut, StageDone, Materialized, EpochDone--> worker             while epochs run
//!  worker --EpochDone, NeedEpochs, Closed--> driver                       asynchronously
//! ```
//!
//! Both ends are state machines, events in and actions out: [`crate::driver::Driver`] and [`local::LocalScheduler`]. The same
//! code runs live (`runtime.rs`, `worker.rs`), in the simulator and under the fuzzer ([`simulation`]).
//!
//! Source: Venkataraman et al., "Drizzle", SOSP'17, section 3 (group scheduling, pre-scheduling, group size).

pub mod group;
pub mod local;
pub mod message;
mod plan;
pub mod simulation;
pub mod template;
