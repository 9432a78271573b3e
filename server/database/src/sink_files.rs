//! The files of a sink: written under hidden names, committed, and read again to know what was delivered.
//!
//! ```text
//!  step of the relation (at a committed epoch) --> hidden files, synced --> the fact `sink/<id>` names how many count
//!        --> they get their names, the directory is synced --> next step
//! ```
//! The fact is the commit: a synced line of the catalog's journal, for all files of a step at once. What it does not name is
//! removed at the start; what it names and has not got its name yet gets it. So a reader of the directory sees each step
//! whole or not at all, and never twice. Which rows of a table or view were delivered is known from the files themselves
//! ([`crate::database`], `sinks`).
//!
//! What goes to another system is written to such files first, in the data directory ([`outbox`]): so a step is the same bytes however often it
//! has to be sent.

pub mod base;
pub mod decode;
pub mod directory;
pub mod draft;
pub mod encode;
pub mod outbox;
pub(crate) mod tally;
