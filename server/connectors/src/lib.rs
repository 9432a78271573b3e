//! Where rows come from that others keep.
//!
//! ```text
//!   a topic --source::Reader--> records with their places --decode--> typed columns --> a stream (by the database)
//! ```
//!
//! A reader goes on from a position that it is given, and tells with everything that it read how far that goes. Whoever
//! keeps the position with the rows, in one write, has each record exactly once. Nothing here knows relations or sessions.

pub mod connect;
pub mod decode;
mod kafka;
pub mod source;
