//! How a run, a running view and a forecast are shown: text for psql, JSON for programs, a trace for the viewer.

pub mod forecast;
pub mod json;
mod table;
pub mod text;
pub mod trace;
pub mod view;
