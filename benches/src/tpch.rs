//! TPC-H: what it costs to keep all 22 queries as views.
//!
//! The runtime is measured in this process, without a server around it, so that plain DataFusion answers from the same
//! rows in the same memory. What is compared with it is checked against it too.

use std::time::Instant;

use clap::Args;
use millrace_oracle::rows::difference;
use millrace_planner::OnError;
use millrace_sql_tests::Failure;
use millrace_sql_tests::batch::Batch;
use millrace_sql_tests::engine::Engine;
use millrace_sql_tests::tpch::{self, queries};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::error::BenchError;
use crate::machine;
use crate::process;
use crate::results::{Aim, Experiment, Run};
use crate::size::Size;
use crate::suite::Suite;

/// The seed of the refreshes.
const SEED: u64 = 22;

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// TPC-H's scale factor.
    pub factor: f64,
    /// CPU slots, and partitions of plain DataFusion's plans.
    pub cores: usize,
    /// Refreshes, and for each the orders that it deletes or inserts.
    pub refreshes: usize,
    pub orders: usize,
}

impl Scale {
    /// A scale factor on all cores. A refresh touches one order in a thousand, as the specification's do.
    pub fn real(factor: f64) -> Self {
        Scale {
            factor,
            cores: machine::cores(),
            refreshes: 20,
            orders: ((1_500_000.0 * factor / 1_000.0) as usize).max(10),
        }
    }

    /// Enough to see that the experiment works.
    pub fn small() -> Self {
        Scale {
            factor: 0.01,
            cores: 2,
            refreshes: 2,
            orders: 20,
        }
    }
}

/// The suite, with its options. Its parts that `--only` chooses are the queries.
#[derive(Debug, Args)]
pub struct Tpch {
    /// TPC-H's scale factor
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
}

impl Suite for Tpch {
    const NAME: &'static str = "tpch";
    const ABOUT: &'static str =
        "TPC-H: the back-fill of the 22 queries as views against their batch answers, refreshes, memory";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let scale = match run.size() {
            Size::Real => Scale::real(self.scale),
            Size::Small => Scale::small(),
        };
        Ok(measure(run, &scale).await?)
    }
}

async fn measure(run: &mut Run, scale: &Scale) -> Result<(), Failure> {
    let mut queries = queries(scale.factor)?;
    queries.retain(|query| run.wants(&query.name));
    if queries.is_empty() {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let engine = Engine::start(directory.path(), scale.cores)?;
    let mut batch = Batch::new(engine.state(), scale.cores);
    eprintln!("loading scale factor {} ...", scale.factor);
    let mut tpch = tpch::Tpch::load(&engine, &mut batch, scale.factor).await?;
    let raw = tpch.bytes_loaded as f64 / 1e6;
    let loaded = resident()?;

    let (mut batch_ms, mut backfill_ms, mut views) = (vec![], vec![], vec![]);
    let mut each = Experiment::new(
        "each query",
        "The batch answer and the back-fill of each view, planning included, one after the other; and by how many \
         times the back-fill is slower. Right after it was made each view is compared with the batch answer.",
    );
    for query in queries {
        // Once without looking, so that both have warm caches.
        batch.answer(&query.query).await?;
        let begin = Instant::now();
        let expected = batch.answer(&query.query).await?;
        let batch_time = begin.elapsed().as_secs_f64() * 1e3;
        let begin = Instant::now();
        let id = engine
            .create_view(
                &mut tpch.relations,
                &query.name,
                &query.query,
                scale.cores,
                OnError::default(),
            )
            .await?;
        let backfill_time = begin.elapsed().as_secs_f64() * 1e3;
        let token = engine.runtime().acknowledged();
        let snapshot = engine.snapshot(&[id], &token).await?;
        if let Some(difference) = difference(&engine.read(&snapshot, id).await?, &expected)? {
            return Err(BenchError::Wrong(format!("{}: {difference}", query.name)).into());
        }
        eprintln!(
            "{}: batch {batch_time:.0} ms, back-fill {backfill_time:.0} ms",
            query.name
        );
        each.add(format!("{} batch", query.name), "ms", vec![batch_time], None);
        each.add(
            format!("{} back-fill", query.name),
            "ms",
            vec![backfill_time],
            None,
        );
        batch_ms.push(batch_time);
        backfill_ms.push(backfill_time);
        views.push((query, id));
    }
    let (batch_total, backfill_total): (f64, f64) = (batch_ms.iter().sum(), backfill_ms.iter().sum());
    let mut totals = Experiment::new(
        "back-fill",
        "The 22 queries as materialized views over loaded tables, made one after the other, against the 22 answers of \
         plain DataFusion over the same rows in the same process, on as many cores.",
    );
    totals.add("rows in the tables", "rows", vec![tpch.rows_loaded as f64], None);
    totals.add("22 batch answers", "ms", vec![batch_total], None);
    totals.add("22 back-fills", "ms", vec![backfill_total], None);
    let ratio = backfill_total / batch_total;
    totals.add(
        "back-fill / batch",
        "times",
        vec![ratio],
        Some(Aim::MedianUnder(3.0)),
    );
    run.add(totals);

    let mut random = StdRng::seed_from_u64(SEED);
    let (mut rates, mut times) = (vec![], vec![]);
    for _ in 0..scale.refreshes {
        let changes = tpch.refresh(&mut random, scale.orders)?;
        let rows = changes
            .iter()
            .map(|(_, changes)| changes.num_rows())
            .sum::<usize>();
        let begin = Instant::now();
        let token = engine.write(changes).await?;
        engine.runtime().wait_for(&token).await?;
        let time = begin.elapsed().as_secs_f64();
        times.push(time * 1e3);
        rates.push(rows as f64 / time);
    }
    tpch.show(&batch)?;
    let ids: Vec<_> = views.iter().map(|(_, id)| *id).collect();
    let snapshot = engine.snapshot(&ids, &engine.runtime().acknowledged()).await?;
    for (query, id) in &views {
        let expected = batch.answer(&query.query).await?;
        if let Some(difference) = difference(&engine.read(&snapshot, *id).await?, &expected)? {
            return Err(
                BenchError::Wrong(format!("{} after the refreshes: {difference}", query.name)).into(),
            );
        }
    }
    let mut refresh = Experiment::new(
        "refresh",
        format!(
            "{} random orders are deleted or inserted with their line items, in one write, until all 22 views show it. \
             Afterwards every view is compared with its batch answer.",
            scale.orders
        ),
    );
    refresh.add("one refresh", "ms", times, None);
    refresh.add("rate", "rows/s", rates, None);
    run.add(refresh);

    let state: usize = engine.runtime().views().iter().map(|view| view.state_bytes).sum();
    let mut memory = Experiment::new(
        "memory",
        "Of the whole process, which also holds the rows for plain DataFusion, and the orders that are held back.",
    );
    memory.add("raw rows in the tables", "MB", vec![raw], None);
    memory.add("resident when loaded", "MB", vec![loaded], None);
    memory.add("resident at the end", "MB", vec![resident()?], None);
    memory.add("state of the 22 views", "MB", vec![state as f64 / 1e6], None);
    run.add(memory);
    run.add(each);
    engine.shutdown().await;
    Ok(())
}

/// Resident megabytes of this process.
fn resident() -> Result<f64, BenchError> {
    Ok(process::memory(std::process::id())?.resident as f64 / 1e6)
}
