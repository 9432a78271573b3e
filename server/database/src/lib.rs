//! One data directory, opened: storage, runtime and catalog together, and what all sessions share.
//!
//! ```text
//!   database ── Database: opens, brings up, changes definitions, and closes
//!     ├── engine, system ── DataFusion's state for statements; what the system shows of itself (given from above)
//!     ├── ddl, jobs, replace ── definitions: in which order what is done
//!     ├── sources, sinks, subscriptions ── what fills streams, what delivers views, who follows a relation
//!     └── maintenance, health, recovery, deaths, profiles ── what goes on by itself, and after a crash
//!   sessions ── the sessions that there are, by what others see of them      running ── ending a statement from outside
//!   statements ── how often each statement was executed, and for how long
//!   sink_files ── a sink's files       ingest_keys ── requests that wrote      tuning ── settings of the server       secrets      clock
//! ```
//!
//! It executes no statements and knows no session's type: sessions are a layer above, and so are the relations of `pg_catalog` and
//! `mr_catalog`, with which a database is opened.

mod backoff;
pub mod clock;
pub mod database;
pub mod ingest_keys;
pub mod running;
pub mod secrets;
pub mod sessions;
pub mod sink_files;
pub mod statements;
pub mod tuning;

pub use database::{Database, DatabaseOptions};
