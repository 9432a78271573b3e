//! The relations of the test: what writers write, the views and sinks over it.

use std::net::SocketAddr;
use std::path::Path;

use crate::{Failure, connect, run};

/// Connections that commit transactions.
pub const SQL_WRITERS: u64 = 3;

/// The view of which nothing is taken back.
pub const LOOKED_UP: &str = "SELECT e.id, a.version FROM event e JOIN account FOR SYSTEM_TIME AS OF PROCTIME() AS a \
                         ON e.writer = a.writer";

/// The views, and the queries that they must equal.
pub const VIEWS: [(&str, &str); 10] = [
    (
        "per_writer",
        "SELECT writer, count(*) AS n, sum(amount) AS total, max(id) AS last FROM event GROUP BY writer",
    ),
    (
        "named",
        "SELECT e.id, a.version FROM event e JOIN account a ON e.writer = a.writer WHERE e.amount > 50",
    ),
    ("busy", "SELECT writer, total FROM per_writer WHERE n > 3"),
    (
        "all_accounts",
        "SELECT a.writer, a.version, count(e.id) AS n, min(e.amount) AS least FROM account a \
         LEFT JOIN event e ON e.writer = a.writer AND e.amount < 20 GROUP BY a.writer, a.version",
    ),
    (
        "largest",
        "SELECT writer, id, amount FROM (SELECT writer, id, amount, row_number() OVER (PARTITION BY writer \
         ORDER BY amount DESC, id) AS place FROM event) WHERE place <= 3",
    ),
    ("amounts", "SELECT DISTINCT amount FROM event"),
    (
        "unpaired",
        "SELECT id FROM event WHERE amount = 7 AND id NOT IN (SELECT id FROM paired WHERE id % 2 = 0)",
    ),
    (
        "before",
        "SELECT id, lag(id) OVER (PARTITION BY writer ORDER BY id) AS earlier FROM event WHERE amount > 90",
    ),
    (
        "newest",
        "SELECT n.writer, n.id, e.amount FROM newest_of n JOIN event e ON e.id = n.id",
    ),
    (
        "posts",
        "SELECT amount, count(*) AS n, max(id) AS last FROM posted GROUP BY amount",
    ),
];

/// Sinks: what each is of, its type and format, the columns of its files, and the query that they must equal.
pub const SINKS: [(&str, &str, &str, &str, &str); 4] = [
    (
        "FROM event",
        "append-only",
        "CSV",
        "id BIGINT, writer BIGINT, amount INT",
        "SELECT id, writer, amount FROM event",
    ),
    (
        "AS SELECT id, amount FROM event WHERE amount > 50",
        "append-only",
        "JSON",
        "id BIGINT, amount INT",
        "SELECT id, amount FROM event WHERE amount > 50",
    ),
    (
        "FROM per_writer",
        "changelog",
        "JSON",
        "writer BIGINT, n BIGINT, total BIGINT, last BIGINT",
        "SELECT writer, n, total, last FROM per_writer",
    ),
    (
        "FROM account",
        "changelog",
        "PARQUET",
        "writer BIGINT, last BIGINT, version INT",
        "SELECT writer, last, version FROM account",
    ),
];

/// What the views are that come and go.
pub const PASSING: &str = "SELECT writer, count(*) AS n, sum(amount) AS total FROM event GROUP BY writer";

/// Makes the folders that sinks write to.
///
/// # Errors
/// The file system refuses.
pub fn folders(sinks: &Path) -> std::io::Result<()> {
    (0..SINKS.len()).try_for_each(|place| std::fs::create_dir(sinks.join(place.to_string())))
}

/// Makes everything that there is from the beginning, but for [`folders`].
///
/// # Errors
/// The server refuses a statement.
pub async fn create(address: SocketAddr, sinks: &Path) -> Result<(), Failure> {
    let client = connect(address).await?;
    run(
        &client,
        "CREATE STREAM event (id BIGINT NOT NULL, writer BIGINT, amount INT)",
    )
    .await?;
    run(
        &client,
        "CREATE TABLE account (writer BIGINT PRIMARY KEY, last BIGINT, version INT)",
    )
    .await?;
    run(&client, "CREATE TABLE paired (id BIGINT PRIMARY KEY)").await?;
    run(
        &client,
        "CREATE TABLE newest_of (id BIGINT PRIMARY KEY, writer BIGINT)",
    )
    .await?;
    run(&client, "CREATE STREAM posted (id BIGINT NOT NULL, amount INT)").await?;
    for (name, query) in VIEWS {
        run(&client, &format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await?;
    }
    run(
        &client,
        &format!("CREATE MATERIALIZED VIEW looked_up AS {LOOKED_UP}"),
    )
    .await?;
    for (place, (input, sink_type, format, ..)) in SINKS.iter().enumerate() {
        let path = sinks.join(place.to_string());
        let sql = format!(
            "CREATE SINK sink_{place} {input} WITH (connector = 'file', path = '{}', type = '{sink_type}', \
             rollover_seconds = 0) FORMAT PLAIN ENCODE {format}",
            path.display()
        );
        run(&client, &sql).await?;
    }
    for writer in 0..SQL_WRITERS {
        run(&client, &format!("INSERT INTO account VALUES ({writer}, 0, 0)")).await?;
    }
    Ok(())
}
