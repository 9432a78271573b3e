//! What it costs to keep views: time and memory of a change, by its size and by the size of the base.
//!
//! The engine runs inside the measuring process, without server, wire and SQL evaluation. Each view over each size of
//! base is a [`Cell`] in a process of its own, so that one leaves nothing in the memory of the next.

mod bed;
mod cell;
mod views;
mod workload;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::apart::{self, Apart};
use crate::error::BenchError;
use crate::plot::{Chart, Line};
use crate::results::{Aim, Experiment, Run};
use crate::size::Size;
use crate::statistics::Sample;
use crate::suite::Suite;
use cell::{Applied, Memory, Task, Times};
use views::{VIEWS, View};

/// Changes of the transaction that the aims are about.
const AIM_CHANGES: usize = 100;
/// From the smallest base to the largest, that transaction may become slower by this factor.
const GROWTH_MAX: f64 = 2.0;
/// Over the largest base it is to be faster than the batch query by this factor.
const SPEEDUP_MIN: f64 = 100.0;
/// State may be larger than the values that it stands for by this factor.
const STATE_RATIO_MAX: f64 = 3.0;

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// Rows of the base, ascending.
    pub base_rows: Vec<usize>,
    /// Changes of a transaction, and how many transactions of that size there are.
    pub writes: Vec<(usize, usize)>,
    /// How often each batch query is run.
    pub recomputations: usize,
}

impl Scale {
    /// What the issue asks for.
    pub fn real() -> Self {
        Scale {
            base_rows: vec![10_000, 100_000, 1_000_000],
            writes: vec![(1, 300), (AIM_CHANGES, 200), (10_000, 15)],
            recomputations: 7,
        }
    }

    /// Enough to see that every experiment works.
    pub fn small() -> Self {
        Scale {
            base_rows: vec![200, 600],
            writes: vec![(1, 3), (AIM_CHANGES, 2)],
            recomputations: 1,
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    view: String,
    quantity: Quantity,
    task: Task,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Quantity {
    Time,
    Memory,
}

/// What a measurement found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Measured {
    Times(Times),
    Memory(Memory),
}

impl Apart for Cell {
    const NAME: &'static str = "ivm-cell";
    type Found = Measured;

    async fn run(&self) -> Result<Measured, BenchError> {
        let view = views::find(&self.view)
            .ok_or_else(|| BenchError::engine(format!("there is no view {} to measure", self.view)))?;
        Ok(match self.quantity {
            Quantity::Time => Measured::Times(cell::times(view, &self.task).await?),
            Quantity::Memory => Measured::Memory(cell::memory(view, &self.task).await?),
        })
    }
}

/// The suite; it has no options of its own.
#[derive(Debug, Args)]
pub struct Ivm;

impl Suite for Ivm {
    const NAME: &'static str = "ivm";
    const ABOUT: &'static str =
        "What it costs to keep views, by the size of the change and by the size of the base";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let scale = match run.size() {
            Size::Real => Scale::real(),
            Size::Small => Scale::small(),
        };
        run.note(
            "The engine runs inside the measuring process, on all cores: writes are calls, not SQL. A time is that from the \
             call until the change is visible in the view: keys are checked, the log is written (and synced, but it lies \
             in memory: what a disk adds is below), the table and the view's operators and contents are brought up to \
             date, the epoch is committed and the caller woken. Changes are inserts, updates and deletes, a third each, \
             of rows all over the base. The same changes are made to tables without a view too: what the view adds is the \
             difference, transaction by transaction; answering anew by the batch query writes no table either. The batch query is the view's SELECT in plain DataFusion on as many cores, planning \
             included, over the same rows in memory; every view is compared with it at the end.",
        );
        let mut cost = vec![];
        let mut recompute = vec![];
        for view in VIEWS {
            if !run.begins(view.name) {
                continue;
            }
            let mut sizes = vec![];
            for base_rows in &scale.base_rows {
                eprintln!("{} over {base_rows} rows ...", view.name);
                let cell = Cell {
                    view: view.name.to_owned(),
                    quantity: Quantity::Time,
                    task: task(&scale, *base_rows),
                };
                if let Measured::Times(times) = apart::measure(run.size(), &cell, None).await? {
                    sizes.push((*base_rows, times));
                }
            }
            let mut experiment = Experiment::new(view.name, method(view));
            report_times(&mut experiment, &sizes);
            if run.size() == Size::Real
                && let Some(base_rows) = scale.base_rows.last()
            {
                let cell = Cell {
                    view: view.name.to_owned(),
                    quantity: Quantity::Memory,
                    task: task(&scale, *base_rows),
                };
                if let Measured::Memory(memory) = apart::measure(run.size(), &cell, None).await? {
                    report_memory(&mut experiment, *base_rows, &memory);
                }
            }
            run.add(experiment);
            cost.push(line(view, &sizes, aim_median));
            recompute.push(line(view, &sizes, |times| median(&times.recompute_ms)));
        }
        run.draw(Chart {
            name: "cost",
            title: format!("Time until {AIM_CHANGES} changes are visible"),
            x: "rows of the base",
            y: "ms",
            lines: cost,
        });
        run.draw(Chart {
            name: "recompute",
            title: "Time of the batch query".to_owned(),
            x: "rows of the base",
            y: "ms",
            lines: recompute,
        });
        Ok(())
    }
}

fn task(scale: &Scale, base_rows: usize) -> Task {
    Task {
        base_rows,
        writes: scale.writes.clone(),
        recomputations: scale.recomputations,
        seed: base_rows as u64,
    }
}

fn method(view: &View) -> String {
    let about = view.about;
    let select = view.select.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{}{}.\n\n    {select}", about[..1].to_uppercase(), &about[1..])
}

fn line(view: &View, sizes: &[(usize, Times)], value: impl Fn(&Times) -> Option<f64>) -> Line {
    Line {
        name: view.name.to_owned(),
        points: sizes
            .iter()
            .filter_map(|(base_rows, times)| Some((*base_rows as f64, value(times)?)))
            .collect(),
    }
}

fn median(values: &[f64]) -> Option<f64> {
    Sample::new(values.to_vec()).map(|sample| sample.summary().median)
}

/// The transactions that the aims are about.
fn aim(times: &Times) -> Option<&Applied> {
    let mut applied = times.applied.iter();
    applied.find(|applied| applied.changes == AIM_CHANGES)
}

fn aim_median(times: &Times) -> Option<f64> {
    median(&aim(times)?.visible_ms)
}

/// What the view adds to the time of each transaction.
fn view_ms(applied: &Applied) -> Vec<f64> {
    let both = applied.visible_ms.iter().zip(&applied.bare_ms);
    both.map(|(visible, bare)| visible - bare).collect()
}

fn report_times(experiment: &mut Experiment, sizes: &[(usize, Times)]) {
    let changes: Vec<usize> = match sizes.first() {
        Some((_, times)) => times.applied.iter().map(|applied| applied.changes).collect(),
        None => return,
    };
    for (place, changes) in changes.iter().enumerate() {
        for (base_rows, times) in sizes {
            let applied = &times.applied[place];
            let name = format!("{} over {}", count(*changes, "change"), rows(*base_rows));
            experiment.add(name.clone(), "ms", applied.visible_ms.clone(), None);
            experiment.add(name.clone() + ", the view's part", "ms", view_ms(applied), None);
            experiment.add(
                name.clone() + ", processor time",
                "ms",
                vec![applied.cpu_ms],
                None,
            );
            let view_cpu_ms = applied.cpu_ms - applied.bare_cpu_ms;
            experiment.add(
                name + ", processor time, the view's part",
                "ms",
                vec![view_cpu_ms],
                None,
            );
        }
    }
    for (base_rows, times) in sizes {
        experiment.add(
            format!("batch query over {}", rows(*base_rows)),
            "ms",
            times.recompute_ms.clone(),
            None,
        );
    }
    let (Some((_, smallest)), Some((largest_rows, largest))) = (sizes.first(), sizes.last()) else {
        return;
    };
    if let (Some(small), Some(large), Some(batch)) = (
        aim_median(smallest),
        aim_median(largest),
        median(&largest.recompute_ms),
    ) {
        experiment.add(
            format!("{AIM_CHANGES} changes: largest base against smallest"),
            "x",
            vec![large / small],
            Some(Aim::MedianUnder(GROWTH_MAX)),
        );
        experiment.add(
            format!(
                "batch query against {AIM_CHANGES} changes, {}",
                rows(*largest_rows)
            ),
            "x",
            vec![batch / large],
            Some(Aim::MedianOver(SPEEDUP_MIN)),
        );
        if let Some(view) = aim(largest).and_then(|applied| median(&view_ms(applied))) {
            experiment.add(
                format!(
                    "batch query against the view's part of {AIM_CHANGES} changes, {}",
                    rows(*largest_rows)
                ),
                "x",
                vec![batch / view],
                Some(Aim::MedianOver(SPEEDUP_MIN)),
            );
        }
    }
    experiment.add(
        format!("state against raw bytes, {} loaded", rows(*largest_rows)),
        "x",
        vec![largest.state_ratio_loaded],
        Some(Aim::MedianUnder(STATE_RATIO_MAX)),
    );
    experiment.add(
        "state against raw bytes, after all changes",
        "x",
        vec![largest.state_ratio_changed],
        None,
    );
    for (base_rows, times) in sizes {
        experiment.add(
            format!("loading {} with the view", rows(*base_rows)),
            "rows/s",
            vec![times.load_rows_per_s],
            None,
        );
    }
    experiment.add("rows of the view", "", vec![largest.view_rows as f64], None);
}

fn report_memory(experiment: &mut Experiment, base_rows: usize, memory: &Memory) {
    let megabytes = |bytes: f64| vec![bytes / 1e6];
    let rows = rows(base_rows);
    experiment.add(
        format!("raw bytes of what is kept, {rows}"),
        "MB",
        megabytes(memory.raw_bytes as f64),
        None,
    );
    experiment.add(
        format!("state, {rows}"),
        "MB",
        megabytes(memory.state_bytes as f64),
        None,
    );
    experiment.add(
        format!("resident memory of the view, {rows}"),
        "MB",
        megabytes(memory.resident_bytes as f64),
        None,
    );
    experiment.add(
        format!("loading {rows} without the view"),
        "rows/s",
        vec![memory.load_rows_per_s],
        None,
    );
}

fn rows(count: usize) -> String {
    let text = count.to_string();
    match text.strip_suffix("000000") {
        Some(millions) => format!("{millions}M rows"),
        None => match text.strip_suffix("000") {
            Some(thousands) => format!("{thousands}k rows"),
            None => format!("{text} rows"),
        },
    }
}

fn count(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}
