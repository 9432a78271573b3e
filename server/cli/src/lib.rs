//! The command line: `millrace serve`, `demo`, `sql`, `restore`, `test`.
//!
//! ```text
//!   command_line ── which command
//!     ├── serve ── a server until it is told to stop         config_file ── file, environment and flags
//!     ├── demo ── a throw-away server that replays flights
//!     ├── sql ── a client           table ── results for people      split ── statements of a text
//!     ├── restore ── a data directory from a backup
//!     └── test ── sqllogictest files
//!   logging      exit ── how a command says that it failed
//! ```
//!
//! Tests and benches embed what is here: throw-away servers and the runner of sqllogictest files.

pub mod command_line;
mod config_file;
mod demo;
mod exit;
mod logging;
mod restore;
mod serve;
pub mod split;
mod sql;
mod table;
pub mod test;
