//! How a run is shown: text for psql, JSON for programs, a trace for the viewer.

pub mod json;
mod table;
pub mod text;
pub mod trace;
pub mod units;

pub use json::Document;
pub use text::text;
pub use trace::trace;
