//! The two wires over sessions, and the server that they make together.
//!
//! ```text
//!   serve ── Server: listeners and a database, started and stopped together
//!     ├── pg ── PostgreSQL's protocol          ┐ they translate between bytes and a session,
//!     ├── http ── SQL and ingest for programs  ┘ and do nothing else
//!     ├── tls ── encryption for both
//!     ├── metrics ── what is counted, in Prometheus' format         traces ── spans for OpenTelemetry
//!     └── slot ── the database, while there is one          config ── what a server can be told
//! ```
//!
//! It knows no statement and no catalog beyond what a session answers.

mod addresses;
pub mod cluster;
pub mod config;
mod ended;
pub mod http;
pub mod login;
pub mod metrics;
pub mod pg;
pub mod serve;
pub mod slot;
pub mod tls;
mod traces;

pub use config::Config;
pub use serve::Server;

/// The guide's program, so that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reducers.md")]
pub struct ReducersGuide;

/// The version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
