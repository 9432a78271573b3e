//! A password that is in a secret: a source and a sink log in by it, and follow it when it changes.

use std::path::Path;

use millrace_sql_tests::outside::until;
use millrace_sql_tests::postgres::Postgres;
use millrace_sql_tests::{Failure, connect, run, start};

use crate::refused;

pub(crate) async fn secrets(server: &Postgres, place: &Path) -> Result<(), Failure> {
    let there = server.client().await?;
    there
        .batch_execute(
            "CREATE ROLE keeper LOGIN SUPERUSER REPLICATION PASSWORD 'one';
             CREATE TABLE kept (id int PRIMARY KEY, v text); INSERT INTO kept VALUES (1, 'a');
             CREATE TABLE copies (id int PRIMARY KEY, v text)",
        )
        .await?;
    server.wants_password_of("keeper")?;
    let ours = start(place).await?;
    let client = connect(ours.pg_addr()).await?;
    let source = format!(
        "CREATE SOURCE pg WITH (connector = 'postgres-cdc', hostname = '127.0.0.1', port = {}, username = 'keeper',
         password = SECRET pw, database.name = 'postgres', slot.name = 'kept_slot', publication.name = 'kept_publication')",
        server.port()
    );
    run(&client, "CREATE SECRET pw AS 'wrong'").await?;
    refused(&client, &source, "password authentication failed").await?;
    run(&client, "ALTER SECRET pw AS 'one'").await?;
    run(&client, &source).await?;
    run(
        &client,
        "CREATE TABLE kept (id INT PRIMARY KEY, v TEXT) FROM pg TABLE 'kept'",
    )
    .await?;
    let sink = format!(
        "CREATE SINK copies FROM kept WITH (connector = 'postgres', host = '127.0.0.1', port = {}, user = 'keeper',
         password = SECRET pw, database = 'postgres', table = 'copies', type = 'upsert')",
        server.port()
    );
    run(&client, &sink).await?;
    until(&there, "SELECT * FROM copies", "1 a").await?;
    refused(&client, "DROP SECRET pw", "sink copies depends on secret pw").await?;

    // The password changes there, and whoever is in is sent away.
    let change = |password: &str| {
        format!(
            "ALTER ROLE keeper PASSWORD '{password}';
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'keeper'"
        )
    };
    there.batch_execute(&change("two")).await?;
    let failing =
        "SELECT count(*) FROM mr_catalog.sources WHERE error LIKE '%password authentication failed%'";
    until(&client, failing, "1").await?;
    there.batch_execute("INSERT INTO kept VALUES (2, 'b')").await?;
    run(&client, "ALTER SECRET pw AS 'two'").await?;
    until(&there, "SELECT * FROM copies ORDER BY id", "1 a, 2 b").await?;
    until(
        &client,
        "SELECT count(*) FROM mr_catalog.sources WHERE error IS NOT NULL",
        "0",
    )
    .await?;
    for sql in ["DROP SINK copies", "DROP STREAM pg CASCADE", "DROP SECRET pw"] {
        run(&client, sql).await?;
    }
    drop(client);
    ours.shutdown().await;
    Ok(())
}
