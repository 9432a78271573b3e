//! `WITH [NO] DATA` at the end of a materialized view.

use sqlparser::tokenizer::TokenWithSpan;

use crate::tokens::starts_with;

/// Takes the clause off the end of `tokens` and says whether data is wanted.
pub(super) fn take(tokens: &mut Vec<TokenWithSpan>) -> Option<bool> {
    for (words, data) in [
        (&["WITH", "NO", "DATA"][..], false),
        (&["WITH", "DATA"][..], true),
    ] {
        if let Some(at) = tokens.len().checked_sub(words.len())
            && starts_with(&tokens[at..], words)
        {
            tokens.truncate(at);
            return Some(data);
        }
    }
    None
}
