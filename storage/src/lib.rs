//! What lasts: the data directory, the catalog of objects, and the log of every stream and table.
//!
//! ```text
//! <data>/FORMAT            the version of everything below
//! <data>/LOCK              held while a process uses the directory; holds its pid
//! <data>/catalog.journal   the truth about objects and facts: checksummed JSON lines
//! <data>/catalog.sled/     an index of the journal, rebuilt from it when missing or damaged
//! <data>/log/<relation>/   segments of checksummed Arrow blocks
//! <data>/SUMS              checksums of the files that have none of their own, after an orderly stop
//! <data>/checkpoints/      state of views and rows of tables, as of an epoch
//! <data>/OFFSITE           which copy in an object store is its own
//! ```
//!
//! This crate knows Arrow, sled and files. It never sees SQL syntax (the catalog keeps text) and no query
//! engine. It starts one thread, the log's writer; everything else runs on the caller's.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod backup;
pub mod catalog;
mod change_batch;
pub mod check;
pub mod checkpoint;
#[cfg(any(test, feature = "decoders"))]
pub mod decoders;
mod directory;
mod disk;
mod durability;
mod error;
mod findings;
mod listing;
pub mod log;
mod memory;
pub mod offsite;
pub mod private;
mod store;
mod sums;

pub use backup::{Backup, restore};
pub use catalog::{Catalog, CatalogChange, CatalogObject, ObjectId, ObjectKind};
pub use change_batch::ChangeBatch;
pub use checkpoint::Checkpoints;
pub use directory::look;
pub use durability::Durability;
pub use error::StorageError;
pub use log::{
    AppendReceipt, Appended, LogBlock, LogDevice, LogGroup, LogHold, LogNote, LogOwner, LogReader, LogStore,
    LogWrite, PreparedWrite, RelationOptions,
};
pub use memory::{column_bytes, rows_bytes};
pub use store::{Store, StoreOptions};
