//! The data directory is its owner's alone: every directory in it is 0700 and every file 0600, whatever has been done; and so is a backup.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use millrace_auth::seal::SealingKey;
use millrace_cli::test::throw_away;
use millrace_wire::Server;
use millrace_wire::config::Config;
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::http::{basic, request};
use crate::{Fixture, PASSWORD, rows};

/// The files below a directory, all of which are closed to others.
fn closed_files(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![directory.to_owned()];
    while let Some(path) = next.pop() {
        // One that is gone meanwhile was somebody's who worked on.
        let Ok(metadata) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        let mode = metadata.permissions().mode() & 0o7777;
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{} has mode {mode:o}", path.display());
        if metadata.is_dir() {
            let entries = std::fs::read_dir(&path).into_iter().flatten();
            next.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
        } else {
            found.insert(path.strip_prefix(directory).unwrap().display().to_string());
        }
    }
    found
}

async fn start(directory: &TempDir, data: &Path) -> Fixture {
    let config = Config {
        password: Some(PASSWORD.to_owned()),
        secrets_key: Some(SealingKey::parse(&"ab".repeat(32)).unwrap()),
        workers: Some(2),
        ..throw_away(data)
    };
    Fixture {
        server: Server::start(config).await.unwrap(),
        directory: tempfile::tempdir_in(directory.path()).unwrap(),
    }
}

async fn ok(client: &Client, sql: &str) {
    rows(client, sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_the_data_directory_is_open_to_others() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let out = directory.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let fixture = start(&directory, &data).await;
    let first = fixture.first().await;
    let sink = format!(
        "CREATE SINK files FROM totals WITH (connector = 'file', path = '{}', type = 'changelog') FORMAT PLAIN ENCODE JSON",
        out.display()
    );
    for sql in [
        "CREATE USER ann PASSWORD 'ann'",
        "CREATE SECRET pw AS 'open'",
        "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)",
        "CREATE TABLE numbered (id serial PRIMARY KEY, of INT REFERENCES t)",
        "CREATE STREAM s (a BIGINT, g INT)",
        "CREATE STREAM made (n BIGINT) WITH (connector = 'datagen', rows = 100)",
        "INSERT INTO t SELECT g, repeat('x', 200) || g FROM generate_series(1, 20000) AS x(g)",
        "INSERT INTO numbered (of) SELECT id FROM t LIMIT 100",
        "INSERT INTO s SELECT g, g % 10 FROM generate_series(1, 5000) AS x(g)",
        "CREATE INDEX by_value ON t (v)",
        "CREATE MATERIALIZED VIEW totals AS SELECT g, count(*) AS n, max(v) AS v FROM s JOIN t ON a = id GROUP BY g",
        "CREATE MATERIALIZED VIEW tops AS SELECT * FROM totals ORDER BY n DESC LIMIT 3",
        "CREATE STREAM hook (a INT) WITH (connector = 'webhook', signature = 'token', secret = SECRET pw)",
        &sink,
        "UPDATE t SET v = 'y' || v WHERE id < 1000",
        "DELETE FROM t WHERE id > 19000",
        "ALTER TABLE t ADD COLUMN more INT",
        "ALTER SYSTEM SET checkpoint_interval = '100ms'",
        "FLUSH",
        "CHECKPOINT",
        "ADD WORKER",
        "TRUNCATE numbered",
    ] {
        ok(&first, sql).await;
    }
    let http = fixture.server.http_addr();
    let lines = "{\"a\": 7, \"g\": 1}\n";
    let authorization = Some(basic("millrace", PASSWORD));
    let (path, kind) = ("/api/ingest/s", "application/x-ndjson");
    let sent = request(http, "POST", path, authorization.as_deref(), kind, lines).await;
    assert_eq!(sent.status, 200, "{}", sent.body);
    // A query with little room; what it has on disk has no name, as nobody else is to find it.
    ok(&first, "ALTER ROLE ann SET (memory_limit = '32MB')").await;
    let ann = fixture.role("ann").await;
    ok(&ann, "BEGIN").await;
    ok(&ann, "DECLARE c CURSOR FOR SELECT repeat('x', 200) || g AS v FROM generate_series(1, 300000) AS x(g) ORDER BY v").await;
    ok(&ann, "FETCH 10 FROM c").await;
    let found = closed_files(&data);
    let has = |part: &str| found.iter().any(|path| path.contains(part));
    for part in [
        "log/",
        "checkpoints/",
        "catalog.journal",
        "catalog.sled/",
        "sinks/",
        "LOCK",
    ] {
        assert!(has(part), "no {part} in {found:#?}");
    }
    ok(&ann, "ROLLBACK").await;
    let backup = directory.path().join("backup");
    ok(&first, &format!("BACKUP TO '{}'", backup.display())).await;
    assert!(!closed_files(&backup).is_empty());
    ok(&first, "CHECKPOINT").await;
    drop((ann, first));
    fixture.server.shutdown().await;
    closed_files(&data);

    // A start writes files, too, and opens nothing that others have left open.
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let restored = directory.path().join("restored");
    millrace_storage::restore(&backup, &restored).unwrap();
    for data in [&data, &restored] {
        closed_or_restored(&directory, data).await;
    }
}

async fn closed_or_restored(directory: &TempDir, data: &Path) {
    let fixture = start(directory, data).await;
    let first = fixture.first().await;
    assert_eq!(rows(&first, "SELECT count(*) FROM t").await.unwrap(), ["19000"]);
    ok(&first, "INSERT INTO t VALUES (100000, 'z', 1)").await;
    ok(&first, "CHECKPOINT").await;
    closed_files(data);
    fixture.server.shutdown().await;
    closed_files(data);
}
