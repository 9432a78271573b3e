//! PostgreSQL's wire protocol, version 3: what psql and every driver speak.
//!
//! ```text
//! listener ── accepts, counts, limits
//!    └─ connection ── one task each; owns its Wire and its Session
//!         ├─ startup   ── start-up packet, authentication, parameters, cancel requests
//!         ├─ simple    ── Query: statements one after the other
//!         ├─ extended  ── Parse, Bind, Describe, Execute, Close, Sync: statements and portals
//!         └─ copy      ── COPY in both directions
//!    wire ── bytes to messages and back      frame ── is it a message at all?
//!    message ── errors, columns, rows as PostgreSQL lays them out (values: `millrace-postgres`, `encode`)
//! ```
//!
//! pgwire supplies the layout of the messages and SCRAM. The conversation itself is ours, because a connection here
//! owns its session and streams: no result is ever held whole, a statement after a COPY in the same message runs, a
//! cancel reaches a query that is already sending rows, and a stopping server tells idle clients so.

pub mod cancel;
pub mod connection;
mod copy;
mod extended;
pub mod frame;
pub mod listener;
pub mod message;
mod parameters;
mod simple;
pub mod startup;
pub mod wire;
