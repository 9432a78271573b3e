//! Names: folding and quoting as PostgreSQL does.

use sqlparser::ast::Ident;

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
