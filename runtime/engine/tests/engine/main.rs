//! The engine as a whole, without a server: views over streams and tables, checked against plain DataFusion.
//!
//! Tests that look at the whole process have one of their own: `queries.rs`, `schedulers.rs`.

#![allow(clippy::unwrap_used)]

mod backfill;
mod common;
mod memory;
mod oracle;
mod recursion;
mod suspension;
mod time;
