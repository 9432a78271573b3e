//! Messages and positions of what does not parse.

use millrace_parser::{ParseErrorKind, parse, parse_expression, quote_identifier};

#[test]
fn syntax_errors_say_what_and_where_as_postgresql_does() {
    for (sql, message, position) in [
        ("selct 1", "syntax error at or near \"selct\"", 1),
        ("select 1;\n selct 1", "syntax error at or near \"selct\"", 12),
        ("select 'ä' + , 1", "syntax error at or near \",\"", 14),
        ("select * from t where", "syntax error at end of input", 22),
        (
            "select * from t where; select 1",
            "syntax error at or near \";\"",
            22,
        ),
        ("create stream s (a)", "syntax error at or near \")\"", 19),
        ("create stream s (a int", "syntax error at end of input", 23),
        ("create table (a int)", "syntax error at or near \"(\"", 14),
        (
            "create materialized view as select 1",
            "syntax error at or near \"as\"",
            26,
        ),
        (
            "create materialized view v as",
            "syntax error at end of input",
            30,
        ),
        ("select 1 2", "syntax error at or near \"2\"", 10),
        ("drop table", "syntax error at end of input", 11),
        ("copy t from", "syntax error at end of input", 12),
        ("show", "syntax error at end of input", 5),
        ("wait now", "syntax error at or near \"now\"", 6),
        ("set x", "syntax error at end of input", 6),
        ("select 'abc", "unterminated quoted string at or near \"'abc\"", 8),
        (
            "select \"abc",
            "unterminated quoted identifier at or near \"\"abc\"",
            8,
        ),
        (
            "create table t (a int, A int)",
            "column \"a\" specified more than once",
            24,
        ),
        (
            "create table t (a int, primary key (b))",
            "column \"b\" named in key does not exist",
            37,
        ),
        (
            "create table t (a int primary key, b int primary key)",
            "more than one primary key is defined",
            42,
        ),
    ] {
        let error = parse(sql).expect_err(sql);
        assert_eq!(error.message, message, "{sql}");
        assert_eq!(error.position, Some(position), "{sql}: {error:?}");
    }
}

#[test]
fn a_bad_what_if_is_pointed_at() {
    for (change, message, position) in [
        ("cpu = 2", "unrecognized WHAT IF option \"cpu\"", 27),
        ("cores 2", "syntax error at or near \"2\"", 33),
        ("cores = 0", "invalid value for \"cores\" in WHAT IF: \"0\"", 35),
        (
            "cores = 'many'",
            "invalid value for \"cores\" in WHAT IF: \"many\"",
            35,
        ),
        ("disk = 2", "invalid value for \"disk\" in WHAT IF: \"2\"", 34),
        ("disk = 'x0'", "invalid value for \"disk\" in WHAT IF: \"x0\"", 34),
        (
            "disk = 'xinf'",
            "invalid value for \"disk\" in WHAT IF: \"xinf\"",
            34,
        ),
        (
            "network = 'fast'",
            "invalid value for \"network\" in WHAT IF: \"fast\"",
            37,
        ),
        (
            "input = 'tape'",
            "invalid value for \"input\" in WHAT IF: \"tape\"",
            35,
        ),
        (
            "disks = 2, disks = 3",
            "WHAT IF option \"disks\" specified more than once",
            38,
        ),
        ("", "syntax error at or near \")\"", 27),
    ] {
        let sql = format!("explain analyze (what if ( {change})) select 1");
        let error = parse(&sql).expect_err(&sql);
        assert_eq!(error.message, message, "{sql}");
        assert_eq!(error.position, Some(position + 1), "{sql}: {error:?}");
    }
}

#[test]
fn hints_help() {
    let hint = |sql: &str| parse(sql).expect_err(sql).hint.unwrap_or_default();
    assert_eq!(hint("selct 1"), "Did you mean SELECT?");
    assert_eq!(hint("subscrib mv"), "Did you mean SUBSCRIBE?");
    assert!(hint("SELECT * FROM s EMIT CHANGES").contains("SUBSCRIBE"));
    assert!(hint("EXPLAIN (COLOUR) SELECT 1").contains("WHAT IF"));
}

#[test]
fn what_is_not_supported_is_named() {
    for (sql, part) in [
        ("CREATE STREAM t (LIKE u)", "LIKE"),
        (
            "ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0) NOT VALID",
            "NOT VALID",
        ),
        (
            "ALTER STREAM s ADD COLUMN a INT, ADD COLUMN b INT",
            "several actions",
        ),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT 1 WITH NO DATA",
            "WITH NO DATA",
        ),
        ("SELECT * FROM t EMIT CHANGES", "EMIT"),
    ] {
        let error = parse(sql).expect_err(sql);
        assert_eq!(error.kind, ParseErrorKind::Unsupported, "{sql}: {error:?}");
        assert!(error.message.contains(part), "{sql}: {error}");
    }
}

#[test]
fn expressions() {
    assert_eq!(parse_expression("a + 1").expect("it parses").to_string(), "a + 1");
    let error = parse_expression("a + 1 b").expect_err("there is a rest");
    assert_eq!(
        (error.message.as_str(), error.position),
        ("syntax error at or near \"b\"", Some(7))
    );
    assert!(parse_expression("").is_err());
}

#[test]
fn quoted_names_parse_back() {
    for name in [
        "a", "A", "select", "a b", "x\"y", "bid$late", "ä", "interval", "user", "values", "1",
    ] {
        let quoted = quote_identifier(name);
        let parsed = parse(&format!(
            "CREATE TABLE {quoted} ({quoted} INT); SELECT {quoted} FROM {quoted}"
        ));
        assert!(parsed.is_ok(), "{quoted}: {parsed:?}");
    }
}
