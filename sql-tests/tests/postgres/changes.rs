//! Columns that a table gets there, and not here: told, or taken.

use std::path::Path;

use millrace_sql_tests::outside::{line, until};
use millrace_sql_tests::postgres::Postgres;
use millrace_sql_tests::{Failure, connect, run, start};

use crate::{refused, source};

pub async fn changes(server: &Postgres, place: &Path) -> Result<(), Failure> {
    let there = server.client().await?;
    there
        .batch_execute(
            "CREATE TYPE mood AS ENUM ('sad', 'ok');
             CREATE TABLE drift (id int PRIMARY KEY, v text); INSERT INTO drift VALUES (1, 'a');
             CREATE TABLE calm (id int PRIMARY KEY, v text, w int); INSERT INTO calm VALUES (1, 'a', 5)",
        )
        .await?;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    for policy in ["add", "stop"] {
        let name = format!("pg_{policy}");
        run(
            &client,
            &source(&name, server, &format!(", schema_change = '{policy}'")),
        )
        .await?;
        run(
            &client,
            &format!(
                "CREATE TABLE {policy}_drift (id INT PRIMARY KEY, v TEXT) FROM {name} TABLE 'public.drift'"
            ),
        )
        .await?;
        run(
            &client,
            &format!(
                "CREATE MATERIALIZED VIEW {policy}_n AS SELECT count(*) AS n, max(v) AS v FROM {policy}_drift"
            ),
        )
        .await?;
    }
    // Of a table that is copied anew all columns are.
    run(
        &client,
        "CREATE TABLE calm (id INT PRIMARY KEY) FROM pg_add TABLE 'public.calm'",
    )
    .await?;
    until(&client, "SELECT id, v, w FROM calm", "1 a 5").await?;
    // What was committed before is there in any case, and once.
    there.batch_execute("INSERT INTO drift VALUES (2, 'b')").await?;
    there.batch_execute("INSERT INTO drift VALUES (3, 'c')").await?;
    // A transaction has changes of before and after.
    there
        .batch_execute(
            "INSERT INTO drift VALUES (5, 'Z'); UPDATE drift SET v = 'A' WHERE id = 5;
             ALTER TABLE drift ADD COLUMN n numeric(9, 2), ADD COLUMN at timestamptz, ADD COLUMN m mood, ADD COLUMN xs int[], ADD COLUMN t varchar(5);
             INSERT INTO drift VALUES (4, 'd', 1.5, '2024-02-29 12:00:00+00', 'ok', '{1,NULL}', 'x'); UPDATE drift SET n = 7 WHERE id = 1",
        )
        .await?;
    until(
        &client,
        "SELECT count(*) FROM information_schema.columns WHERE table_name = 'add_drift'",
        "7",
    )
    .await?;
    until(
        &client,
        "SELECT id, v, n, at = '2024-02-29 12:00:00+00', m, xs, t FROM add_drift ORDER BY id",
        "1 a 7.00 NULL NULL NULL NULL, 2 b NULL NULL NULL NULL NULL, 3 c NULL NULL NULL NULL NULL, 4 d 1.50 t ok {1,NULL} x, 5 A NULL NULL NULL NULL NULL",
    )
    .await?;
    until(&client, "SELECT n, v FROM add_n", "5 d").await?;
    until(
        &client,
        "SELECT state FROM mr_catalog.sources WHERE name = 'pg_stop'",
        "failed",
    )
    .await?;
    until(&client, "SELECT n, v FROM stop_n", "3 c").await?;
    let error = line(
        &client,
        "SELECT error FROM mr_catalog.sources WHERE name = 'pg_stop'",
    )
    .await?;
    for part in [
        "public.drift",
        "\"n\" (numeric(9, 2))",
        "\"at\" (timestamptz)",
        "\"xs\" (int4[])",
    ] {
        assert!(error.contains(part), "{error}");
    }
    for (name, of) in [
        ("n", "NUMERIC(9, 2)"),
        ("at", "TIMESTAMPTZ"),
        ("m", "TEXT"),
        ("xs", "INT[]"),
        ("t", "TEXT"),
    ] {
        run(&client, &format!("ALTER TABLE stop_drift ADD COLUMN {name} {of}")).await?;
    }
    until(&client, "SELECT n, v FROM stop_n", "5 d").await?;
    until(
        &client,
        "SELECT id, n, m FROM stop_drift WHERE n > 0 ORDER BY id",
        "1 7.00 NULL, 4 1.50 ok",
    )
    .await?;
    refused(
        &client,
        &source("pg_x", server, ", schema_change = 'perhaps'"),
        "'ignore', 'stop', 'add'",
    )
    .await?;
    drop(client);
    ours.shutdown().await;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    there
        .batch_execute("UPDATE drift SET n = n + 1 WHERE n > 0")
        .await?;
    for policy in ["add", "stop"] {
        until(
            &client,
            &format!("SELECT id, n FROM {policy}_drift WHERE n > 0 ORDER BY id"),
            "1 8.00, 4 2.50",
        )
        .await?;
        run(&client, &format!("DROP STREAM pg_{policy} CASCADE")).await?;
    }
    drop(client);
    ours.shutdown().await;
    Ok(())
}
