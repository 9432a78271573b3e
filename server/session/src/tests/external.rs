//! External tables: what files say, that it lasts, and what is said of files that are not there.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use millrace_clarity::render::json::{Document, Run};
use millrace_postgres::error::SqlState;

use crate::tests::Fixture;

/// 1,000 rows as Parquet.
fn parquet(path: &std::path::Path) {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int32Array::from_iter_values(0..1000))),
        (
            "name",
            Arc::new(StringArray::from_iter(
                (0..1000).map(|i| (i % 10 != 0).then(|| format!("n{}", i % 3))),
            )),
        ),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_read_joined_and_remembered() {
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    parquet(&files.path().join("a.parquet"));
    std::fs::write(path("b.csv"), "k;word\nn0;zero\nn1;one\n").unwrap();
    std::fs::write(path("c.json"), "{\"x\": 1, \"y\": \"a\"}\n{\"x\": 2}\n").unwrap();
    let f = Fixture::new().await;
    f.ok(&format!(
        "CREATE EXTERNAL TABLE a STORED AS PARQUET LOCATION '{}'",
        path("a.parquet")
    ))
    .await;
    f.ok(&format!(
        "CREATE EXTERNAL TABLE b STORED AS CSV LOCATION '{}' OPTIONS (header 'true', delimiter ';')",
        path("b.csv")
    ))
    .await;
    f.ok(&format!(
        "CREATE EXTERNAL TABLE c (x INT, y TEXT) STORED AS JSON LOCATION '{}'",
        path("c.json")
    ))
    .await;
    let join = "SELECT word, count(*), sum(id) FROM a JOIN b ON a.name = b.k WHERE id < 100 GROUP BY word ORDER BY word";
    let check = async |f: &Fixture| {
        assert_eq!(f.ok("SELECT count(*), count(name) FROM a").await, ["1000|900"]);
        let words = f.ok(join).await;
        let sums: Vec<i64> = (0..100).filter(|i| i % 10 != 0).collect();
        let of = |rest: i64| {
            let all = sums.iter().filter(|i| *i % 3 == rest);
            format!("{}|{}", all.clone().count(), all.sum::<i64>())
        };
        assert_eq!(words, [format!("one|{}", of(1)), format!("zero|{}", of(0))]);
        assert_eq!(f.ok("SELECT x, y FROM c ORDER BY x").await.len(), 2);
        assert_eq!(
            f.ok("SELECT relname, relkind FROM pg_class WHERE relname IN ('a', 'b') ORDER BY relname")
                .await,
            ["a|f", "b|f"]
        );
        assert_eq!(
            f.ok("SELECT data_type FROM information_schema.columns WHERE table_name = 'a' ORDER BY ordinal_position")
                .await,
            ["integer", "text"]
        );
    };
    check(&f).await;
    // It can be copied into a view's input, but is none itself.
    f.ok("CREATE TABLE t AS SELECT id, name FROM a WHERE id < 5")
        .await;
    assert_eq!(f.ok("SELECT count(*) FROM t").await, ["5"]);
    let error = f.error("INSERT INTO a VALUES (1, 'x')").await;
    assert_eq!(error.code, SqlState::WrongObjectType, "{error:?}");
    let error = f
        .error("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM a")
        .await;
    assert_eq!(error.code, SqlState::FeatureNotSupported, "{error:?}");
    let f = f.restart().await;
    check(&f).await;
    std::fs::remove_file(path("b.csv")).unwrap();
    let error = f.error("SELECT * FROM b").await;
    assert_eq!(error.code, SqlState::UndefinedFile);
    f.ok("DROP TABLE b").await;
    f.ok("DROP TABLE a").await;
    assert_eq!(f.error("SELECT * FROM a").await.code, SqlState::UndefinedTable);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_refused() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("bad.parquet");
    std::fs::write(&path, "this is no Parquet").unwrap();
    let f = Fixture::new().await;
    for (sql, code) in [
        (
            "CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '/nowhere/at/all.parquet'".to_owned(),
            SqlState::UndefinedFile,
        ),
        (
            "CREATE EXTERNAL TABLE x STORED AS ORC LOCATION '/tmp'".to_owned(),
            SqlState::FeatureNotSupported,
        ),
        (
            "CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION 's3://bucket/x'".to_owned(),
            SqlState::FeatureNotSupported,
        ),
        (
            format!(
                "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{}' OPTIONS (colour 'red')",
                path.display()
            ),
            SqlState::FeatureNotSupported,
        ),
        (
            format!(
                "CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '{}'",
                path.display()
            ),
            SqlState::DataCorrupted,
        ),
    ] {
        let error = f.error(&sql).await;
        assert_eq!(error.code, code, "{sql}: {error:?}");
    }
    assert_eq!(f.error("SELECT * FROM x").await.code, SqlState::UndefinedTable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_group_is_read_by_several_tasks() {
    const ROWS: i64 = 600_000;
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("one.parquet");
    // Values that do not compress, and pages that end at different rows in different columns.
    let scattered = |row: i64| row.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64) >> 8;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..ROWS))),
        (
            "v",
            Arc::new(Int64Array::from_iter_values((0..ROWS).map(scattered))),
        ),
        (
            "text",
            Arc::new(StringArray::from_iter_values(
                (0..ROWS).map(|row| format!("{:x}", scattered(row))),
            )),
        ),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_data_page_row_count_limit(7_000)
        .set_data_page_size_limit(50_000)
        .build();
    let file = File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    assert_eq!(writer.close().unwrap().num_row_groups(), 1);
    let f = Fixture::new().await;
    f.ok(&format!(
        "CREATE EXTERNAL TABLE one STORED AS PARQUET LOCATION '{}'",
        path.display()
    ))
    .await;
    let sum: i64 = (0..ROWS).map(|row| scattered(row) % 1_000).sum();
    let whole = "SELECT count(*), count(DISTINCT id), min(id), max(id), sum(v % 1000), min(length(text)) > 0 FROM one";
    assert_eq!(
        f.ok(whole).await,
        [format!("{ROWS}|{ROWS}|0|{}|{sum}|t", ROWS - 1)]
    );
    // Pages that a condition rules out are passed over within the pieces too.
    let part = "SELECT count(*), sum(id) FROM one WHERE id BETWEEN 100000 AND 399999 AND v % 2 = 0";
    let kept = (100_000..400_000).filter(|row| scattered(*row) % 2 == 0);
    assert_eq!(
        f.ok(part).await,
        [format!("{}|{}", kept.clone().count(), kept.sum::<i64>())]
    );
    let found = f.ok("SELECT id FROM one LIMIT 10").await;
    assert_eq!(found.len(), 10);
    let lines = f
        .ok("EXPLAIN (ANALYZE, FORMAT JSON) SELECT sum(v), max(text) FROM one")
        .await;
    let document: Document<Run> = serde_json::from_str(&lines[0]).unwrap();
    let scan = &document.content.profile.stages[0];
    let disk_bytes = |task: &millrace_clarity::profile::TaskProfile| -> u64 {
        task.usage
            .iter()
            .filter(|usage| usage.kind.is_input())
            .map(|usage| usage.bytes)
            .sum()
    };
    let reading = scan
        .tasks
        .iter()
        .filter(|task| disk_bytes(task) > 100_000)
        .count();
    assert!(reading >= 6, "{reading} tasks of {} read", scan.tasks.len());
}
