//! `WITH (..)` lists and `FORMAT .. ENCODE ..`, which several statements end with.

use sqlparser::ast::Ident;

use super::hidden::is_secret_name;

/// The entries of a `WITH (..)` list in the order written. Keys are lower case unless they were quoted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options(pub Vec<OptionEntry>);

/// One `key = value`.
#[derive(Debug, Clone, PartialEq)]
pub struct OptionEntry {
    /// The key (of `key = SECRET name` with `.from_secret` behind it): bare (folded to lower case), dotted, or quoted with single or double quotes.
    pub name: Ident,
    /// The value as text: a string's content, a number, a word (`true`, `auto`) in lower case.
    pub value: String,
}

impl OptionEntry {
    /// Whether the value is a password or another secret itself.
    pub fn is_secret(&self) -> bool {
        is_secret_name(&self.name.value)
    }
}

impl Options {
    fn has_secret(&self) -> bool {
        self.0.iter().any(OptionEntry::is_secret)
    }

    /// Whether one of these, or of what stands behind them, is a secret itself.
    pub(super) fn have_secret(&self, format: Option<&FormatEncode>) -> bool {
        self.has_secret() || format.is_some_and(|format| format.options.has_secret())
    }
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
