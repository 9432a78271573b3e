//! The console from outside: what a browser gets without a login, and that the dashboard in `docs/` asks for what there is. The page
//! itself is driven by a browser, in `server/console/web/test`.

use std::collections::BTreeSet;

use millrace_cli::test::throw_away;
use millrace_sql_tests::{connect, rows, run, start};
use millrace_wire::Server;

/// The names of our metrics in a text.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_part =
        |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_';
    text.split(|character| !is_part(character))
        .filter(|word| word.starts_with("millrace_"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_and_the_alerts_ask_for_metrics_that_exist() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = throw_away(&directory.path().join("data"));
    // There are metrics of a copy where one is kept.
    config.log_url = Some(format!("file://{}", directory.path().join("copy").display()));
    let server = Server::start(config).await.unwrap();
    let client = connect(server.pg_addr()).await.unwrap();
    run(&client, "SELECT 1").await.unwrap();
    let known = metrics(&server.metrics().render());
    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../../../docs/grafana/millrace.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut asked = BTreeSet::new();
    for panel in panels {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let found = metrics(target["expr"].as_str().unwrap());
            assert!(!found.is_empty(), "{target}");
            asked.extend(found);
        }
    }
    let alerts = metrics(include_str!("../../../docs/prometheus/alerts.yml"));
    assert!(alerts.len() > 8, "{alerts:?}");
    asked.extend(alerts);
    let missing: Vec<&String> = asked.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?} of {known:?}");
    assert!(asked.len() > 40, "{}", asked.len());
    server.shutdown().await;
}

/// What the page draws the graph from.
#[tokio::test(flavor = "multi_thread")]
async fn relations_tell_what_flows_through_them() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await.unwrap();
    let client = connect(server.pg_addr()).await.unwrap();
    for statement in [
        "CREATE STREAM orders (customer INT, amount INT, ts TIMESTAMPTZ, WATERMARK FOR ts AS ts - INTERVAL '5 seconds') WITH (late = 'stream')",
        "CREATE TABLE customers (id INT PRIMARY KEY, country TEXT)",
        "CREATE VIEW plain AS SELECT id FROM customers",
        "CREATE MATERIALIZED VIEW revenue AS SELECT c.country, sum(o.amount) AS total FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.country",
        "CREATE MATERIALIZED VIEW best AS SELECT * FROM revenue WHERE total > 10",
        "CREATE TEMPORARY TABLE mine (a INT)",
        "INSERT INTO customers VALUES (1, 'CH'), (2, 'IT')",
        "INSERT INTO orders VALUES (1, 40, '2026-01-01'), (2, 5, '2026-01-01')",
        "SELECT * FROM best",
    ] {
        rows(&client, statement).await.unwrap();
    }
    let text = |rows: Vec<Vec<Option<String>>>| -> Vec<String> {
        let line = |row: &Vec<Option<String>>| {
            let cells = row.iter().map(|cell| cell.as_deref().unwrap_or("-"));
            cells.collect::<Vec<_>>().join(" ")
        };
        rows.iter().map(line).collect()
    };
    let sql = "SELECT name, kind, state, rows, changes, pipeline IS NOT NULL, busy_us > 0, freshness_us > 0, watermark IS NOT NULL \
               FROM mr_catalog.relations ORDER BY id";
    let found = text(rows(&client, sql).await.unwrap());
    assert_eq!(
        found,
        [
            "orders stream - 2 2 t - - t",
            "orders$late stream - 0 0 t - - f",
            "customers table - 2 2 t - - f",
            "plain view - - - f - - f",
            "revenue materialized view running 2 2 t t t f",
            "best materialized view running 1 1 t t t f",
        ]
    );
    let sql = "SELECT r.name, f.name, d.what FROM mr_catalog.dependencies d JOIN mr_catalog.relations r ON r.id = d.relation \
               JOIN mr_catalog.relations f ON f.id = d.reads ORDER BY 1, 2";
    let found = text(rows(&client, sql).await.unwrap());
    assert_eq!(
        found,
        [
            "best revenue rows",
            "orders$late orders late rows",
            "plain customers rows",
            "revenue customers rows",
            "revenue orders rows",
        ]
    );
    let sql = "SELECT class, monotasks > 0, busy_us > 0 FROM mr_catalog.cpu";
    let found = text(rows(&client, sql).await.unwrap());
    assert_eq!(found.len(), 3);
    assert_eq!(found[0], "stream t t");
    server.shutdown().await;
}

/// A view whose tasks wait for each other most of the time: what waits is not busy, or cores would be used that there are not.
#[tokio::test(flavor = "multi_thread")]
async fn views_are_not_busier_than_the_cores() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await.unwrap();
    let client = connect(server.pg_addr()).await.unwrap();
    for statement in [
        "CREATE TABLE big (k INT, t TEXT)",
        "INSERT INTO big SELECT i % 100, 'text ' || i FROM generate_series(1, 20000) AS g(i)",
        "CREATE STREAM s (id INT, v INT)",
        "CREATE MATERIALIZED VIEW many AS SELECT s.id % 10 AS g, count(*) AS c, max(d.t || s.id) AS m FROM s JOIN big d ON s.v = d.k GROUP BY 1",
        "INSERT INTO s SELECT i, i % 100 FROM generate_series(1, 1000) AS g(i)",
        "SELECT * FROM many",
    ] {
        rows(&client, statement).await.unwrap();
    }
    let mut micros = vec![];
    for statement in [
        "SELECT sum(busy_us)::float8 FROM mr_catalog.relations",
        "SELECT sum(busy_us)::float8 FROM mr_catalog.cpu",
    ] {
        let found = rows(&client, statement).await.unwrap();
        micros.push(found[0][0].as_deref().unwrap().parse::<f64>().unwrap());
    }
    assert!(micros[0] > 0.0 && micros[0] <= micros[1], "{micros:?}");
    server.shutdown().await;
}

/// Why a view has failed is known after a restart as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_view_says_why_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let error = "SELECT error FROM mr_catalog.relations WHERE name = 'quotients'";
    let server = start(directory.path()).await.unwrap();
    let client = connect(server.pg_addr()).await.unwrap();
    for statement in [
        "CREATE TABLE z (v INT)",
        "CREATE MATERIALIZED VIEW quotients WITH (on_error = 'fail') AS SELECT 10 / v AS q FROM z",
        "INSERT INTO z VALUES (0)",
    ] {
        run(&client, statement).await.unwrap();
    }
    run(&client, "SELECT * FROM quotients").await.unwrap_err();
    let before = rows(&client, error).await.unwrap()[0][0].clone().unwrap();
    drop(client);
    server.shutdown().await;
    let server = start(directory.path()).await.unwrap();
    let client = connect(server.pg_addr()).await.unwrap();
    let after = rows(&client, error).await.unwrap()[0][0].clone().unwrap();
    assert!(before.ends_with("division by zero"), "{before}");
    assert!(after.contains(&before), "{after}");
    server.shutdown().await;
}
