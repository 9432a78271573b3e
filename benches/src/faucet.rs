//! Faucet's experiments (Lattuada, McSherry and Chothia, 2016, section 5): joins that multiply rows, with flow control and
//! without, by the size of the graph and by the limits; cliques by binary joins and by generic joins; triangles of a graph
//! that changes. Beside views stand queries, by binary joins (DataFusion's own) and generic ones, and DuckDB where it is there.
//!
//! Each measurement is a view that is made over a graph that is there, in a process of its own: its time, and the most memory
//! above what the process had before.

mod cell;
mod duckdb;
mod graph;
mod soak;

use clap::Args;

use crate::apart::{self, Bounds};
use crate::error::BenchError;
use crate::plot::{Chart, Line};
use crate::results::{Aim, Experiment, Run};
use crate::size::Size;
use crate::suite::Suite;
use cell::View;
pub use cell::{Cell, Form, Measured};
pub use soak::{Soak, Soaked};

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// Edges of the graphs, ascending.
    pub edges: Vec<u64>,
    /// Edges of the graphs whose 4-cliques are counted.
    pub edges_of_cliques: Vec<u64>,
    /// Rows of a batch that are tried with 4 in flight, and batches in flight with the default rows.
    pub batch_rows: Vec<usize>,
    pub batches: Vec<usize>,
    /// Edges that change in all, in the graph whose triangles are kept, and how many at a time.
    pub changes: u64,
    pub changes_at_once: u64,
    /// How many a second, where it is measured how far behind the view is.
    pub changes_a_second: u64,
    pub soak: Soak,
}

impl Scale {
    pub fn real() -> Self {
        Scale {
            edges: vec![10_000, 30_000, 100_000, 300_000, 1_000_000],
            edges_of_cliques: vec![10_000, 30_000, 100_000],
            batch_rows: vec![10, 100, 1_000, 10_000, 100_000, 1_000_000],
            batches: vec![1, 2, 4, 8, 16, 32, 64],
            changes: 300_000,
            changes_at_once: 1_000,
            changes_a_second: 10_000,
            soak: Soak {
                seconds: 600,
                memory_limit: 1 << 30,
                table_rows: 1_000_000,
                join_rows: 4_000,
            },
        }
    }

    /// Enough to see that the experiments work.
    pub fn small() -> Self {
        Scale {
            edges: vec![300],
            edges_of_cliques: vec![300],
            batch_rows: vec![100],
            batches: vec![2],
            changes: 200,
            changes_at_once: 50,
            changes_a_second: 1_000,
            soak: Soak {
                seconds: 1,
                memory_limit: 4 << 30,
                table_rows: 1_000,
                join_rows: 100,
            },
        }
    }
}

/// What one measurement may use: what multiplies rows might take all memory there is.
const BOUNDS: Bounds = Bounds {
    bytes: 8_000_000_000,
    seconds: 60,
};

async fn measure(cell: &Cell, size: Size) -> Result<Measured, BenchError> {
    if cell.form == Form::DuckDb {
        let cell = cell.clone();
        let measured = tokio::task::spawn_blocking(move || duckdb::measure(&cell)).await;
        return measured.map_err(BenchError::engine)?;
    }
    apart::measure(size, cell, Some(BOUNDS)).await
}

/// The experiments' names.
const PATHS: &str = "paths";
const CLIQUES: &str = "cliques";
const LIMITS: &str = "limits";
const CHANGES: &str = "changes";
const SOAK: &str = "soak";

/// The suite, with its options.
#[derive(Debug, Args)]
pub struct Faucet {
    /// How long the soak takes [default: 600]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
}

impl Suite for Faucet {
    const NAME: &'static str = "faucet";
    const ABOUT: &'static str =
        "Faucet's experiments: joins that multiply rows, cliques of graphs, with flow control and without";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let mut scale = match run.size() {
            Size::Real => Scale::real(),
            Size::Small => Scale::small(),
        };
        if let Some(seconds) = self.seconds {
            scale.soak.seconds = seconds;
        }
        if run.begins(PATHS) {
            sizes(run, View::Paths, &scale.edges).await?;
        }
        if run.begins(CLIQUES) {
            sizes(run, View::Triangles, &scale.edges).await?;
            sizes(run, View::Cliques, &scale.edges_of_cliques).await?;
        }
        if run.begins(LIMITS) {
            limits(run, &scale).await?;
        }
        if run.begins(CHANGES) {
            changes(run, &scale).await?;
        }
        if run.begins(SOAK) {
            soaked(run, &scale).await?;
        }
        Ok(())
    }
}

/// A view by the size of the graph, in each of its forms.
async fn sizes(run: &mut Run, view: View, edges: &[u64]) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        view.name(),
        "From CREATE MATERIALIZED VIEW over a graph that is there until the view is live: time, and the most memory that was \
         resident, less what was before.",
    );
    let (mut times, mut memory): (Vec<Line>, Vec<Line>) = (vec![], vec![]);
    for form in view.forms() {
        let line = || Line {
            name: form.name().to_owned(),
            points: vec![],
        };
        times.push(line());
        memory.push(line());
    }
    // What did not get through a graph is not tried on a larger one.
    let mut given_up = vec![false; view.forms().len()];
    if let Some(number) = view.forms().iter().position(|form| *form == Form::DuckDb)
        && !duckdb::is_there()
    {
        given_up[number] = true;
        run.note("DuckDB is not there (`pip install duckdb`).");
    }
    for edges in edges {
        let mut answers = vec![];
        for (number, form) in view.forms().iter().enumerate() {
            if given_up[number] {
                continue;
            }
            let measured = match measure(&Cell::of(view, *form, *edges), run.size()).await {
                Ok(measured) => measured,
                // Flow control has to hold.
                Err(error) if matches!(form, Form::Faucet { .. }) => return Err(error),
                Err(error) => {
                    let name = view.name();
                    run.note(format!(
                        "{name} of {edges} edges, {}: not within {} s and 8 GB of address space ({error})",
                        form.name(),
                        BOUNDS.seconds,
                    ));
                    given_up[number] = true;
                    continue;
                }
            };
            eprintln!("{} of {edges} edges, {}: {measured:?}", view.name(), form.name());
            let name = |what: &str| format!("{edges} edges, {}: {what}", form.name());
            experiment.add(name("time"), "s", vec![measured.seconds], None);
            let mib = measured.peak_bytes as f64 / f64::from(1 << 20);
            experiment.add(name("memory"), "MiB", vec![mib], None);
            if answers.is_empty() {
                experiment.add(
                    format!("{edges} edges: results"),
                    "",
                    vec![measured.results as f64],
                    None,
                );
            }
            answers.push(measured.results);
            times[number]
                .points
                .push((*edges as f64, measured.seconds.max(1e-4)));
            memory[number].points.push((*edges as f64, mib.max(0.1)));
        }
        if answers.iter().any(|answer| *answer != answers[0]) {
            return Err(BenchError::Wrong(format!(
                "{} of {edges} edges are {answers:?}",
                view.name()
            )));
        }
    }
    times.retain(|line| !line.points.is_empty());
    memory.retain(|line| !line.points.is_empty());
    run.add(experiment);
    let (time, space) = view.charts();
    for (name, y, lines) in [(time, "s", times), (space, "MiB", memory)] {
        run.draw(Chart {
            name,
            title: format!("{}: {y} by edges", view.name()),
            x: "edges",
            y,
            lines,
        });
    }
    Ok(())
}

/// Figure 4: the limits.
async fn limits(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        LIMITS,
        "Paths of two edges, with 4 batches of so many rows in flight, and with so many batches of 1,000 rows a core.",
    );
    let edges = scale.edges[scale.edges.len() / 2];
    let settings = (scale.batch_rows.iter().map(|rows| (4, Some(*rows))))
        .chain(scale.batches.iter().map(|batches| (*batches, None)));
    for (batches, batch_rows) in settings {
        let form = Form::Faucet {
            batches: Some(batches),
            batch_rows,
        };
        let measured = measure(&Cell::of(View::Paths, form, edges), run.size()).await?;
        let rows = batch_rows.map_or("1,000 rows a core".to_owned(), |rows| format!("{rows} rows"));
        let name = format!("{edges} edges, {batches} batches of {rows}");
        eprintln!("{name}: {measured:?}");
        experiment.add(format!("{name}: time"), "s", vec![measured.seconds], None);
        let mib = measured.peak_bytes as f64 / f64::from(1 << 20);
        experiment.add(format!("{name}: memory"), "MiB", vec![mib], None);
    }
    run.add(experiment);
    Ok(())
}

/// Triangles of a graph that changes.
async fn changes(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        CHANGES,
        "Edges come and go, half each, while a view counts triangles: how many changes a second it follows, and how long after \
         they were due it has them when they come at a rate.",
    );
    let edges = scale.edges[scale.edges.len() / 2];
    let cell = |a_second| Cell {
        changes: Some(cell::Changes {
            count: scale.changes,
            at_once: scale.changes_at_once,
            a_second,
        }),
        ..Cell::of(View::Triangles, Form::DEFAULT, edges)
    };
    let measured = measure(&cell(None), run.size()).await?;
    let rate = scale.changes as f64 / measured.changes_seconds.unwrap_or(f64::NAN);
    experiment.add(
        format!("{edges} edges, as fast as it can"),
        "changes/s",
        vec![rate],
        None,
    );
    let a_second = scale.changes_a_second;
    let measured = measure(&cell(Some(a_second)), run.size()).await?;
    experiment.add(
        format!("{edges} edges, {a_second} changes a second: the view has them after"),
        "ms",
        measured.behind_ms,
        None,
    );
    run.add(experiment);
    Ok(())
}

/// Everything that fills memory at once, under a limit.
async fn soaked(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let soak = scale.soak;
    let found: Soaked = apart::measure(run.size(), &soak, None).await?;
    let limit = soak.memory_limit as f64 / 1e6;
    let mut experiment = Experiment::new(
        SOAK,
        format!(
            "{} s under memory_limit = {limit:.0} MB: a source that writes as fast as it may to a view that takes long for each \
             row, updates of a join of {} rows a side with four keys, views that are filled from {} rows and dropped, a client \
             that takes {} rows a second; and a view that is to stay fresh. No row is lost: what the views hold is compared in \
             the end.",
            soak.seconds, soak.join_rows, soak.table_rows, 500,
        ),
    );
    let mut add =
        |name: &str, unit: &'static str, values: Vec<f64>, aim| experiment.add(name, unit, values, aim);
    add(
        "resident, the most",
        "MB",
        vec![found.resident_max as f64 / 1e6],
        Some(Aim::MedianUnder(limit)),
    );
    add("the fresh view: alone", "ms", found.alone_ms, None);
    add("the fresh view: beside all that", "ms", found.beside_ms, None);
    let seconds = soak.seconds as f64;
    add(
        "the source: rows taken",
        "rows/s",
        vec![found.flood_rows as f64 / seconds],
        None,
    );
    add(
        "the source: writes refused",
        "",
        vec![found.flood_refused as f64],
        None,
    );
    add(
        "the source: its view has all after",
        "s",
        vec![found.drained_seconds],
        None,
    );
    add(
        "updates of the join",
        "1/s",
        vec![found.joins as f64 / seconds],
        None,
    );
    add("views filled", "", vec![found.filled as f64], None);
    add(
        "views refused for want of memory",
        "",
        vec![found.fills_refused as f64],
        None,
    );
    add(
        "rows that the slow client took",
        "rows/s",
        vec![found.slow_rows as f64 / seconds],
        None,
    );
    run.add(experiment);
    Ok(())
}
