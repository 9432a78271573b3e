//! One measurement: a graph, a view over it in one form, perhaps changes.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use millrace_engine::WriteToken;
use millrace_storage::ChangeBatch;
use serde::{Deserialize, Serialize};

use super::graph;
use crate::apart::Apart;
use crate::bed::Bed;
use crate::error::BenchError;
use crate::process;

/// Edges of one write while the graph is loaded.
const LOAD_ROWS: usize = 20_000;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum View {
    /// Paths of two edges, by the degree class of their end: a join, and nothing kept but counts.
    Paths,
    Triangles,
    /// Of four nodes.
    Cliques,
}

/// How it is joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// With flow control, its limits given or not.
    Faucet {
        batches: Option<usize>,
        batch_rows: Option<usize>,
    },
    /// Without it.
    Whole,
    /// Binary joins, where the planner would choose a generic one; with flow control.
    Binary,
    /// As a query, by a generic join where there is a cycle.
    GenericQuery,
    /// As a query, by plain DataFusion's joins.
    Query,
    /// By DuckDB.
    DuckDb,
}

impl Form {
    pub(super) const DEFAULT: Form = Form::Faucet {
        batches: None,
        batch_rows: None,
    };

    pub(super) fn name(self) -> &'static str {
        match self {
            Form::Faucet { .. } => "with flow control",
            Form::Whole => "without",
            Form::Binary => "binary joins",
            Form::GenericQuery => "query, generic join",
            Form::Query => "query, DataFusion's joins",
            Form::DuckDb => "DuckDB",
        }
    }
}

impl View {
    pub(super) fn name(self) -> &'static str {
        match self {
            View::Paths => "paths of two edges",
            View::Triangles => "triangles",
            View::Cliques => "cliques of four",
        }
    }

    /// The names of the charts of time and memory.
    pub(super) fn charts(self) -> (&'static str, &'static str) {
        match self {
            View::Paths => ("paths-time", "paths-memory"),
            View::Triangles => ("triangles-time", "triangles-memory"),
            View::Cliques => ("cliques-time", "cliques-memory"),
        }
    }

    pub(super) fn forms(self) -> &'static [Form] {
        match self {
            View::Paths => &[Form::DEFAULT, Form::Whole, Form::Query, Form::DuckDb],
            View::Triangles | View::Cliques => &[
                Form::DEFAULT,
                Form::Whole,
                Form::Binary,
                Form::GenericQuery,
                Form::Query,
                Form::DuckDb,
            ],
        }
    }

    /// `is_binary`: written so that the planner has no cycle to see.
    pub(super) fn sql(self, is_binary: bool) -> &'static str {
        match (self, is_binary) {
            (View::Paths, _) => {
                "SELECT x.a % 16 AS k, count(*) AS n FROM edge AS x JOIN edge AS y ON x.b = y.a GROUP BY x.a % 16"
            }
            (View::Triangles, false) => {
                "SELECT count(*) AS n FROM edge AS x JOIN edge AS y ON x.b = y.a JOIN edge AS z ON x.a = z.a AND y.b = z.b"
            }
            (View::Triangles, true) => {
                "SELECT count(*) AS n FROM (SELECT x.a, y.b FROM edge AS x JOIN edge AS y ON x.b + 0 = y.a + 0) AS w \
                 JOIN edge AS z ON w.a = z.a AND w.b = z.b"
            }
            (View::Cliques, false) => {
                "SELECT count(*) AS n FROM edge AS x JOIN edge AS y ON x.b = y.a JOIN edge AS z ON x.a = z.a AND y.b = z.b \
                 JOIN edge AS p ON p.a = x.a JOIN edge AS q ON q.a = x.b AND q.b = p.b JOIN edge AS r ON r.a = y.b AND r.b = p.b"
            }
            (View::Cliques, true) => {
                "SELECT count(*) AS n FROM (SELECT w.a, w.m, w.b FROM (SELECT x.a, x.b AS m, y.b FROM edge AS x JOIN edge AS y ON x.b + 0 = y.a + 0) AS w \
                 JOIN edge AS z ON w.a + 0 = z.a + 0 AND w.b = z.b) AS t JOIN edge AS p ON p.a + 0 = t.a + 0 \
                 JOIN edge AS q ON q.a = t.m AND q.b = p.b JOIN edge AS r ON r.a = t.b AND r.b = p.b"
            }
        }
    }
}

/// See the module.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    pub(super) view: View,
    pub(super) form: Form,
    pub(super) edges: u64,
    /// Changes after the view is live.
    pub(super) changes: Option<Changes>,
}

/// Edges that go and come back.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Changes {
    pub count: u64,
    pub at_once: u64,
    /// At this rate, each waited for; else as fast as they are taken.
    pub a_second: Option<u64>,
}

/// What was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    pub seconds: f64,
    /// The most that was resident meanwhile, less what was before.
    pub peak_bytes: u64,
    pub results: u64,
    pub changes_seconds: Option<f64>,
    /// Of changes at a rate: how long after they were due the view had them, in milliseconds.
    pub behind_ms: Vec<f64>,
}

impl Apart for Cell {
    const NAME: &'static str = "faucet-cell";
    type Found = Measured;

    async fn run(&self) -> Result<Measured, BenchError> {
        let bed = Bed::new(&[
            "CREATE STREAM edge (a BIGINT, b BIGINT)",
            "CREATE TABLE changing (a BIGINT, b BIGINT)",
        ])
        .await?;
        let edges = graph::edges(self.edges);
        let table = if self.changes.is_some() {
            "changing"
        } else {
            "edge"
        };
        for rows in edges.chunks(LOAD_ROWS) {
            self.write(&bed, table, rows, 1).await?;
        }
        bed.client.run("FLUSH").await?;
        let sql = self.view.sql(self.form == Form::Binary).replace("edge", table);
        let before = process::memory(std::process::id())?.resident;
        // The most from now on.
        fs::write("/proc/self/clear_refs", "5").map_err(BenchError::io("cannot reset the peak of memory"))?;
        let begin = Instant::now();
        let results = if matches!(self.form, Form::Query | Form::GenericQuery) {
            let joins = if self.form == Form::Query {
                "binary"
            } else {
                "generic"
            };
            bed.client.run(&format!("SET cyclic_joins = {joins}")).await?;
            let (column, query) = ("n", &sql);
            bed.client
                .number(&format!("SELECT sum({column}) FROM ({query}) AS answer"))
                .await?
        } else {
            let options = match self.form {
                Form::Whole => " WITH (flow_batches = off)".to_owned(),
                Form::Faucet { batches, batch_rows } => {
                    let text =
                        |value: Option<usize>| value.map_or("auto".to_owned(), |value| value.to_string());
                    format!(
                        " WITH (flow_batches = {}, flow_batch_rows = {})",
                        text(batches),
                        text(batch_rows)
                    )
                }
                _ => String::new(),
            };
            bed.client
                .run(&format!("CREATE MATERIALIZED VIEW measured{options} AS {sql}"))
                .await?;
            bed.client.number("SELECT sum(n) FROM measured").await?
        };
        let seconds = begin.elapsed().as_secs_f64();
        let peak = process::memory(std::process::id())?.peak;
        let (changes_seconds, behind_ms) = match self.changes {
            Some(changes) => {
                let (seconds, behind_ms) = self.change(&bed, table, &edges, changes).await?;
                (Some(seconds), behind_ms)
            }
            None => (None, vec![]),
        };
        bed.stop().await;
        Ok(Measured {
            seconds,
            peak_bytes: peak.saturating_sub(before),
            results: results as u64,
            changes_seconds,
            behind_ms,
        })
    }
}

impl Cell {
    pub(super) fn of(view: View, form: Form, edges: u64) -> Cell {
        Cell {
            view,
            form,
            edges,
            changes: None,
        }
    }

    async fn write(
        &self,
        bed: &Bed,
        table: &str,
        edges: &[(i64, i64)],
        weight: i64,
    ) -> Result<WriteToken, BenchError> {
        let column = |of: fn(&(i64, i64)) -> i64| -> ArrayRef {
            Arc::new(edges.iter().map(of).collect::<Int64Array>())
        };
        let columns = [("a", column(|edge| edge.0)), ("b", column(|edge| edge.1))];
        let rows =
            RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)));
        let changes = ChangeBatch {
            rows: rows.map_err(BenchError::engine)?,
            weights: (weight != 1).then(|| Int64Array::from(vec![weight; edges.len()])),
        };
        let id = bed.relation(table)?;
        let locks = match self.changes {
            Some(_) => Some(bed.runtime.lock_tables(&[id]).await.map_err(BenchError::engine)?),
            None => None,
        };
        let written = bed.runtime.append(vec![(id, changes)], locks.as_ref()).await;
        written.map_err(BenchError::engine)
    }

    /// Takes edges away and puts them back; how long it takes until the view has followed, and how far behind it was.
    async fn change(
        &self,
        bed: &Bed,
        table: &str,
        edges: &[(i64, i64)],
        changes: Changes,
    ) -> Result<(f64, Vec<f64>), BenchError> {
        let begin = Instant::now();
        let (mut done, mut last, mut behind_ms) = (0, WriteToken::default(), vec![]);
        let pieces: Vec<&[(i64, i64)]> = edges.chunks((changes.at_once / 2).max(1) as usize).collect();
        while done < changes.count {
            let due =
                (changes.a_second).map(|rate| begin + Duration::from_secs_f64(done as f64 / rate as f64));
            if let Some(due) = due {
                tokio::time::sleep_until(due.into()).await;
            }
            let piece = pieces[(done / changes.at_once) as usize % pieces.len()];
            for weight in [-1, 1] {
                last = self.write(bed, table, piece, weight).await?;
                done += piece.len() as u64;
            }
            if let Some(due) = due {
                bed.runtime.wait_for(&last).await.map_err(BenchError::engine)?;
                behind_ms.push(due.elapsed().as_secs_f64() * 1e3);
            }
        }
        bed.runtime.wait_for(&last).await.map_err(BenchError::engine)?;
        Ok((begin.elapsed().as_secs_f64(), behind_ms))
    }
}
