//! Which words may be aliases without AS, as PostgreSQL 15 has it. sqlparser keeps back the words of all dialects (`FROM t sample`), and
//! allows some that PostgreSQL does not (`SELECT 3 year`).

use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use crate::identifier::is_reserved;

/// The words that need AS in a select list, `pg_get_keywords()` without a bare label. Sorted.
const NEED_AS: [&str; 38] = [
    "array",
    "as",
    "char",
    "character",
    "create",
    "day",
    "except",
    "fetch",
    "filter",
    "for",
    "from",
    "grant",
    "group",
    "having",
    "hour",
    "intersect",
    "into",
    "limit",
    "minute",
    "month",
    "notnull",
    "offset",
    "on",
    "order",
    "over",
    "overlaps",
    "precision",
    "returning",
    "second",
    "to",
    "union",
    "varying",
    "where",
    "window",
    "with",
    "within",
    "without",
    "year",
];

/// The words that name functions and types, and no relations. Sorted.
const NAME_NO_RELATION: [&str; 23] = [
    "authorization",
    "binary",
    "collation",
    "concurrently",
    "cross",
    "current_schema",
    "freeze",
    "full",
    "ilike",
    "inner",
    "is",
    "isnull",
    "join",
    "left",
    "like",
    "natural",
    "notnull",
    "outer",
    "overlaps",
    "right",
    "similar",
    "tablesample",
    "verbose",
];

/// Operators and tests of other dialects, which are names here.
const OF_OTHER_DIALECTS: [Keyword; 6] = [
    Keyword::DIV,
    Keyword::MATCH,
    Keyword::MEMBER,
    Keyword::REGEXP,
    Keyword::RLIKE,
    Keyword::XOR,
];

/// Whether a word may be the alias of an expression. With AS every word may.
pub(super) fn of_expression(keyword: Keyword) -> bool {
    keyword == Keyword::NoKeyword || NEED_AS.binary_search(&&*lower(keyword)).is_err()
}

/// Whether a word, behind which the parser stands, may be the alias of a relation.
pub(super) fn of_relation(keyword: Keyword, parser: &Parser) -> bool {
    let [next, after] = [0, 1].map(|nth| &parser.peek_nth_token_ref(nth).token);
    match keyword {
        Keyword::NoKeyword => true,
        // The clause of an UPDATE: `SET a = 1`, `SET (a, b) = ..`.
        Keyword::SET => {
            !(*next == Token::LParen
                || matches!(next, Token::Word(_))
                    && matches!(after, Token::Eq | Token::Period | Token::LBracket))
        }
        Keyword::ASOF => !matches!(next, Token::Word(word) if word.keyword == Keyword::JOIN),
        Keyword::MATCH_CONDITION => *next != Token::LParen,
        _ => {
            let word = lower(keyword);
            !is_reserved(&word) && NAME_NO_RELATION.binary_search(&&*word).is_err()
        }
    }
}

/// Whether the word that the parser stands at is an alias, though it is an operator to sqlparser: `SELECT a div`, `SELECT a ilike FROM t`.
pub(super) fn is_no_operator(parser: &Parser) -> bool {
    let [word, next] = [0, 1].map(|nth| &parser.peek_nth_token_ref(nth).token);
    let Token::Word(word) = word else {
        return false;
    };
    let is_test = matches!(
        word.keyword,
        Keyword::BETWEEN | Keyword::LIKE | Keyword::ILIKE | Keyword::SIMILAR
    );
    let ends = match next {
        Token::Comma => true,
        Token::Word(next) => next.keyword == Keyword::FROM,
        _ => false,
    };
    OF_OTHER_DIALECTS.contains(&word.keyword) || is_test && ends
}

fn lower(keyword: Keyword) -> String {
    keyword.to_string().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse, parse_one};

    #[test]
    fn the_lists_are_sorted() {
        assert!(NEED_AS.is_sorted());
        assert!(NAME_NO_RELATION.is_sorted());
    }

    #[test]
    fn words_of_other_dialects_are_aliases() {
        for word in [
            "top",
            "qualify",
            "prewhere",
            "sample",
            "settings",
            "format",
            "pivot",
            "unpivot",
            "match_recognize",
            "semi",
            "anti",
            "asof",
            "global",
            "connect",
            "start",
            "cluster",
            "sort",
            "distribute",
            "minus",
            "partition",
            "set",
            "explain",
            "view",
            "output",
            "open",
            "values",
            "interval",
        ] {
            for sql in [
                format!("SELECT x {word} FROM k"),
                format!("SELECT x {word}, y AS {word}"),
                format!("SELECT * FROM k {word}"),
                format!("SELECT * FROM k {word}, l"),
                format!("SELECT * FROM k {word} WHERE x > 0"),
                format!("SELECT * FROM k {word} JOIN l ON true"),
                format!("SELECT * FROM l JOIN k {word} ON true"),
                format!("SELECT * FROM (SELECT 1) {word}"),
            ] {
                assert!(parse(&sql).is_ok(), "{sql}: {:?}", parse(&sql));
            }
        }
        for word in [
            "exclude", "div", "xor", "match", "regexp", "ilike", "analyze", "end", "member",
        ] {
            for sql in [format!("SELECT x {word} FROM k"), format!("SELECT x {word}, 1")] {
                assert!(parse(&sql).is_ok(), "{sql}: {:?}", parse(&sql));
            }
        }
    }

    #[test]
    fn words_of_postgres_that_need_as() {
        for sql in [
            "SELECT 3 year",
            "SELECT 3 over",
            "SELECT 3 char",
            "SELECT * FROM k user",
            "SELECT * FROM k ilike",
            "SELECT * FROM k end",
        ] {
            assert!(parse(sql).is_err(), "{sql}");
        }
        for sql in [
            "SELECT 3 AS year, 4 AS table",
            "UPDATE k SET a = 1",
            "UPDATE k SET (a, b) = (1, 2)",
            "UPDATE k x SET a[1] = 2 FROM l set WHERE x.a = set.a",
        ] {
            assert!(parse_one(sql).is_ok(), "{sql}");
        }
    }
}
