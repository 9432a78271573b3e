//! Where a run's time went and what would make it faster (Ousterhout 2017, chapters 3 and 5.6).
//!
//! Pure: the runtime's schedulers fill a [`Profile`], everything else is computed from it.

pub mod profile;

pub use profile::Profile;
