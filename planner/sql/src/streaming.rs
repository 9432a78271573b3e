//! What is millrace's own and not SQL's, written as SQL that DataFusion's planner reads.

pub mod may_fail;
pub mod time_join;
pub mod windows;
