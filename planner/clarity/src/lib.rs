//! Where a run's time went and what would make it faster (Ousterhout 2017, chapters 3 and 5.6).
//!
//! ```text
//! Profile ──> model ──> what_if, verdict ──┐
//!    (runtime)   └────> skew ──────────────┼──> Analysis ──> render: text, JSON
//!         └────────────> replay ───────────┘
//!         └────────────────────────────────────────────────> render: trace
//! ```
//!
//! Before a query runs, [`forecast`] says what it will take, from the profiles of others. A running view has a [`ViewProfile`]
//! instead: what was counted while it was watched. A new one is forecast from what others have counted ([`view_forecast`]).
//!
//! Pure: the runtime's schedulers fill a [`Profile`], everything else is computed from it.

pub mod analysis;
#[cfg(test)]
mod fixtures;
pub mod forecast;
pub mod model;
pub mod profile;
pub mod render;
pub mod replay;
pub mod scenario;
pub mod skew;
mod verdict;
pub mod view;
pub mod view_forecast;
pub mod what_if;

pub use analysis::{Analysis, analyse};
pub use profile::Profile;
pub use scenario::{Scenario, Speed};
pub use view::{ViewProfile, analyse_view};
