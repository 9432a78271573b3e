//! What the source tree must look like, read from the source files themselves.
//!
//! * crates stand in one straight order ([`layers`]), and so do the top-level modules inside each crate ([`imports`]);
//! * files are of a length that one reads in one go, and open by saying what lives in them ([`files`]).
//!
//! A failure names the file and what to do about it. Which calls are forbidden where (clocks, sleeps, threads) is in the
//! `clippy.toml` files, which `cargo clippy` enforces.

mod files;
mod imports;
mod layers;
mod tree;
