//! Rows that are a function of their position: what fills streams for tests, demonstrations and measurements.
//!
//! A generator keeps nothing between calls. Whoever knows how many rows were taken so far knows which come next, so that a
//! position is all that a restart needs, and two generators with the same options give the same rows on any machine.
//!
//! ```text
//!   position --> nexmark · ysb · datagen --> rows
//!                     random: a number for each position and column
//! ```
//!
//! What it must not do: keep anything, read a clock, know who takes the rows.

pub mod datagen;
pub mod nexmark;
pub mod random;
pub mod ysb;

use std::fmt;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

/// Rows by their position, the first being 0.
pub trait Generator: fmt::Debug + Send + Sync {
    /// The columns of what [`Self::generate`] returns.
    fn schema(&self) -> SchemaRef;

    /// How many rows there are; `None`: without end.
    fn rows_max(&self) -> Option<u64>;

    /// The rows from `first` on. The caller does not ask beyond [`Self::rows_max`].
    ///
    /// # Errors
    /// A value does not fit its type.
    fn generate(&self, first: u64, rows: usize) -> Result<RecordBatch, ArrowError>;
}
