//! Where rows come from that others keep, and where they go.
//!
//! ```text
//!   a topic --source::Reader--> records with their places --changes, decode--> typed columns --> a stream or table (by the database)
//!   the steps of a sink (by the database) --messages--> target::Writer --> a topic, with how far it is
//! ```
//!
//! A reader goes on from a position that it is given, and tells with everything that it read how far that goes. Whoever
//! keeps the position with the rows, in one write, has each record exactly once. Nothing here knows relations or sessions.

mod about;
pub mod changes;
pub mod connect;
mod debezium;
pub mod decode;
mod delta;
mod files;
mod kafka;
pub mod news;
pub mod postgres;
mod schema;
pub mod source;
pub mod target;
mod trusting;
mod webhook;
pub mod writers;
mod written;
