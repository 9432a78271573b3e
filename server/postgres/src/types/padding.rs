//! char(n), which is held without its padding: how long it is, and how it looks with it.

use arrow::datatypes::Field;

use crate::types::length_limit;

/// The length of a char(n).
pub fn length(field: &Field) -> Option<usize> {
    match length_limit(field)? {
        ("character", length) => Some(length),
        _ => None,
    }
}

/// A text with spaces up to a length.
pub fn pad(text: &str, length: usize) -> String {
    format!("{text:length$}")
}
