//! EXPLAIN (PREDICT): what a query or a new view will take, before it has run, from what was seen of others.
//!
//! ```text
//! plan ──> cardinality (rows into each operator) ──┐
//! samples (least, median, most) ──────────────────> query, view ──> interval, certainty
//!                       outcomes of those before ──> calibration ──────┘
//! ```

pub mod calibration;
pub mod cardinality;
pub mod freshness;
pub mod interval;
pub mod query;
mod samples;
pub mod view;
