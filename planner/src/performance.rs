//! Where a run's time went and what would make it faster (Ousterhout 2017, chapters 3 and 5.6).
//!
//! ```text
//! Profile ──> model ──> what_if, verdict ──┐
//!    (runtime)   └────> skew ──────────────┼──> Analysis ──> render: text, JSON
//!         └────────────> replay ───────────┘
//!         └────────────────────────────────────────────────> render: trace
//! ```
//!
//! Pure: the runtime's schedulers fill a [`Profile`], everything else is computed from it.

pub mod analysis;
#[cfg(test)]
mod fixtures;
pub mod model;
pub mod profile;
pub mod render;
pub mod replay;
pub mod scenario;
pub mod skew;
mod verdict;
pub mod what_if;

pub use analysis::{Analysis, analyse};
pub use profile::Profile;
pub use scenario::{Scenario, Speed};
