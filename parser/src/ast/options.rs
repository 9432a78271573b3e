//! `WITH (..)` lists and `FORMAT .. ENCODE ..`, which several statements end with.

use sqlparser::ast::Ident;

/// The entries of a `WITH (..)` list in the order written. Keys are lower case unless they were quoted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options(pub Vec<OptionEntry>);

/// One `key = value`.
#[derive(Debug, Clone, PartialEq)]
pub struct OptionEntry {
    /// The key (of `key = SECRET name` with `.secret` behind it): bare (folded to lower case), dotted, or quoted with single or double quotes.
    pub name: Ident,
    /// The value as text: a string's content, a number, a word (`true`, `auto`) in lower case.
    pub value: String,
}

/// `FORMAT f ENCODE e [(options)]`.
#[derive(Debug, Clone, PartialEq)]
pub struct FormatEncode {
    /// `plain`, `upsert`, `debezium`, ... in lower case.
    pub format: String,
    /// `json`, `csv`, `avro`, ... in lower case.
    pub encode: String,
    /// The list in parentheses after the encoding.
    pub options: Options,
}
