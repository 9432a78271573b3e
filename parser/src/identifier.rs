//! Names: folding and quoting as PostgreSQL does.

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Value};

/// Whether a collation orders texts by their bytes, as all are ordered here.
pub fn is_bytewise(collation: &ObjectName) -> bool {
    const NAMES: [&str; 7] = [
        "c",
        "posix",
        "default",
        "ucs_basic",
        "c.utf8",
        "c.utf-8",
        "pg_c_utf8",
    ];
    match collation.0.last() {
        Some(ObjectNamePart::Identifier(name)) => NAMES.contains(&name.value.to_ascii_lowercase().as_str()),
        _ => false,
    }
}

/// The name that an identifier means: as it is if quoted, else in lower case.
///
/// As in PostgreSQL only ASCII letters are folded.
pub fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

/// `name` as an identifier that parses back to it, quoted only where it must be.
pub fn quote_identifier(name: &str) -> String {
    let mut chars = name.chars();
    let plain = chars.next().is_some_and(|c| c.is_ascii_lowercase() || c == '_')
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain && !is_reserved(name) && !is_keyword_in_front(name) {
        name.to_string()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// `text` as a string literal.
pub fn quote_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Whether a word, in any case, cannot be a name unless it is quoted.
pub(crate) fn is_reserved(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    RESERVED.binary_search(&lower.as_str()).is_ok()
}

/// Words that are names in PostgreSQL but that sqlparser, or our own statements, read as a construct.
fn is_keyword_in_front(word: &str) -> bool {
    FRONT.binary_search(&word).is_ok()
}

/// PostgreSQL's reserved words. Sorted.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "session_user",
    "some",
    "symmetric",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];

/// Sorted.
const FRONT: &[&str] = &[
    "anti",
    "asof",
    "authorization",
    "between",
    "binary",
    "coalesce",
    "concurrently",
    "cross",
    "cube",
    "date",
    "emit",
    "exists",
    "extract",
    "floor",
    "format",
    "freeze",
    "full",
    "greatest",
    "grouping",
    "if",
    "ilike",
    "inner",
    "interval",
    "is",
    "isnull",
    "join",
    "least",
    "left",
    "like",
    "natural",
    "notnull",
    "nullif",
    "outer",
    "overlaps",
    "overlay",
    "position",
    "precision",
    "qualify",
    "right",
    "rollup",
    "row",
    "semi",
    "similar",
    "struct",
    "substring",
    "tablesample",
    "time",
    "timestamp",
    "trim",
    "values",
    "verbose",
    "watermark",
];

/// The parts of a name that stands in a text, with its quotes taken off and the rest folded.
pub fn name_parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for character in text.trim().chars() {
        match character {
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            other => {
                let last = parts.last_mut().expect("there is always a part");
                if quoted {
                    last.push(other);
                } else {
                    last.extend(other.to_lowercase());
                }
            }
        }
    }
    parts
}

/// Whether sqlparser writes what stands in quotation marks as something else: two quotation marks behind each other, and one behind a backslash, it takes for
/// escaped ones.
pub(crate) fn needs_escapes(text: &str, mark: char) -> bool {
    let mut before = None;
    text.chars().any(|character| {
        let is_taken =
            character == mark && matches!(before, Some(before) if before == mark || before == '\\');
        before = Some(character);
        is_taken
    })
}

/// A string literal that is written as the same one.
pub fn string_value(text: impl Into<String>) -> Value {
    let text = text.into();
    match needs_escapes(&text, '\'') {
        true => Value::EscapedStringLiteral(text),
        false => Value::SingleQuotedString(text),
    }
}

/// A text as a word that may stand among those of a type, and is the same however often it is written and read: a parser takes the
/// quotation marks of others.
pub fn type_word(text: &str) -> String {
    let mut word = String::from("w");
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() {
            true => word.push(char::from(byte)),
            false => word.push_str(&format!("_{byte:02x}")),
        }
    }
    word
}

/// The text of such a word; `None`: it is another.
pub fn type_word_text(word: &str) -> Option<String> {
    let mut bytes = vec![];
    let mut rest = word.strip_prefix('w')?.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push(match byte {
            b'_' => u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?,
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted() {
        assert!(RESERVED.is_sorted());
        assert!(FRONT.is_sorted());
    }

    #[test]
    fn names_are_quoted_only_where_they_must_be() {
        for (name, quoted) in [
            ("bid", "bid"),
            ("_a1", "_a1"),
            ("Bid", "\"Bid\""),
            ("a b", "\"a b\""),
            ("a\"b", "\"a\"\"b\""),
            ("1a", "\"1a\""),
            ("", "\"\""),
            ("order", "\"order\""),
            ("bid$late", "\"bid$late\""),
        ] {
            assert_eq!(quote_identifier(name), quoted);
        }
    }

    #[test]
    fn folding_leaves_quoted_names_alone() {
        assert_eq!(fold(&Ident::new("BiD")), "bid");
        assert_eq!(fold(&Ident::with_quote('"', "BiD")), "BiD");
    }

    #[test]
    fn names_in_texts_have_parts_and_quotes() {
        assert_eq!(name_parts("T"), ["t"]);
        assert_eq!(name_parts("Public.\"A.b\""), ["public", "A.b"]);
    }
}
