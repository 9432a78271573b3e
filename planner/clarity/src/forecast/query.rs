//! EXPLAIN (PREDICT): what a plan will take, before it has run.
//!
//! ```text
//! runs seen ──> nanoseconds a row of each kind of operator (median, least, most)
//!          └──> time beside the operators: elapsed x cores in use / time of the operators
//! never seen ──> what the kind costs on a known machine x how slow this one is against it
//! plan ──> rows into each operator (statistics)
//! expected = sum of rows x nanoseconds a row, over the cores in use, x time beside
//! ```
//!
//! The interval comes from the least and the most that an operator, and what is beside them, ever took, and from how far the rows
//! may be off. Runs of the same text, where there are any, count alone. Before anything has run there are only the costs on the known
//! machine: a first guess, with a wide interval.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::interval::{Certainty, Interval};
use super::samples::{ROWS_TIMED_MIN, Samples, Spread};
use crate::profile::{Nanoseconds, OperatorProfile, Profile};

/// By how much rows may be off that are estimated, either way.
const ESTIMATE_FACTOR: f64 = 2.0;
/// By how much the cost of an operator may be off that was never seen, either way.
const TYPICAL_FACTOR: f64 = 4.0;
/// Nanoseconds a row that kinds of operators took in TPC-H on a core of an AMD EPYC of 2024. How much they have to do for a row
/// varies by more than machines do.
const TYPICAL: [(&str, f64); 14] = [
    ("Aggregate Final", 100.0),
    ("Aggregate FinalPartitioned", 100.0),
    ("Aggregate Partial", 40.0),
    ("Aggregate Single", 60.0),
    ("BoundedWindowAgg", 150.0),
    ("DataSource", 35.0),
    ("Filter", 12.0),
    ("HashJoin", 40.0),
    ("Projection", 15.0),
    ("SnapshotScan", 4.0),
    ("Sort", 200.0),
    ("SortPreservingMerge", 30.0),
    ("StageBoundary", 10.0),
    ("WindowAgg", 150.0),
];
/// The same of all other kinds.
const TYPICAL_OTHER: f64 = 40.0;
/// Elapsed time times cores in use, to the time of the operators, where no run was seen.
const TYPICAL_BESIDE: f64 = 1.5;
/// A run whose operators took less than this, in nanoseconds, is mostly something else: it tells nothing of what is beside them.
const BESIDE_CPU_MIN: Nanoseconds = 1_000_000;

/// An operator of a plan that has not run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedOperator {
    /// As in [`OperatorProfile::name`].
    pub name: String,
    /// Rows that it will be given: of a leaf, those that it has.
    pub rows_in: f64,
    /// Whether that is known, and not estimated.
    pub is_exact: bool,
}

/// Costs learned from runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    /// By kind of operator, nanoseconds a row.
    by_kind: BTreeMap<String, Samples>,
    /// By kind, rows that it emitted for each that it was given; of every kind that was seen.
    shares: BTreeMap<String, Samples>,
    /// Elapsed time times cores in use, to the time of the operators.
    beside: Samples,
    /// That it was learned from.
    runs: usize,
    /// How many times as long as on the known machine this one takes for the same.
    slowness: f64,
}

/// What a plan is expected to take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    #[serde(flatten)]
    pub time: Interval,
    pub certainty: Certainty,
    /// Runs that it rests on.
    pub runs: usize,
    pub operators: Vec<ForecastOperator>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForecastOperator {
    pub name: String,
    pub rows_in: f64,
    /// Time of the operator on one core.
    pub cpu: Nanoseconds,
    /// Whether its kind was seen with many rows; else it is what the kind costs on a known machine.
    pub is_measured: bool,
}

impl Rates {
    /// Learns from runs. `slowness`: how many times as long as on the known machine this one takes for the same.
    pub fn of<'a>(profiles: impl IntoIterator<Item = &'a Profile>, slowness: f64) -> Rates {
        let mut by_kind: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut shares: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut beside = vec![];
        let mut runs = 0;
        for profile in profiles {
            let mut total = 0;
            for stage in &profile.stages {
                for (position, operator) in stage.operators.iter().enumerate() {
                    total += operator.cpu;
                    let rows = rows_in(&stage.operators, position);
                    let share = operator.rows.unwrap_or(0) as f64 / rows.max(1) as f64;
                    shares.entry(kind(&operator.name)).or_default().push(share);
                    if rows >= ROWS_TIMED_MIN {
                        let samples = by_kind.entry(kind(&operator.name)).or_default();
                        samples.push(operator.cpu as f64 / rows as f64);
                    }
                }
            }
            runs += usize::from(total > 0);
            if total >= BESIDE_CPU_MIN {
                let tasks = profile
                    .stages
                    .iter()
                    .map(|stage| stage.tasks.len())
                    .max()
                    .unwrap_or(1);
                let in_use = tasks.clamp(1, profile.machine.cores.max(1)) as f64;
                beside.push(profile.end as f64 * in_use / total as f64);
            }
        }
        let in_order = |samples: BTreeMap<String, Vec<f64>>| {
            let samples = samples.into_iter();
            samples
                .map(|(kind, samples)| (kind, Samples::new(samples)))
                .collect()
        };
        Rates {
            by_kind: in_order(by_kind),
            shares: in_order(shares),
            beside: Samples::new(beside),
            runs,
            slowness,
        }
    }

    /// Rows that an operator of this name's kind emits for each that it is given; `None`: it was never seen.
    pub fn share(&self, name: &str) -> Option<f64> {
        self.shares.get(&kind(name)).and_then(Samples::median)
    }

    /// What an operator of a kind that was not seen with many rows costs, least, usually and most.
    fn typical(&self, kind: &str) -> Samples {
        let known = TYPICAL.iter().find(|(name, _)| *name == kind);
        let cost = known.map_or(TYPICAL_OTHER, |(_, cost)| *cost) * self.slowness;
        Samples::new(vec![cost / TYPICAL_FACTOR, cost, cost * TYPICAL_FACTOR])
    }

    /// Elapsed time times cores in use, to the time of the operators: the least that was seen, what is usual, the most.
    fn beside(&self) -> Spread {
        self.beside.spread().unwrap_or(Spread::of(TYPICAL_BESIDE))
    }
}

/// Forecasts a plan on so many cores, cut into so many partitions.
pub fn forecast(
    plan: &[PlannedOperator],
    rates: &Rates,
    cores: usize,
    partitions: usize,
    planning: Nanoseconds,
) -> Forecast {
    let mut certainty = Certainty::High;
    let mut total = Spread::of(0.0);
    let mut operators = vec![];
    for operator in plan {
        let seen = rates.by_kind.get(&kind(&operator.name));
        let is_known = seen.is_some();
        let samples = seen
            .cloned()
            .unwrap_or_else(|| rates.typical(&kind(&operator.name)));
        let cost = samples.cost().unwrap_or_default();
        let estimated = if operator.is_exact { 1.0 } else { ESTIMATE_FACTOR };
        total += (cost * operator.rows_in).widened(estimated);
        if !is_known && !rates.shares.contains_key(&kind(&operator.name)) {
            certainty = Certainty::Low;
        } else if !is_known || !samples.are_many() || estimated > 1.0 {
            certainty = certainty.min(Certainty::Medium);
        }
        operators.push(ForecastOperator {
            name: operator.name.clone(),
            rows_in: operator.rows_in,
            cpu: (cost.expected * operator.rows_in) as Nanoseconds,
            is_measured: is_known,
        });
    }
    let in_use = partitions.clamp(1, cores.max(1)) as f64;
    let elapsed = |cpu: f64, beside: f64| planning + (cpu * beside / in_use) as Nanoseconds;
    let beside = rates.beside();
    Forecast {
        time: Interval {
            expected: elapsed(total.expected, beside.expected),
            low: elapsed(total.low, beside.low),
            high: elapsed(total.high, beside.high),
        },
        certainty,
        runs: rates.runs,
        operators,
    }
}

/// Rows that an operator was given: those that its inputs emit, or of a leaf its own.
fn rows_in(operators: &[OperatorProfile], position: usize) -> u64 {
    let operator = &operators[position];
    let below = operators[position + 1..]
        .iter()
        .take_while(|other| other.depth > operator.depth);
    let inputs: Vec<u64> = below
        .filter(|other| other.depth == operator.depth + 1)
        .map(|other| other.rows.unwrap_or(0))
        .collect();
    match inputs.is_empty() {
        true => operator.rows.unwrap_or(0),
        false => inputs.iter().sum(),
    }
}

/// The kind of an operator: the first word of its name, of an aggregate with its mode. What brings partitions together is of
/// one kind, whatever it is called before and after a plan is cut.
fn kind(name: &str) -> String {
    let word = name
        .split(|letter: char| !letter.is_alphanumeric())
        .next()
        .unwrap_or_default();
    match word.strip_suffix("Exec").unwrap_or(word) {
        "Repartition" | "CoalescePartitions" => "StageBoundary".to_owned(),
        "Aggregate" => {
            let mode = name.split_once("mode=").map_or("", |(_, rest)| rest);
            let mode = mode.split(|letter: char| !letter.is_alphanumeric()).next();
            format!("Aggregate {}", mode.unwrap_or_default())
        }
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{MS, two_stages};

    fn planned(name: &str, rows_in: f64, is_exact: bool) -> PlannedOperator {
        PlannedOperator {
            name: name.to_owned(),
            rows_in,
            is_exact,
        }
    }

    #[test]
    fn before_anything_has_run_costs_are_those_of_a_known_machine() {
        let plan = [
            planned("SortExec: v", 1e6, true),
            planned("DataSourceExec: f", 1e6, true),
        ];
        let found = forecast(&plan, &Rates::of([], 2.0), 2, 2, 0);
        assert_eq!((found.certainty, found.runs), (Certainty::Low, 0));
        // 235 ns a row on a machine that is half as fast, on two cores.
        let expected = 2.0 * 235.0 * 1e6 * TYPICAL_BESIDE / 2.0;
        assert!((found.time.expected as f64 - expected).abs() < 10.0, "{found:?}");
        assert!(found.time.low * 10 < found.time.high && !found.operators[0].is_measured);
        assert_eq!(found.operators[0].cpu, 400 * MS);
    }

    /// The fixture's scan takes 180 ns a row and its partial aggregate 240 ns, on two tasks; 1,110 ms of operators took 1.6 s on
    /// two cores.
    #[test]
    fn the_same_plan_is_forecast_as_it_ran() {
        let run = two_stages();
        let rates = Rates::of([&run, &run, &run], 1.0);
        let plan = [
            planned("PartialAggregate: l_returnflag", 2_500_000.0, true),
            planned("Scan: lineitem", 2_500_000.0, true),
        ];
        let found = forecast(&plan, &rates, 2, 2, 3 * MS);
        assert_eq!(found.certainty, Certainty::High);
        assert_eq!(found.operators[1].cpu, 450 * MS);
        let expected = (1_050.0 * (3_200.0 / 1_110.0) / 2.0 + 3.0) * MS as f64;
        assert!((found.time.expected as f64 - expected).abs() < 1e3, "{found:?}");
        assert_eq!(
            (found.time.low, found.time.high),
            (found.time.expected, found.time.expected)
        );
        assert_eq!(rates.share("PartialAggregate: x"), Some(10.0 / 2_500_000.0));
        assert_eq!(rates.share("Window"), None);
        let twice = forecast(&[planned("Scan: x", 5_000_000.0, true)], &rates, 2, 2, 0);
        assert_eq!(twice.operators[0].cpu, 900 * MS);
    }

    #[test]
    fn a_short_run_tells_nothing_of_what_is_beside_the_operators() {
        let run = two_stages();
        let mut short = run.clone();
        let operators = short.stages.iter_mut().flat_map(|stage| &mut stage.operators);
        operators.for_each(|operator| operator.cpu = 1_000);
        let plan = [planned("Scan: lineitem", 2_500_000.0, true)];
        let alone = forecast(&plan, &Rates::of([&run, &run, &run], 1.0), 2, 2, 0);
        let with_short = forecast(&plan, &Rates::of([&run, &short, &run, &run], 1.0), 2, 2, 0);
        assert_eq!(
            (with_short.runs, with_short.time.expected),
            (4, alone.time.expected)
        );
        assert!(with_short.time.low < alone.time.low && with_short.time.high == alone.time.high);
    }

    #[test]
    fn a_run_that_was_held_up_widens_the_interval() {
        let run = two_stages();
        let mut held_up = run.clone();
        held_up.end *= 10;
        let plan = [planned("Scan: lineitem", 2_500_000.0, true)];
        let found = forecast(&plan, &Rates::of([&run, &run, &held_up], 1.0), 2, 2, 0);
        assert_eq!(found.time.low, found.time.expected);
        assert!(
            (found.time.high as f64 / found.time.expected as f64 - 10.0).abs() < 1e-3,
            "{found:?}"
        );
    }

    #[test]
    fn what_is_not_known_widens_the_interval() {
        let run = two_stages();
        let seldom = Rates::of([&run], 1.0);
        let sure = forecast(&[planned("Scan: x", 1e6, true)], &seldom, 2, 1, 0);
        assert_eq!(sure.certainty, Certainty::Medium);
        assert!(sure.time.low < sure.time.expected && sure.time.expected < sure.time.high);
        let estimated = forecast(&[planned("Scan: x", 1e6, false)], &seldom, 2, 1, 0);
        assert!(estimated.time.low < sure.time.low && estimated.time.high > sure.time.high);
        let unknown = forecast(&[planned("WindowAggExec: x", 1e6, true)], &seldom, 2, 1, 0);
        assert_eq!(unknown.certainty, Certainty::Low);
        assert!(!unknown.operators[0].is_measured && unknown.time.expected > 0);
    }

    #[test]
    fn kinds_are_the_first_words() {
        assert_eq!(kind("HashJoinExec: mode=Partitioned, on=[(a, b)]"), "HashJoin");
        assert_eq!(kind("HashJoin: on=[(a, b)]"), "HashJoin");
        assert_eq!(kind("RepartitionExec: partitioning=Hash"), "StageBoundary");
        assert_eq!(kind("CoalescePartitionsExec"), "StageBoundary");
        assert_eq!(kind("AggregateExec: mode=Partial, gby=[a]"), "Aggregate Partial");
    }
}
