//! What DataFusion plans wrongly or refuses, a file each. Each has a test of what plain DataFusion does: when it fails, DataFusion has
//! mended it, and the file can go.

pub(crate) mod aggregate_order;
pub(crate) mod all_subquery;
pub mod case_type;
pub(crate) mod counted_sets;
pub(crate) mod named_windows;
pub mod subquery;
pub(crate) mod unread_clauses;
pub(crate) mod with_recursive;
