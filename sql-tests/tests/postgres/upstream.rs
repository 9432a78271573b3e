//! Tables that are not what they were when they were copied, and tables that cannot be copied.

use std::path::Path;

use millrace_sql_tests::outside::{line, until};
use millrace_sql_tests::postgres::Postgres;
use millrace_sql_tests::{Failure, connect, run, start};

use super::{refused, source};

/// Whoever makes a table that cannot be copied hears why, and can stop waiting; nothing is left of it.
pub async fn copies(server: &Postgres, place: &Path) -> Result<(), Failure> {
    let there = server.client().await?;
    there
        .batch_execute(
            "CREATE TABLE hidden (id int PRIMARY KEY, v int); CREATE TABLE seen (id int PRIMARY KEY, v int);
             CREATE TABLE policed (id int PRIMARY KEY); ALTER TABLE policed ENABLE ROW LEVEL SECURITY;
             CREATE POLICY partial ON policed USING (id > 1); INSERT INTO policed VALUES (1), (2);
             CREATE ROLE reader LOGIN REPLICATION; GRANT SELECT ON seen, policed TO reader; GRANT SELECT (id) ON hidden TO reader;
             CREATE PUBLICATION copies_publication FOR TABLE hidden, seen, policed WITH (publish_via_partition_root = true)",
        )
        .await?;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    let as_reader = source("copies", server, "").replace("username = 'postgres'", "username = 'reader'");
    run(&client, &as_reader).await?;
    let hidden = "CREATE TABLE hidden (id INT PRIMARY KEY, v INT) FROM copies TABLE 'public.hidden'";
    refused(&client, hidden, "may not read public.hidden").await?;
    // Policies would hide rows from it in silence.
    refused(
        &client,
        "CREATE TABLE policed (id INT PRIMARY KEY) FROM copies TABLE 'policed'",
        "row-level security",
    )
    .await?;
    // Columns that it may read are enough.
    run(
        &client,
        "CREATE TABLE some_of_it (id INT PRIMARY KEY) FROM copies TABLE 'hidden'",
    )
    .await?;
    run(
        &client,
        "CREATE TABLE seen (id INT PRIMARY KEY, v INT) FROM copies TABLE 'seen'",
    )
    .await?;
    there.batch_execute("INSERT INTO seen VALUES (1, 1)").await?;
    until(&client, "SELECT * FROM seen", "1 1").await?;
    // Somebody keeps the table there, and the copy waits: until the statement is ended, or the table is gone.
    there
        .batch_execute("CREATE TABLE unread (id int PRIMARY KEY); GRANT SELECT ON unread TO reader")
        .await?;
    there
        .batch_execute("ALTER PUBLICATION copies_publication ADD TABLE unread")
        .await?;
    let keeper = server.client().await?;
    keeper.batch_execute("BEGIN; LOCK TABLE unread").await?;
    let unread = "CREATE TABLE unread (id INT PRIMARY KEY) FROM copies TABLE 'unread'";
    run(&client, "SET statement_timeout = '1s'").await?;
    refused(&client, unread, "statement timeout").await?;
    until(
        &client,
        "SELECT count(*) FROM pg_class WHERE relname = 'unread'",
        "0",
    )
    .await?;
    run(&client, "SET statement_timeout = 0").await?;
    let other = connect(ours.pg_addr()).await?;
    let dropping = async {
        until(
            &other,
            "SELECT count(*) FROM pg_class WHERE relname = 'unread'",
            "1",
        )
        .await?;
        run(&other, "DROP TABLE unread").await
    };
    let (created, dropped) = tokio::join!(
        refused(&client, unread, "was dropped while it was filled"),
        dropping
    );
    created?;
    dropped?;
    keeper.batch_execute("ROLLBACK").await?;
    run(&client, unread).await?;
    run(&client, "DROP STREAM copies CASCADE").await?;
    ours.shutdown().await;
    Ok(())
}

/// Nothing is left out in silence of a table that is another one upstream, or is published otherwise.
pub async fn replaced(server: &Postgres, place: &Path) -> Result<(), Failure> {
    let there = server.client().await?;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    run(&client, &source("replaced", server, "")).await?;
    let state = "SELECT state FROM mr_catalog.sources WHERE name = 'replaced'";
    let held_back = "SELECT lag_bytes >= 0 FROM mr_catalog.sources WHERE name = 'replaced'";
    for (change, expected) in [
        (
            "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v int); ALTER PUBLICATION replaced_publication ADD TABLE t",
            "dropped, renamed or recreated",
        ),
        (
            "ALTER TABLE t RENAME TO t_old; CREATE TABLE t (LIKE t_old INCLUDING ALL);
             ALTER PUBLICATION replaced_publication ADD TABLE t; INSERT INTO t VALUES (9, 9)",
            "dropped, renamed or recreated",
        ),
        (
            "ALTER TABLE t RENAME TO t_new; INSERT INTO t_new VALUES (9, 9)",
            "dropped, renamed or recreated",
        ),
        ("DROP TABLE t", "dropped, renamed or recreated"),
        (
            "ALTER PUBLICATION replaced_publication DROP TABLE t",
            "does not publish",
        ),
        (
            "ALTER PUBLICATION replaced_publication SET (publish = 'insert')",
            "does not publish all",
        ),
        (
            "ALTER PUBLICATION replaced_publication SET TABLE t WHERE (id > 5)",
            "publishes some rows",
        ),
        (
            "ALTER PUBLICATION replaced_publication SET TABLE t (id)",
            "publishes some columns",
        ),
    ] {
        there
            .batch_execute("DROP TABLE IF EXISTS t, t_old, t_new; CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)")
            .await?;
        run(
            &client,
            "CREATE TABLE t (id INT PRIMARY KEY, v INT) FROM replaced TABLE 't'",
        )
        .await?;
        assert_eq!(line(&client, "SELECT * FROM t").await?, "1 1");
        there.batch_execute(change).await?;
        until(&client, state, "failed").await?;
        let error = line(
            &client,
            "SELECT error FROM mr_catalog.sources WHERE name = 'replaced'",
        )
        .await?;
        assert!(error.contains(expected), "{change}: {error}");
        // What is held back there is known of one that reads nothing, too.
        until(&client, held_back, "t").await?;
        // What was said is done.
        run(&client, "DROP TABLE t").await?;
        there
            .batch_execute(
                "ALTER PUBLICATION replaced_publication SET (publish = 'insert, update, delete, truncate')",
            )
            .await?;
        there
            .batch_execute("DROP TABLE IF EXISTS t, t_old, t_new")
            .await?;
        run(&client, "RESUME STREAM replaced").await?;
        until(&client, state, "running").await?;
    }
    run(&client, "PAUSE STREAM replaced").await?;
    until(&client, state, "paused").await?;
    until(&client, held_back, "t").await?;
    run(&client, "RESUME STREAM replaced").await?;
    until(&client, state, "running").await?;
    run(&client, "DROP STREAM replaced CASCADE").await?;
    ours.shutdown().await;
    Ok(())
}
