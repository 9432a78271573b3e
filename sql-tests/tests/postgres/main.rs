//! A real PostgreSQL server as a source and as the target of sinks: what is copied, what is followed, what is written, and that each
//! transaction is there once and as a whole, whatever is killed.
//!
//! Needs the programs of PostgreSQL (`millrace_sql_tests::postgres::BIN`); it is skipped without them. `POSTGRES_ROUNDS` is how often
//! processes are killed, `SEED` in which order.

#![allow(clippy::unwrap_used)]

mod changes;
mod kills;
mod secrets;
mod silence;
mod sink_kills;
mod sinks;
mod upstream;

use std::path::Path;
use std::process::ExitCode;

use millrace_sql_tests::crash::serve_if_child;
use millrace_sql_tests::outside::{self, Suite, line, until};
use millrace_sql_tests::postgres::{BIN, Postgres};
use millrace_sql_tests::{Failure, connect, run, start};
use tokio_postgres::Client;

fn main() -> ExitCode {
    if serve_if_child() {
        return ExitCode::SUCCESS;
    }
    // Others are to get into it, too.
    let directory = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).unwrap();
    let Some(server) = Postgres::start(&directory.path().join("postgres")).unwrap() else {
        println!("skipped: {BIN} does not say where the programs of PostgreSQL are");
        return ExitCode::SUCCESS;
    };
    Suite::new(directory.path(), server)
        .unwrap()
        .test("follows", async |server, place| follows(server, place).await)
        .test("types", async |server, place| types(server, place).await)
        .test("refusals", async |server, place| refusals(server, place).await)
        .test("slots", async |server, place| slots(server, place).await)
        .test("changes", async |server, place| {
            changes::changes(server, place).await
        })
        .test("copies", async |server, place| {
            upstream::copies(server, place).await
        })
        .test("replaced", async |server, place| {
            upstream::replaced(server, place).await
        })
        .test("silence", async |server, place| {
            silence::silence(server, place).await
        })
        .test("kills", async |server, place| kills::kills(server, place).await)
        .test("sinks", async |server, place| sinks::sinks(server, place).await)
        .test("sink_types", async |server, place| {
            sinks::sink_types(server, place).await
        })
        .test("sink_refusals", async |server, place| {
            sinks::sink_refusals(server, place).await
        })
        .test("secrets", async |server, place| {
            secrets::secrets(server, place).await
        })
        .test("sink_kills", async |server, place| {
            sink_kills::kills(server, place).await
        })
        // It lets nobody in without TLS from then on.
        .test("tls", async |server, place| sinks::tls(server, place).await)
        .outcome()
}

/// A statement is refused with these words.
async fn refused(client: &Client, sql: &str, expected: &str) -> Result<(), Failure> {
    let error = outside::refused(client, sql).await?;
    match error.contains(expected) {
        true => Ok(()),
        false => Err(format!("{sql}: {error}").into()),
    }
}

fn source(name: &str, server: &Postgres, more: &str) -> String {
    format!(
        "CREATE SOURCE {name} WITH (connector = 'postgres-cdc', hostname = '127.0.0.1', port = {}, username = 'postgres',
         database.name = 'postgres', slot.name = '{name}_slot', publication.name = '{name}_publication'{more})",
        server.port()
    )
}

async fn follows(server: &Postgres, place: &Path) -> Result<(), Failure> {
    let there = server.client().await?;
    there
        .batch_execute(
            "CREATE TABLE a (id int PRIMARY KEY, v text, n numeric(10, 2));
             CREATE TABLE b (id int PRIMARY KEY, v text, extra int);
             CREATE SCHEMA \"Odd\"; CREATE TABLE \"Odd\".\"Table\" (\"Key\" text PRIMARY KEY, v int);
             INSERT INTO a SELECT i, 'old' || i, i FROM generate_series(1, 20000) AS i;
             INSERT INTO b VALUES (1, 'x', 5);
             INSERT INTO \"Odd\".\"Table\" VALUES (E'tab\\t, line\\n, \\\\', 1)",
        )
        .await?;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    run(&client, &source("pg", server, "")).await?;
    run(
        &client,
        "CREATE TABLE a (id INT PRIMARY KEY, v TEXT, n NUMERIC(10, 2)) FROM pg TABLE 'public.a'",
    )
    .await?;
    // It has its rows when it is there.
    assert_eq!(
        line(&client, "SELECT count(*), sum(n), min(v) FROM a").await?,
        "20000 200010000.00 old1"
    );
    run(
        &client,
        "CREATE TABLE b (id INT PRIMARY KEY, v TEXT) FROM pg TABLE 'b'",
    )
    .await?;
    run(
        &client,
        "CREATE TABLE odd (\"Key\" TEXT PRIMARY KEY, v INT, w INT AS (v * 2)) FROM pg TABLE 'Odd.Table'",
    )
    .await?;
    assert_eq!(
        line(&client, "SELECT \"Key\" = E'tab\\t, line\\n, \\\\', w FROM odd").await?,
        "t 2"
    );
    run(
        &client,
        "CREATE MATERIALIZED VIEW both_ AS SELECT (SELECT sum(n) FROM a) AS n, (SELECT count(*) FROM b) AS b",
    )
    .await?;
    // Changes of all kinds, with keys that change.
    there
        .batch_execute(
            "BEGIN; UPDATE a SET v = 'new' WHERE id = 1; DELETE FROM a WHERE id = 2; UPDATE a SET id = -3 WHERE id = 3;
             INSERT INTO a VALUES (30000, NULL, NULL); INSERT INTO b VALUES (2, 'y', 6); UPDATE b SET v = 'z' WHERE id = 2;
             DELETE FROM b WHERE id = 1; COMMIT",
        )
        .await?;
    until(
        &client,
        "SELECT id, v, n FROM a WHERE id < 5 OR id > 20000 ORDER BY id",
        "-3 old3 3.00, 1 new 1.00, 4 old4 4.00, 30000 NULL NULL",
    )
    .await?;
    until(&client, "SELECT * FROM b", "2 z").await?;
    until(&client, "SELECT n, b FROM both_", "200009998.00 1").await?;
    // A transaction that is rolled back is not there, and neither is half of one.
    there
        .batch_execute("BEGIN; DELETE FROM a; ROLLBACK; BEGIN; INSERT INTO b VALUES (3, 'c', 1)")
        .await?;
    let other = server.client().await?;
    other.batch_execute("INSERT INTO b VALUES (4, 'd', 1)").await?;
    until(&client, "SELECT id FROM b ORDER BY id", "2, 4").await?;
    there.batch_execute("COMMIT").await?;
    until(&client, "SELECT id FROM b ORDER BY id", "2, 3, 4").await?;
    // Long values that an update leaves alone.
    there
        .batch_execute(
            "ALTER TABLE a ALTER COLUMN v SET STORAGE EXTERNAL; UPDATE a SET v = repeat('long', 5000) WHERE id = 4;
             UPDATE a SET n = 77 WHERE id = 4; UPDATE a SET id = 40000 WHERE id = 4",
        )
        .await?;
    until(
        &client,
        "SELECT length(v), n FROM a WHERE id = 40000",
        "20000 77.00",
    )
    .await?;
    until(&client, "SELECT count(*) FROM a WHERE id = 4", "0").await?;
    // All that is known lasts.
    drop(client);
    ours.shutdown().await;
    there
        .batch_execute("UPDATE b SET v = 'meanwhile' WHERE id = 2")
        .await?;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    until(&client, "SELECT v FROM b WHERE id = 2", "meanwhile").await?;
    until(&client, "SELECT count(*) FROM a", "20000").await?;
    // A table that comes later, and columns.
    there
        .batch_execute("CREATE TABLE c (id int PRIMARY KEY, v int); INSERT INTO c VALUES (1, 1), (2, 2)")
        .await?;
    run(
        &client,
        "CREATE TABLE c (id INT PRIMARY KEY, v INT) FROM pg TABLE 'public.c'",
    )
    .await?;
    assert_eq!(line(&client, "SELECT * FROM c ORDER BY id").await?, "1 1, 2 2");
    there
        .batch_execute("ALTER TABLE c ADD COLUMN w int DEFAULT 9; INSERT INTO c VALUES (3, 3, 3)")
        .await?;
    until(&client, "SELECT * FROM c ORDER BY id", "1 1, 2 2, 3 3").await?;
    run(&client, "ALTER TABLE c ADD COLUMN w INT").await?;
    there.batch_execute("UPDATE c SET v = v + 1").await?;
    until(&client, "SELECT * FROM c ORDER BY id", "1 2 9, 2 3 9, 3 4 3").await?;
    // A change is of the columns that there were when it was made.
    there
        .batch_execute(
            "BEGIN; INSERT INTO c VALUES (4, 4, 4); ALTER TABLE c ADD COLUMN x int, DROP COLUMN w; ALTER TABLE c ADD COLUMN w int;
             INSERT INTO c (id, v, x, w) VALUES (5, 5, 0, 6); COMMIT",
        )
        .await?;
    until(
        &client,
        "SELECT * FROM c WHERE id > 3 ORDER BY id",
        "4 4 4, 5 5 6",
    )
    .await?;
    // All of a table, and what comes behind that in the same transaction.
    there
        .batch_execute(
            "BEGIN; INSERT INTO c VALUES (7, 7, 7, 7); TRUNCATE c, b; INSERT INTO c VALUES (8, 8, 8, 8); COMMIT",
        )
        .await?;
    until(&client, "SELECT * FROM c", "8 8 8").await?;
    until(&client, "SELECT count(*) FROM b", "0").await?;
    // Two tables of one.
    run(
        &client,
        "CREATE TABLE c2 (id INT PRIMARY KEY) FROM pg TABLE 'public.c'",
    )
    .await?;
    there.batch_execute("INSERT INTO c VALUES (9, 9, 9, 9)").await?;
    until(
        &client,
        "SELECT count(*), (SELECT count(*) FROM c) FROM c2",
        "2 2",
    )
    .await?;
    run(&client, "PAUSE STREAM pg").await?;
    there.batch_execute("INSERT INTO c VALUES (10, 9, 9, 9)").await?;
    until(
        &client,
        "SELECT state FROM mr_catalog.sources WHERE name = 'pg'",
        "paused",
    )
    .await?;
    refused(
        &client,
        "CREATE TABLE c3 (id INT PRIMARY KEY) FROM pg TABLE 'c'",
        "is paused",
    )
    .await?;
    run(&client, "RESUME STREAM pg").await?;
    until(&client, "SELECT count(*) FROM c2", "3").await?;
    // Partitions are one table.
    there
        .batch_execute(
            "CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
             CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
             CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20); INSERT INTO parts VALUES (1, 1), (11, 1)",
        )
        .await?;
    run(
        &client,
        "CREATE TABLE parts (id INT PRIMARY KEY, v INT) FROM pg TABLE 'parts'",
    )
    .await?;
    there
        .batch_execute("UPDATE parts SET id = 12 WHERE id = 1; UPDATE parts SET v = 2 WHERE id = 11")
        .await?;
    until(&client, "SELECT * FROM parts ORDER BY id", "11 2, 12 1").await?;
    // A column that is gone there.
    run(&client, "DROP TABLE c2").await?;
    there
        .batch_execute("ALTER TABLE c DROP COLUMN v; INSERT INTO c VALUES (11, 9, 9)")
        .await?;
    until(
        &client,
        "SELECT state, error LIKE '%has no column \"v\"%' FROM mr_catalog.sources WHERE name = 'pg'",
        "failed t",
    )
    .await?;
    run(&client, "DROP TABLE c").await?;
    run(&client, "RESUME STREAM pg").await?;
    until(
        &client,
        "SELECT state FROM mr_catalog.sources WHERE name = 'pg'",
        "running",
    )
    .await?;
    // With the stream its slot goes.
    refused(&client, "DROP STREAM pg", "depend").await?;
    run(&client, "DROP STREAM pg CASCADE").await?;
    assert_eq!(
        line(&there, "SELECT count(*) FROM pg_replication_slots").await?,
        "0"
    );
    ours.shutdown().await;
    Ok(())
}

/// Columns of every type that both have: name, type, and a value as it is written in SQL.
const COLUMNS: [(&str, &str, &str); 19] = [
    ("b", "boolean", "true"),
    ("i2", "smallint", "-32768"),
    ("i4", "integer", "2147483647"),
    ("i8", "bigint", "-9223372036854775808"),
    ("f4", "real", "1.5"),
    ("f8", "double precision", "0.1"),
    ("nu", "numeric(20, 5)", "123456789012345.12345"),
    ("te", "text", "E'quote '' tab \\t line \\n back \\\\ ü'"),
    ("vc", "varchar(10)", "'abc'"),
    ("by", "bytea", "'\\x00ff0a'"),
    ("da", "date", "'2026-02-28'"),
    ("ti", "time", "'12:34:56.789012'"),
    ("ts", "timestamp", "'2026-02-28 12:34:56.789012'"),
    ("tz", "timestamptz", "'2026-02-28 12:34:56.789012+05:30'"),
    ("iv", "interval", "'1 year 2 days 03:04:05.6'"),
    ("js", "jsonb", "'{\"a\": [1, null, \"x\"]}'"),
    ("uu", "uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
    ("ar", "integer[]", "'{1,NULL,3}'"),
    ("ta", "text[]", "ARRAY['a,b', 'c\"d', NULL]"),
];

/// What every type comes to, copied and followed.
async fn types(server: &Postgres, place: &Path) -> Result<(), Failure> {
    let there = server.client().await?;
    let list: Vec<String> = COLUMNS
        .iter()
        .map(|(name, data_type, _)| format!("{name} {data_type}"))
        .collect();
    let values: Vec<&str> = COLUMNS.iter().map(|(.., value)| *value).collect();
    let names: Vec<&str> = COLUMNS.iter().map(|(name, ..)| *name).collect();
    there
        .batch_execute(&format!(
            "CREATE TABLE types (id int PRIMARY KEY, {})",
            list.join(", ")
        ))
        .await?;
    let insert = |id: i32| format!("INSERT INTO types VALUES ({id}, {})", values.join(", "));
    there.batch_execute(&insert(1)).await?;
    there.batch_execute("INSERT INTO types (id) VALUES (2)").await?;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    run(&client, &source("types", server, "")).await?;
    run(
        &client,
        &format!(
            "CREATE TABLE t (id INT PRIMARY KEY, {}) FROM types TABLE 'types'",
            list.join(", ")
        ),
    )
    .await?;
    there.batch_execute(&insert(3)).await?;
    there.batch_execute("INSERT INTO types (id) VALUES (4)").await?;
    until(&client, "SELECT count(*) FROM t", "4").await?;
    for name in &names {
        let sql = |table: &str| format!("SELECT id, {name}::text FROM {table} ORDER BY id");
        there.batch_execute("SET timezone = 'UTC'").await?;
        let (expected, found) = (
            line(&there, &sql("types")).await?,
            line(&client, &sql("t")).await?,
        );
        if expected != found {
            return Err(format!("{name}: {found} instead of {expected}").into());
        }
    }
    // What does not fit is kept where it can be seen, and nothing else is lost.
    there
        .batch_execute(
            "CREATE TABLE wide (id int PRIMARY KEY, n numeric); INSERT INTO wide VALUES (1, 1), (2, 1e200)",
        )
        .await?;
    run(
        &client,
        "CREATE TABLE wide (id INT PRIMARY KEY, n NUMERIC(10, 0) CHECK (n <> 5)) FROM types TABLE 'wide'",
    )
    .await?;
    until(&client, "SELECT * FROM wide", "1 1").await?;
    there.batch_execute("INSERT INTO wide VALUES (3, 3), (4, 12345678901), (5, 5), (6, 6); UPDATE wide SET n = 2 WHERE id = 2").await?;
    until(&client, "SELECT * FROM wide ORDER BY id", "1 1, 2 2, 3 3, 6 6").await?;
    until(
        &client,
        "SELECT convert_from(key, 'UTF8'), left(convert_from(value, 'UTF8'), 7), code FROM \"types$errors\" ORDER BY 2",
        "public.wide [\"2\",\"1 22003, public.wide [\"4\",\"1 22003, public.wide [\"5\",\"5 23514",
    )
    .await?;
    // However many do not fit.
    there
        .batch_execute("CREATE TABLE misfits (id int PRIMARY KEY, n text); INSERT INTO misfits SELECT i, 'x' FROM generate_series(1, 30000) i")
        .await?;
    run(
        &client,
        "CREATE TABLE misfits (id INT PRIMARY KEY, n INT) FROM types TABLE 'misfits'",
    )
    .await?;
    there
        .batch_execute("UPDATE misfits SET n = id WHERE id > 29998")
        .await?;
    until(
        &client,
        "SELECT * FROM misfits ORDER BY id",
        "29999 29999, 30000 30000",
    )
    .await?;
    // A key that changes to a row that does not fit changes nothing.
    there.batch_execute("UPDATE misfits SET id = -1, n = 'y' WHERE id = 30000; UPDATE misfits SET n = '7' WHERE id = 29999").await?;
    until(
        &client,
        "SELECT * FROM misfits ORDER BY id",
        "29999 7, 30000 30000",
    )
    .await?;
    refused(&client, "PAUSE TABLE misfits", "is fed by stream types").await?;
    run(&client, "DROP STREAM types CASCADE").await?;
    ours.shutdown().await;
    Ok(())
}

async fn refusals(server: &Postgres, place: &Path) -> Result<(), Failure> {
    let there = server.client().await?;
    there
        .batch_execute(
            "CREATE TABLE plain (id int, v int); CREATE TABLE keyed (id int PRIMARY KEY, v int); CREATE ROLE nobody LOGIN",
        )
        .await?;
    there
        .batch_execute("SELECT pg_create_logical_replication_slot('taken_slot', 'pgoutput')")
        .await?;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    let good = source("bad", server, "");
    for (statement, expected) in [
        (
            good.replace("hostname = '127.0.0.1', ", ""),
            "needs option \"hostname\"",
        ),
        (
            good.replace("slot.name = 'bad_slot'", "slot.name = 'Bad-Slot'"),
            "slot.name",
        ),
        (
            good.replace("username = 'postgres'", "username = 'nobody'"),
            "may not follow changes",
        ),
        (
            good.replace("username = 'postgres'", "username = 'who'"),
            "role \"who\" does not exist",
        ),
        (
            good.replace("database.name = 'postgres'", "database.name = 'none'"),
            "database \"none\" does not exist",
        ),
        (good.replace("'bad_slot'", "'taken_slot'"), "already exists"),
        (
            good.replace(&format!("port = {}", server.port()), "port = 1"),
            "127.0.0.1:1",
        ),
        (source("bad", server, ", password = 'x'"), "password.env"),
        (source("bad", server, ", topic = 'x'"), "has no option \"topic\""),
        (
            good.replace("CREATE SOURCE bad", "CREATE SOURCE bad (a INT)"),
            "fixed columns",
        ),
        (
            good.replace("CREATE SOURCE bad", "CREATE TABLE bad (a INT)"),
            "CREATE SOURCE pg",
        ),
    ] {
        refused(&client, &statement, expected).await?;
    }
    // What a publication leaves out would be missed.
    there
        .batch_execute(
            "CREATE PUBLICATION some_kinds FOR TABLE keyed WITH (publish = 'insert'); CREATE PUBLICATION some_rows FOR TABLE keyed WHERE (id > 5)",
        )
        .await?;
    for (publication, expected) in [
        ("some_kinds", "does not publish all"),
        ("some_rows", "publishes some rows"),
    ] {
        let named = source("part", server, "").replace("part_publication", publication);
        run(&client, &named).await?;
        refused(
            &client,
            "CREATE TABLE t (id INT PRIMARY KEY, v INT) FROM part TABLE 'keyed'",
            expected,
        )
        .await?;
        run(&client, "DROP STREAM part").await?;
    }
    run(&client, &source("ok", server, "")).await?;
    run(&client, "CREATE STREAM other (a INT)").await?;
    for (statement, expected) in [
        (
            "CREATE TABLE t (id INT PRIMARY KEY, v INT) FROM ok TABLE 'missing'",
            "is not there",
        ),
        (
            "CREATE TABLE t (id INT PRIMARY KEY, w INT) FROM ok TABLE 'keyed'",
            "has no column \"w\"",
        ),
        (
            "CREATE TABLE t (id INT, v INT PRIMARY KEY) FROM ok TABLE 'keyed'",
            "do not include column \"v\"",
        ),
        (
            "CREATE TABLE t (id INT PRIMARY KEY, v INT) FROM ok TABLE 'plain'",
            "REPLICA IDENTITY FULL",
        ),
        (
            "CREATE TABLE t (id INT, v INT) FROM ok TABLE 'keyed'",
            "needs a primary key",
        ),
        (
            "CREATE TABLE t (id INT PRIMARY KEY) FROM other TABLE 'keyed'",
            "not the stream of a PostgreSQL server",
        ),
        (
            "CREATE TABLE t (id INT PRIMARY KEY) FROM nobody TABLE 'keyed'",
            "does not exist",
        ),
        (
            "BEGIN; CREATE TABLE t (id INT PRIMARY KEY) FROM ok TABLE 'keyed'",
            "transaction block",
        ),
    ] {
        refused(&client, statement, expected).await?;
        run(&client, "ROLLBACK").await?;
    }
    // Nothing is left of those, and the source goes on.
    run(
        &client,
        "CREATE TABLE t (id INT PRIMARY KEY, v INT) FROM ok TABLE 'keyed'",
    )
    .await?;
    there.batch_execute("INSERT INTO keyed VALUES (1, 2)").await?;
    until(&client, "SELECT * FROM t", "1 2").await?;
    for (statement, expected) in [
        ("INSERT INTO t VALUES (2, 2)", "cannot insert into table"),
        ("DELETE FROM t", "cannot delete from table"),
        (
            "INSERT INTO ok VALUES ('0/0', now(), 1)",
            "cannot insert into stream",
        ),
        ("ALTER TABLE t RENAME COLUMN v TO w", "cannot be renamed"),
    ] {
        refused(&client, statement, expected).await?;
    }
    // With all columns told, any of them can be the key.
    there
        .batch_execute("ALTER TABLE plain REPLICA IDENTITY FULL; INSERT INTO plain VALUES (1, 1)")
        .await?;
    run(
        &client,
        "CREATE TABLE p (id INT PRIMARY KEY, v INT) FROM ok TABLE 'plain'",
    )
    .await?;
    there.batch_execute("UPDATE plain SET id = 2").await?;
    until(&client, "SELECT * FROM p", "2 1").await?;
    run(&client, "DROP STREAM ok CASCADE").await?;
    there
        .batch_execute("SELECT pg_drop_replication_slot('taken_slot')")
        .await?;
    ours.shutdown().await;
    Ok(())
}

/// Slots that are gone or of somebody else.
async fn slots(server: &Postgres, place: &Path) -> Result<(), Failure> {
    let there = server.client().await?;
    there
        .batch_execute("CREATE TABLE slots (id int PRIMARY KEY)")
        .await?;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    run(&client, &source("slots", server, "")).await?;
    run(
        &client,
        "CREATE TABLE s (id INT PRIMARY KEY) FROM slots TABLE 'slots'",
    )
    .await?;
    there.batch_execute("INSERT INTO slots VALUES (1)").await?;
    until(&client, "SELECT id FROM s", "1").await?;
    run(&client, "PAUSE STREAM slots").await?;
    until(
        &there,
        "SELECT active FROM pg_replication_slots WHERE slot_name = 'slots_slot'",
        "f",
    )
    .await?;
    there
        .batch_execute("SELECT pg_drop_replication_slot('slots_slot')")
        .await?;
    there.batch_execute("INSERT INTO slots VALUES (2)").await?;
    run(&client, "RESUME STREAM slots").await?;
    let state = "SELECT state, split_part(error, ':', 1) FROM mr_catalog.sources WHERE name = 'slots'";
    until(&client, state, "failed slot \"slots_slot\" was dropped").await?;
    there
        .batch_execute("SELECT pg_create_logical_replication_slot('slots_slot', 'pgoutput')")
        .await?;
    run(&client, "RESUME STREAM slots").await?;
    until(
        &client,
        "SELECT state, error LIKE '%was recreated%' FROM mr_catalog.sources WHERE name = 'slots'",
        "failed t",
    )
    .await?;
    until(&client, "SELECT id FROM s", "1").await?;
    // To begin anew.
    run(&client, "DROP STREAM slots CASCADE").await?;
    run(&client, &source("slots", server, "")).await?;
    run(
        &client,
        "CREATE TABLE s (id INT PRIMARY KEY) FROM slots TABLE 'slots'",
    )
    .await?;
    until(&client, "SELECT id FROM s ORDER BY id", "1, 2").await?;
    run(&client, "DROP STREAM slots CASCADE").await?;
    ours.shutdown().await;
    Ok(())
}
