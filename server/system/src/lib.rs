//! What the system shows of itself in SQL: `pg_catalog`, `information_schema` and `mr_catalog`, and the functions that go with
//! them.
//!
//! ```text
//!   system ── puts them together, and opens a database with them
//!     ├── pg_catalog ── what PostgreSQL's clients look up
//!     ├── information_schema ── what the standard has of it
//!     ├── mr_catalog ── what the runtime knows of itself
//!     └── cancel ── pg_cancel_backend, pg_terminate_backend
//! ```
//!
//! It reads: the catalog, the database and the sessions by what others see of them. It changes nothing but what the functions of
//! `cancel` end.

mod cancel;
mod information_schema;
mod listed;
pub mod mr_catalog;
pub mod pg_catalog;
pub mod system;

pub use system::open;
