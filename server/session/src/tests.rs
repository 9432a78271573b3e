//! Whole statements against a database in a temporary directory.

mod alter;
mod explain;
mod explain_view;
mod external;
mod freshness;
mod health;
mod history;
mod job;
mod look_up;
mod memory;
mod psql;
mod recovery;
mod retention;
mod sink;
mod size;
mod subscribe;
mod subscription;
mod table_log;
mod temporary;
mod view_error;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arrow::array::RecordBatch;
use futures::StreamExt;
use millrace_database::sessions::{SessionInfo, TransactionStatus};
use millrace_database::{Database, DatabaseOptions};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_postgres::types::output;
use tempfile::TempDir;

use crate::copy_in::IngestFormat;
use crate::outcome::{CopyOut, Outcome};
use crate::session::Session;

pub struct Fixture {
    pub(crate) db: Arc<Database>,
    pub(crate) session: Arc<Session>,
    directory: Option<TempDir>,
}

fn options(directory: &TempDir) -> DatabaseOptions {
    DatabaseOptions {
        cores: 2,
        ..DatabaseOptions::new(directory.path())
    }
}

impl Fixture {
    pub async fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        Self::open(directory).await
    }

    pub(super) async fn open(directory: TempDir) -> Fixture {
        Self::open_with(directory, |_| {}).await
    }

    /// Opens a directory with other options.
    pub(crate) async fn open_with(directory: TempDir, change: impl FnOnce(&mut DatabaseOptions)) -> Fixture {
        let mut options = options(&directory);
        change(&mut options);
        let db = millrace_system::system::open(options).await.unwrap();
        let session = Session::new(Arc::clone(&db), SessionInfo::default()).unwrap();
        Fixture {
            db,
            session,
            directory: Some(directory),
        }
    }

    pub(crate) fn other_session(&self) -> Arc<Session> {
        Session::new(Arc::clone(&self.db), SessionInfo::default()).unwrap()
    }

    pub(super) async fn restart(self) -> Fixture {
        Self::open(self.stop().await).await
    }

    /// Stops the server; its directory stays.
    pub(super) async fn stop(mut self) -> TempDir {
        let directory = self.directory.take().unwrap();
        self.db.close().await.unwrap();
        directory
    }

    /// Opens what is on the disk at this moment, as after a kill: nothing is closed or flushed first.
    pub(super) async fn killed(&self) -> Fixture {
        Self::open(self.copied()).await
    }

    /// The data directory.
    pub(crate) fn path(&self) -> &Path {
        self.directory.as_ref().unwrap().path()
    }

    /// A copy of what is on the disk at one moment: one during which the server wrote is of none, and made again.
    pub(crate) fn copied(&self) -> TempDir {
        loop {
            let directory = tempfile::tempdir().unwrap();
            let before = files_of(self.path());
            copy_directory(self.path(), directory.path());
            if files_of(self.path()) == before {
                return directory;
            }
        }
    }

    pub async fn ok(&self, sql: &str) -> Vec<String> {
        run(&self.session, sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    pub(super) async fn error(&self, sql: &str) -> SqlError {
        match run(&self.session, sql).await {
            Err(error) => error,
            Ok(rows) => panic!("{sql}: {rows:?}"),
        }
    }
}

/// The files of a directory, with their lengths and when they were written.
fn files_of(directory: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match std::fs::metadata(&path) {
            Ok(found) if found.is_dir() => files.extend(files_of(&path)),
            Ok(found) => drop(files.insert(path, (found.len(), found.modified().unwrap()))),
            // The server that runs has removed it meanwhile.
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        }
    }
    files
}

fn copy_directory(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy_directory(&entry.path(), &to);
        } else {
            match std::fs::copy(entry.path(), to) {
                // The server that runs has removed it meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}

/// Runs a simple query; rows as `a|b`, other outcomes as their tags.
pub async fn run(session: &Arc<Session>, sql: &str) -> SqlResult<Vec<String>> {
    let mut query = session.run(sql).await?;
    let mut out = vec![];
    while let Some(outcome) = query.next().await {
        render(outcome?, &mut out).await?;
    }
    Ok(out)
}

async fn render(outcome: Outcome, out: &mut Vec<String>) -> SqlResult<()> {
    match outcome {
        Outcome::Rows { mut stream, .. } => {
            while let Some(batch) = stream.next().await {
                out.extend(lines(&batch.map_err(from_internal::datafusion)?));
            }
        }
        Outcome::Done { tag } => out.push(tag.render(0)),
        Outcome::Empty => {}
        Outcome::CopyIn(_) => out.push("copy in".into()),
        Outcome::CopyOut(copy) => {
            let counter = copy.row_counter();
            let mut stream = copy.stream;
            while let Some(rows) = stream.next().await {
                let rows: Vec<u8> = rows?.messages().flatten().collect();
                out.push(String::from_utf8(rows).unwrap());
            }
            out.push(CopyOut::tag(&counter).render(0));
        }
    }
    Ok(())
}

fn lines(batch: &RecordBatch) -> Vec<String> {
    let schema = batch.schema();
    (0..batch.num_rows())
        .map(|row| {
            let values: Vec<String> = schema
                .fields()
                .iter()
                .zip(batch.columns())
                .map(|(field, column)| output::text(field, column, row))
                .collect();
            values.join("|")
        })
        .collect()
}

async fn columns(session: &Arc<Session>, sql: &str) -> Vec<String> {
    let parsed = session.parse(sql).await.unwrap().pop();
    let prepared = session.prepare(parsed, &[]).await.unwrap();
    let schema = prepared.columns.clone().unwrap();
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

/// A statement runs until its rows are taken.
#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_processes_says_what_runs_and_at_which_priority() {
    let f = Fixture::new().await;
    let other = f.other_session();
    run(&other, "SET query_priority = 'batch'").await.unwrap();
    let mut query = other
        .run("SELECT * FROM generate_series(1, 100000)")
        .await
        .unwrap();
    let rows = query.next().await.unwrap();
    let states = async || -> Vec<String> {
        let list = f.ok("SHOW PROCESSLIST").await;
        let own = list
            .iter()
            .filter(|line| line.starts_with(&format!("{}|", other.id())));
        own.map(|line| line.split('|').skip(5).take(2).collect::<Vec<_>>().join(" "))
            .collect()
    };
    assert_eq!(states().await, ["active batch"]);
    drop((rows, query));
    assert_eq!(states().await, ["idle batch"]);
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn constants_are_postgresqls() {
    let f = Fixture::new().await;
    for (sql, expected) in [
        ("SELECT 1 + 1", "2"),
        ("SELECT 0.1 + 0.2", "0.3"),
        ("SELECT 'a' || 'b'", "ab"),
        ("SELECT '42'::int + 1", "43"),
        ("SELECT 2.5::double precision::int, 3.5::float8::int", "2|4"),
        ("SELECT 'yes'::boolean, true::text", "t|true"),
        (
            "SELECT '2013-01-31 10:00'::timestamp + INTERVAL '1 day 1 hour'",
            "2013-02-01 11:00:00",
        ),
        ("SELECT DATE '2013-01-31'", "2013-01-31"),
        (
            "SELECT '2013-01-31 12:00+02'::timestamptz",
            "2013-01-31 10:00:00+00",
        ),
        (
            "SELECT '{\"b\":1,\"a\":[1,2]}'::jsonb",
            "{\"a\": [1, 2], \"b\": 1}",
        ),
        ("SELECT '{\"a\":{\"b\":[7,8]}}'::jsonb -> 'a' -> 'b' ->> 1", "8"),
        ("SELECT '{\"a\":{\"b\":[7,8]}}'::jsonb #>> '{a,b,0}'", "7"),
        ("SELECT ('{\"n\":5}'::jsonb ->> 'n')::int + 1", "6"),
        (
            "SELECT 'A0EEBC999C0B4EF8BB6D6BB9BD380A11'::uuid",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ),
        ("SELECT '\\xdead'::bytea", "\\xdead"),
        ("SELECT '{1,2,NULL}'::int[]", "{1,2,NULL}"),
        ("SELECT 'NaN'::float8, '-Infinity'::float8", "NaN|-Infinity"),
        (
            "SELECT pg_typeof(1::smallint), pg_typeof('x'::varchar(3))",
            "smallint|character varying",
        ),
        (
            "SELECT current_user, current_database(), current_schema()",
            "millrace|millrace|public",
        ),
        ("SELECT pg_size_pretty(123456789::bigint)", "118 MB"),
        (
            "SELECT to_char(TIMESTAMP '2013-01-05 15:04:05', 'YYYY/MM/DD HH12:MI am')",
            "2013/01/05 03:04 pm",
        ),
        ("SELECT count(*) FROM (VALUES (1), (2)) AS t(x)", "2"),
        ("SELECT NULL::int", "null"),
    ] {
        assert_eq!(f.ok(sql).await, [expected], "{sql}");
    }
    assert_eq!(
        f.ok("SELECT x FROM (VALUES (2), (NULL), (1)) AS t(x) ORDER BY x")
            .await,
        ["1", "2", "null"]
    );
    assert_eq!(
        f.ok("SELECT x FROM (VALUES (2), (NULL), (1)) AS t(x) ORDER BY x DESC")
            .await,
        ["null", "2", "1"]
    );
    assert_eq!(
        columns(
            &f.session,
            "SELECT count(*), 1, 2, 'x'::text, current_user FROM (VALUES (1)) AS t(x)"
        )
        .await,
        ["count", "?column?", "?column?", "text", "current_user"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_codes_positions_and_hints() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE flights (id INT PRIMARY KEY, origin TEXT NOT NULL, delay SMALLINT)")
        .await;
    for (sql, code, position) in [
        ("SELEC 1", SqlState::SyntaxError, Some(1)),
        ("SELECT * FROM fligths", SqlState::UndefinedTable, Some(15)),
        ("SELECT orign FROM flights", SqlState::UndefinedColumn, Some(8)),
        ("SELECT nofunction(1)", SqlState::UndefinedFunction, Some(8)),
        ("SELECT 1/0", SqlState::DivisionByZero, None),
        ("SELECT 'abc'::int", SqlState::InvalidTextRepresentation, Some(8)),
        (
            "SELECT 9223372036854775807 + 1",
            SqlState::NumericValueOutOfRange,
            None,
        ),
        (
            "SELECT delay * 30000::smallint FROM (VALUES (2::smallint)) AS t(delay)",
            SqlState::NumericValueOutOfRange,
            None,
        ),
        (
            "SELECT '99999'::smallint",
            SqlState::NumericValueOutOfRange,
            Some(8),
        ),
        (
            "SELECT '2013-02-30'::date",
            SqlState::DatetimeFieldOverflow,
            Some(8),
        ),
        (
            "SELECT origin FROM flights GROUP BY id % 2",
            SqlState::GroupingError,
            Some(8),
        ),
        (
            "INSERT INTO flights VALUES (1, NULL)",
            SqlState::NotNullViolation,
            None,
        ),
        (
            "INSERT INTO flights (id, nope) VALUES (1, 2)",
            SqlState::UndefinedColumn,
            Some(26),
        ),
        (
            "INSERT INTO flights VALUES (1, 'JFK', 99999)",
            SqlState::NumericValueOutOfRange,
            None,
        ),
        ("CREATE TABLE flights (x INT)", SqlState::DuplicateTable, None),
        (
            "CREATE TABLE t AS SELECT 1 AS x, 2 AS x",
            SqlState::DuplicateColumn,
            Some(31),
        ),
        ("CREATE TABLE t (x INTT)", SqlState::UndefinedObject, Some(19)),
        (
            "CREATE STREAM t (x INT CHECK (x > 0))",
            SqlState::FeatureNotSupported,
            None,
        ),
        ("DROP VIEW flights", SqlState::WrongObjectType, None),
        ("DROP TABLE nope", SqlState::UndefinedTable, Some(12)),
        ("SET nope = 1", SqlState::UndefinedObject, Some(5)),
        ("SAVEPOINT a", SqlState::NoActiveSqlTransaction, None),
        ("EXECUTE nope", SqlState::InvalidSqlStatementName, None),
        ("FETCH 1 FROM nope", SqlState::InvalidCursorName, None),
    ] {
        let error = f.error(sql).await;
        assert_eq!((error.code, error.position), (code, position), "{sql}: {error:?}");
    }
    assert_eq!(
        f.error("SELECT * FROM fligths").await.hint.as_deref(),
        Some("Perhaps you meant \"flights\".")
    );
    f.ok("INSERT INTO flights VALUES (1, 'JFK')").await;
    let error = f.error("INSERT INTO flights VALUES (2, 'LGA'), (1, 'EWR')").await;
    assert_eq!(error.code, SqlState::UniqueViolation);
    assert_eq!(error.detail.as_deref(), Some("Key (id)=(1) already exists."));
    assert_eq!(
        error.message,
        "duplicate key value violates unique constraint \"flights_pkey\""
    );
    assert_eq!(f.ok("SELECT count(*) FROM flights").await, ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_take_every_kind_of_dml() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v TEXT DEFAULT 'none', n NUMERIC(10,2), d INT GENERATED ALWAYS AS (id * 2))")
        .await;
    assert_eq!(
        f.ok("INSERT INTO t (id, v, n) VALUES (1, 'a', 1.005), (2, DEFAULT, '2')")
            .await,
        ["INSERT 0 2"]
    );
    assert_eq!(
        f.ok("INSERT INTO t (id) SELECT id + 10 FROM t RETURNING id, d AS double")
            .await,
        ["11|22", "12|24"]
    );
    assert_eq!(
        f.ok("SELECT * FROM t ORDER BY id").await,
        [
            "1|a|1.01|2",
            "2|none|2.00|4",
            "11|none|null|22",
            "12|none|null|24"
        ]
    );
    assert_eq!(
        f.ok("UPDATE t SET n = coalesce(n, 0) + 1, v = upper(v) WHERE id < 12 RETURNING id, n")
            .await
            .len(),
        3
    );
    assert_eq!(
        f.ok("UPDATE t AS x SET v = y.v FROM (VALUES (12, 'joined')) AS y(id, v) WHERE x.id = y.id")
            .await,
        ["UPDATE 1"]
    );
    assert_eq!(f.ok("SELECT v FROM t WHERE id = 12").await, ["joined"]);
    assert_eq!(
        f.ok("INSERT INTO t (id, v) VALUES (1, 'x'), (3, 'y') ON CONFLICT DO NOTHING")
            .await,
        ["INSERT 0 1"]
    );
    assert_eq!(
        f.ok("INSERT INTO t (id, v) VALUES (1, 'x'), (4, 'z') ON CONFLICT (id) DO UPDATE SET v = t.v || excluded.v RETURNING id, v")
            .await,
        ["4|z", "1|Ax"]
    );
    assert_eq!(
        f.ok("UPDATE t SET id = id + 1 WHERE id IN (3, 4)").await,
        ["UPDATE 2"]
    );
    assert_eq!(f.ok("UPDATE t SET id = id WHERE false").await, ["UPDATE 0"]);
    assert_eq!(
        f.error("UPDATE t SET id = 11 WHERE id = 12").await.code,
        SqlState::UniqueViolation
    );
    assert_eq!(f.ok("DELETE FROM t WHERE id > 10 RETURNING id").await.len(), 2);
    assert_eq!(
        f.ok("INSERT INTO t (id, n) VALUES (20, 1 + 1), (21, '7'), (22, -2.5)")
            .await,
        ["INSERT 0 3"]
    );
    assert_eq!(
        f.ok("INSERT INTO t (id, n) VALUES (-23, -2.5), ('24', NULL)")
            .await,
        ["INSERT 0 2"]
    );
    assert_eq!(
        f.ok("SELECT id, n FROM t WHERE id > 20 OR id < 0 ORDER BY id")
            .await,
        ["-23|-2.50", "21|7.00", "22|-2.50", "24|null"]
    );
    assert_eq!(
        f.error("INSERT INTO t (id) VALUES (1, 2)").await.code,
        SqlState::SyntaxError
    );
    assert!(!f.ok("TABLE t").await.is_empty());
    assert_eq!(f.ok("TRUNCATE t").await, ["TRUNCATE TABLE"]);
    assert_eq!(f.ok("SELECT count(*) FROM t").await, ["0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_append_only() {
    let f = Fixture::new().await;
    f.ok("CREATE STREAM s (id BIGINT, at TIMESTAMPTZ, j JSONB)").await;
    assert_eq!(
        f.ok("INSERT INTO s VALUES (1, '2013-01-01 10:00Z', '{\"k\": [1]}'), (2, NULL, NULL)")
            .await,
        ["INSERT 0 2"]
    );
    assert_eq!(
        f.ok("SELECT id, j -> 'k' ->> 0 FROM s ORDER BY id").await,
        ["1|1", "2|null"]
    );
    for sql in ["UPDATE s SET id = 1", "DELETE FROM s", "TRUNCATE s"] {
        let error = f.error(sql).await;
        assert_eq!(error.code, SqlState::WrongObjectType, "{sql}");
        assert!(error.hint.is_some());
    }
    assert_eq!(
        f.error("CREATE STREAM x (id INT PRIMARY KEY)").await.code,
        SqlState::InvalidTableDefinition
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_commit_at_once_or_not_at_all() {
    let f = Fixture::new().await;
    let other = f.other_session();
    f.ok("CREATE TABLE a (id INT PRIMARY KEY, v INT); CREATE TABLE b (id INT); CREATE STREAM s (id INT)")
        .await;
    f.ok("BEGIN; INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES (1); INSERT INTO s VALUES (1)")
        .await;
    assert_eq!(f.session.transaction_status(), TransactionStatus::Active);
    assert_eq!(f.ok("UPDATE a SET v = v + 1 RETURNING v").await, ["2"]);
    assert_eq!(f.ok("SELECT v FROM a").await, ["2"]);
    assert_eq!(
        f.error("INSERT INTO a VALUES (1, 9)").await.code,
        SqlState::UniqueViolation
    );
    assert_eq!(f.session.transaction_status(), TransactionStatus::Failed);
    assert_eq!(f.error("SELECT 1").await.code, SqlState::InFailedSqlTransaction);
    assert_eq!(f.ok("COMMIT").await, ["ROLLBACK"]);
    assert_eq!(run(&other, "SELECT count(*) FROM a").await.unwrap(), ["0"]);

    f.ok("BEGIN; INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES (1); INSERT INTO s VALUES (1)")
        .await;
    assert_eq!(run(&other, "SELECT count(*) FROM b").await.unwrap(), ["0"]);
    assert_eq!(f.ok("COMMIT").await, ["COMMIT"]);
    assert_eq!(
        f.ok("SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b), (SELECT count(*) FROM s)")
            .await,
        ["1|1|1"]
    );

    // Several statements are one transaction.
    assert_eq!(
        f.error("INSERT INTO a VALUES (2, 2); SELECT 1/0; INSERT INTO a VALUES (3, 3)")
            .await
            .code,
        SqlState::DivisionByZero
    );
    assert_eq!(f.session.transaction_status(), TransactionStatus::Idle);
    assert_eq!(f.ok("SELECT count(*) FROM a").await, ["1"]);

    f.ok("BEGIN").await;
    assert_eq!(
        f.error("CREATE DATABASE c").await.code,
        SqlState::ActiveSqlTransaction
    );
    f.ok("ROLLBACK").await;
    f.ok("BEGIN READ ONLY").await;
    assert_eq!(
        f.error("INSERT INTO a VALUES (5, 5)").await.code,
        SqlState::ReadOnlySqlTransaction
    );
    f.ok("ROLLBACK").await;
    assert!(f.session.take_notices().is_empty());
    f.ok("COMMIT").await;
    assert_eq!(
        f.session.take_notices()[0].message,
        "there is no transaction in progress"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn views_are_kept_and_come_back_after_a_restart() {
    let f = Fixture::new().await;
    f.ok("CREATE STREAM bid (auction INT, price INT); CREATE TABLE item (id INT PRIMARY KEY, name TEXT)")
        .await;
    f.ok("INSERT INTO item VALUES (1, 'lamp'), (2, 'vase')").await;
    f.ok("INSERT INTO bid VALUES (1, 10), (1, 20), (2, 5)").await;
    f.ok("CREATE VIEW dear AS SELECT * FROM bid WHERE price > 6")
        .await;
    f.ok(
        "CREATE MATERIALIZED VIEW totals AS SELECT name, count(*) AS n, sum(price) AS total \
         FROM dear JOIN item ON dear.auction = item.id GROUP BY name",
    )
    .await;
    assert_eq!(f.ok("SELECT * FROM totals ORDER BY name").await, ["lamp|2|30"]);
    f.ok("INSERT INTO bid VALUES (2, 7)").await;
    assert_eq!(
        f.ok("SELECT * FROM totals ORDER BY name").await,
        ["lamp|2|30", "vase|1|7"]
    );
    f.ok("UPDATE item SET name = 'light' WHERE id = 1").await;
    assert_eq!(
        f.ok("SELECT * FROM totals ORDER BY name").await,
        ["light|2|30", "vase|1|7"]
    );
    f.ok("CREATE INDEX totals_n ON totals (n); COMMENT ON MATERIALIZED VIEW totals IS 'sums'")
        .await;

    let f = f.restart().await;
    assert_eq!(
        f.ok("SELECT (SELECT count(*) FROM bid), (SELECT count(*) FROM dear), (SELECT count(*) FROM item)")
            .await,
        ["4|3|2"]
    );
    assert_eq!(
        f.ok("SELECT * FROM totals ORDER BY name").await,
        ["light|2|30", "vase|1|7"]
    );
    assert_eq!(f.ok("SHOW MATERIALIZED VIEWS").await, ["totals|public|sums"]);
    f.ok("DELETE FROM item WHERE id = 2").await;
    assert_eq!(f.ok("SELECT * FROM totals").await, ["light|2|30"]);

    let error = f.error("DROP TABLE item").await;
    assert_eq!(error.code, SqlState::DependentObjectsStillExist);
    assert_eq!(
        error.detail.as_deref(),
        Some("materialized view totals depends on table item")
    );
    assert_eq!(
        f.error("DROP STREAM bid RESTRICT").await.code,
        SqlState::DependentObjectsStillExist
    );
    f.ok("DROP STREAM bid CASCADE").await;
    assert_eq!(f.ok("SHOW VIEWS").await, Vec::<String>::new());
    assert_eq!(f.ok("SHOW INDEXES").await, Vec::<String>::new());
    assert_eq!(f.ok("SHOW TABLES").await, ["item|public|null"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_goes_in_and_out() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v TEXT, at TIMESTAMP)")
        .await;
    let copy = |sql: &'static str, data: &'static str| {
        let session = Arc::clone(&f.session);
        async move {
            let mut query = session.run(sql).await?;
            let Some(Ok(Outcome::CopyIn(mut copy))) = query.next().await else {
                panic!("{sql}")
            };
            let mut failed = None;
            for piece in data.as_bytes().chunks(7) {
                if let Err(error) = copy.push(piece).await {
                    failed = Some(error);
                    break;
                }
            }
            let result = match failed {
                Some(error) => Err(error),
                None => copy.finish().await.map(|copied| copied.rows),
            };
            while let Some(outcome) = query.next().await {
                outcome?;
            }
            result
        }
    };
    assert_eq!(
        copy("COPY t FROM STDIN", "1\ta\\tb\t2013-01-01 10:00\n2\t\\N\t\\N\n")
            .await
            .unwrap(),
        2
    );
    assert_eq!(
        copy(
            "COPY t (v, id) FROM STDIN (FORMAT csv, HEADER)",
            "v,id\n\"x, y\",3\n,4\n"
        )
        .await
        .unwrap(),
        2
    );
    let error = copy("COPY t FROM STDIN", "5\tx\t\\N\nabc\ty\t\\N\n")
        .await
        .unwrap_err();
    assert_eq!(
        error.context.as_deref(),
        Some("COPY t, line 2, column id: \"abc\"")
    );
    assert_eq!(error.code, SqlState::InvalidTextRepresentation);
    assert_eq!(
        copy("COPY t FROM STDIN", "6\tx\n").await.unwrap_err().code,
        SqlState::BadCopyFileFormat
    );
    assert_eq!(
        copy("COPY t FROM STDIN", "7\tx\t\\N\n1\ty\t\\N\n")
            .await
            .unwrap_err()
            .code,
        SqlState::UniqueViolation
    );
    assert_eq!(
        f.ok("COPY (SELECT * FROM t ORDER BY id) TO STDOUT").await,
        [
            "1\ta\\tb\t2013-01-01 10:00:00\n2\t\\N\t\\N\n3\tx, y\t\\N\n4\t\\N\t\\N\n",
            "COPY 4"
        ]
    );
    assert_eq!(
        f.ok("COPY (SELECT id, v FROM t WHERE id IN (3, 4) ORDER BY id) TO STDOUT WITH (FORMAT csv, HEADER, NULL '-')").await,
        ["id,v\n", "3,\"x, y\"\n4,-\n", "COPY 2"]
    );
}

/// What a table says of keys that are there holds for COPY and requests as well.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_ingested_as_their_table_says() {
    let f = Fixture::new().await;
    for (rule, expected) in [
        ("DO NOTHING", ["1|1|a", "2|5|null"]),
        ("DO UPDATE FULL", ["1|3|null", "2|6|null"]),
        ("DO UPDATE IF NOT NULL", ["1|3|a", "2|6|null"]),
    ] {
        f.ok(&format!(
            "CREATE TABLE t (k int PRIMARY KEY, v int, w text) ON CONFLICT {rule}"
        ))
        .await;
        let body = "{\"k\":1,\"v\":1,\"w\":\"a\"}\n{\"k\":2,\"v\":5}\n{\"k\":2,\"v\":6}\n";
        let ingested = f.session.ingest("t", IngestFormat::NdJson, body.into()).await;
        assert_eq!(ingested.unwrap(), 3);
        let csv = "k,v,w\n1,2,\n1,3,\n";
        let format = IngestFormat::Csv { header: true };
        f.session.ingest("t", format, csv.into()).await.unwrap();
        assert_eq!(f.ok("SELECT * FROM t ORDER BY k").await, expected, "{rule}");
        f.ok("DROP TABLE t").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_ingested() {
    let f = Fixture::new().await;
    f.ok("CREATE STREAM s (id INT NOT NULL, at TIMESTAMPTZ, price NUMERIC(10,2), tags TEXT[])")
        .await;
    let body = "{\"id\":1,\"at\":\"2013-01-01T10:00:00Z\",\"price\":1.5,\"tags\":[\"a\",\"b\"]}\n{\"id\":2,\"other\":{}}\n";
    assert_eq!(
        f.session
            .ingest("s", IngestFormat::NdJson, body.into())
            .await
            .unwrap(),
        2
    );
    assert_eq!(
        f.session
            .ingest("public.s", IngestFormat::JsonArray, "[{\"id\":3}]".into())
            .await
            .unwrap(),
        1
    );
    let csv = "id,at,price,tags\n4,2013-01-01,2,\"{x,y}\"\n";
    assert_eq!(
        f.session
            .ingest("s", IngestFormat::Csv { header: true }, csv.into())
            .await
            .unwrap(),
        1
    );
    for (format, body, context) in [
        (IngestFormat::NdJson, "{\"id\":5}\n{\"id\":\"x\"}\n", "row 2"),
        (IngestFormat::NdJson, "{\"id\":5}\n{\"at\":null}\n", "row 2"),
        (
            IngestFormat::NdJson,
            "{\"id\":5}\n{\"id\":6,\"at\":\"never\"}\n",
            "row 2",
        ),
        (IngestFormat::Csv { header: false }, "5,,,\nx,,,\n", "line 2"),
    ] {
        let error = f.session.ingest("s", format, body.into()).await.unwrap_err();
        assert!(
            error
                .context
                .as_deref()
                .is_some_and(|text| text.contains(context)),
            "{body}: {error:?}"
        );
    }
    assert_eq!(
        f.ok("SELECT * FROM s ORDER BY id").await,
        [
            "1|2013-01-01 10:00:00+00|1.50|{a,b}",
            "2|null|null|null",
            "3|null|null|null",
            "4|2013-01-01 00:00:00+00|2.00|{x,y}"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_prepared_with_parameters() {
    use datafusion::scalar::ScalarValue;
    use postgres_types::Type;
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT, u UUID)")
        .await;
    let prepare = |sql: &'static str| {
        let session = Arc::clone(&f.session);
        async move {
            session
                .prepare(session.parse(sql).await.unwrap().pop(), &[])
                .await
                .unwrap()
        }
    };
    let insert = prepare("INSERT INTO t VALUES ($1, $2, $3)").await;
    assert_eq!(insert.param_types, [Type::INT8, Type::TEXT, Type::UUID]);
    let values = vec![
        ScalarValue::Int64(Some(7)),
        ScalarValue::Utf8(Some("it's".into())),
        ScalarValue::Utf8(Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11".into())),
    ];
    f.session.execute(&insert, values).await.unwrap();
    let select = prepare("SELECT v, u FROM t WHERE id = $1 AND v LIKE $2").await;
    assert_eq!(select.param_types[0], Type::INT8);
    let parameters = vec![ScalarValue::Int64(Some(7)), ScalarValue::Utf8(Some("it%".into()))];
    let mut out = vec![];
    render(f.session.execute(&select, parameters).await.unwrap(), &mut out)
        .await
        .unwrap();
    assert_eq!(out, ["it's|a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]);
    assert_eq!(
        prepare("UPDATE t SET v = $1 WHERE id = $2").await.param_types,
        [Type::TEXT, Type::INT8]
    );

    f.ok("PREPARE p (bigint) AS SELECT v FROM t WHERE id = $1").await;
    assert_eq!(f.ok("EXECUTE p (7)").await, ["it's"]);
    assert_eq!(f.error("EXECUTE p").await.code, SqlState::SyntaxError);
    assert_eq!(
        f.error("PREPARE p AS SELECT 1").await.code,
        SqlState::DuplicatePreparedStatement
    );
    f.ok("DEALLOCATE p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_settings_and_lists() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v TEXT); INSERT INTO t SELECT x, 'v' FROM generate_series(1, 5) AS g(x)").await;
    f.ok("BEGIN; DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id")
        .await;
    assert_eq!(f.ok("FETCH 2 FROM c").await, ["1", "2"]);
    assert_eq!(f.ok("FETCH ALL FROM c").await, ["3", "4", "5"]);
    f.ok("COMMIT").await;
    assert_eq!(f.error("FETCH 1 FROM c").await.code, SqlState::InvalidCursorName);
    assert_eq!(
        f.error("DECLARE c CURSOR FOR SELECT 1").await.code,
        SqlState::NoActiveSqlTransaction
    );

    f.ok("SET statement_timeout = '1ms'").await;
    assert_eq!(f.error("SELECT pg_sleep(30)").await.code, SqlState::QueryCanceled);
    f.ok("RESET statement_timeout").await;
    assert_eq!(f.ok("SHOW statement_timeout").await, ["0"]);
    assert_eq!(
        f.ok("SELECT set_config('application_name', 'x', false), current_setting('application_name')")
            .await,
        ["x|x"]
    );
    f.ok("BEGIN; SET LOCAL search_path = nowhere; ROLLBACK").await;
    assert_eq!(f.ok("SELECT count(*) FROM t").await, ["5"]);
    assert_eq!(
        f.ok("DESCRIBE t").await,
        ["id|integer|no|null|null", "v|text|yes|null|null"]
    );
    assert!(f.ok("EXPLAIN SELECT * FROM t WHERE id = 1").await.len() > 1);
    assert!(f.ok("EXPLAIN (TYPE LOGICAL) SELECT * FROM t").await[0].contains("TableScan"));
    assert!(
        !f.ok("EXPLAIN (TYPE STAGES) SELECT v, count(*) FROM t GROUP BY v")
            .await
            .is_empty()
    );
    f.ok("CREATE SCHEMA other; CREATE TABLE other.t (x INT); SET search_path = other, public")
        .await;
    assert_eq!(f.ok("SELECT count(*) FROM t").await, ["0"]);
    assert_eq!(
        f.error("DROP SCHEMA other").await.code,
        SqlState::DependentObjectsStillExist
    );
    f.ok("DROP SCHEMA other CASCADE").await;
}
