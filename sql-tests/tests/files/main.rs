//! Files that come into a directory or a bucket as streams: what is read, and that each file is there once whatever is killed.
//!
//! The tests of a bucket need a server of S3 (`millrace_sql_tests::s3::S3`) and are skipped without. `FILES_ROUNDS` is how often the
//! server is killed, `SEED` when.

#![allow(clippy::unwrap_used)]

mod bucket;
mod changes;
mod delta;
mod kills;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use flate2::Compression;
use flate2::write::GzEncoder;
use millrace_sql_tests::crash::serve_if_child;
use millrace_sql_tests::outside::{Suite, line, refused, until};
use millrace_sql_tests::{Failure, connect, run, start};

fn main() -> ExitCode {
    if serve_if_child() {
        return ExitCode::SUCCESS;
    }
    let directory = tempfile::tempdir().unwrap();
    Suite::new(directory.path(), ())
        .unwrap()
        .test("lines", async |_, place| lines(place).await)
        .test("growing", async |_, place| growing(place).await)
        .test("rewritten", async |_, place| rewritten(place).await)
        .test("beside", async |_, place| beside(place).await)
        .test("policies", async |_, place| policies(place).await)
        .test("csv", async |_, place| csv(place).await)
        .test("columns", async |_, place| columns(place).await)
        .test("broken", async |_, place| broken(place).await)
        .test("refusals", async |_, place| refusals(place).await)
        .test("kills", async |_, place| kills::kills(place).await)
        .test("bucket", async |_, place| bucket::bucket(place).await)
        .test("sinks", async |_, place| bucket::sinks(place).await)
        .test("changes", async |_, place| changes::changes(place).await)
        .test("drift", async |_, place| changes::kills(place).await)
        .test("delta", async |_, place| delta::tables(place).await)
        .test("lake", async |_, place| delta::kills(place).await)
        .outcome()
}

/// A file that is there as a whole at once.
fn put(directory: &Path, name: &str, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    let path = directory.join(name);
    std::fs::create_dir_all(path.parent().unwrap())?;
    let draft = directory.join(format!(".{}", name.replace('/', "-")));
    std::fs::write(&draft, content)?;
    std::fs::rename(draft, path)?;
    Ok(())
}

fn gzip(content: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::fast());
    encoder.write_all(content.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn from(directory: &Path, more: &str) -> String {
    format!(
        "WITH (connector = 'file', path = '{}', refresh.interval = '100 ms'{more})",
        directory.display()
    )
}

async fn lines(place: &Path) -> Result<(), Failure> {
    let (input, data) = (place.join("in"), place.join("data"));
    std::fs::create_dir_all(&input)?;
    put(
        &input,
        "b.json",
        "{\"a\": 1}\n\n{\"a\": 2, \"t\": \"x\\ny\"}\r\n{\"a\": 3}",
    )?;
    put(&input, "a.json", "{\"a\": 4}\nno json\n{\"a\": 5}\n")?;
    put(
        &input,
        "deep/er/c.json.gz",
        [gzip("{\"a\": 6}\n"), gzip("{\"a\": 7}")].concat(),
    )?;
    put(&input, "_hidden.json", "{\"a\": 100}\n")?;
    put(&input, ".hidden/d.json", "{\"a\": 100}\n")?;
    put(&input, "other.txt", "{\"a\": 100}\n")?;
    put(&input, "empty.json", "")?;
    let server = start(&data).await?;
    let client = connect(server.pg_addr()).await?;
    let options = from(&input, ", match_pattern = '**/*.json*'");
    run(
        &client,
        &format!(
            "CREATE STREAM s (a INT, t TEXT) INCLUDE file AS f INCLUDE offset AS o INCLUDE timestamp AS ts {options} \
             FORMAT PLAIN ENCODE JSON"
        ),
    )
    .await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(a) AS s FROM s",
    )
    .await?;
    until(&client, "SELECT * FROM v", "7 28").await?;
    let shown = format!(
        "SELECT a, t = E'x\\ny', replace(f, '{}', ''), o, ts > now() - interval '1 hour' FROM s ORDER BY a",
        input.display()
    );
    until(
        &client,
        &shown,
        "1 NULL /b.json 0 t, 2 t /b.json 10 t, 3 NULL /b.json 33 t, 4 NULL /a.json 0 t, 5 NULL /a.json 17 t, \
         6 NULL /deep/er/c.json.gz 0 t, 7 NULL /deep/er/c.json.gz 9 t",
    )
    .await?;
    until(
        &client,
        "SELECT \"offset\", convert_from(value, 'UTF8'), convert_from(key, 'UTF8') LIKE '%/a.json' FROM \"s$errors\"",
        "9 no json t",
    )
    .await?;
    until(
        &client,
        "SELECT regexp_replace(file, '.*/', '') AS f, sum(records) FROM \"s$files\" GROUP BY 1 ORDER BY 1",
        "a.json 3, b.json 3, c.json.gz 2, empty.json 0",
    )
    .await?;
    until(
        &client,
        "SELECT name, connector, state, rows, bad_records, lag_records, error FROM mr_catalog.sources",
        "s file running 7 1 0 NULL",
    )
    .await?;
    // What was read is not read again; what comes, and what takes the place of another, is.
    drop(client);
    server.shutdown().await;
    put(&input, "deep/er/d.json", "{\"a\": 100}\n")?;
    put(&input, "a.json", "{\"a\": 1000}\n")?;
    let server = start(&data).await?;
    let client = connect(server.pg_addr()).await?;
    until(&client, "SELECT * FROM v", "9 1128").await?;
    run(&client, "PAUSE STREAM s").await?;
    put(&input, "e.json", "{\"a\": 10000}\n")?;
    run(&client, "RESUME STREAM s").await?;
    until(&client, "SELECT * FROM v", "10 11128").await?;
    assert!(
        refused(&client, "INSERT INTO s VALUES (1)")
            .await?
            .contains("connector")
    );
    run(&client, "DROP STREAM s CASCADE").await?;
    until(
        &client,
        "SELECT count(*) FROM pg_class WHERE relname LIKE 's$%'",
        "0",
    )
    .await?;
    // With event times.
    put(
        &input,
        "t.times",
        "{\"ts\": \"2024-01-01 00:00:10\"}\n{\"ts\": \"2024-01-01 00:01:10\"}\n",
    )?;
    let options = from(&input, ", match_pattern = '*.times'");
    run(
        &client,
        &format!("CREATE STREAM t (ts TIMESTAMP, WATERMARK FOR ts AS ts) {options} FORMAT PLAIN ENCODE JSON"),
    )
    .await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW m AS SELECT window_end, count(*) AS n FROM TUMBLE(t, ts, INTERVAL '1 minute') \
         GROUP BY window_end EMIT ON WINDOW CLOSE",
    )
    .await?;
    until(&client, "SELECT * FROM m", "2024-01-01 00:01:00 1").await?;
    put(&input, "u.times", "{\"ts\": \"2024-01-01 00:02:10\"}\n")?;
    until(
        &client,
        "SELECT * FROM m ORDER BY 1",
        "2024-01-01 00:01:00 1, 2024-01-01 00:02:00 1",
    )
    .await?;
    // As a table, what was said of a key last.
    put(
        &input,
        "keys.ndjson",
        "{\"id\": 1, \"v\": \"a\"}\n{\"id\": 2, \"v\": \"b\"}\n{\"id\": 1, \"v\": \"c\"}\n",
    )?;
    let options = from(&input, ", match_pattern = '*.ndjson'");
    run(
        &client,
        &format!("CREATE TABLE k (id INT PRIMARY KEY, v TEXT) {options} FORMAT PLAIN ENCODE JSON"),
    )
    .await?;
    until(&client, "SELECT * FROM k ORDER BY id", "1 c, 2 b").await?;
    server.shutdown().await;
    Ok(())
}

/// A file of lines that is written to is followed, and half a line is none.
async fn growing(place: &Path) -> Result<(), Failure> {
    let input = place.join("in");
    std::fs::create_dir_all(&input)?;
    let mut log = std::fs::File::create(input.join("log.csv"))?;
    write!(log, "n,t\n1,a\n2,")?;
    let server = start(&place.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    run(
        &client,
        &format!(
            "CREATE STREAM s (t TEXT, n INT) {} FORMAT PLAIN ENCODE CSV (header = 'true')",
            from(&input, "")
        ),
    )
    .await?;
    until(&client, "SELECT n, t FROM s", "1 a").await?;
    writeln!(log, "b")?;
    until(&client, "SELECT n, t FROM s ORDER BY n", "1 a, 2 b").await?;
    for n in 3..200 {
        writeln!(log, "{n},x")?;
    }
    until(
        &client,
        "SELECT count(*), count(DISTINCT n), sum(n) FROM s",
        "199 199 19900",
    )
    .await?;
    // A last line that nobody goes on with is one.
    write!(log, "1000,end")?;
    until(&client, "SELECT n, t FROM s WHERE n > 199", "1000 end").await?;
    assert_eq!(line(&client, "SELECT count(*) FROM \"s$errors\"").await?, "0");
    // A directory that is gone is no directory without files.
    let away = place.join("away");
    std::fs::rename(&input, &away)?;
    let state = "SELECT state, error LIKE '%No such file%' FROM mr_catalog.sources";
    until(&client, state, "retrying t").await?;
    std::fs::rename(&away, &input)?;
    until(&client, state, "running NULL").await?;
    server.shutdown().await;
    Ok(())
}

/// A file that is written anew in place is another one, though its inode and perhaps its length are the same.
async fn rewritten(place: &Path) -> Result<(), Failure> {
    let (input, data) = (place.join("in"), place.join("data"));
    std::fs::create_dir_all(&input)?;
    let path = input.join("a.json");
    let content =
        |numbers: std::ops::Range<u32>| -> String { numbers.map(|n| format!("{{\"a\": {n}}}\n")).collect() };
    std::fs::write(&path, content(100..103))?;
    let server = start(&data).await?;
    let client = connect(server.pg_addr()).await?;
    run(
        &client,
        &format!(
            "CREATE STREAM s (a INT) {} FORMAT PLAIN ENCODE JSON",
            from(&input, "")
        ),
    )
    .await?;
    let all = "SELECT count(*), count(DISTINCT a), max(a) FROM s";
    until(&client, all, "3 3 102").await?;
    // As long as the one before.
    std::fs::write(&path, content(103..106))?;
    until(&client, all, "6 6 105").await?;
    // Longer.
    std::fs::write(&path, content(106..110))?;
    until(&client, all, "10 10 109").await?;
    // The same again, and more: it has grown.
    std::fs::write(&path, content(106..900))?;
    until(&client, all, "800 800 899").await?;
    // With so much before the place that not all of it is looked at.
    std::fs::write(&path, content(106..950))?;
    until(&client, all, "850 850 949").await?;
    server.shutdown().await;
    // While nobody looks.
    std::fs::write(&path, content(950..999))?;
    let server = start(&data).await?;
    let client = connect(server.pg_addr()).await?;
    until(&client, all, "899 899 998").await?;
    let new = content(199..248);
    assert_eq!(new.len(), content(950..999).len());
    server.shutdown().await;
    std::fs::write(&path, new)?;
    let server = start(&data).await?;
    let client = connect(server.pg_addr()).await?;
    until(&client, "SELECT count(*), max(a) FROM s", "948 998").await?;
    // What some editors put before the first character is none.
    put(&input, "marked.json", "\u{feff}{\"a\": 7}\n")?;
    until(&client, "SELECT count(*) FROM s WHERE a = 7", "1").await?;
    server.shutdown().await;
    Ok(())
}

/// What the server keeps beside a stream is written by nobody else, and goes where the stream goes.
async fn beside(place: &Path) -> Result<(), Failure> {
    let input = place.join("in");
    std::fs::create_dir_all(&input)?;
    put(&input, "a.json", "{\"a\": 1}\nno json\n")?;
    let server = start(&place.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    let create = |name: &str| {
        format!(
            "CREATE STREAM {name} (a INT) {} FORMAT PLAIN ENCODE JSON",
            from(&input, "")
        )
    };
    run(&client, &create("one")).await?;
    run(&client, &create("two")).await?;
    let kept = "SELECT (SELECT count(*) FROM \"one$errors\"), (SELECT count(*) FROM \"one$files\")";
    until(&client, kept, "1 1").await?;
    for (statement, expected) in [
        (
            "INSERT INTO \"one$files\" (file) VALUES ('x')",
            "cannot insert into stream",
        ),
        (
            "INSERT INTO \"one$errors\" (reason) VALUES ('x')",
            "cannot insert into stream",
        ),
        ("COPY \"one$files\" FROM STDIN", "cannot copy to stream"),
        (
            "ALTER STREAM \"one$files\" RENAME TO mine",
            "cannot be renamed or moved",
        ),
        (
            "ALTER STREAM \"one$errors\" RENAME TO mine",
            "cannot be renamed or moved",
        ),
        (
            "ALTER STREAM \"one$files\" SET (retention = '1 hour')",
            "keeps all of its rows",
        ),
        (
            "ALTER STREAM \"one$files\" RESET (retention)",
            "keeps all of its rows",
        ),
        ("ALTER STREAM one RENAME TO two", "already exists"),
        ("ALTER STREAM one RENAME TO one", "already exists"),
    ] {
        let error = refused(&client, statement).await?;
        assert!(error.contains(expected), "{statement}: {error}");
    }
    run(&client, "ALTER STREAM \"one$errors\" SET (retention = '1 hour')").await?;
    run(&client, "CREATE STREAM \"three$files\" (a INT)").await?;
    let error = refused(&client, "ALTER STREAM one RENAME TO three").await?;
    assert!(error.contains("three$files"), "{error}");
    run(&client, "DROP STREAM \"three$files\"").await?;
    run(&client, "ALTER STREAM one RENAME TO three").await?;
    run(&client, "ALTER STREAM three SWAP WITH two").await?;
    run(&client, "INSERT INTO \"three$errors\" (reason) VALUES ('x')")
        .await
        .unwrap_err();
    until(
        &client,
        "SELECT (SELECT count(*) FROM \"two$errors\"), (SELECT count(*) FROM \"three$files\")",
        "1 1",
    )
    .await?;
    put(&input, "b.json", "no json\n{\"a\": 2}\n")?;
    until(&client, "SELECT count(*) FROM \"two$errors\"", "2").await?;
    run(&client, "DROP STREAM two").await?;
    run(&client, "CREATE STREAM \"two$files\" (a INT)").await?;
    run(&client, "INSERT INTO \"two$files\" VALUES (1)").await?;
    server.shutdown().await;
    Ok(())
}

/// A record that stops a source is no dead end: what becomes of such records can be said anew.
async fn policies(place: &Path) -> Result<(), Failure> {
    let input = place.join("in");
    std::fs::create_dir_all(&input)?;
    put(
        &input,
        "a.json",
        "{\"a\": 1}\nno json\n{\"a\": 2, \"b\": 3}\n{\"a\": 4, \"\": 5}\n",
    )?;
    let server = start(&place.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    let options = from(&input, ", on_error = 'fail', schema_change = 'stop'");
    run(
        &client,
        &format!("CREATE STREAM s (a INT) {options} FORMAT PLAIN ENCODE JSON"),
    )
    .await?;
    let state = "SELECT state FROM mr_catalog.sources";
    until(&client, state, "failed").await?;
    for (options, expected) in [
        ("on_error = 'perhaps'", "invalid value for option"),
        ("on_error = 'skip', path = '/'", "cannot be altered"),
        ("match_pattern = '*'", "cannot be altered"),
    ] {
        let error = refused(&client, &format!("ALTER STREAM s SET ({options})")).await?;
        assert!(error.contains(expected), "{options}: {error}");
    }
    run(&client, "ALTER STREAM s SET (on_error = 'skip')").await?;
    // Columns that are new stop it still.
    until(
        &client,
        "SELECT error LIKE '%were not there before%' FROM mr_catalog.sources",
        "t",
    )
    .await?;
    run(&client, "ALTER STREAM s SET (schema_change = 'add')").await?;
    let added = "SELECT count(*) FROM pg_attribute WHERE attrelid = 's'::regclass AND attname = 'b'";
    until(&client, added, "1").await?;
    until(&client, "SELECT a, b FROM s ORDER BY a", "1 NULL, 2 3").await?;
    // No column can have the name of a field of the other.
    until(
        &client,
        "SELECT count(*), count(*) FILTER (WHERE reason LIKE '%cannot be a column%') FROM \"s$errors\"",
        "2 1",
    )
    .await?;
    until(&client, state, "running").await?;
    let shown = line(&client, "SHOW CREATE STREAM s").await?;
    assert!(
        shown.contains("on_error = 'skip'") && shown.contains("schema_change = 'add'"),
        "{shown}"
    );
    let error = refused(&client, "ALTER STREAM s ADD COLUMN \"\" INT").await?;
    assert!(error.contains("zero-length delimited identifier"), "{error}");
    // What reads the stream beside it is told of when it is to go.
    run(
        &client,
        "CREATE MATERIALIZED VIEW bad AS SELECT count(*) FROM \"s$errors\"",
    )
    .await?;
    let error = client.batch_execute("DROP STREAM s").await.unwrap_err();
    let detail = error
        .as_db_error()
        .and_then(|error| error.detail())
        .unwrap_or_default();
    assert!(detail.contains("bad depends on stream"), "{detail}");
    server.shutdown().await;
    Ok(())
}

async fn csv(place: &Path) -> Result<(), Failure> {
    let input = place.join("in");
    std::fs::create_dir_all(&input)?;
    put(
        &input,
        "a.csv",
        "\u{feff}\"the b\";x;a\n\"q \"\"q\"\"; r\";;1\n\"two\nlines\";y;2\n;;3\n1;2\n\"\";;x\n",
    )?;
    put(&input, "b.csv", "a\n4\n")?;
    let server = start(&place.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    run(
        &client,
        &format!(
            "CREATE STREAM s (a INT, \"the b\" TEXT) {} FORMAT PLAIN ENCODE CSV (header = 'true', delimiter = ';')",
            from(&input, "")
        ),
    )
    .await?;
    until(&client, "SELECT count(*) FROM s", "4").await?;
    assert_eq!(
        line(
            &client,
            "SELECT a, replace(\"the b\", E'\\n', '|') FROM s ORDER BY a"
        )
        .await?,
        "1 q \"q\"; r, 2 two|lines, 3 NULL, 4 NULL"
    );
    assert_eq!(
        line(&client, "SELECT reason FROM \"s$errors\" ORDER BY \"offset\"").await?,
        "the line has 2 values, and the file 3 names, invalid input syntax for type integer: \"x\""
    );
    let plain = place.join("plain");
    std::fs::create_dir_all(&plain)?;
    put(&plain, "a.csv", "1,x\n2,\"a\nb\"\n")?;
    run(
        &client,
        &format!(
            "CREATE STREAM p (a INT, b TEXT) {} FORMAT PLAIN ENCODE CSV",
            from(&plain, "")
        ),
    )
    .await?;
    until(&client, "SELECT a, length(b) FROM p ORDER BY a", "1 1, 2 3").await?;
    server.shutdown().await;
    Ok(())
}

/// Parquet, as a sink of ours writes it, and of columns that have other types.
async fn columns(place: &Path) -> Result<(), Failure> {
    let (out, data) = (place.join("out"), place.join("data"));
    std::fs::create_dir_all(&out)?;
    let server = start(&data).await?;
    let client = connect(server.pg_addr()).await?;
    run(
        &client,
        "CREATE STREAM s (a BIGINT, d DOUBLE PRECISION, n NUMERIC(10, 2), t TEXT, ts TIMESTAMPTZ, day DATE, b BYTEA, xs INT[])",
    )
    .await?;
    let sink = format!(
        "WITH (connector = 'file', path = '{}', type = 'append-only')",
        out.display()
    );
    run(
        &client,
        &format!("CREATE SINK k FROM s {sink} FORMAT PLAIN ENCODE PARQUET"),
    )
    .await?;
    run(
        &client,
        "INSERT INTO s SELECT i, i / 4.0, i / 100.0, 't' || i, to_timestamp(i), date '2024-01-01' + i::int, '\\x01', ARRAY[i, NULL] \
         FROM generate_series(1, 20000) AS g(i)",
    )
    .await?;
    run(&client, "FLUSH").await?;
    let options = from(&out, ", match_pattern = '*.parquet'");
    run(
        &client,
        &format!(
            "CREATE STREAM r (a BIGINT, d DOUBLE PRECISION, n NUMERIC(10, 2), t TEXT, ts TIMESTAMPTZ, day DATE, b BYTEA, xs INT[]) \
             INCLUDE offset AS o {options} FORMAT PLAIN ENCODE PARQUET"
        ),
    )
    .await?;
    until(
        &client,
        "SELECT count(*), count(DISTINCT o) FROM r",
        "20000 20000",
    )
    .await?;
    let sums = "count(*), sum(a), sum(d), sum(n), max(ts), max(day), min(xs::text)";
    let expected = line(&client, &format!("SELECT {sums} FROM s")).await?;
    assert_eq!(line(&client, &format!("SELECT {sums} FROM r")).await?, expected);
    // Others: what fits is assigned as INSERT does, what does not is told, and a column that is not there is NULL.
    run(
        &client,
        &format!(
            "CREATE STREAM o (a SMALLINT, d INT, t TEXT, missing TEXT) {options} FORMAT PLAIN ENCODE PARQUET"
        ),
    )
    .await?;
    until(
        &client,
        "SELECT count(*), max(d), count(missing) FROM o",
        "20000 5000 0",
    )
    .await?;
    run(
        &client,
        "INSERT INTO s (a, d, t) VALUES (40000, 1, 'big'), (7, 2.5, 'small')",
    )
    .await?;
    run(&client, "FLUSH").await?;
    until(&client, "SELECT count(*) FROM r", "20002").await?;
    until(
        &client,
        "SELECT a, d, t FROM o WHERE t IN ('big', 'small')",
        "7 2 small",
    )
    .await?;
    until(&client, "SELECT \"offset\", code FROM \"o$errors\"", "0 22003").await?;
    server.shutdown().await;
    Ok(())
}

/// A file that cannot be read is told, and others are read.
async fn broken(place: &Path) -> Result<(), Failure> {
    let input = place.join("in");
    std::fs::create_dir_all(&input)?;
    let whole = gzip(&"{\"a\": 1}\n".repeat(100_000));
    put(&input, "a.json.gz", &whole[..whole.len() / 2])?;
    put(&input, "b.json.gz", "no gzip")?;
    put(&input, "c.json", "{\"a\": 1}\n")?;
    put(&input, "d.parquet", "no parquet")?;
    let server = start(&place.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    let json = from(&input, ", match_pattern = '*.json*'");
    run(
        &client,
        &format!("CREATE STREAM s (a INT) {json} FORMAT PLAIN ENCODE JSON"),
    )
    .await?;
    run(
        &client,
        &format!(
            "CREATE STREAM f (a INT) {} FORMAT PLAIN ENCODE JSON",
            json.replace("'*.json*'", "'b*', on_error = 'fail'")
        ),
    )
    .await?;
    let parquet = from(&input, ", match_pattern = '*.parquet'");
    run(
        &client,
        &format!("CREATE STREAM p (a INT) {parquet} FORMAT PLAIN ENCODE PARQUET"),
    )
    .await?;
    let told = |stream: &str| {
        format!(
            "SELECT regexp_replace(convert_from(key, 'UTF8'), '.*/', ''), code FROM \"{stream}$errors\" ORDER BY key"
        )
    };
    until(&client, &told("s"), "a.json.gz XX001, b.json.gz XX001").await?;
    until(&client, &told("p"), "d.parquet XX001").await?;
    until(&client, "SELECT count(*) > 1000 FROM s", "t").await?;
    until(
        &client,
        "SELECT state, error LIKE '%b.json.gz%cannot be read%' FROM mr_catalog.sources WHERE name = 'f'",
        "failed t",
    )
    .await?;
    put(&input, "b.json.gz", gzip("{\"a\": 5}\n"))?;
    run(&client, "RESUME STREAM f").await?;
    until(&client, "SELECT * FROM f", "5").await?;
    server.shutdown().await;
    Ok(())
}

async fn refusals(place: &Path) -> Result<(), Failure> {
    let input = place.join("in");
    std::fs::create_dir_all(&input)?;
    let server = start(&place.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    for (options, expected) in [
        (from(&input, ""), "needs option \"format\""),
        (from(&place.join("nothing"), "") + " FORMAT PLAIN ENCODE JSON", "No such file"),
        (from(&input, ", match_patern = 'x'") + " FORMAT PLAIN ENCODE JSON", "Perhaps you meant \"match_pattern\""),
        (from(&input, "") + " FORMAT UPSERT ENCODE JSON", "FORMAT UPSERT and DEBEZIUM are for topics"),
        (from(&input, "") + " FORMAT PLAIN ENCODE AVRO", "It can be 'json', 'csv', 'parquet'"),
        (from(&input, "") + " FORMAT PLAIN ENCODE JSON (header = 'true')", "are for format 'csv'"),
        ("WITH (connector = 'file', path = 'relative') FORMAT PLAIN ENCODE JSON".to_owned(), "absolute path"),
        ("WITH (connector = 's3', s3.bucket_name = 'b') FORMAT PLAIN ENCODE JSON".to_owned(), "s3.region_name"),
        (
            "WITH (connector = 's3', s3.bucket_name = 'b', s3.endpoint_url = 'http://127.0.0.1:1', s3.credentials.access = 'x', \
             s3.credentials.secret = 'hidden') FORMAT PLAIN ENCODE JSON"
                .to_owned(),
            "is not supported: everybody",
        ),
    ] {
        let error = refused(&client, &format!("CREATE STREAM x (a INT) {options}")).await?;
        // The statement comes before what the server says of it.
        let said = error.split_once('\n').map_or("", |(_, said)| said);
        if !error.contains(expected) || said.contains("hidden") {
            return Err(format!("{options}: {error}").into());
        }
    }
    let create = format!(
        "CREATE STREAM x (a INT) INCLUDE partition AS p {} FORMAT PLAIN ENCODE JSON",
        from(&input, "")
    );
    let error = refused(&client, &create).await?;
    assert!(error.contains("include.partition"), "{error}");
    server.shutdown().await;
    Ok(())
}
