//! Sinks: what their files hold, over restarts too, and what is refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::tests::Fixture;

/// The files of a directory with their contents, hidden ones too.
fn files(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            let bytes = std::fs::read(entry.path()).unwrap();
            (name, String::from_utf8_lossy(&bytes).into_owned())
        })
        .collect()
}

/// The lines of all files, in their order.
fn lines(directory: &Path) -> Vec<String> {
    let files = files(directory).into_values();
    files
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

fn with(directory: &Path, rest: &str) -> String {
    format!(
        "WITH (connector = 'file', path = '{}', rollover_seconds = 0 {rest})",
        directory.display()
    )
}

struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Directory {
        Directory(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_only_sink_writes_each_row_once() {
    let out = Directory::new();
    let f = Fixture::new().await;
    f.ok("CREATE STREAM s (a BIGINT, t TEXT)").await;
    f.ok("INSERT INTO s VALUES (1, 'x'), (2, NULL)").await;
    f.ok("CREATE MATERIALIZED VIEW mv AS SELECT a * 10 AS a, t FROM s")
        .await;
    f.ok(&format!(
        "CREATE SINK k FROM mv {} FORMAT PLAIN ENCODE JSON",
        with(&out.path(), "")
    ))
    .await;
    f.ok("FLUSH").await;
    assert_eq!(
        lines(&out.path()),
        [r#"{"a":10,"t":"x"}"#, r#"{"a":20,"t":null}"#]
    );
    f.ok("INSERT INTO s VALUES (3, 'a\"b')").await;
    f.ok("FLUSH").await;
    let before = lines(&out.path());
    assert_eq!(before.last().unwrap(), r#"{"a":30,"t":"a\"b"}"#);
    let shown = "SELECT name, relation, type, format, state, rows, error FROM mr_catalog.sinks";
    assert_eq!(f.ok(shown).await, ["k|mv|append-only|json|running|3|null"]);
    assert_eq!(
        f.ok("SHOW SINKS").await,
        ["k|public|null|running|null|exactly_once"]
    );
    let f = f.restart().await;
    f.ok("FLUSH").await;
    assert_eq!(lines(&out.path()), before);
    f.ok("INSERT INTO s VALUES (1, 'x')").await;
    f.ok("FLUSH").await;
    assert_eq!(lines(&out.path()).len(), 4);
    assert_eq!(f.ok(shown).await, ["k|mv|append-only|json|running|4|null"]);
    let columns = "SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = \
                   (SELECT oid FROM pg_catalog.pg_class WHERE relname = 'k' AND relkind = 'f') ORDER BY attnum";
    assert_eq!(f.ok(columns).await, ["a", "t"]);
    // What psql's \d asks of foreign tables.
    let described = "SELECT s.srvname, pg_catalog.array_to_string(ARRAY(SELECT pg_catalog.quote_ident(option_name) \
                     FROM pg_catalog.pg_options_to_table(ftoptions)), ', ') FROM pg_catalog.pg_foreign_table f, \
                     pg_catalog.pg_foreign_server s WHERE f.ftrelid = (SELECT oid FROM pg_catalog.pg_class WHERE \
                     relname = 'k' AND relkind = 'f') AND s.oid = f.ftserver";
    assert_eq!(f.ok(described).await, ["files|"]);
    assert!(
        f.error("DROP MATERIALIZED VIEW mv")
            .await
            .message
            .contains("depend on it")
    );
    f.ok("DROP SINK k").await;
    f.ok("INSERT INTO s VALUES (5, 'x')").await;
    f.ok("FLUSH").await;
    assert_eq!(lines(&out.path()).len(), 4, "a dropped sink goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changelog_adds_up_to_the_view() {
    for format in ["JSON", "CSV"] {
        let out = Directory::new();
        let f = Fixture::new().await;
        f.ok("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)").await;
        f.ok("INSERT INTO t VALUES (1, 'one'), (2, 'a \"quoted\", long\ntext'), (3, NULL)")
            .await;
        f.ok(&format!(
            "CREATE SINK k AS SELECT v, count(*) AS n FROM t GROUP BY v {} FORMAT PLAIN ENCODE {format}",
            with(&out.path(), ", type = 'changelog'")
        ))
        .await;
        f.ok("FLUSH").await;
        let whole = |op: &str, v: &str, n: u32| match (format, v) {
            ("JSON", _) => format!("{{\"op\":\"{op}\",\"v\":{v},\"n\":{n}}}"),
            (_, "null") => format!("{op},,{n}"),
            _ => format!("{op},{},{n}", v.trim_matches('"')),
        };
        let has = |line: String| lines(&out.path()).iter().filter(|found| **found == line).count();
        assert_eq!(has(whole("insert", "null", 1)), 1);
        f.ok("INSERT INTO t VALUES (4, 'one')").await;
        f.ok("FLUSH").await;
        assert_eq!(has(whole("delete", "\"one\"", 1)), 1, "{:?}", lines(&out.path()));
        assert_eq!(has(whole("insert", "\"one\"", 2)), 1);
        f.ok("DELETE FROM t WHERE id = 2").await;
        f.ok("FLUSH").await;
        let before = files(&out.path());
        let f = f.restart().await;
        f.ok("FLUSH").await;
        assert_eq!(files(&out.path()), before, "a restart writes nothing");
        f.ok("DELETE FROM t WHERE id = 3").await;
        f.ok("FLUSH").await;
        assert_eq!(has(whole("delete", "null", 1)), 1);
        // Without its checkpoint the view is filled again, and the sink goes by its files.
        let data = f.stop().await;
        std::fs::remove_dir_all(data.path().join("checkpoints")).unwrap();
        let before = files(&out.path());
        let f = Fixture::open(data).await;
        f.ok("FLUSH").await;
        assert_eq!(files(&out.path()), before);
        f.ok("INSERT INTO t VALUES (5, 'five')").await;
        f.ok("FLUSH").await;
        assert_eq!(has(whole("insert", "\"five\"", 1)), 1);
        f.ok("DROP SINK k").await;
        assert!(
            f.ok("SHOW MATERIALIZED VIEWS").await.is_empty(),
            "its view goes with it"
        );
    }
}

/// What a changelog adds up to: its lines without `op`, each as often as it is there.
fn added_up(directory: &Path) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for line in lines(directory).iter().filter(|line| !line.starts_with("op,")) {
        let (op, rest) = line.split_once(',').unwrap();
        let count = counts.entry(rest.to_owned()).or_default();
        *count += if op.contains("insert") { 1 } else { -1 };
        assert!((0..=1).contains(count), "{line}: {count}");
    }
    counts.retain(|_, count| *count != 0);
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_reads_only_the_files_since_the_checkpoint() {
    for (format, rollover) in [("JSON", 0), ("CSV", 0), ("JSON", 3_600)] {
        let out = Directory::new();
        let f = Fixture::new().await;
        f.ok("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)").await;
        f.ok("CREATE MATERIALIZED VIEW mv AS SELECT v, count(*) AS n FROM t GROUP BY v")
            .await;
        for (name, from) in [("k", "mv"), ("kt", "t")] {
            let with = with(&out.path(), ", type = 'changelog'");
            let with = with.replace("rollover_seconds = 0", &format!("rollover_seconds = {rollover}"));
            let directory = out.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            let with = with.replace(out.path().to_str().unwrap(), directory.to_str().unwrap());
            f.ok(&format!(
                "CREATE SINK {name} FROM {from} {with} FORMAT PLAIN ENCODE {format}"
            ))
            .await;
        }
        f.ok("INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'two')")
            .await;
        f.ok("FLUSH").await;
        // With the long rollover these are in the checkpoint, and not in the files.
        f.ok("UPDATE t SET v = 'one' WHERE id = 2").await;
        f.ok("DELETE FROM t WHERE id = 1").await;
        f.db.runtime().checkpoint().await;
        f.ok("INSERT INTO t VALUES (4, 'two'), (5, 'five')").await;
        f.ok("FLUSH").await;
        let killed = f.copied();
        f.stop().await;
        // What is older than the checkpoint was taken away by whoever reads the directory.
        let mut taken: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
        for name in ["k", "kt"] {
            let path = out
                .path()
                .join(name)
                .join(format!("{name}-0000000000.{}", format.to_lowercase()));
            taken.insert(path.clone(), std::fs::read(&path).unwrap());
            std::fs::remove_file(&path).unwrap();
        }
        let before = (files(&out.path().join("k")), files(&out.path().join("kt")));
        let f = Fixture::open(killed).await;
        f.ok("FLUSH").await;
        let after = (files(&out.path().join("k")), files(&out.path().join("kt")));
        assert_eq!(
            after, before,
            "{format} {rollover}: what was delivered is delivered again"
        );
        f.ok("UPDATE t SET v = 'six' WHERE id = 5").await;
        f.ok("FLUSH").await;
        assert_eq!(
            f.ok("SELECT state, error FROM mr_catalog.sinks").await,
            ["running|null", "running|null"]
        );
        taken
            .iter()
            .for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        assert_eq!(added_up(&out.path().join("k")).len(), 3, "{format} {rollover}");
        assert_eq!(added_up(&out.path().join("kt")).len(), 4, "{format} {rollover}");
        // A base that is damaged, or was never there: all files are read.
        let data = f.stop().await;
        let before = (files(&out.path().join("k")), files(&out.path().join("kt")));
        for entry in std::fs::read_dir(data.path().join("sinks")).unwrap() {
            for base in std::fs::read_dir(entry.unwrap().path()).unwrap() {
                std::fs::write(base.unwrap().path(), "MLRS").unwrap();
            }
        }
        let f = Fixture::open(data).await;
        f.ok("FLUSH").await;
        let after = (files(&out.path().join("k")), files(&out.path().join("kt")));
        assert_eq!(after, before, "{format} {rollover}");
        f.ok("DROP SINK k").await;
        f.ok("DROP SINK kt").await;
        let data = f.stop().await;
        assert!(
            std::fs::read_dir(data.path().join("sinks"))
                .unwrap()
                .next()
                .is_none()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_in_a_checkpoint_and_not_in_files_is_delivered_after_a_kill() {
    let out = Directory::new();
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)").await;
    let with =
        with(&out.path(), ", type = 'changelog'").replace("rollover_seconds = 0", "rollover_seconds = 3600");
    f.ok("INSERT INTO t VALUES (1, 'one'), (2, 'two')").await;
    f.ok(&format!(
        "CREATE SINK k FROM t {with} FORMAT PLAIN ENCODE PARQUET"
    ))
    .await;
    f.ok("FLUSH").await;
    f.ok("UPDATE t SET v = 'zwei' WHERE id = 2").await;
    f.ok("INSERT INTO t VALUES (3, 'three')").await;
    f.db.runtime().checkpoint().await;
    f.ok("DELETE FROM t WHERE id = 3").await;
    f.ok("INSERT INTO t VALUES (4, 'four')").await;
    assert_eq!(files(&out.path()).len(), 1);
    let f = f.killed().await;
    f.ok("FLUSH").await;
    f.ok(&format!(
        "CREATE EXTERNAL TABLE tlog STORED AS PARQUET LOCATION '{}/'",
        out.path().display()
    ))
    .await;
    let log = "SELECT op, id, v FROM tlog WHERE id > 1 ORDER BY id, op, v";
    assert_eq!(
        f.ok(log).await,
        ["delete|2|two", "insert|2|two", "insert|2|zwei", "insert|4|four"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parquet_files_can_be_read_as_a_table_and_files_roll() {
    let out = Directory::new();
    let f = Fixture::new().await;
    f.ok("CREATE STREAM s (a BIGINT, at TIMESTAMPTZ, d NUMERIC(10, 2), l INT[])")
        .await;
    f.ok(&format!(
        "CREATE SINK k FROM s {} FORMAT PLAIN ENCODE PARQUET",
        with(&out.path(), ", max_row_count = 100")
    ))
    .await;
    f.ok(
        "INSERT INTO s SELECT i, timestamptz '2026-01-01 00:00:00+00' + i * interval '1 second', i / 4.0, ARRAY[i, NULL] \
         FROM generate_series(1, 1000) AS g(i)",
    )
    .await;
    f.ok("FLUSH").await;
    assert_eq!(files(&out.path()).len(), 10);
    f.ok(&format!(
        "CREATE EXTERNAL TABLE back STORED AS PARQUET LOCATION '{}/'",
        out.path().display()
    ))
    .await;
    let all = "SELECT count(*), sum(a), max(at), sum(d) FROM ";
    assert_eq!(
        f.ok(&format!("{all} back")).await,
        f.ok(&format!("{all} s")).await
    );
    let f = f.restart().await;
    f.ok("FLUSH").await;
    f.ok("INSERT INTO s (a) VALUES (7)").await;
    f.ok("FLUSH").await;
    assert_eq!(
        f.ok("SELECT files, rows FROM mr_catalog.sinks").await,
        ["11|1001"]
    );
    // A changelog of a table, that is read back at the start.
    let other = Directory::new();
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, d NUMERIC(10, 2), l INT[])")
        .await;
    f.ok("INSERT INTO t SELECT a, d, l FROM s WHERE a <= 5").await;
    f.ok(&format!(
        "CREATE SINK kt FROM t {} FORMAT PLAIN ENCODE PARQUET",
        with(&other.path(), ", type = 'changelog'")
    ))
    .await;
    f.ok("FLUSH").await;
    f.ok("UPDATE t SET d = 0 WHERE id = 2").await;
    f.ok("FLUSH").await;
    let f = f.restart().await;
    f.ok("DELETE FROM t WHERE id = 3").await;
    f.ok("FLUSH").await;
    f.ok(&format!(
        "CREATE EXTERNAL TABLE tlog STORED AS PARQUET LOCATION '{}/'",
        other.path().display()
    ))
    .await;
    let net = "SELECT id, d FROM tlog GROUP BY id, d HAVING sum(CASE op WHEN 'insert' THEN 1 ELSE -1 END) > 0 ORDER BY id";
    assert_eq!(f.ok(net).await, f.ok("SELECT id, d FROM t ORDER BY id").await);
    assert_eq!(f.ok("SELECT count(*) FROM tlog").await, ["8"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_committed_goes_and_what_was_gets_its_name() {
    let out = Directory::new();
    let f = Fixture::new().await;
    f.ok("CREATE STREAM s (a BIGINT)").await;
    f.ok(&format!(
        "CREATE SINK k FROM s {} FORMAT PLAIN ENCODE CSV",
        with(&out.path(), "")
    ))
    .await;
    f.ok("INSERT INTO s VALUES (1)").await;
    f.ok("FLUSH").await;
    let before = files(&out.path());
    assert_eq!(before.values().collect::<Vec<_>>(), ["a\n1\n"]);
    let data = f.stop().await;
    // As a crash leaves them: a commit without its name, and files of a step that was none.
    let name = before.keys().next().unwrap();
    std::fs::rename(out.path().join(name), out.path().join(format!(".{name}.tmp"))).unwrap();
    std::fs::write(out.path().join(".k-0000000001.csv.tmp"), "a\n2").unwrap();
    let f = Fixture::open(data).await;
    f.ok("FLUSH").await;
    assert_eq!(files(&out.path()), before);
    // A file that counts and that this sink has not written.
    let data = f.stop().await;
    std::fs::write(out.path().join("k-0000000001.csv"), "a\n9\n").unwrap();
    let f = Fixture::open(data).await;
    f.ok("FLUSH").await;
    let error = f.ok("SELECT state, error FROM mr_catalog.sinks").await;
    assert!(
        error[0].contains("failing|") && error[0].contains("was not written by this sink"),
        "{error:?}"
    );
    assert_eq!(
        files(&out.path()).len(),
        2,
        "nothing is removed that is not its own"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sinks_that_cannot_be_are_refused() {
    let out = Directory::new();
    let f = Fixture::new().await;
    f.ok("CREATE STREAM s (a BIGINT, i INTERVAL)").await;
    f.ok("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM s")
        .await;
    f.ok("CREATE MATERIALIZED VIEW o AS SELECT a AS op, 1 AS b FROM s")
        .await;
    let file = out.path().join("file");
    std::fs::write(&file, "").unwrap();
    let with = |rest: &str| with(&out.path(), rest);
    for (statement, what) in [
        ("CREATE SINK k FROM s FORMAT PLAIN ENCODE JSON".to_owned(), "connector"),
        (format!("CREATE SINK k FROM s {}", with("")), "needs a format"),
        (format!("CREATE SINK k FROM s {} FORMAT PLAIN ENCODE AVRO", with("")), "AVRO"),
        (format!("CREATE SINK k FROM s {} FORMAT PLAIN ENCODE JSON", with(", pth = 1")), "\"pth\""),
        (format!("CREATE SINK k FROM n {} FORMAT PLAIN ENCODE JSON", with("")), "append-only"),
        (
            format!("CREATE SINK k FROM o {} FORMAT PLAIN ENCODE JSON", with(", type = 'changelog'")),
            "\"op\"",
        ),
        (format!("CREATE SINK k FROM nothing {} FORMAT PLAIN ENCODE JSON", with("")), "does not exist"),
        (
            "CREATE SINK k FROM s WITH (connector = 'file', path = '/no/such/place') FORMAT PLAIN ENCODE JSON".to_owned(),
            "No such file",
        ),
        (
            format!("CREATE SINK k FROM s WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE JSON", file.display()),
            "not a directory",
        ),
        (format!("CREATE SINK s FROM s {} FORMAT PLAIN ENCODE JSON", with("")), "already exists"),
    ] {
        let error = f.error(&statement).await;
        assert!(error.message.contains(what), "{statement}: {error:?}");
    }
    assert!(f.ok("SHOW SINKS").await.is_empty());
    f.ok(&format!(
        "CREATE SINK k FROM n {} FORMAT PLAIN ENCODE JSON (force_append_only = 'true')",
        with("")
    ))
    .await;
    f.ok("FLUSH").await;
    f.ok("INSERT INTO s (a) VALUES (1)").await;
    f.ok("FLUSH").await;
    let json: Vec<String> = lines(&out.path());
    assert_eq!(json, [r#"{"n":0}"#, r#"{"n":1}"#]);
    let twice = format!(
        "CREATE SINK k2 FROM n {} FORMAT PLAIN ENCODE JSON (force_append_only = 'true')",
        with("")
    );
    f.ok(&twice).await;
    f.ok("FLUSH").await;
    f.ok("DROP SINK k2").await;
    let error = f.error(&twice).await;
    assert!(error.message.contains("already exists"), "{error:?}");
    assert!(f.error("SELECT * FROM k").await.message.contains("sink k"));
    assert!(
        f.error("CREATE OR REPLACE MATERIALIZED VIEW n AS SELECT count(*) AS n, 1 AS m FROM s")
            .await
            .message
            .contains("sink k writes its rows")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_sink_delivers_later_what_came_meanwhile() {
    let out = Directory::new();
    let f = Fixture::new().await;
    f.ok("CREATE STREAM s (a BIGINT)").await;
    f.ok("CREATE TABLE t (a BIGINT PRIMARY KEY)").await;
    for (sink, from, kind) in [("k", "s", ""), ("c", "t", ", type = 'changelog'")] {
        let into = with(&out.path(), kind);
        f.ok(&format!(
            "CREATE SINK {sink} FROM {from} {into} FORMAT PLAIN ENCODE CSV"
        ))
        .await;
    }
    f.ok("INSERT INTO s VALUES (1)").await;
    f.ok("INSERT INTO t VALUES (1)").await;
    f.ok("FLUSH").await;
    let before = lines(&out.path());
    f.ok("PAUSE SINK k").await;
    f.ok("PAUSE SINK c").await;
    f.ok("INSERT INTO s VALUES (2)").await;
    f.ok("DELETE FROM t").await;
    f.ok("INSERT INTO t VALUES (2)").await;
    // Nobody waits for it.
    f.ok("FLUSH").await;
    assert_eq!(lines(&out.path()), before);
    let shown = "SELECT name, state, rows FROM mr_catalog.sinks ORDER BY 1";
    assert_eq!(f.ok(shown).await, ["c|paused|1", "k|paused|1"]);
    let f = f.restart().await;
    f.ok("INSERT INTO s VALUES (3)").await;
    f.ok("FLUSH").await;
    assert_eq!(lines(&out.path()), before);
    assert_eq!(f.ok(shown).await, ["c|paused|1", "k|paused|1"]);
    f.ok("RESUME SINK k").await;
    f.ok("RESUME SINK c").await;
    f.ok("FLUSH").await;
    let of = |name: &str| -> Vec<String> {
        let files = files(&out.path()).into_iter();
        let own = files.filter(|(file, _)| file.starts_with(name));
        let lines = own.flat_map(|(_, text)| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>());
        lines.collect()
    };
    assert_eq!(of("k"), ["1", "2", "3"]);
    assert_eq!(of("c"), ["insert,1", "delete,1", "insert,2"]);
    assert_eq!(f.ok(shown).await, ["c|running|3", "k|running|3"]);
    // It goes with what it has.
    f.ok("PAUSE SINK k").await;
    f.ok("DROP SINK k").await;
    assert!(f.error("PAUSE SINK k").await.message.contains("does not exist"));
    assert!(f.error("PAUSE VIEW c").await.message.contains("not supported"));
}
