//! The log of every stream and table: change batches in the order in which they were accepted, each row with
//! an offset, on disk before it is acknowledged.
//!
//! ```text
//!  callers                          the writer's thread                        files
//!  prepare: check, encode    +--->  take all that waits                 log/<relation>/<first offset>.seg
//!  submit:  enter the queue -+      give offsets, write each block  -->   header | block | block | ...
//!  receipt  <---------------------  sync each touched file, publish
//! ```
//!
//! * Order: writes get their offsets in the order of `submit` (or `append`).
//! * A write to several relations is one: after a crash all of its parts are there, or none.
//! * What a reader sees is durable. Nothing that was acknowledged is ever taken back.
//! * A write that fails because there is no space leaves no trace, and fails every write to the same relations that
//!   is queued behind it, for they were made believing in it. The next one is tried.
//! * After a failed sync nobody knows what the disk holds: what was not synced is written again, to a new
//!   segment. If there is none to be had the write fails, and every later one tries again.
//!
//! The bytes are described in `docs/formats/log.md`.

mod base;
mod block;
mod blocks;
mod check;
mod closed;
mod copy;
#[cfg(any(test, feature = "decoders"))]
mod decode;
mod device;
mod file;
mod first;
mod heads;
mod hold;
mod index;
mod maintenance;
mod merge;
mod notes;
mod prepared;
mod queue;
mod reader;
mod recovery;
mod relation;
mod segment;
mod settings;
mod store;
mod tail;
#[cfg(test)]
pub(crate) mod tests;
mod types;
mod writer;
mod writing;

pub(crate) use check::check;
pub(crate) use copy::{LogCopy, LogSpan, segment_name};
#[cfg(any(test, feature = "decoders"))]
pub(crate) use decode::{decode_block, decode_first, decode_index, decode_segment_header};
pub use device::{LogDevice, LogGroup};
pub(crate) use heads::FILE as HEADS;
pub use hold::LogHold;
pub use prepared::PreparedWrite;
pub use queue::AppendReceipt;
pub use reader::{LogBlock, LogReader};
pub use store::{LogOptions, LogStore};
pub use types::{Appended, LogNote, LogOwner, LogWrite, RelationOptions};
