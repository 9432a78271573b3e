//! What drivers do beyond plain statements: typed parameters and results in binary, COPY, portals, cancelling, and what
//! an error says besides its message.

use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use futures::{SinkExt, TryStreamExt};
use millrace_sql_tests::{connect, rows, run, start, words};
use millrace_wire::Server;
use tempfile::TempDir;
use tokio_postgres::error::{ErrorPosition, SqlState};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

struct Fixture {
    server: Server,
    client: Client,
    _directory: TempDir,
}

async fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await.unwrap();
    let client = connect(server.pg_addr()).await.unwrap();
    Fixture {
        server,
        client,
        _directory: directory,
    }
}

/// Copies text in; what the server says to it.
async fn copy_in(client: &Client, sql: &str, pieces: &[&'static str]) -> Result<u64, tokio_postgres::Error> {
    let sink = client.copy_in::<_, Bytes>(sql).await?;
    let mut sink = Box::pin(sink);
    for piece in pieces {
        sink.send(Bytes::from_static(piece.as_bytes())).await?;
    }
    sink.as_mut().finish().await
}

async fn copy_out(client: &Client, sql: &str) -> String {
    let stream = client.copy_out(sql).await.unwrap();
    let bytes: BytesMut = stream
        .try_collect::<Vec<Bytes>>()
        .await
        .unwrap()
        .concat()
        .as_slice()
        .into();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn text(client: &Client, sql: &str) -> String {
    let rows = rows(client, sql).await.unwrap();
    let line = |row: &Vec<Option<String>>| {
        let values: Vec<&str> = row
            .iter()
            .map(|value| value.as_deref().unwrap_or("NULL"))
            .collect();
        values.join("|")
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_and_results_in_binary() {
    let f = fixture().await;
    run(
        &f.client,
        "CREATE TABLE t (y BOOLEAN, s SMALLINT, i INT, b BIGINT, r REAL, d DOUBLE PRECISION, t TEXT, c VARCHAR(9), \
         x BYTEA, ts TIMESTAMP, tz TIMESTAMPTZ, a INT[], l TEXT[])",
    )
    .await
    .unwrap();
    let insert = f
        .client
        .prepare("INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)")
        .await
        .unwrap();
    assert_eq!(
        insert.params(),
        [
            Type::BOOL,
            Type::INT2,
            Type::INT4,
            Type::INT8,
            Type::FLOAT4,
            Type::FLOAT8,
            Type::TEXT,
            Type::VARCHAR,
            Type::BYTEA,
            Type::TIMESTAMP,
            Type::TIMESTAMPTZ,
            Type::INT4_ARRAY,
            Type::TEXT_ARRAY
        ]
    );
    let epoch = SystemTime::UNIX_EPOCH;
    let bytes: &[u8] = &[0, 255, 7];
    let numbers = vec![Some(1), None, Some(-3)];
    let texts = vec!["a".to_owned(), String::new()];
    let inserted = f
        .client
        .execute(
            &insert,
            &[
                &true,
                &-7_i16,
                &i32::MIN,
                &i64::MAX,
                &1.5_f32,
                &f64::NEG_INFINITY,
                &"it's",
                &"ü",
                &bytes,
                &epoch,
                &epoch,
                &numbers,
                &texts,
            ],
        )
        .await
        .unwrap();
    assert_eq!(inserted, 1);
    let row = f.client.query_one("SELECT * FROM t", &[]).await.unwrap();
    assert!(row.get::<_, bool>(0));
    assert_eq!(
        (row.get::<_, i16>(1), row.get::<_, i32>(2), row.get::<_, i64>(3)),
        (-7, i32::MIN, i64::MAX)
    );
    assert_eq!(
        (row.get::<_, f32>(4), row.get::<_, f64>(5)),
        (1.5, f64::NEG_INFINITY)
    );
    assert_eq!(
        (
            row.get::<_, &str>(6),
            row.get::<_, &str>(7),
            row.get::<_, &[u8]>(8)
        ),
        ("it's", "ü", bytes)
    );
    assert_eq!(
        (row.get::<_, SystemTime>(9), row.get::<_, SystemTime>(10)),
        (epoch, epoch)
    );
    assert_eq!(
        (row.get::<_, Vec<Option<i32>>>(11), row.get::<_, Vec<String>>(12)),
        (numbers, texts)
    );
    assert_eq!(
        text(&f.client, "SELECT * FROM t").await,
        "t|-7|-2147483648|9223372036854775807|1.5|-Infinity|it's|ü|\\x00ff07|1970-01-01 00:00:00|\
         1970-01-01 00:00:00+00|{1,NULL,-3}|{a,\"\"}"
    );
    let nulls = f
        .client
        .query_one(
            "SELECT i FROM t WHERE i = $1 OR $2::text IS NULL",
            &[&None::<i32>, &None::<String>],
        )
        .await
        .unwrap();
    assert_eq!(nulls.get::<_, Option<i32>>(0), Some(i32::MIN));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_executed_again_and_again() {
    let f = fixture().await;
    run(&f.client, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        .await
        .unwrap();
    run(
        &f.client,
        "CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t",
    )
    .await
    .unwrap();
    let insert = f
        .client
        .prepare("INSERT INTO t VALUES ($1, $2) RETURNING id")
        .await
        .unwrap();
    let select = f.client.prepare("SELECT n FROM n").await.unwrap();
    for id in 1..=50_i64 {
        let row = f
            .client
            .query_one(&insert, &[&id, &format!("v{id}")])
            .await
            .unwrap();
        assert_eq!(row.get::<_, i64>(0), id);
        // Its own session sees every write in the view at once.
        assert_eq!(
            f.client.query_one(&select, &[]).await.unwrap().get::<_, i64>(0),
            id
        );
    }
    let error = f
        .client
        .query_one(&insert, &[&1_i64, &"again"])
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION));
    assert_eq!(
        f.client.query_one(&select, &[]).await.unwrap().get::<_, i64>(0),
        50
    );
    // Sent without waiting for each other's answers.
    let ids = [7_i64, 8, 9];
    let get = f.client.prepare("SELECT v FROM t WHERE id = $1").await.unwrap();
    let found = futures::future::try_join_all(ids.iter().map(|id| {
        let (client, get) = (&f.client, &get);
        async move {
            client
                .query_one(get, &[id])
                .await
                .map(|row| row.get::<_, String>(0))
        }
    }));
    assert_eq!(found.await.unwrap(), ["v7", "v8", "v9"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_are_read_in_pieces() {
    let mut f = fixture().await;
    let transaction = f.client.transaction().await.unwrap();
    for (rows, expected) in [(5, [2, 2, 1]), (4, [2, 2, 0])] {
        let sql = format!("SELECT x FROM generate_series(1, {rows}) AS g(x) ORDER BY x");
        let portal = transaction.bind(&sql, &[]).await.unwrap();
        let mut sizes = Vec::new();
        while sizes.last().is_none_or(|size| *size == 2) {
            sizes.push(transaction.query_portal(&portal, 2).await.unwrap().len());
        }
        assert_eq!(sizes, expected);
    }
    transaction.rollback().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_say_where() {
    let f = fixture().await;
    run(
        &f.client,
        "CREATE TABLE flights (id INT PRIMARY KEY, origin TEXT NOT NULL)",
    )
    .await
    .unwrap();
    for (sql, code, position) in [
        ("SELECT 'ü', * FORM flights", SqlState::SYNTAX_ERROR, None),
        (
            "SELECT 'ü', nothing FROM flights",
            SqlState::UNDEFINED_COLUMN,
            Some(13),
        ),
        ("SELECT *\nFROM fligths", SqlState::UNDEFINED_TABLE, Some(15)),
        ("SELECT nofunction(1)", SqlState::UNDEFINED_FUNCTION, Some(8)),
    ] {
        for error in [
            f.client.simple_query(sql).await.err(),
            f.client.prepare(sql).await.err(),
        ] {
            let error = error.unwrap();
            let error = error.as_db_error().unwrap();
            assert_eq!(error.code(), &code, "{sql}: {error:?}");
            let found = match error.position() {
                Some(ErrorPosition::Original(position)) => Some(*position),
                _ => None,
            };
            assert!(found.is_some(), "{sql}: {error:?}");
            assert!(position.is_none() || found == position, "{sql}: {error:?}");
        }
    }
    let error = f.client.simple_query("SELECT * FROM fligths").await.unwrap_err();
    assert!(
        words(&error).contains("Perhaps you meant \"flights\"."),
        "{}",
        words(&error)
    );
    run(&f.client, "INSERT INTO flights VALUES (1, 'JFK')")
        .await
        .unwrap();
    let error = f
        .client
        .simple_query("INSERT INTO flights VALUES (1, 'JFK')")
        .await
        .unwrap_err();
    assert!(
        words(&error).contains("Key (id)=(1) already exists."),
        "{}",
        words(&error)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_in_and_out() {
    let f = fixture().await;
    run(
        &f.client,
        "CREATE TABLE t (id INT PRIMARY KEY, v TEXT, m NUMERIC(10,2))",
    )
    .await
    .unwrap();
    run(
        &f.client,
        "CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n, sum(m) AS total FROM t",
    )
    .await
    .unwrap();
    // Pieces need not be rows.
    let copied = copy_in(
        &f.client,
        "COPY t FROM STDIN",
        &["1\ta\\tb", "\\n\t1.5\n2\t", "\\N\t\\N\n3\t\t2", "\n"],
    )
    .await;
    assert_eq!(copied.unwrap(), 3);
    assert_eq!(text(&f.client, "SELECT * FROM n").await, "3|3.50");
    let csv = ["m;v;id\n", "0,5;x;4\n"];
    let error = copy_in(
        &f.client,
        "COPY t (m, v, id) FROM STDIN (FORMAT csv, HEADER, DELIMITER ';')",
        &csv,
    )
    .await;
    assert_eq!(
        error.unwrap_err().code(),
        Some(&SqlState::INVALID_TEXT_REPRESENTATION)
    );
    let csv = ["v,id\n", "\"q\"\"uote,\nline\",5\n-,6\n"];
    let copied = copy_in(
        &f.client,
        "COPY t (v, id) FROM STDIN WITH (FORMAT csv, HEADER true, NULL '-')",
        &csv,
    )
    .await;
    assert_eq!(copied.unwrap(), 2);
    assert_eq!(
        copy_out(&f.client, "COPY (SELECT * FROM t ORDER BY id) TO STDOUT").await,
        "1\ta\\tb\\n\t1.50\n2\t\\N\t\\N\n3\t\t2.00\n5\tq\"uote,\\nline\t\\N\n6\t\\N\t\\N\n"
    );
    assert_eq!(
        copy_out(
            &f.client,
            "COPY (SELECT id, v FROM t WHERE id > 2 ORDER BY id) TO STDOUT (FORMAT csv, HEADER)"
        )
        .await,
        "id,v\n3,\"\"\n5,\"q\"\"uote,\nline\"\n6,\n"
    );
    assert_eq!(copy_out(&f.client, "COPY n TO STDOUT").await, "5\t3.50\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_names_the_bad_line_and_keeps_nothing() {
    let f = fixture().await;
    run(
        &f.client,
        "CREATE TABLE t (id INT PRIMARY KEY, v TEXT NOT NULL, d DATE)",
    )
    .await
    .unwrap();
    run(&f.client, "CREATE STREAM s (id INT, v TEXT)").await.unwrap();
    for (sql, pieces, code, context) in [
        (
            "COPY t FROM STDIN",
            ["10\ta\t\\N\nx\tb\t\\N\n"],
            SqlState::INVALID_TEXT_REPRESENTATION,
            "COPY t, line 2, column id: \"x\"",
        ),
        (
            "COPY t FROM STDIN",
            ["10\ta\t\\N\n11\tb\n"],
            SqlState::BAD_COPY_FILE_FORMAT,
            "COPY t, line 2",
        ),
        (
            "COPY t FROM STDIN",
            ["10\ta\t\\N\textra\n"],
            SqlState::BAD_COPY_FILE_FORMAT,
            "COPY t, line 1",
        ),
        (
            "COPY t FROM STDIN",
            ["10\ta\t\\N\n11\t\\N\t\\N\n"],
            SqlState::NOT_NULL_VIOLATION,
            "COPY t, line 2",
        ),
        (
            "COPY t FROM STDIN",
            ["10\ta\t2013-02-30\n"],
            SqlState::DATETIME_FIELD_OVERFLOW,
            "COPY t, line 1, column d: \"2013-02-30\"",
        ),
        (
            "COPY t FROM STDIN",
            ["99999999999\ta\t\\N\n"],
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            "COPY t, line 1, column id",
        ),
        (
            "COPY t FROM STDIN",
            ["10\ta\t\\N\n10\tb\t\\N\n"],
            SqlState::UNIQUE_VIOLATION,
            "Key (id)=(10) already exists.",
        ),
        (
            "COPY s FROM STDIN (FORMAT csv)",
            ["1,a\n2,\"open\n"],
            SqlState::BAD_COPY_FILE_FORMAT,
            "COPY s, line ",
        ),
        (
            "COPY s FROM STDIN (FORMAT csv)",
            ["1,a\ntwo,b\n"],
            SqlState::INVALID_TEXT_REPRESENTATION,
            "COPY s, line 2, column id: \"two\"",
        ),
    ] {
        let error = copy_in(&f.client, sql, &pieces).await.unwrap_err();
        assert_eq!(error.code(), Some(&code), "{pieces:?}: {}", words(&error));
        assert!(words(&error).contains(context), "{pieces:?}: {}", words(&error));
    }
    assert_eq!(
        text(
            &f.client,
            "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM s)"
        )
        .await,
        "0|0"
    );
    for (sql, code) in [
        ("COPY nothing FROM STDIN", SqlState::UNDEFINED_TABLE),
        ("COPY t (nothing) FROM STDIN", SqlState::UNDEFINED_COLUMN),
        ("COPY t FROM '/etc/passwd'", SqlState::FEATURE_NOT_SUPPORTED),
    ] {
        let error = f.client.simple_query(sql).await.unwrap_err();
        assert_eq!(error.code(), Some(&code), "{}", words(&error));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_within_a_transaction() {
    let f = fixture().await;
    let other = connect(f.server.pg_addr()).await.unwrap();
    run(&f.client, "CREATE TABLE t (id INT PRIMARY KEY)")
        .await
        .unwrap();
    run(&f.client, "BEGIN").await.unwrap();
    assert_eq!(
        copy_in(&f.client, "COPY t FROM STDIN", &["1\n2\n"])
            .await
            .unwrap(),
        2
    );
    assert_eq!(text(&f.client, "SELECT count(*) FROM t").await, "2");
    assert_eq!(text(&other, "SELECT count(*) FROM t").await, "0");
    run(&f.client, "ROLLBACK").await.unwrap();
    assert_eq!(text(&f.client, "SELECT count(*) FROM t").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_statement_is_cancelled() {
    let f = fixture().await;
    let token = f.client.cancel_token();
    for sql in [
        "SELECT pg_sleep(600)",
        "SELECT count(*) FROM generate_series(1, 100000) AS a(x), generate_series(1, 100000) AS b(y) WHERE x + y = 7",
    ] {
        let watcher = connect(f.server.pg_addr()).await.unwrap();
        let running = f.client.simple_query(sql);
        let cancelling = async {
            // Asked until it has begun: a request that comes too early finds nothing to cancel.
            loop {
                token.cancel_query(NoTls).await.unwrap();
                run(&watcher, "SELECT 1").await.unwrap();
            }
        };
        let outcome = tokio::select! {
            outcome = running => outcome,
            () = cancelling => Ok(Vec::new()),
        };
        assert_eq!(
            outcome.unwrap_err().code(),
            Some(&SqlState::QUERY_CANCELED),
            "{sql}"
        );
    }
    // A late request may still be on its way; the session itself goes on.
    while let Err(error) = f.client.simple_query("SELECT 1").await {
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_cancels_what_another_one_runs() {
    let f = fixture().await;
    let other = connect(f.server.pg_addr()).await.unwrap();
    let pid = text(&f.client, "SELECT pg_backend_pid()").await;
    let cancel = format!("SELECT pg_cancel_backend({pid})");
    let running = f.client.simple_query("SELECT pg_sleep(600)");
    let cancelling = async {
        // Asked until it has begun.
        loop {
            assert_eq!(text(&other, &cancel).await, "t");
        }
    };
    let outcome = tokio::select! {
        outcome = running => outcome,
        () = cancelling => Ok(Vec::new()),
    };
    assert_eq!(outcome.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
    assert_eq!(text(&other, "SELECT pg_cancel_backend(-1)").await, "f");
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_statements_that_succeeded_were_done() {
    let f = fixture().await;
    f.client
        .simple_query("CREATE TABLE done (id INT PRIMARY KEY)")
        .await
        .unwrap();
    let mut clients = vec![];
    for first in 0..4 {
        let client = connect(f.server.pg_addr()).await.unwrap();
        clients.push(tokio::spawn(async move {
            let mut succeeded = vec![];
            for n in 0..40 {
                let id = first * 1000 + n;
                let timeout = (first * 7 + n * 13) % 6 + 1;
                let set = format!("SET statement_timeout = {timeout}");
                client.simple_query(&set).await.unwrap();
                let insert = format!("INSERT INTO done VALUES ({id})");
                match client.simple_query(&insert).await {
                    Ok(_) => succeeded.push(id.to_string()),
                    Err(error) => assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED), "{error}"),
                }
            }
            succeeded
        }));
    }
    let mut succeeded = vec![];
    for client in clients {
        succeeded.extend(client.await.unwrap());
    }
    let there = text(
        &f.client,
        "SELECT coalesce(string_agg(id::text, ',' ORDER BY id), '') FROM done",
    )
    .await;
    assert_eq!(there, succeeded.join(","));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_held_is_given_up_in_time_and_its_holder_can_be_ended() {
    let f = fixture().await;
    let holder = connect(f.server.pg_addr()).await.unwrap();
    f.client.simple_query("CREATE TABLE held (a INT)").await.unwrap();
    holder
        .simple_query("BEGIN; INSERT INTO held VALUES (1)")
        .await
        .unwrap();
    f.client.simple_query("SET lock_timeout = 20").await.unwrap();
    for sql in ["INSERT INTO held VALUES (2)", "ALTER TABLE held ADD COLUMN b INT"] {
        let error = f.client.simple_query(sql).await.unwrap_err();
        assert_eq!(error.code().map(SqlState::code), Some("55P03"), "{sql}");
    }
    assert_eq!(
        text(&f.client, "SELECT count(*) FROM pg_locks WHERE granted").await,
        "1"
    );
    let end = "SELECT count(*) FROM pg_locks WHERE pg_terminate_backend(pid)";
    assert_eq!(text(&f.client, end).await, "1");
    f.client
        .simple_query("SET lock_timeout = 0; INSERT INTO held VALUES (3)")
        .await
        .unwrap();
    assert_eq!(
        text(&f.client, "SELECT string_agg(a::text, ',') FROM held").await,
        "3"
    );
}

#[tokio::test]
async fn settings_come_with_the_start_up_message() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await.unwrap();
    let connect_with = async |options: &str| {
        tokio_postgres::Config::new()
            .host(server.pg_addr().ip().to_string())
            .port(server.pg_addr().port())
            .user("millrace")
            .options(options)
            .connect(tokio_postgres::NoTls)
            .await
    };
    let (client, connection) = connect_with("-c statement_timeout=3s -csearch_path=a,\\ b --work-mem=1MB")
        .await
        .unwrap();
    tokio::spawn(connection);
    let shown = "SELECT current_setting('statement_timeout'), current_setting('search_path'), current_setting('work_mem')";
    assert_eq!(
        rows(&client, shown).await.unwrap(),
        [["3s", "a, b", "1MB"].map(|value| Some(value.to_owned()))]
    );
    for (wrong, message) in [
        ("-x", "invalid command-line argument for server process: -x"),
        (
            "-c nonsense=1",
            "unrecognized configuration parameter \"nonsense\"",
        ),
    ] {
        let Err(error) = connect_with(wrong).await else {
            panic!("{wrong} is refused");
        };
        assert!(words(&error).contains(message), "{}", words(&error));
    }
    drop(client);
    server.shutdown().await;
}
