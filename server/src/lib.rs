//! The millrace server: two wires over sessions over one database, and the command line.
//!
//! ```text
//!   cli ── serve · demo · sql · test
//!    └─ serve ── Server: listeners and a Database, started and stopped together
//!        ├─ pg, http ── the wires: they translate between bytes and a Session, and do nothing else
//!        ├─ session ── one client's statements, transaction, settings
//!        ├─ database ── storage, runtime and catalog, opened together
//!        └─ catalog, functions, types, copy, error ── what PostgreSQL's users expect around them
//! ```

pub mod catalog;
pub mod cli;
pub mod config;
pub mod config_file;
pub mod connector;
pub mod copy;
pub mod database;
pub mod demo;
pub mod error;
mod exit;
pub mod forms;
pub mod functions;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod pg;
pub mod serve;
pub mod session;
pub mod sink;
pub mod slot;
pub mod system;
pub mod types;
pub mod units;

pub use config::Config;
pub use serve::Server;

/// The guide's program, so that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/reducers.md")]
pub struct ReducersGuide;

/// The version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of PostgreSQL whose catalog and protocol millrace follows.
pub const SERVER_VERSION: &str = "15.0";
