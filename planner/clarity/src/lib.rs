//! The time model of millrace: where a run's time went, what would make it faster, and what a new one will take (Ousterhout 2017,
//! chapters 3 and 5.6).
//!
//! ```text
//! a run       Profile ──> model ──> what_if, verdict ──┐
//!             (runtime)     └─────> skew ──────────────┼──> Analysis ───────┐
//!                └────────────────> replay ────────────┘                    │
//!                └──────────────────────────────────────────────────────────┼──> render: text, JSON, a trace
//! a view      ViewProfile ──> ViewAnalysis: freshness, head-room ───────────┤
//!             (counted while it was watched)                                │
//! before it   plan, rows ──> forecast, from what was seen of others ────────┘
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`profile`], [`task_counts`] | what the runtime has measured: plain data |
//! | [`model`], [`scenario`], [`what_if`] | the ideal time of a run on a machine as it is, or with something changed |
//! | [`memory`] | which question about memory has an answer |
//! | [`replay`], [`skew`] | blocked-time analysis; tasks that took longer than others |
//! | [`analysis`], [`view`], [`epochs`] | all that is said of a run, of a view that runs, and of its epochs, each a run |
//! | [`forecast`], [`probe`] | what a query or a new view will take; how slow this machine is |
//! | [`render`], [`units`] | how it is shown |
//!
//! It knows neither sessions nor the runtime nor the planner, does no I/O, and reads no clock except in [`probe`]: everything is
//! computed from the data that it is given.

pub mod analysis;
pub mod epochs;
#[cfg(test)]
mod fixtures;
pub mod forecast;
pub mod memory;
pub mod model;
pub mod probe;
pub mod profile;
pub mod render;
pub mod replay;
pub mod scenario;
pub mod skew;
pub mod task_counts;
pub mod units;
mod verdict;
pub mod view;
pub mod what_if;

pub use analysis::{Analysis, analyse};
pub use profile::Profile;
pub use scenario::{Scenario, Speed};
pub use verdict::verdict;
pub use view::{ViewProfile, analyse_view};
