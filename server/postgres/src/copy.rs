//! Rows as bytes: the formats of COPY (text, CSV, binary) and JSON documents, read piece by piece and written.
//!
//! ```text
//! bytes --split--> columns of texts        (text, csv)
//! bytes --binary--> columns of texts       (binary)
//! bytes --json--> typed columns            (NDJSON, JSON array)
//! columns --encode--> lines                (text, csv)
//! ```
//!
//! It knows columns and no relations. Sessions make rows of relations from what it reads; sinks write files with it.

pub mod binary;
pub mod encode;
pub mod json;
pub mod layout;
pub mod split;

/// The longest line, in bytes.
pub const LINE_BYTES_MAX: usize = 64 << 20;
