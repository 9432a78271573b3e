//! Tables of a PostgreSQL server that sinks write.

use std::path::Path;

use millrace_sql_tests::outside::{line, until};
use millrace_sql_tests::postgres::Postgres;
use millrace_sql_tests::{Failure, connect, run, start};
use tokio_postgres::Client;

use crate::{COLUMNS, refused, source};

pub(crate) fn sink(name: &str, what: &str, server: &Postgres, table: &str, more: &str) -> String {
    format!(
        "CREATE SINK {name} {what} WITH (connector = 'postgres', host = '127.0.0.1', port = {}, user = 'postgres',
         database = 'postgres', table = '{table}'{more})",
        server.port()
    )
}

async fn there(server: &Postgres, sql: &str) -> Result<Client, Failure> {
    let client = server.client().await?;
    client.batch_execute(sql).await?;
    Ok(client)
}

pub(crate) async fn sinks(server: &Postgres, place: &Path) -> Result<(), Failure> {
    let there = there(
        server,
        "CREATE TABLE totals (who text PRIMARY KEY, total bigint, noted timestamptz DEFAULT now());
         CREATE TABLE \"Log\" (\"At\" int, what text);
         INSERT INTO totals VALUES ('somebody else', 7)",
    )
    .await?;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    for sql in [
        "CREATE TABLE orders (id INT PRIMARY KEY, who TEXT, amount INT)",
        "INSERT INTO orders SELECT i, 'p' || i % 100, 1 FROM generate_series(1, 30000) AS i",
        "CREATE MATERIALIZED VIEW totals AS SELECT who, sum(amount) AS total FROM orders GROUP BY who",
        "CREATE STREAM log (at INT, what TEXT)",
        "INSERT INTO log VALUES (1, E'quote '' tab \\t back \\\\'), (2, NULL)",
    ] {
        run(&client, sql).await?;
    }
    run(
        &client,
        &sink(
            "totals_there",
            "FROM totals",
            server,
            "totals",
            ", type = 'upsert'",
        ),
    )
    .await?;
    run(
        &client,
        &sink(
            "log_there",
            "AS SELECT at AS \"At\", what FROM log",
            server,
            "public.Log",
            ", type = 'append-only'",
        ),
    )
    .await?;
    let totals = "SELECT count(*), sum(total), count(noted) FROM totals";
    until(&there, totals, "101 30007 101").await?;
    until(
        &there,
        "SELECT * FROM \"Log\" ORDER BY 1",
        "1 quote ' tab \t back \\, 2 NULL",
    )
    .await?;
    // Rows that change, come and go; keys that are there already.
    for sql in [
        "UPDATE orders SET amount = 2 WHERE who = 'p1'",
        "DELETE FROM orders WHERE who = 'p2'",
        "INSERT INTO orders VALUES (40000, 'somebody else', 3)",
        "INSERT INTO log SELECT i, repeat('x', 1000) FROM generate_series(1, 20000) AS i",
    ] {
        run(&client, sql).await?;
    }
    until(&there, totals, "100 30003 100").await?;
    until(
        &there,
        "SELECT total FROM totals WHERE who IN ('p1', 'somebody else') ORDER BY 1",
        "3, 600",
    )
    .await?;
    until(&there, "SELECT count(*) FROM \"Log\"", "20002").await?;
    until(
        &client,
        "SELECT name, state, connector FROM mr_catalog.sinks ORDER BY 1",
        "log_there running postgres, totals_there running postgres",
    )
    .await?;
    // All that is known lasts.
    run(&client, "PAUSE SINK totals_there").await?;
    let paused = "SELECT state, rows > 0, lag_rows FROM mr_catalog.sinks WHERE name = 'totals_there'";
    assert_eq!(line(&client, paused).await?, "paused t NULL");
    drop(client);
    ours.shutdown().await;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    assert_eq!(line(&client, paused).await?, "paused t NULL");
    run(&client, "RESUME SINK totals_there").await?;
    run(&client, "INSERT INTO log VALUES (3, 'after')").await?;
    run(&client, "DELETE FROM orders WHERE who <> 'p3'").await?;
    until(&there, "SELECT count(*) FROM \"Log\" WHERE what = 'after'", "1").await?;
    until(&there, "SELECT who, total FROM totals", "p3 300").await?;
    assert_eq!(line(&there, "SELECT count(*) FROM \"Log\"").await?, "20003");
    // A row that does not fit says so, and goes on when it does.
    there
        .batch_execute("ALTER TABLE totals ADD CONSTRAINT small CHECK (total < 1000)")
        .await?;
    run(&client, "UPDATE orders SET amount = 500").await?;
    let state = "SELECT state, error LIKE '%violates check constraint \"small\"%' FROM mr_catalog.sinks WHERE name = 'totals_there'";
    until(&client, state, "failing t").await?;
    there
        .batch_execute("ALTER TABLE totals DROP CONSTRAINT small")
        .await?;
    until(&there, "SELECT who, total FROM totals", "p3 150000").await?;
    // Another table of the same name is another one.
    there
        .batch_execute("DROP TABLE totals; CREATE TABLE totals (who text PRIMARY KEY, total bigint)")
        .await?;
    run(&client, "UPDATE orders SET amount = 1").await?;
    let state = "SELECT state, error LIKE '%was dropped and recreated%' FROM mr_catalog.sinks WHERE name = 'totals_there'";
    until(&client, state, "failed t").await?;
    run(&client, "DROP SINK totals_there").await?;
    run(
        &client,
        &sink(
            "totals_there",
            "FROM totals",
            server,
            "totals",
            ", type = 'upsert'",
        ),
    )
    .await?;
    until(&there, "SELECT who, total FROM totals", "p3 300").await?;
    // Who has the sink's row has the sink.
    there
        .batch_execute("UPDATE millrace_sinks SET holder = 'another'")
        .await?;
    run(&client, "UPDATE orders SET amount = 3").await?;
    let state = "SELECT state, error LIKE '%another server writes for this sink%' FROM mr_catalog.sinks WHERE name = 'totals_there'";
    until(&client, state, "failed t").await?;
    assert_eq!(line(&there, "SELECT who, total FROM totals").await?, "p3 300");
    ours.shutdown().await;
    Ok(())
}

/// Every type goes there as what it is.
pub(crate) async fn sink_types(server: &Postgres, place: &Path) -> Result<(), Failure> {
    let list: Vec<String> = (COLUMNS.iter())
        .map(|(name, data_type, _)| format!("{name} {data_type}"))
        .collect();
    let values: Vec<&str> = COLUMNS.iter().map(|(.., value)| *value).collect();
    let table = |name: &str| format!("CREATE TABLE {name} (id int PRIMARY KEY, {})", list.join(", "));
    let there = there(server, &format!("{}; SET timezone = 'UTC'", table("sunk"))).await?;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    run(&client, &table("t")).await?;
    run(
        &client,
        &sink("all_types", "FROM t", server, "sunk", ", type = 'upsert'"),
    )
    .await?;
    run(
        &client,
        &format!("INSERT INTO t VALUES (1, {})", values.join(", ")),
    )
    .await?;
    run(&client, "INSERT INTO t (id) VALUES (2)").await?;
    run(
        &client,
        "INSERT INTO t (id, f4, f8, te, ta, iv) VALUES (3, 'NaN', '-Infinity', '', ARRAY[]::text[], '-1 month')",
    )
    .await?;
    until(&there, "SELECT count(*) FROM sunk", "3").await?;
    for (name, ..) in COLUMNS {
        let sql = |table: &str| format!("SELECT id, {name}::text FROM {table} ORDER BY id");
        let (expected, found) = (line(&client, &sql("t")).await?, line(&there, &sql("sunk")).await?);
        if expected != found {
            return Err(format!("{name}: {found} instead of {expected}").into());
        }
    }
    ours.shutdown().await;
    Ok(())
}

pub(crate) async fn sink_refusals(server: &Postgres, place: &Path) -> Result<(), Failure> {
    let _there = there(
        server,
        "CREATE TABLE no_key (k int, v text); CREATE TABLE nullable (k int UNIQUE, v text);
         CREATE TABLE more (k int PRIMARY KEY, v text, needed int NOT NULL);
         CREATE TABLE made (k int PRIMARY KEY, v text GENERATED ALWAYS AS ('x') STORED);
         CREATE TABLE partly (k int NOT NULL, v text); CREATE UNIQUE INDEX ON partly (k) WHERE v IS NULL;
         CREATE TABLE right_one (k int PRIMARY KEY, v text); CREATE ROLE stranger LOGIN; GRANT SELECT ON right_one TO stranger",
    )
    .await?;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    run(&client, "CREATE TABLE t (k INT PRIMARY KEY, v TEXT)").await?;
    let upsert = ", type = 'upsert'";
    for (table, more, expected) in [
        ("nothing", upsert, "table \"public\".\"nothing\" is not there"),
        (
            "no_key",
            upsert,
            "has no primary key or unique constraint over exactly (\"k\")",
        ),
        (
            "nullable",
            upsert,
            "has no primary key or unique constraint over exactly (\"k\")",
        ),
        (
            "partly",
            upsert,
            "has no primary key or unique constraint over exactly (\"k\")",
        ),
        (
            "more",
            upsert,
            "\"needed\" of table \"public\".\"more\" is NOT NULL",
        ),
        ("made", upsert, "\"v\" of table \"public\".\"made\" is generated"),
        ("right_one", "", "cannot be append-only"),
        ("right_one", ", type = 'debezium'", "type"),
        (
            "right_one",
            ", type = 'upsert', primary_key = 'v'",
            "may have the same (v)",
        ),
        (
            "right_one",
            ", force_append_only = 'true', primary_key = 'k'",
            "is for type = 'upsert'",
        ),
        ("a.b.c", upsert, "schema.table"),
        ("right_one", ", type = 'upsert', password = 'x'", "password.env"),
        ("right_one", ", type = 'upsert', tabel = 'x'", "tabel"),
        (
            "right_one",
            ", type = 'upsert', username = 'x'",
            "exclude each other",
        ),
    ] {
        refused(&client, &sink("s", "FROM t", server, table, more), expected).await?;
    }
    refused(
        &client,
        &sink("s", "AS SELECT k, v AS w FROM t", server, "right_one", upsert),
        "has no column \"w\"",
    )
    .await?;
    let of_stranger =
        sink("s", "FROM t", server, "right_one", upsert).replace("'postgres',\n", "'stranger',\n");
    refused(&client, &of_stranger, "may not write table").await?;
    let nowhere = sink("s", "FROM t", server, "right_one", upsert).replace("127.0.0.1", "127.0.0.2");
    refused(&client, &nowhere, "PostgreSQL at 127.0.0.2").await?;
    let formatted = format!(
        "{} FORMAT UPSERT ENCODE JSON",
        sink("s", "FROM t", server, "right_one", "")
    );
    refused(&client, &formatted, "FORMAT .. ENCODE .. is not supported").await?;
    // Nothing is left of what was refused.
    assert_eq!(line(&client, "SELECT count(*) FROM mr_catalog.sinks").await?, "0");
    run(&client, &sink("s", "FROM t", server, "right_one", upsert)).await?;
    ours.shutdown().await;
    Ok(())
}

/// A source and a sink with a server that has TLS alone: what is trusted, and what is not.
pub(crate) async fn tls(server: &Postgres, place: &Path) -> Result<(), Failure> {
    let there = there(
        server,
        "CREATE TABLE safe (id int PRIMARY KEY, v text); CREATE TABLE copied (id int PRIMARY KEY, v text);
         INSERT INTO safe VALUES (1, 'one')",
    )
    .await?;
    let roots = server.require_tls(false)?;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    let source = |host: &str, more: &str| source("tls", server, more).replace("127.0.0.1", host);
    let verified = format!(
        ", ssl.mode = 'verify-full', ssl.root.cert = '{}'",
        roots.display()
    );
    soon(&client, &source("localhost", &verified)).await?;
    run(
        &client,
        "CREATE TABLE safe (id INT PRIMARY KEY, v TEXT) FROM tls TABLE 'safe'",
    )
    .await?;
    there.batch_execute("INSERT INTO safe VALUES (2, 'two')").await?;
    until(&client, "SELECT id, v FROM safe ORDER BY id", "1 one, 2 two").await?;
    let sink = |host: &str, more: &str| {
        let more = format!(", type = 'upsert'{more}");
        sink("copied", "FROM safe", server, "copied", &more).replace("127.0.0.1", host)
    };
    refused(
        &client,
        &sink("localhost", ", ssl.mode = 'disable'"),
        "no encryption",
    )
    .await?;
    refused(
        &client,
        &sink("localhost", ", ssl.mode = 'verify-full'"),
        "UnknownIssuer",
    )
    .await?;
    refused(&client, &sink("127.0.0.1", &verified), "not valid for name").await?;
    refused(
        &client,
        &sink("localhost", ", ssl.mode = 'require', ssl.root.cert = '/a'"),
        "verify-ca",
    )
    .await?;
    refused(
        &client,
        &sink(
            "localhost",
            ", ssl.mode = 'verify-ca', ssl.root.cert = '/nothing'",
        ),
        "/nothing",
    )
    .await?;
    refused(
        &client,
        &sink("localhost", ", ssl.mode = 'always'"),
        "'verify-full'",
    )
    .await?;
    for (host, mode) in [
        ("127.0.0.1", ""),
        ("127.0.0.1", ", ssl.mode = 'required'"),
        ("127.0.0.1", &*verified.replace("verify-full", "verify-ca")),
        ("localhost", &verified),
    ] {
        run(&client, &sink(host, mode)).await?;
        until(&there, "SELECT id, v FROM copied ORDER BY id", "1 one, 2 two").await?;
        there.batch_execute("TRUNCATE copied").await?;
        run(&client, "DROP SINK copied").await?;
    }
    // A server that has signed its certificate itself.
    let itself = server.require_tls(true)?;
    let trusted = format!(
        ", ssl.mode = 'verify-full', ssl.root.cert = '{}'",
        itself.display()
    );
    soon(&client, &sink("localhost", &trusted)).await?;
    until(&there, "SELECT id, v FROM copied ORDER BY id", "1 one, 2 two").await?;
    run(&client, "DROP SINK copied").await?;
    refused(&client, &sink("localhost", &verified), "TLS").await?;
    refused(&client, &sink("127.0.0.1", &trusted), "not valid for name").await?;
    run(&client, "DROP STREAM tls CASCADE").await?;
    ours.shutdown().await;
    Ok(())
}

/// Runs a statement once the server there has taken its new settings, which it does in its own time.
async fn soon(client: &Client, sql: &str) -> Result<(), Failure> {
    for _ in 0..200 {
        if run(client, sql).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    run(client, sql).await
}
