//! What PostgreSQL reads and DataFusion reads otherwise: spellings, and what names mean.

pub(crate) mod frame_offsets;
pub(crate) mod grouping;
pub(crate) mod names;
pub(crate) mod outer_aggregate;
pub(crate) mod read_once;
pub mod records;
pub(crate) mod set_returning;
pub(crate) mod subquery_order;
pub(crate) mod unnest;
