//! What clients do beside a stream: TPC-H over Parquet files, the training of a model, or joins that fill memory.

use std::path::Path;
use std::sync::Arc;

use millrace_sql_tests::tpch::{TableFile, queries, write_parquet};

use super::Scale;
use crate::error::BenchError;

/// Clients that send statements at once.
pub const CLIENTS: usize = 2;
/// With less a server does not get far, however few the rows.
const MEMORY_MIN: u64 = 256 << 20;
/// What the tables of the joins take, for each row that a join keeps.
const TABLE_BYTES: u64 = 3 * 2 * 16;

/// What clients do beside a stream.
pub struct BatchWork {
    /// What is made where the stream is, and what is made where the work is done.
    pub streams: Vec<String>,
    pub tables: Vec<String>,
    pub statements: Arc<Vec<String>>,
    pub clients: usize,
    /// What the server may have more than this process had before it, in bytes.
    pub memory: Option<u64>,
}

/// TPC-H's queries over Parquet files.
///
/// # Errors
/// The files cannot be written.
pub fn tpch(directory: &Path, scale: &Scale) -> Result<BatchWork, BenchError> {
    eprintln!("writing TPC-H as Parquet ...");
    let files = write_parquet(directory, scale.factor)?;
    let queries = queries(scale.factor)?;
    let statements = queries.into_iter().take(scale.queries).map(|query| query.sql);
    Ok(BatchWork {
        streams: vec![],
        tables: files.iter().map(TableFile::create).collect(),
        statements: Arc::new(statements.collect()),
        clients: CLIENTS,
        memory: None,
    })
}

/// As `docs/examples/inference.sql` does it; a statement goes ten steps down the gradient.
pub fn training(scale: &Scale) -> BatchWork {
    let rows = scale.training_rows;
    BatchWork {
        streams: vec![
            "CREATE TABLE model (id INT PRIMARY KEY, w0 DOUBLE PRECISION, w1 DOUBLE PRECISION, w2 DOUBLE PRECISION)".to_owned(),
            "INSERT INTO model VALUES (0, 0, 0, 0)".to_owned(),
            "CREATE MATERIALIZED VIEW scored AS SELECT e.ad_id, count(*) AS events, avg(1 / (1 + exp(-(m.w0 + \
             m.w1 * e.user_id / 1e5 + m.w2 * e.page_id / 1e5)))) AS probability \
             FROM events e JOIN model FOR SYSTEM_TIME AS OF PROCTIME() AS m ON m.id = 0 GROUP BY e.ad_id"
                .to_owned(),
        ],
        tables: vec![
            "CREATE TABLE training (id BIGINT PRIMARY KEY, x1 DOUBLE PRECISION, x2 DOUBLE PRECISION, y DOUBLE PRECISION)"
                .to_owned(),
            format!(
                "INSERT INTO training SELECT n, x1, x2, CASE WHEN 0.5 + 2 * x1 - x2 > 0 THEN 1 ELSE 0 END FROM (SELECT n, \
                 2 * sin(n * 1.3) AS x1, 2 * cos(n * 2.7) AS x2 FROM generate_series(1, {rows}) AS g(n)) AS numbers"
            ),
        ],
        statements: Arc::new(vec![
            "INSERT INTO model WITH RECURSIVE descent(n, w0, w1, w2) AS (SELECT 0, w0, w1, w2 FROM model WHERE id = 0 UNION ALL \
             SELECT n + 1, max(w0) + avg(y - p), max(w1) + avg((y - p) * x1), max(w2) + avg((y - p) * x2) FROM (SELECT d.*, \
             t.x1, t.x2, t.y, 1 / (1 + exp(-(d.w0 + d.w1 * t.x1 + d.w2 * t.x2))) AS p FROM descent AS d CROSS JOIN training \
             AS t) AS predicted WHERE n < 10 GROUP BY n) SELECT 0, w0, w1, w2 FROM descent ORDER BY n DESC LIMIT 1 \
             ON CONFLICT (id) DO UPDATE SET w0 = excluded.w0, w1 = excluded.w1, w2 = excluded.w2"
                .to_owned(),
        ]),
        clients: 1,
        memory: None,
    }
}

/// So many joins at a time, each of which holds about a tenth of the memory that there is for queries.
pub fn joins(clients: usize, scale: &Scale) -> BatchWork {
    let rows = scale.join_rows;
    // A row of the side that is kept: two numbers, a hash and its place in the table.
    let memory = (rows as u64 * (32 * 10 + TABLE_BYTES)).max(MEMORY_MIN);
    BatchWork {
        streams: vec![],
        tables: vec![
            "CREATE TABLE kept (k BIGINT, v BIGINT)".to_owned(),
            format!("INSERT INTO kept SELECT n, n * 7 FROM generate_series(1, {rows}) AS g(n)"),
            "CREATE TABLE probed (k BIGINT, v BIGINT)".to_owned(),
            format!(
                "INSERT INTO probed SELECT n % {rows}, n FROM generate_series(1, {}) AS g(n)",
                2 * rows
            ),
        ],
        statements: Arc::new(vec![
            "SELECT count(*), sum(a.v + b.v) FROM kept AS a JOIN probed AS b ON a.k = b.k".to_owned(),
        ]),
        clients,
        memory: Some(memory),
    }
}
