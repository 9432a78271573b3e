//! Keyed state. One structure serves tables, the contents of views and the sides of joins: [`row_table::RowTable`].
//!
//! ```text
//!     row_table        rows to add and to delete, at versions; probing, images, rows that are on disk
//!      |    |
//!   chunk  index       immutable columns with the versions at which rows came and went; row numbers by hash
//!      |
//!   compare · width · steps    equal rows; how many bytes a row takes; of how many rows values are made at a time
//! ```
//!
//! Readers get an immutable view as of a version ([`row_table::TableView`]), which costs what changed since, not what there is.
//!
//! What it must not do: know of operators, epochs or tasks; decide what leaves memory (it is told so).

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod bounds;
pub mod chunk;
pub mod compare;
pub mod error;
mod index;
pub mod row_table;
pub mod steps;
pub mod width;
