//! EXPLAIN (PREDICT) of a new view: how long it will take to fill, and whether it will keep up.
//!
//! ```text
//! views that ran ──> nanoseconds a row of stages with the same operators, while filled and since (median, least, most)
//! inputs ──> rows now, rows a second ──> rows into each stage
//! back-fill = sum of rows x nanoseconds a row, over the cores in use, x time beside
//! keeps up  = sum of rows a second x nanoseconds a row  <=  processor time that is free
//! ```
//!
//! A stage whose operators were never seen together is put together from theirs: each has an equal part of the cost of
//! every stage that it was seen in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::freshness::FreshnessForecast;
use super::interval::{Certainty, Interval};
use super::samples::{ROWS_TIMED_MIN, Samples, Spread};
use crate::profile::Nanoseconds;
use crate::task_counts::TaskCounts;
use crate::units::{count, percent};

/// A stage of a view that ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenStage {
    /// The kinds of its operators (`millrace_planner::explain::stage_operators`).
    pub operators: Vec<String>,
    /// While the view was filled.
    pub filling: TaskCounts,
    /// Since then.
    pub running: TaskCounts,
}

/// A view that ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenView {
    pub stages: Vec<SeenStage>,
    /// How long it took to fill; `None`: not known, or slowed down on purpose.
    pub filled_in: Option<Nanoseconds>,
    /// Cores that it could use for that.
    pub cores: usize,
}

/// An input of the new view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedInput {
    pub name: String,
    pub rows: u64,
    /// Changes a second, now.
    pub rows_per_second: f64,
}

/// Where the rows of a stage come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsFrom {
    /// By its position among the inputs.
    Input(usize),
    /// An earlier stage.
    Stage(usize),
}

/// A stage of the new view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedStage {
    pub name: String,
    pub operators: Vec<String>,
    pub inputs: Vec<RowsFrom>,
}

/// The machine that it will run on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Room {
    pub cores: usize,
    /// Partitions of the view.
    pub partitions: usize,
    /// The share of all cores that nobody uses now.
    pub free: f64,
}

/// What a view is expected to take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewForecast {
    pub inputs: Vec<PlannedInput>,
    pub stages: Vec<StageForecast>,
    /// To fill it.
    #[serde(flatten)]
    pub time: Interval,
    /// Shares of all cores that the changes of its inputs will take, and that are free.
    pub cpu: f64,
    pub cpu_high: f64,
    pub cpu_free: f64,
    /// Rows of its inputs a second that it could take with all cores, in the proportion in which they come now, or stand there
    /// if none come; `None`: there are neither.
    pub rows_per_second_max: Option<f64>,
    pub certainty: Certainty,
    /// Views that it rests on.
    pub views: usize,
    /// One line in plain words.
    pub verdict: String,
    /// Of a view with a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freshness: Option<FreshnessForecast>,
}

/// A stage of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageForecast {
    pub name: String,
    /// Rows that it will be given while the view is filled.
    pub rows_in: f64,
    /// Processor time that they take.
    pub cpu: Nanoseconds,
    /// Nanoseconds a row afterwards.
    pub row_cost: f64,
}

/// What a row costs, and how well that is known.
struct Cost {
    nanoseconds: Spread,
    certainty: Certainty,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Filling,
    Running,
}

/// What is known of stages.
struct Known<'a>(&'a [SeenView]);

impl Known<'_> {
    /// Counts of stages with enough rows to tell what one costs; of the other phase where this one has none at all.
    fn counts(&self, phase: Phase) -> Vec<(&[String], TaskCounts)> {
        let of = |phase| {
            let stages = self.0.iter().flat_map(|view| &view.stages);
            stages
                .map(move |stage| {
                    let counts = match phase {
                        Phase::Filling => stage.filling,
                        Phase::Running => stage.running,
                    };
                    (&stage.operators[..], counts)
                })
                .filter(|(_, counts)| counts.rows_in >= ROWS_TIMED_MIN)
                .collect::<Vec<_>>()
        };
        let (mut found, other) = match phase {
            Phase::Filling => (of(Phase::Filling), of(Phase::Running)),
            Phase::Running => (of(Phase::Running), of(Phase::Filling)),
        };
        // Of stages that were not seen in this phase.
        let is_missing = |operators: &[String]| found.iter().all(|(seen, _)| *seen != operators);
        let missing: Vec<_> = (other.into_iter())
            .filter(|(operators, _)| is_missing(operators))
            .collect();
        found.extend(missing);
        found
    }

    /// What a row costs a stage of these operators; `None`: nothing was ever seen.
    fn cost(&self, operators: &[String], phase: Phase) -> Option<Cost> {
        let counts = self.counts(phase);
        let cost = |counts: &TaskCounts| counts.busy as f64 / counts.rows_in as f64;
        let same = (counts.iter())
            .filter(|(seen, _)| *seen == operators)
            .map(|(_, counts)| cost(counts));
        let same = Samples::new(same.collect());
        if let Some(nanoseconds) = same.cost() {
            return Some(Cost {
                nanoseconds,
                certainty: match same.are_many() {
                    true => Certainty::High,
                    false => Certainty::Medium,
                },
            });
        }
        let mut parts: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (seen, counts) in &counts {
            for operator in *seen {
                let part = cost(counts) / seen.len().max(1) as f64;
                parts.entry(operator).or_default().push(part);
            }
        }
        let all = Samples::new(parts.values().flatten().copied().collect()).spread()?;
        let parts: BTreeMap<&str, Samples> = (parts.into_iter())
            .map(|(operator, samples)| (operator, Samples::new(samples)))
            .collect();
        let mut certainty = Certainty::Medium;
        let mut nanoseconds = Spread::of(0.0);
        for operator in operators {
            let seen = parts.get(operator.as_str()).and_then(Samples::spread);
            if seen.is_none() && !self.has_seen(operator) {
                certainty = Certainty::Low;
            }
            nanoseconds += seen.unwrap_or(all);
        }
        Some(Cost {
            nanoseconds,
            certainty,
        })
    }

    /// Whether an operator of this kind was seen, be it with few rows.
    fn has_seen(&self, operator: &str) -> bool {
        let mut stages = self.0.iter().flat_map(|view| &view.stages);
        stages.any(|stage| {
            let rows_in = stage.filling.rows_in + stage.running.rows_in;
            rows_in > 0 && stage.operators.iter().any(|seen| seen == operator)
        })
    }

    /// Rows that a stage of these operators emits for each that it is given; as many, if none was seen.
    fn share(&self, operators: &[String], phase: Phase) -> f64 {
        let counts = self.counts(phase);
        let shares = (counts.iter())
            .filter(|(seen, _)| *seen == operators)
            .map(|(_, counts)| counts.rows_out as f64 / counts.rows_in as f64);
        Samples::new(shares.collect()).median().unwrap_or(1.0)
    }

    /// Elapsed time of back-fills times the cores in use, to the time of their tasks.
    fn beside(&self) -> f64 {
        let factors = self.0.iter().filter_map(|view| {
            let busy: Nanoseconds = view.stages.iter().map(|stage| stage.filling.busy).sum();
            let rows = view.stages.iter().map(|stage| stage.filling.rows_in).max()?;
            let elapsed = view.filled_in.filter(|_| busy > 0 && rows >= ROWS_TIMED_MIN)?;
            Some(elapsed as f64 * view.cores as f64 / busy as f64)
        });
        Samples::new(factors.collect()).median().unwrap_or(1.0)
    }

    /// Rows into each stage, if the inputs have so many.
    fn rows_in(&self, plan: &[PlannedStage], inputs: &[f64], phase: Phase) -> Vec<f64> {
        let (mut given, mut put_out) = (vec![], vec![]);
        for stage in plan {
            let rows: f64 = (stage.inputs.iter())
                .map(|from| match from {
                    RowsFrom::Input(input) => inputs.get(*input).copied().unwrap_or(0.0),
                    RowsFrom::Stage(stage) => put_out.get(*stage).copied().unwrap_or(0.0),
                })
                .sum();
            put_out.push(rows * self.share(&stage.operators, phase));
            given.push(rows);
        }
        given
    }
}

/// Forecasts a view whose stages come in order, each after those whose rows it reads. `None`: no view was seen at work.
pub fn forecast_view(
    plan: &[PlannedStage],
    inputs: Vec<PlannedInput>,
    seen: &[SeenView],
    room: Room,
) -> Option<ViewForecast> {
    let known = Known(seen);
    let costs = |phase| {
        plan.iter()
            .map(|stage| known.cost(&stage.operators, phase))
            .collect::<Option<Vec<Cost>>>()
    };
    let (filling, running) = (costs(Phase::Filling)?, costs(Phase::Running)?);
    let rows: Vec<f64> = inputs.iter().map(|input| input.rows as f64).collect();
    let rows_in = known.rows_in(plan, &rows, Phase::Filling);
    let total = |costs: &[Cost], rows: &[f64]| {
        let mut total = Spread::of(0.0);
        for (cost, rows) in costs.iter().zip(rows) {
            total += cost.nanoseconds * *rows;
        }
        total
    };
    let in_use = room.partitions.clamp(1, room.cores.max(1)) as f64;
    let elapsed = |cpu: f64| (cpu * known.beside() / in_use) as Nanoseconds;

    let rates: Vec<f64> = inputs.iter().map(|input| input.rows_per_second).collect();
    let rates_in = known.rows_in(plan, &rates, Phase::Running);
    let all_cores = room.cores.max(1) as f64 * 1e9;
    let cpu = total(&running, &rates_in) * (1.0 / all_cores);
    // The mix of rows for which the highest rate is told.
    let mix = if rates.iter().sum::<f64>() > 0.0 {
        &rates
    } else {
        &rows
    };
    let mix_cpu = total(&running, &known.rows_in(plan, mix, Phase::Running)).expected;
    let rows_per_second_max = (mix_cpu > 0.0).then(|| mix.iter().sum::<f64>() * all_cores / mix_cpu);
    let fill = total(&filling, &rows_in);
    let mut found = ViewForecast {
        time: Interval {
            expected: elapsed(fill.expected),
            low: elapsed(fill.low),
            high: elapsed(fill.high),
        },
        cpu: cpu.expected,
        cpu_high: cpu.high,
        cpu_free: room.free,
        rows_per_second_max,
        certainty: (filling.iter().chain(&running))
            .map(|cost| cost.certainty)
            .min()
            .unwrap_or(Certainty::Low),
        views: seen.len(),
        stages: (plan.iter().zip(&rows_in).zip(filling.iter().zip(&running)))
            .map(|((stage, rows_in), (filling, running))| StageForecast {
                name: stage.name.clone(),
                rows_in: *rows_in,
                cpu: (rows_in * filling.nanoseconds.expected) as Nanoseconds,
                row_cost: running.nanoseconds.expected,
            })
            .collect(),
        inputs,
        verdict: String::new(),
        freshness: None,
    };
    found.verdict = verdict(&found);
    Some(found)
}

/// One line on a view that is not there yet, such as `it will keep up: 19,175 rows/s take 3 % of the cores, 95 % are free; its limit:
/// 620,000 rows/s`.
fn verdict(forecast: &ViewForecast) -> String {
    let rate = |value: f64| count(value.round() as u64);
    let limit = match forecast.rows_per_second_max {
        Some(rows) => format!("; its limit: {} rows/s", rate(rows)),
        None => String::new(),
    };
    let now: f64 = forecast.inputs.iter().map(|input| input.rows_per_second).sum();
    if now <= 0.0 {
        return format!("no rows are arriving{limit}");
    }
    let answer = if forecast.cpu_high <= forecast.cpu_free {
        "it will keep up"
    } else if forecast.cpu <= forecast.cpu_free {
        "it will probably keep up"
    } else {
        "it will not keep up"
    };
    format!(
        "{answer}: {} rows/s take {} of the cores, {} are free{limit}",
        rate(now),
        percent(forecast.cpu),
        percent(forecast.cpu_free)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room {
        cores: 2,
        partitions: 8,
        free: 0.9,
    };

    fn kinds(text: &str) -> Vec<String> {
        text.split(", ").map(str::to_owned).collect()
    }

    fn counts(rows_in: u64, rows_out: u64, busy: Nanoseconds) -> TaskCounts {
        TaskCounts {
            rows_in,
            rows_out,
            busy,
            ..TaskCounts::default()
        }
    }

    /// A grouped count over a million rows: 100 ns a row in the map, 300 in the reduce, of which a hundredth of the rows reach
    /// it; back-fill took twice the time of its tasks on both cores. Since then rows cost twice as much.
    fn seen() -> SeenView {
        SeenView {
            stages: vec![
                SeenStage {
                    operators: kinds("PartialAggregate, Source"),
                    filling: counts(1_000_000, 10_000, 100_000_000),
                    running: counts(10_000, 10_000, 2_000_000),
                },
                SeenStage {
                    operators: kinds("Aggregate"),
                    filling: counts(10_000, 100, 3_000_000),
                    running: counts(10_000, 20_000, 6_000_000),
                },
            ],
            filled_in: Some(103_000_000),
            cores: 2,
        }
    }

    fn plan() -> [PlannedStage; 2] {
        [
            PlannedStage {
                name: "PartialAggregate, Source: bid".to_owned(),
                operators: kinds("PartialAggregate, Source"),
                inputs: vec![RowsFrom::Input(0)],
            },
            PlannedStage {
                name: "Aggregate".to_owned(),
                operators: kinds("Aggregate"),
                inputs: vec![RowsFrom::Stage(0)],
            },
        ]
    }

    fn input(rows: u64, rows_per_second: f64) -> Vec<PlannedInput> {
        vec![PlannedInput {
            name: "bid".to_owned(),
            rows,
            rows_per_second,
        }]
    }

    #[test]
    fn nothing_is_forecast_from_nothing() {
        assert_eq!(forecast_view(&plan(), input(1, 0.0), &[], ROOM), None);
        assert_eq!(
            forecast_view(&plan(), input(1, 0.0), &[SeenView::default()], ROOM),
            None
        );
    }

    #[test]
    fn a_view_like_one_that_was_seen_takes_as_long() {
        let found = forecast_view(
            &plan(),
            input(2_000_000, 100_000.0),
            &[seen(), seen(), seen()],
            ROOM,
        )
        .unwrap();
        assert_eq!(found.certainty, Certainty::High);
        assert_eq!(found.time.expected, 206_000_000);
        assert_eq!(
            (found.time.low, found.time.high),
            (found.time.expected, found.time.expected)
        );
        // 200 ns in the map and 600 in the reduce, for each row.
        assert!((found.cpu - 0.04).abs() < 1e-9, "{found:?}");
        assert!((found.rows_per_second_max.unwrap() - 2_500_000.0).abs() < 1.0);
        assert!(found.verdict.starts_with("it will keep up"), "{}", found.verdict);
        let idle = forecast_view(&plan(), input(2_000_000, 0.0), &[seen()], ROOM).unwrap();
        assert_eq!(idle.rows_per_second_max, found.rows_per_second_max);
        assert_eq!(idle.certainty, Certainty::Medium);
        assert!(idle.time.low < idle.time.expected && idle.time.expected < idle.time.high);
    }

    #[test]
    fn what_comes_too_fast_is_said() {
        let found = forecast_view(&plan(), input(0, 5_000_000.0), &[seen()], ROOM).unwrap();
        assert!(found.cpu > 1.9, "{found:?}");
        assert!(
            found.verdict.starts_with("it will not keep up"),
            "{}",
            found.verdict
        );
        assert_eq!(found.time.expected, 0);
    }

    #[test]
    fn what_was_never_seen_together_is_put_together() {
        let mut stages = plan();
        stages[0].operators = kinds("PartialAggregate, Filter, Source");
        let found = forecast_view(&stages, input(1_000, 0.0), &[seen()], ROOM).unwrap();
        assert_eq!(found.certainty, Certainty::Low);
        // 50 ns for each of the two that were seen, and as much as the middle one of all for the filter.
        assert!(
            (found.stages[0].cpu as f64 / 1_000.0 - 150.0).abs() < 1.0,
            "{found:?}"
        );
        // As many rows as it was given.
        assert!((found.stages[1].rows_in - 1_000.0).abs() < 1e-9);
    }
}
