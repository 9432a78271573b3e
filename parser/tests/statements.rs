//! Every statement of the SQL contract parses, and what is printed parses back to an equal statement.

mod corpus;

use millrace_parser::ast::*;
use millrace_parser::{Parsed, parse};

fn one(sql: &str) -> Statement {
    let mut parsed: Vec<Parsed> = parse(sql).unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
    assert_eq!(parsed.len(), 1, "{sql}");
    parsed.remove(0).statement
}

#[test]
fn the_corpus_parses_and_round_trips() {
    let failures: Vec<String> = corpus::statements()
        .filter_map(|sql| round_trip(sql).err())
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

fn round_trip(sql: &str) -> Result<(), String> {
    let parsed = parse(sql).map_err(|error| format!("{sql}\n{error:?}"))?;
    let printed = parsed[0].statement.to_string();
    let again = parse(&printed).map_err(|error| format!("{sql}\n-> {printed}\n{error:?}"))?;
    if parsed.len() == 1 && again.len() == 1 && again[0].statement == parsed[0].statement {
        return Ok(());
    }
    Err(format!("{sql}\n-> {printed}\n-> {}", again[0].statement))
}

#[test]
fn ours_do_not_fall_through_to_sqlparser() {
    let ours = corpus::OURS.iter().map(|sql| (sql, true));
    let others = corpus::POSTGRES
        .iter()
        .chain(corpus::PSQL)
        .map(|sql| (sql, false));
    for (sql, expected) in ours.chain(others) {
        let ours = parse(sql).map(|parsed| !matches!(parsed[0].statement, Statement::Sql(_)));
        assert_eq!(ours, Ok(expected), "{sql}");
    }
}

#[test]
fn a_stream_in_all_its_parts() {
    let sql = "CREATE STREAM IF NOT EXISTS Bid (auction BIGINT NOT NULL, price BIGINT DEFAULT 1, ts TIMESTAMPTZ,
        day DATE GENERATED ALWAYS AS (ts::date), pt TIMESTAMPTZ AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '5 seconds')
        WITH (connector = 'kafka', 'properties.bootstrap.server' = 'x:1', Watermark.Idle_timeout = '30s', n = 5)
        FORMAT PLAIN ENCODE JSON";
    let Statement::CreateStream(stream) = one(sql) else {
        panic!()
    };
    assert!(stream.if_not_exists && stream.columns[0].not_null && stream.columns[4].proctime);
    assert_eq!(stream.columns.len(), 5);
    assert_eq!(
        stream.columns[3]
            .generated
            .as_ref()
            .map(ToString::to_string)
            .as_deref(),
        Some("ts::DATE")
    );
    assert_eq!(stream.watermark.map(|w| w.column.value).as_deref(), Some("ts"));
    let options: Vec<(&str, &str)> = stream
        .options
        .0
        .iter()
        .map(|e| (e.name.value.as_str(), e.value.as_str()))
        .collect();
    let expected = [
        ("connector", "kafka"),
        ("properties.bootstrap.server", "x:1"),
        ("watermark.idle_timeout", "30s"),
        ("n", "5"),
    ];
    assert_eq!(options, expected);
    assert_eq!(stream.format.map(|f| f.encode).as_deref(), Some("json"));
}

#[test]
fn keys_of_tables_come_out_in_one_form() {
    let Statement::CreateTable(inline) =
        one("CREATE TABLE t (id INT PRIMARY KEY, v TEXT UNIQUE CHECK (v <> ''))")
    else {
        panic!()
    };
    let Statement::CreateTable(apart) =
        one("CREATE TABLE t (id INT, v TEXT, PRIMARY KEY (id), UNIQUE (v), CHECK (v <> ''))")
    else {
        panic!()
    };
    assert_eq!(inline, apart);
    assert!(inline.columns[0].not_null && inline.columns[0].primary_key);
    assert!(!inline.columns[1].not_null);
    let Statement::CreateTable(names) = one("CREATE TABLE t (a, b) AS SELECT 1, 2 WITH NO DATA") else {
        panic!()
    };
    assert!(names.with_no_data && names.column_names.len() == 2);
}

#[test]
fn emit_clauses() {
    for (clause, expected) in [
        ("", " "),
        (" EMIT CHANGES", " "),
        (" EMIT ON UPDATE", " "),
        (" EMIT FINAL", " EMIT ON WINDOW CLOSE"),
        (" EMIT AFTER WINDOW CLOSE", " EMIT ON WINDOW CLOSE"),
        (
            " EMIT ON WINDOW CLOSE WITH DELAY INTERVAL '5s'",
            " EMIT ON WINDOW CLOSE WITH DELAY INTERVAL '5s'",
        ),
        (
            " EMIT EVERY INTERVAL '1 minute'",
            " EMIT EVERY INTERVAL '1 minute'",
        ),
    ] {
        let sql = format!("CREATE MATERIALIZED VIEW mv AS SELECT emit  FROM s{clause}");
        let Statement::CreateMaterializedView(view) = one(&sql) else {
            panic!()
        };
        assert_eq!(view.emit.to_string(), expected.trim_end(), "{sql}");
        assert_eq!(view.query_text, "SELECT emit  FROM s");
        assert_eq!(view.query.to_string(), "SELECT emit FROM s");
    }
}

#[test]
fn show_does_not_swallow_settings() {
    let target = |sql: &str| match one(sql) {
        Statement::Show(show) => show.target,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        target("SHOW server_version"),
        ShowTarget::Variable("server_version".into())
    );
    assert_eq!(
        target("show Transaction Isolation Level"),
        ShowTarget::Variable("transaction_isolation".into())
    );
    assert_eq!(target("SHOW time zone"), ShowTarget::Variable("timezone".into()));
    assert_eq!(target("SHOW jobs"), ShowTarget::Jobs);
    assert_eq!(target("SHOW my.jobs"), ShowTarget::Variable("my.jobs".into()));
    assert_eq!(target("SHOW all"), ShowTarget::All);
}

#[test]
fn settings_come_out_as_text() {
    let set = |sql: &str| match one(sql) {
        Statement::SetVariable(set) => (set.local, set.name, set.value),
        other => panic!("{other:?}"),
    };
    let values = |values: &[&str]| SetValue::Values(values.iter().map(ToString::to_string).collect());
    assert_eq!(
        set("SET extra_float_digits = 3"),
        (false, "extra_float_digits".into(), values(&["3"]))
    );
    assert_eq!(
        set("SET LOCAL x.Y TO -1.5"),
        (true, "x.y".into(), values(&["-1.5"]))
    );
    assert_eq!(
        set("SET search_path TO \"$user\", Public"),
        (false, "search_path".into(), values(&["$user", "public"]))
    );
    assert_eq!(
        set("set session DateStyle = ISO, 'DMY'"),
        (false, "datestyle".into(), values(&["iso", "DMY"]))
    );
    assert_eq!(
        set("SET TIME ZONE 'UTC'"),
        (false, "timezone".into(), values(&["UTC"]))
    );
    assert_eq!(set("SET x TO on"), (false, "x".into(), values(&["on"])));
    assert_eq!(set("SET x TO DEFAULT"), (false, "x".into(), SetValue::Default));
}

#[test]
fn texts_and_offsets_of_several_statements() {
    let parsed = parse(" ;; select 'ä;' ; -- c\n  wait ;/* x */").expect("it parses");
    let parts: Vec<(&str, usize)> = parsed.iter().map(|p| (p.text.as_str(), p.offset)).collect();
    assert_eq!(parts, [("select 'ä;'", 4), ("wait", 25)]);
    assert!(parse("").expect("it parses").is_empty());
    assert!(parse(" -- nothing\n ; ").expect("it parses").is_empty());
}

#[test]
fn explain_and_its_options() {
    let Statement::Explain(explain) =
        one("EXPLAIN ANALYZE (WHAT IF (cores = 8, disk = 'x2'), FORMAT json) SELECT 1")
    else {
        panic!()
    };
    assert!(explain.analyze);
    assert_eq!(
        explain.options.what_if,
        Some(WhatIf {
            cores: Some(8),
            disk: Some(Speed::Times(2.0)),
            ..WhatIf::default()
        })
    );
    assert_eq!(explain.options.format, ExplainFormat::Json);
    let Statement::Explain(explain) = one("explain (analyze, verbose off, type stages) (select 1)") else {
        panic!()
    };
    assert!(explain.analyze && !explain.options.verbose);
    assert_eq!(explain.options.plan_type, ExplainType::Stages);
    assert!(matches!(explain.target, ExplainTarget::Statement(_)));
    for (sql, target) in [
        (
            "EXPLAIN ANALYZE MATERIALIZED VIEWS",
            ExplainTarget::MaterializedViews,
        ),
        ("EXPLAIN ANALYZE PROFILE 3", ExplainTarget::Profile(3)),
    ] {
        let Statement::Explain(explain) = one(sql) else {
            panic!("{sql}")
        };
        assert_eq!((explain.to_string(), explain.target), (sql.to_owned(), target));
    }
}
