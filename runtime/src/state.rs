//! Keyed state. One structure serves tables, view contents and the sides of joins: [`RowTable`].

mod chunk;
mod compare;
mod index;
pub(crate) mod row_table;
pub(crate) mod width;
pub(crate) mod windows;

pub use chunk::{Chunk, Stored};
pub(crate) use compare::rows_equal;
pub(crate) use row_table::write_away;
pub use row_table::{RowTable, TableImage, TableView};
