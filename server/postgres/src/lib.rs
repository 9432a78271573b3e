//! What PostgreSQL's users expect of values and errors: types, texts, binary forms, SQLSTATEs.
//!
//! ```text
//!   copy ── rows as text: COPY's formats, JSON documents        encode ── columns for a client: text, binary, JSON
//!    └──────────────┬──────────────────────────────────────────────┘
//!                 types ── which Arrow type holds which SQL type; texts to values, values to texts
//!                   ├── from_internal ── errors of the layers below, as a user sees them
//!                   └── forms ── single values, as text and in binary            units ── sizes and durations
//!                          error ── SqlError and its SQLSTATE                     names ── "did you mean"
//! ```
//!
//! It knows neither functions nor a catalog, a database or a session; everything of the server stands on it.

pub mod copy;
pub mod encode;
pub mod error;
pub mod forms;
pub mod from_internal;
pub mod names;
pub mod types;
pub mod units;

/// The version of PostgreSQL whose catalog and protocol millrace follows.
pub const SERVER_VERSION: &str = "15.0";
