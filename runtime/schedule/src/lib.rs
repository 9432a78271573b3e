//! Scheduling, without data, threads or clocks: what driver and workers say to each other, and how each decides.
//!
//! ```text
//!                 simulation        driver, workers, faults and time, made up: the same code under a fuzzer
//!                  |      |
//!            driver        local    state machines: events in, commands or actions out
//!                  |      |
//!     group · plan · message · task · template        what they say to each other, and decide by
//!                  |
//!            id · cpu               names of things; who gets a cpu slot
//!
//!  driver --Prepare(template), Launch(epochs a..=b), Close--> worker      once a group
//!  worker --Cut, StageDone, Materialized, EpochDone--> worker             while epochs run
//!  worker --EpochDone, NeedEpochs, Closed--> driver                       asynchronously
//! ```
//!
//! Both ends are state machines, events in and actions out: [`driver::Driver`] and [`local::LocalScheduler`]. The same code
//! runs live (`millrace-engine`), in the simulator and under the fuzzer ([`simulation`]).
//!
//! What it must not do: read a clock, start a thread or a future, touch a file or a row. Time comes with the events.
//!
//! Source: Venkataraman et al., "Drizzle", SOSP'17, section 3 (group scheduling, pre-scheduling, group size).

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cpu;
pub mod driver;
pub mod group_size;
pub mod id;
pub mod local;
pub mod message;
mod plan;
pub mod simulation;
pub mod task;
pub mod template;
