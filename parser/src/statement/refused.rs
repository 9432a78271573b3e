//! Statements and clauses of PostgreSQL's that are not there, and that sqlparser cannot read: they are refused by name, and not as
//! faults of syntax.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::Failure;
use crate::source::Source;
use crate::tokens::{is_word, nesting, starts_with, tokenize};

/// How such statements begin.
const STATEMENTS: [&[&str]; 33] = [
    &["DO"],
    &["CREATE", "RULE"],
    &["CREATE", "OR", "REPLACE", "RULE"],
    &["DROP", "RULE"],
    &["ALTER", "RULE"],
    &["CREATE", "PUBLICATION"],
    &["ALTER", "PUBLICATION"],
    &["DROP", "PUBLICATION"],
    &["CREATE", "CONVERSION"],
    &["CREATE", "STATISTICS"],
    &["DROP", "STATISTICS"],
    &["CREATE", "TEXT", "SEARCH"],
    &["ALTER", "TEXT", "SEARCH"],
    &["CREATE", "EVENT", "TRIGGER"],
    &["CREATE", "LANGUAGE"],
    &["CREATE", "CAST"],
    &["CREATE", "TRANSFORM"],
    &["CREATE", "ACCESS", "METHOD"],
    &["CREATE", "FOREIGN"],
    &["CREATE", "USER", "MAPPING"],
    &["CREATE", "TABLESPACE"],
    &["CREATE", "TRIGGER"],
    &["CREATE", "CONSTRAINT", "TRIGGER"],
    &["CREATE", "PROCEDURE"],
    &["CREATE", "OPERATOR"],
    &["IMPORT", "FOREIGN", "SCHEMA"],
    &["SECURITY", "LABEL"],
    &["COMMENT", "ON", "SECRET"],
    &["CLUSTER"],
    &["REINDEX"],
    &["PREPARE", "TRANSACTION"],
    &["COMMIT", "PREPARED"],
    &["ROLLBACK", "PREPARED"],
];

/// Statements of RisingWave and Materialize, and what is done here in their place.
const OF_OTHERS: [(&[&str], &str); 30] = [
    (&["CREATE", "CLUSTER"], RESOURCES),
    (&["ALTER", "CLUSTER"], RESOURCES),
    (&["DROP", "CLUSTER"], RESOURCES),
    (&["SHOW", "CLUSTER"], RESOURCES),
    (&["CREATE", "CONNECTION"], CONNECTIONS),
    (&["ALTER", "CONNECTION"], CONNECTIONS),
    (&["DROP", "CONNECTION"], CONNECTIONS),
    (&["VALIDATE", "CONNECTION"], CONNECTIONS),
    (&["CREATE", "NETWORK", "POLICY"], ""),
    (
        &["ALTER", "SINK"],
        "Drop it and create it again; PAUSE SINK and RESUME SINK stop it for a while.",
    ),
    (
        &["ALTER", "SOURCE"],
        "ALTER STREAM changes a stream; PAUSE and RESUME stop its source for a while.",
    ),
    (&["ALTER", "FRAGMENT"], ""),
    (&["ALTER", "NETWORK", "POLICY"], ""),
    (&["EXPLAIN", "RAW", "PLAN"], PLANS),
    (&["EXPLAIN", "DECORRELATED", "PLAN"], PLANS),
    (&["EXPLAIN", "LOCALLY", "OPTIMIZED", "PLAN"], PLANS),
    (&["EXPLAIN", "OPTIMIZED", "PLAN"], PLANS),
    (&["EXPLAIN", "PHYSICAL", "PLAN"], PLANS),
    (&["EXPLAIN", "FILTER", "PUSHDOWN"], PLANS),
    (
        &["EXPLAIN", "TIMESTAMP"],
        "SHOW BATCHES has the epoch that a view shows.",
    ),
    (&["EXPLAIN", "KEY", "SCHEMA"], ""),
    (&["EXPLAIN", "VALUE", "SCHEMA"], ""),
    (
        &["EXPLAIN", "CREATE", "SINK"],
        "EXPLAIN ANALYZE SINK tells of one that runs.",
    ),
    (
        &["WITH", "MUTUALLY", "RECURSIVE"],
        "WITH RECURSIVE is supported, of one query that reads itself.",
    ),
    (&["SHOW", "CREATE", "CONNECTION"], CONNECTIONS),
    (&["SHOW", "CREATE", "CLUSTER"], RESOURCES),
    (
        &["CREATE", "DEFAULT", "INDEX"],
        "CREATE INDEX names the columns that are looked up.",
    ),
    (
        &["SHOW", "INTERNAL", "TABLES"],
        "mr_catalog.stages has the state of each view.",
    ),
    (
        &["RECOVER"],
        "Recovery is automatic: mr_catalog.recovery tells of the last one.",
    ),
    (&["SHOW", "REDACTED"], "SHOW CREATE shows no secrets."),
];
const RESOURCES: &str =
    "Views and queries share the cores of all workers: SHOW WORKERS, ALTER ROLE .. SET cpu_share.";
const CONNECTIONS: &str = "What a connector needs stands in the WITH of CREATE SOURCE, STREAM and SINK; CREATE SECRET keeps passwords.";
const PLANS: &str = "EXPLAIN and EXPLAIN ANALYZE show the plan that runs, of queries and of views.";

/// Clauses: how their statements begin, and the words of the clause.
const CLAUSES: [(&[&str], &[&str]); 44] = [
    (&["CREATE", "TABLE"], &["PARTITION", "OF"]),
    (&["CREATE", "TEMP", "TABLE"], &["PARTITION", "OF"]),
    (&["CREATE", "TABLE"], &["EXCLUDE", "USING"]),
    (&["ALTER", "TABLE"], &["ATTACH", "PARTITION"]),
    (&["ALTER", "TABLE"], &["DETACH", "PARTITION"]),
    (&["ALTER", "INDEX"], &["ATTACH", "PARTITION"]),
    (&["ALTER", "TABLE"], &["INHERIT"]),
    (&["ALTER", "TABLE"], &["VALIDATE", "CONSTRAINT"]),
    (&["ALTER", "TABLE"], &["REPLICA", "IDENTITY"]),
    (&["ALTER", "TABLE"], &["SET", "STATISTICS"]),
    (&["ALTER", "TABLE"], &["SET", "STORAGE"]),
    (&["ALTER", "TABLE"], &["SET", "LOGGED"]),
    (&["ALTER", "TABLE"], &["SET", "UNLOGGED"]),
    (&["CREATE", "VIEW"], &["CHECK", "OPTION"]),
    (&["CREATE", "DATABASE"], &["OWNER"]),
    (&["CREATE", "SOURCE"], &["LOAD", "GENERATOR"]),
    (&["CREATE", "SOURCE"], &["IN", "CLUSTER"]),
    (&["CREATE", "SINK"], &["IN", "CLUSTER"]),
    (&["CREATE", "SINK"], &["INTO"]),
    (&["CREATE", "VIEW"], &["AS", "CHANGELOG"]),
    (&["CREATE", "MATERIALIZED", "VIEW"], &["AS", "CHANGELOG"]),
    (&["CREATE", "SINK"], &["AS", "CHANGELOG"]),
    (&["WITH"], &["AS", "CHANGELOG"]),
    (&["CREATE", "INDEX"], &["IN", "CLUSTER"]),
    (&["CREATE", "MATERIALIZED", "VIEW"], &["IN", "CLUSTER"]),
    (&["CREATE", "TYPE"], &["AS", "LIST"]),
    (&["CREATE", "TYPE"], &["AS", "MAP"]),
    (&["GRANT"], &["ON", "TYPE"]),
    (&["GRANT"], &["ON", "DOMAIN"]),
    (&["GRANT"], &["ON", "LANGUAGE"]),
    (&["GRANT"], &["ON", "PARAMETER"]),
    (&["GRANT"], &["ON", "FOREIGN"]),
    (&["GRANT"], &["ON", "LARGE"]),
    (&["GRANT"], &["ON", "TABLESPACE"]),
    (&["REVOKE"], &["ON", "TYPE"]),
    (&["REVOKE"], &["ON", "DOMAIN"]),
    (&["REVOKE"], &["ON", "LANGUAGE"]),
    (&["REVOKE"], &["ON", "PARAMETER"]),
    (&["REVOKE"], &["ON", "FOREIGN"]),
    (&["REVOKE"], &["ON", "LARGE"]),
    (&["REVOKE"], &["ON", "TABLESPACE"]),
    (&["UPDATE"], &["CURRENT", "OF"]),
    (&["DELETE"], &["CURRENT", "OF"]),
    (&["SET", "CONSTRAINTS"], &["CONSTRAINTS"]),
];

/// What is said in the place of a fault; `None`: it is one.
pub(super) fn instead(source: &Source<'_>) -> Option<Failure> {
    let tokens = tokenize(source).ok()?;
    let at = tokens.first()?.span.start;
    if let Some(words) = STATEMENTS.iter().find(|words| starts_with(&tokens, words)) {
        let message = format!("{} is not supported", words.join(" "));
        return Some(Failure::unsupported(message, at, ""));
    }
    if let Some((words, hint)) = OF_OTHERS.iter().find(|(words, _)| starts_with(&tokens, words)) {
        let message = format!("{} is not supported", words.join(" "));
        return Some(Failure::unsupported(message, at, hint));
    }
    // An aggregate of JavaScript has a language.
    if starts_with(&tokens, &["CREATE", "AGGREGATE"]) && has(&tokens, &["STYPE"], true).is_some() {
        let hint = "CREATE AGGREGATE .. LANGUAGE javascript makes one.";
        return Some(Failure::unsupported(
            "CREATE AGGREGATE with SFUNC is not supported",
            at,
            hint,
        ));
    }
    CLAUSES.iter().find_map(|(start, clause)| {
        let within = clause[0] == "EXCLUDE";
        let found = starts_with(&tokens, start)
            .then(|| has(&tokens, clause, within))
            .flatten()?;
        let statement = start.join(" ");
        let clause = if within { &clause[..1] } else { clause };
        let message = match start.ends_with(clause) {
            true => format!("{statement} is not supported: constraints are checked at once"),
            false => format!("{} in {statement} is not supported", clause.join(" ")),
        };
        Some(Failure::unsupported(message, tokens[found].span.start, ""))
    })
}

/// Where these words stand; `within`: in parentheses, too.
fn has(tokens: &[TokenWithSpan], words: &[&str], within: bool) -> Option<usize> {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        depth += nesting(&token.token);
        let is_word_of_its_own =
            !matches!(tokens.get(at.wrapping_sub(1)), Some(before) if before.token == Token::Period);
        if (depth == 0 || within)
            && is_word_of_its_own
            && is_word(Some(token), words[0])
            && starts_with(&tokens[at..], words)
        {
            return Some(at);
        }
    }
    None
}
