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
const OF_OTHERS: [(&[&str], &str); 36] = [
    (&["CREATE", "CLUSTER"], RESOURCES),
    (&["ALTER", "CLUSTER"], RESOURCES),
    (&["DROP", "CLUSTER"], RESOURCES),
    (&["SHOW", "CLUSTER"], RESOURCES),
    (&["SHOW", "CLUSTERS"], RESOURCES),
    (&["SHOW", "CONNECTIONS"], CONNECTIONS),
    (
        &["SHOW", "OBJECTS"],
        "pg_catalog.pg_class has all relations; SHOW TABLES, VIEWS, STREAMS and SINKS list them.",
    ),
    (
        &["SHOW", "TYPES"],
        "pg_catalog.pg_type has the types; psql's \\dT lists them.",
    ),
    (
        &["SHOW", "ROLES"],
        "pg_catalog.pg_roles has the roles; psql's \\du lists them.",
    ),
    (
        &["SHOW", "SUBSCRIPTION", "CURSORS"],
        "SHOW CURSORS lists all cursors.",
    ),
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
const CLAUSES: [(&[&str], &[&str]); 74] = [
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
    (&["CREATE", "TABLE"], &["NULLS", "NOT", "DISTINCT"]),
    (&["ALTER", "TABLE"], &["NULLS", "NOT", "DISTINCT"]),
    (&["CREATE", "TABLE"], &["AS", "EXECUTE"]),
    (&["CREATE", "TEMP", "TABLE"], &["AS", "EXECUTE"]),
    (&["ALTER", "TABLE"], &["DROP", "EXPRESSION"]),
    (&["CREATE", "SCHEMA"], &["CREATE", "TABLE"]),
    (&["CREATE", "SCHEMA"], &["CREATE", "VIEW"]),
    (&["CREATE", "SCHEMA"], &["CREATE", "INDEX"]),
    (&["CREATE", "SCHEMA"], &["CREATE", "SEQUENCE"]),
    (&["CREATE", "VIEW"], &["SECURITY_BARRIER"]),
    (&["CREATE", "OR", "REPLACE", "VIEW"], &["SECURITY_BARRIER"]),
    (&["CREATE", "MATERIALIZED", "VIEW"], &["REFRESH", "EVERY"]),
    (&["CREATE", "MATERIALIZED", "VIEW"], &["REFRESH", "AT"]),
    (&["CREATE", "MATERIALIZED", "VIEW"], &["REFRESH", "ON"]),
    (&["CREATE", "MATERIALIZED", "VIEW"], &["RETAIN", "HISTORY"]),
    (&["CREATE", "TABLE"], &["RETAIN", "HISTORY"]),
    (&["CREATE", "SOURCE"], &["RETAIN", "HISTORY"]),
    (&["CREATE", "INDEX"], &["RETAIN", "HISTORY"]),
    (&["SUBSCRIBE"], &["UP", "TO"]),
    (&["SUBSCRIBE"], &["ENVELOPE", "DEBEZIUM"]),
    (&["SUBSCRIBE"], &["WITHIN", "TIMESTAMP"]),
    (&["CREATE", "INDEX"], &["DISTRIBUTED", "BY"]),
    (&["CREATE", "SOURCE"], &["ROW", "FORMAT"]),
    (&["CREATE", "TABLE"], &["ROW", "FORMAT"]),
    (&["CREATE", "SINK"], &["ROW", "FORMAT"]),
    (&["CREATE", "SOURCE"], &["KAFKA", "CONNECTION"]),
    (&["CREATE", "SOURCE"], &["POSTGRES", "CONNECTION"]),
    (&["CREATE", "SOURCE"], &["MYSQL", "CONNECTION"]),
    (&["CREATE", "SOURCE"], &["FROM", "WEBHOOK"]),
    (&["CREATE", "TABLE"], &["FROM", "WEBHOOK"]),
    (&["SET", "CONSTRAINTS"], &["CONSTRAINTS"]),
];

/// Words by which clauses begin that stand in parentheses.
const WITHIN: [&str; 5] = ["EXCLUDE", "NULLS", "SECURITY_BARRIER", "REFRESH", "RETAIN"];

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
    if let Some(failure) = conflict_of_expressions(&tokens).or_else(|| type_of_others(&tokens)) {
        return Some(failure);
    }
    CLAUSES.iter().find_map(|(start, clause)| {
        let within = WITHIN.contains(&clause[0]);
        let found = starts_with(&tokens, start)
            .then(|| has(&tokens, clause, within))
            .flatten()?;
        let statement = start.join(" ");
        let clause = if clause[0] == "EXCLUDE" {
            &clause[..1]
        } else {
            clause
        };
        let message = match start.ends_with(clause) {
            true => format!("{statement} is not supported: constraints are checked at once"),
            false => format!("{} in {statement} is not supported", clause.join(" ")),
        };
        Some(Failure::unsupported(message, tokens[found].span.start, ""))
    })
}

/// `ON CONFLICT (lower(a))`.
fn conflict_of_expressions(tokens: &[TokenWithSpan]) -> Option<Failure> {
    let at = has(tokens, &["ON", "CONFLICT"], false)?;
    let list = tokens.get(at + 2..)?;
    let names = list
        .iter()
        .skip(1)
        .take_while(|token| matches!(token.token, Token::Word(_) | Token::Comma));
    let behind = list.get(1 + names.count())?;
    let is_expression = list[0].token == Token::LParen && behind.token != Token::RParen;
    is_expression.then(|| {
        let hint = "Name the columns of a key or of a unique index.";
        let message = "ON CONFLICT of expressions is not supported";
        Failure::unsupported(message, behind.span.start, hint)
    })
}

/// `int list` and `map[text => int]`.
fn type_of_others(tokens: &[TokenWithSpan]) -> Option<Failure> {
    let is_list = |at: usize| {
        let ends = tokens
            .get(at + 1)
            .is_none_or(|next| matches!(next.token, Token::Comma | Token::RParen));
        let is_behind_type = at > 0 && matches!(tokens[at - 1].token, Token::Word(_));
        is_word(tokens.get(at), "LIST") && is_behind_type && ends
    };
    let is_map = |at: usize| {
        is_word(tokens.get(at), "MAP")
            && tokens
                .get(at + 1)
                .is_some_and(|next| next.token == Token::LBracket)
    };
    let at = (0..tokens.len()).find(|at| is_list(*at) || is_map(*at))?;
    let (message, hint) = match is_map(at) {
        true => ("types of maps are not supported", "Use jsonb."),
        false => ("types of lists are not supported", "Use an array: int[]."),
    };
    Some(Failure::unsupported(message, tokens[at].span.start, hint))
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
