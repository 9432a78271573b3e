//! The console: a page on which one looks at a server, as files inside the binary.
//!
//! ```text
//!   web/   the sources in TypeScript, built by web/build.mjs      (npm is needed to change the page, not to build the server)
//!   dist/  what was built, and committed: files embeds it
//!   flights ── what the demo replays, on a terminal and on the page
//! ```
//!
//! The page asks the server what any client may ask: SQL over HTTP. There is nothing here that knows a database.

pub mod files;
pub mod flights;
mod gzip;
