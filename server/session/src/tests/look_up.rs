//! What needs no plan answers as a plan does: the same statements are sent until they are known, and beside them with a condition that only a
//! plan evaluates.

use std::sync::Arc;

use millrace_postgres::error::SqlResult;
use millrace_postgres::types::output;
use rand::prelude::*;
use rand::rngs::StdRng;

use crate::outcome::Outcome;
use crate::session::Session;
use crate::tests::{Fixture, run};

/// The rows of a query in any order, or its SQLSTATE.
async fn rows(session: &Arc<Session>, sql: &str) -> Result<Vec<String>, &'static str> {
    let mut rows = run(session, sql).await.map_err(|error| error.code.code())?;
    rows.sort();
    Ok(rows)
}

/// Whether a simple query is answered without a plan, once it has come before.
async fn is_looked_up(f: &Fixture, sql: &str) -> bool {
    for _ in 0..3 {
        run(&f.session, sql).await.ok();
    }
    f.session.answer_known(sql).await.unwrap().is_some()
}

async fn tables(f: &Fixture) {
    f.ok("CREATE TABLE t (a INT PRIMARY KEY, b BIGINT, c SMALLINT, d TEXT, e VARCHAR(3), g CHAR(3), h NUMERIC(8,2), \
          i DOUBLE PRECISION, j UUID, k DATE, l BOOLEAN, m TIMESTAMPTZ, n JSONB)")
        .await;
    f.ok("INSERT INTO t SELECT a, a % 7, (a % 5)::smallint, CASE WHEN a % 4 = 0 THEN NULL ELSE 'd' || (a % 9)::text END, \
          'e' || (a % 3)::text, 'g', a / 4.0, a / 2.0, ('00000000-0000-0000-0000-' || lpad(abs(a % 6)::text, 12, '0'))::uuid, \
          DATE '2020-01-01' + a % 3, a % 2 = 0, TIMESTAMPTZ '2020-01-01 00:00:00+00' + a * INTERVAL '1 hour', '{\"a\": 1}' \
          FROM generate_series(-20, 60) AS g(a)")
        .await;
    for columns in ["b", "d", "j", "e, c"] {
        f.ok(&format!("CREATE INDEX ON t ({columns})")).await;
    }
    f.ok("CREATE MATERIALIZED VIEW v AS SELECT b, count(*) AS n, max(d) AS d FROM t GROUP BY b")
        .await;
    f.ok("CREATE VIEW plain AS SELECT a, d FROM t WHERE a > 0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn known_selects_are_looked_up() {
    let f = Fixture::new().await;
    tables(&f).await;
    for sql in [
        "SELECT * FROM t WHERE a = 5",
        "SELECT d, a AS \"A\" FROM public.t AS x WHERE x.a = -5",
        "SELECT a FROM t WHERE b = 3 AND d = 'd3' LIMIT 2",
        "SELECT a FROM t WHERE 3 = c AND (e = 'e1')",
        "select t.* from t where t.j = '{00000000-0000-0000-0000-00000000000A}'",
        "SELECT n FROM v WHERE b = 4;",
        "SELECT a FROM t WHERE a = '7'",
    ] {
        assert!(is_looked_up(&f, sql).await, "{sql}");
    }
    for sql in [
        "SELECT a FROM t WHERE h = 5",
        "SELECT a FROM t WHERE g = 'g'",
        "SELECT a FROM t WHERE i = 5",
        "SELECT a FROM t WHERE k = '2020-01-01'",
        "SELECT a FROM t WHERE c = 3",
        "SELECT a + 1 FROM t WHERE a = 5",
        "SELECT count(*) FROM t WHERE a = 5",
        "SELECT DISTINCT d FROM t WHERE a = 5",
        "SELECT a FROM plain WHERE a = 5",
        "SELECT a FROM t WHERE d = 5",
        "SELECT a FROM t WHERE a = 'x'",
        "SELECT a FROM t WHERE a = 5 ORDER BY a",
        "SELECT a FROM t WHERE a = 5 LIMIT -1",
        "SELECT x.a FROM t AS x WHERE t.a = 5",
        "SELECT nothing FROM t WHERE a = 5",
        "SELECT 1 FROM pg_class WHERE relname = 't'",
    ] {
        assert!(!is_looked_up(&f, sql).await, "{sql}");
    }
    f.stop().await;
}

/// Generated SELECTs: looked up or not, they answer what a plan answers.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_looked_up_is_what_a_plan_finds() {
    let f = Fixture::new().await;
    tables(&f).await;
    let seed = std::env::var("MILLRACE_SEED").map_or(20261128, |seed| seed.parse().unwrap());
    println!("MILLRACE_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let columns = ["a", "b", "c", "d", "e", "g", "h", "i", "j", "k", "l", "m", "n"];
    let values = [
        "5",
        "-5",
        "0",
        "3",
        "40000",
        "3000000000",
        "'d3'",
        "'e1'",
        "'g'",
        "'5'",
        "' 5'",
        "''",
        "'it''s'",
        "NULL",
        "'00000000-0000-0000-0000-000000000003'",
        "'00000000000000000000000000000003'",
        "'2020-01-02'",
        "1.5",
        "TRUE",
        "5::bigint",
        "E'd3'",
    ];
    let mut looked_up = 0;
    for _ in 0..400 {
        let table = *["t", "t", "t", "v"].choose(&mut random).unwrap();
        let columns = if table == "v" {
            &["b", "n", "d"][..]
        } else {
            &columns[..]
        };
        let one = |random: &mut StdRng| {
            let column = *columns.choose(random).unwrap();
            let value = *values.choose(random).unwrap();
            match random.random_bool(0.8) {
                true => format!("{column} = {value}"),
                false => format!("{value} = {table}.{column}"),
            }
        };
        let mut condition = match random.random_bool(0.5) {
            true => format!(
                "{} = {}",
                ["a", "b", "d", "j"].choose(&mut random).unwrap(),
                values.choose(&mut random).unwrap()
            ),
            false => one(&mut random),
        };
        if random.random_bool(0.4) {
            condition = format!("{condition} AND {}", one(&mut random));
        }
        let list = *["*", "d, b", "b AS x, b"].choose(&mut random).unwrap();
        if random.random_bool(0.2) {
            let zone = *["UTC", "America/New_York"].choose(&mut random).unwrap();
            f.ok(&format!("SET TimeZone = '{zone}'")).await;
        }
        let expected = rows(
            &f.session,
            &format!("SELECT {list} FROM {table} WHERE ({condition}) AND true"),
        )
        .await;
        let sql = format!("SELECT {list} FROM {table} WHERE {condition}");
        for _ in 0..4 {
            assert_eq!(rows(&f.session, &sql).await, expected, "{sql}");
        }
        looked_up += usize::from(f.session.answer_known(&sql).await.unwrap().is_some());
    }
    assert!(looked_up > 25, "{looked_up}");
    f.stop().await;
}

/// Generated UPDATEs and DELETEs of one table by its keys, and the same of another by a plan.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_changed_by_a_key_is_what_a_plan_changes() {
    let f = Fixture::new().await;
    let seed = std::env::var("MILLRACE_SEED").map_or(20261128, |seed| seed.parse().unwrap());
    println!("MILLRACE_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for table in ["one", "other"] {
        f.ok(&format!(
            "CREATE TABLE {table} (a INT PRIMARY KEY, b SMALLINT DEFAULT 7 CHECK (b <> 13), c BIGINT, d VARCHAR(4), e NUMERIC(6,2), \
             g DOUBLE PRECISION, h DATE, i CHAR(2), j INT GENERATED ALWAYS AS (a + 1) STORED, l BOOLEAN NOT NULL)"
        ))
        .await;
        f.ok(&format!("CREATE INDEX ON {table} (c)")).await;
        f.ok(&format!(
            "INSERT INTO {table} (a, b, c, d, e, g, h, i, l) SELECT a, (a + 20)::smallint, a % 4, 'd', a, a, DATE '2020-01-01', 'i', true \
             FROM generate_series(1, 30) AS s(a)"
        ))
        .await;
    }
    let columns = ["a", "b", "c", "d", "e", "g", "h", "i", "j", "l", "nothing"];
    let values = [
        "5",
        "-3",
        "13",
        "100000",
        "'abc'",
        "'too long'",
        "NULL",
        "DEFAULT",
        "1.005",
        "'2021-02-03'",
        "true",
        "a",
        "b + 1",
        "b * 1000",
        "b + 32767",
        "c - a",
        "c + 9223372036854775807",
        "e + 1",
        "e * 1000",
        "g * 2",
        "-b",
        "h + 1",
        "d + 1",
        "{t}.c + 1",
        "a + 100",
        "current_date - current_date",
        "(b + c) * 2",
        "x.a",
        "'7'",
        "e + g",
        "b + 0.5",
    ];
    let mut failed = 0;
    for _ in 0..300 {
        let key = match random.random_bool(0.7) {
            true => format!("a = {}", random.random_range(-1..32)),
            false => format!("c = {}", random.random_range(0..4)),
        };
        let count = random.random_range(1..3);
        let assigned: Vec<String> = (0..count)
            .map(|_| {
                format!(
                    "{} = {}",
                    columns.choose(&mut random).unwrap(),
                    values.choose(&mut random).unwrap()
                )
            })
            .collect();
        let (assigned, returning) = (
            assigned.join(", "),
            *["", " RETURNING *"].choose(&mut random).unwrap(),
        );
        let statement = |table: &str, condition: &str| match key.contains("a = 30") {
            true => format!("DELETE FROM {table} WHERE {condition}{returning}"),
            false => {
                let assigned = assigned.replace("{t}", table);
                format!("UPDATE {table} SET {assigned} WHERE {condition}{returning}")
            }
        };
        let (one, other) = (
            statement("one", &key),
            statement("other", &format!("{key} AND true")),
        );
        let transaction = random.random_bool(0.3);
        let mut outcomes = vec![];
        for sql in [&one, &other] {
            if transaction {
                f.ok("BEGIN").await;
            }
            outcomes.push(rows(&f.session, sql).await);
            if transaction {
                // A second change of the same rows sees the first.
                outcomes.push(rows(&f.session, sql).await);
                f.ok("COMMIT").await;
            }
        }
        // Of two values that are wrong it may be the one or the other that is told.
        let outcomes: Vec<_> = outcomes
            .into_iter()
            .map(|outcome| match outcome {
                Err(code) if code.starts_with("22") => Err("22"),
                outcome => outcome,
            })
            .collect();
        let half = outcomes.len() / 2;
        assert_eq!(outcomes[..half], outcomes[half..], "{one}");
        failed += usize::from(outcomes[0].is_err());
        let (one, other) = (
            rows(&f.session, "SELECT * FROM one").await,
            rows(&f.session, "SELECT * FROM other").await,
        );
        assert_eq!(one, other);
    }
    assert!((20..280).contains(&failed), "{failed}");
    f.stop().await;
}

/// What was found out of a statement ends when names mean something else, rights change, or the transaction has rows of its own.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_follows_definitions() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (k INT PRIMARY KEY, v TEXT)").await;
    f.ok("INSERT INTO t VALUES (1, 'public')").await;
    let sql = "SELECT * FROM t WHERE k = 1";
    assert!(is_looked_up(&f, sql).await);
    let expect = async |rows: &[&str]| {
        for _ in 0..4 {
            assert_eq!(f.ok(sql).await, rows);
        }
        assert!(f.session.answer_known(sql).await.unwrap().is_some());
    };
    f.ok("CREATE SCHEMA s; CREATE TABLE s.t (v INT, k INT PRIMARY KEY); INSERT INTO s.t VALUES (7, 1)")
        .await;
    expect(&["1|public"]).await;
    f.ok("SET search_path = s").await;
    expect(&["7|1"]).await;
    f.ok("BEGIN; SET LOCAL search_path = public").await;
    expect(&["1|public"]).await;
    f.ok("COMMIT").await;
    expect(&["7|1"]).await;
    f.ok("RESET search_path").await;
    f.ok("ALTER TABLE t ADD COLUMN w INT DEFAULT 3").await;
    expect(&["1|public|3"]).await;
    f.ok("CREATE TEMP TABLE t (k INT PRIMARY KEY)").await;
    f.ok("INSERT INTO t VALUES (1)").await;
    expect(&["1"]).await;
    f.ok("DROP TABLE pg_temp.t").await;
    expect(&["1|public|3"]).await;
    // Its own changes are in no index.
    f.ok("BEGIN").await;
    f.ok("UPDATE t SET v = 'own' WHERE k = 1").await;
    assert_eq!(f.ok(sql).await, ["1|own|3"]);
    assert_eq!(run(&f.other_session(), sql).await.unwrap(), ["1|public|3"]);
    f.ok("ROLLBACK").await;
    expect(&["1|public|3"]).await;
    f.ok("BEGIN; CREATE TABLE inside (k INT PRIMARY KEY)").await;
    assert_eq!(f.ok(sql).await, ["1|public|3"]);
    assert_eq!(
        f.ok("SELECT * FROM inside WHERE k = 1").await,
        Vec::<String>::new()
    );
    f.ok("ROLLBACK").await;
    f.ok("BEGIN").await;
    f.error("SELECT 1 / 0").await;
    assert_eq!(f.error(sql).await.code.code(), "25P02");
    f.ok("ROLLBACK").await;
    f.ok("ALTER TABLE t RENAME COLUMN v TO named").await;
    expect(&["1|public|3"]).await;
    f.ok("DROP TABLE t").await;
    for _ in 0..3 {
        assert_eq!(f.error(sql).await.code.code(), "42P01");
    }
    f.ok("CREATE TABLE t (k INT PRIMARY KEY)").await;
    assert_eq!(f.ok(sql).await, Vec::<String>::new());
    f.stop().await;
}

/// The same of prepared statements, and of those that drivers send anew each time.
#[tokio::test(flavor = "multi_thread")]
async fn prepared_selects_are_looked_up() -> SqlResult<()> {
    let f = Fixture::new().await;
    tables(&f).await;
    let session = &f.session;
    let prepared = session
        .prepare_text("SELECT d, a FROM t WHERE a = $1", &[])
        .await?;
    let again = session
        .prepare_text("SELECT d, a FROM t WHERE a = $1", &[])
        .await?;
    assert!(Arc::ptr_eq(&prepared, &again));
    let value = |number: i32| vec![datafusion::scalar::ScalarValue::Int32(Some(number))];
    for run in 0..4 {
        let found = session.look_up(&prepared, value(5), "x").await?;
        assert_eq!(found.is_some(), run > 0);
        let Outcome::Rows { mut stream, .. } = session.execute(&prepared, value(5)).await? else {
            panic!("rows")
        };
        let batch = futures::StreamExt::next(&mut stream).await.unwrap().unwrap();
        assert_eq!(output::text(batch.schema().field(0), batch.column(0), 0), "d5");
        assert_eq!(batch.num_rows(), 1);
    }
    f.ok("CREATE TABLE another (a INT)").await;
    let anew = session
        .prepare_text("SELECT d, a FROM t WHERE a = $1", &[])
        .await?;
    assert!(!Arc::ptr_eq(&prepared, &anew));
    assert!(session.look_up(&prepared, value(5), "x").await?.is_some());
    f.ok("ALTER TABLE t RENAME TO elsewhere").await;
    assert!(session.look_up(&prepared, value(5), "x").await?.is_none());
    assert!(session.execute(&prepared, value(5)).await.is_err());
    drop((prepared, again, anew));
    f.stop().await;
    Ok(())
}
