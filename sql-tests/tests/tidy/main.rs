//! What the source tree must look like, read from the source files themselves.
//!
//! * crates stand in one straight order ([`layers`]), and so do the top-level modules inside each crate ([`imports`]);
//! * files are of a length that one reads in one go, and open by saying what lives in them ([`files`]);
//! * crates that decide read no clock, start nothing and open nothing ([`purity`]); which calls are forbidden everywhere is in
//!   `clippy.toml`;
//! * the tests that `docs/guarantees.md` names are there ([`guarantees`]).
//!
//! A failure names the file and what to do about it.

mod files;
mod guarantees;
mod imports;
mod layers;
mod purity;
mod tree;
