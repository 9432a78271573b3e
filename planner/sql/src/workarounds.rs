//! What DataFusion plans wrongly or refuses, a file each, with the number of the issue where there is one. `tests/unmended.rs` has for
//! each what plain DataFusion does with it: when that test fails, DataFusion has mended it, and the file can go.

pub(crate) mod aggregate_order;
pub(crate) mod all_subquery;
pub(crate) mod array_literal;
pub mod case_type;
pub(crate) mod counted_sets;
pub(crate) mod named_windows;
pub mod nested_cast;
pub(crate) mod recursive_numbers;
pub mod subquery;
pub mod time_shift;
pub(crate) mod unread_clauses;
pub(crate) mod values_subquery;
pub(crate) mod with_recursive;
