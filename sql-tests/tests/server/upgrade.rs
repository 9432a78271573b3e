//! Data directories that earlier versions wrote: this version opens them with each view as it was, none failed, none filled
//! again, and keeps them right from there on.
//!
//! `fixtures/` has such directories, one for each time a format changed, and the script that makes them. Each was written
//! by a server that was killed: part of its rows is only in the log, whose end is torn.

use std::path::{Path, PathBuf};
use std::process::Command;

use millrace_oracle::text::TextRow;
use millrace_sql_tests::{connect, rows, run, sorted_rows, start};
use tokio_postgres::Client;

/// Views that a fresh copy of their query does not equal: they remember what their inputs no longer have, or show less than
/// there is until their time comes.
const REMEMBER: [&str; 4] = ["v_close", "v_every", "v_forgets", "v_lookup"];

/// What changes when the directory has been opened: something in the inputs of each view.
const CHANGES: &str = "
    INSERT INTO item VALUES (4, 'dog', 40.40, ARRAY['d'], '2022-02-02'), (9, 'owl', 90, NULL, NULL);
    UPDATE item SET name = 'APE', cost = cost * 2, tags = ARRAY['z', 'b'] WHERE id = 1;
    DELETE FROM item WHERE id = 8;
    UPDATE plain SET v = v + 100 WHERE k = 2;
    DELETE FROM plain WHERE note = 'n1' OR v IS NULL;
    INSERT INTO plain VALUES (1, 77, 'new', '{\"b\": 1, \"a\": \"late\"}'), (9, -7, NULL, NULL);
    INSERT INTO edge VALUES (6, 2), (5, 1);
    DELETE FROM edge WHERE src = 1;
    INSERT INTO bid VALUES (1, 500, '2026-01-01 00:03:25'), (2, 600, '2026-01-01 00:03:40');
    INSERT INTO ask VALUES (1, 501, '2026-01-01 00:03:26'), (2, 601, '2026-01-01 00:04:40');
    INSERT INTO forgets VALUES (1, 100);
    FLUSH;";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// The names of the views and their queries, as `definitions.sql` has them.
fn views() -> Vec<(String, String)> {
    std::fs::read_to_string(fixtures().join("definitions.sql"))
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("CREATE MATERIALIZED VIEW "))
        .filter_map(|line| line.trim_end_matches(';').split_once(" AS "))
        .map(|(name, query)| (name.to_owned(), query.to_owned()))
        .collect()
}

/// Rows as psql prints them without alignment: NULL is nothing, between columns is a `|`.
async fn printed(client: &Client, view: &str) -> Vec<String> {
    let print = |row: TextRow| {
        row.into_iter().fold(view.to_owned(), |line, value| {
            line + "|" + value.as_deref().unwrap_or("")
        })
    };
    let mut lines: Vec<String> = rows(client, &format!("SELECT * FROM {view}"))
        .await
        .unwrap()
        .into_iter()
        .map(print)
        .collect();
    lines.sort();
    lines
}

async fn assert_restored(client: &Client, release: &str, expected: &[&str]) {
    let none: Vec<TextRow> = Vec::new();
    let lost = "SELECT view, state, why_filled FROM mr_catalog.recovery WHERE state <> 'restored'";
    assert_eq!(rows(client, lost).await.unwrap(), none, "{release}");
    let filled = "SELECT * FROM mr_catalog.jobs";
    assert_eq!(rows(client, filled).await.unwrap(), none, "{release}");
    for (view, _) in views() {
        let prefix = format!("{view}|");
        let expected: Vec<&str> = expected
            .iter()
            .copied()
            .filter(|line| line.starts_with(&prefix))
            .collect();
        assert!(!expected.is_empty(), "{release}: {view} has rows");
        assert_eq!(printed(client, &view).await, expected, "{release}: {view}");
    }
    let sinks = "SELECT name FROM mr_catalog.sinks ORDER BY name";
    assert_eq!(
        rows(client, sinks).await.unwrap().concat(),
        ["s_forgets", "s_items"].map(|name| Some(name.to_owned())),
        "{release}"
    );
}

async fn check(release: &str, archive: &Path) {
    let text = std::fs::read_to_string(archive.with_file_name(format!("{release}.txt"))).unwrap();
    let mut expected: Vec<&str> = text.lines().collect();
    expected.sort_unstable();
    let directory = tempfile::tempdir().unwrap();
    let unpacked = Command::new("tar")
        .arg("-xzf")
        .arg(archive)
        .arg("-C")
        .arg(directory.path())
        .status()
        .unwrap();
    assert!(unpacked.success(), "{release}");
    let data = directory.path().join("data");

    // Twice: what the first start wrote is read by the second.
    for _ in 0..2 {
        let server = start(&data).await.unwrap();
        let client = connect(server.pg_addr()).await.unwrap();
        assert_restored(&client, release, &expected).await;
        drop(client);
        server.shutdown().await;
    }

    let server = start(&data).await.unwrap();
    let client = connect(server.pg_addr()).await.unwrap();
    for change in CHANGES.split_inclusive(';') {
        run(&client, change).await.unwrap();
    }
    for (view, query) in views() {
        if REMEMBER.contains(&view.as_str()) {
            continue;
        }
        run(&client, &format!("CREATE MATERIALIZED VIEW again AS {query}"))
            .await
            .unwrap();
        let [kept, fresh] = [view.as_str(), "again"].map(|view| format!("SELECT * FROM {view}"));
        assert_eq!(
            sorted_rows(&client, &kept).await.unwrap(),
            sorted_rows(&client, &fresh).await.unwrap(),
            "{release}: {view} is kept right"
        );
        run(&client, "DROP MATERIALIZED VIEW again").await.unwrap();
    }
    let sums = |lines: &[&str]| -> (i64, i64) {
        let number = |text: &str| text.parse::<i64>().unwrap();
        lines
            .iter()
            .filter_map(|line| line.strip_prefix("v_forgets|"))
            .map(|line| line.split('|').collect::<Vec<&str>>())
            .fold((0, 0), |(n, s), row| (n + number(row[1]), s + number(row[2])))
    };
    let (n, s) = sums(&expected);
    let now = printed(&client, "v_forgets").await;
    let now: Vec<&str> = now.iter().map(String::as_str).collect();
    assert_eq!(
        sums(&now),
        (n + 1, s + 100),
        "{release}: what was forgotten still counts"
    );
    drop(client);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_of_earlier_versions_open_with_their_views() {
    let mut checked = 0;
    let mut archives: Vec<PathBuf> = std::fs::read_dir(fixtures().join("data"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    archives.sort();
    for archive in archives {
        let name = archive.file_name().unwrap().to_str().unwrap();
        if let Some(release) = name.strip_suffix(".tar.gz") {
            check(release, &archive).await;
            checked += 1;
        }
    }
    assert!(checked > 0, "there are directories to open");
}
