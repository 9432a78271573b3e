//! The command line: `millrace serve`, `worker`, `demo`, `sql`, `restore`, `doctor`, `check`, `test`, `completions`, `man`.
//!
//! ```text
//!   command_line ── which command
//!     ├── serve ── a server until it is told to stop         config_file ── file, environment and flags
//!     ├── worker ── a process that works for a server elsewhere
//!     ├── demo ── a throw-away server that replays flights
//!     ├── sql ── a client           table ── results for people      split ── statements of a text
//!     ├── restore ── a data directory from a backup
//!     ├── doctor ── what would keep a server from running     check ── every byte of a directory
//!     ├── test ── sqllogictest files
//!     └── manual ── completions for shells, pages for man
//!   logging      exit ── how a command says that it failed      notify ── what systemd is told      signals ── who ends it
//! ```
//!
//! Tests and benches embed what is here: throw-away servers and the runner of sqllogictest files.

mod check;
pub mod command_line;
mod config_file;
mod demo;
mod doctor;
mod exit;
mod logging;
mod manual;
mod notify;
mod restore;
mod serve;
mod signals;
pub mod split;
mod sql;
mod table;
pub mod test;
mod worker;
