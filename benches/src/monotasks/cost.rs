//! What it costs that everything is accounted for: TPC-H against plain DataFusion on the same files and cores.

use std::fs::File;
use std::time::Instant;

use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use millrace_oracle::text::{self, TextRow};

use super::{Layout, Scale, Workload};
use crate::error::BenchError;
use crate::machine;
use crate::plot::{Chart, Line};
use crate::results::{Aim, Experiment, Run};
use crate::statistics::median;

/// The experiment's name.
pub const NAME: &str = "cost (TPC-H)";

/// Measures all queries, the two engines in turn.
///
/// # Errors
/// A query fails, or the answers differ.
pub async fn run(run: &mut Run, workload: &Workload, scale: &Scale) -> Result<(), BenchError> {
    let cores = machine::cores();
    let bed = Layout::cores(cores).start(&workload.tables()).await?;
    let plain = plain(workload, cores).await?;
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "TPC-H, scale factor {}, Parquet with Snappy: millrace through PostgreSQL's protocol against plain DataFusion with \
             as many target partitions as cores ({cores}) and its own settings otherwise, in turn. *Cold*: the system was \
             told to forget the files' pages before. *Warm*: the {} times after that; ratios are of medians. Answers are \
             compared.",
            scale.factor, scale.repetitions
        ),
    );
    // Cold and warm, plain and ours.
    let mut totals = [[0.0; 2]; 2];
    let mut points = [vec![], vec![]];
    for (number, (name, sql)) in workload.queries.iter().enumerate() {
        let mut times = [vec![], vec![]];
        for repetition in 0..=scale.repetitions {
            let is_cold = repetition == 0;
            if is_cold {
                forget(workload)?;
            }
            let begin = Instant::now();
            let expected = answer(&plain, sql).await?;
            times[0].push(begin.elapsed().as_secs_f64() * 1e3);
            if is_cold {
                forget(workload)?;
            }
            let begin = Instant::now();
            let found = bed.client.rows(sql).await?;
            times[1].push(begin.elapsed().as_secs_f64() * 1e3);
            same(name, &found, &expected)?;
        }
        let cold = times.each_ref().map(|times| times[0]);
        let warm = times.each_ref().map(|times| median(&times[1..]));
        for (state, (word, of_state)) in [("cold", cold), ("warm", warm)].into_iter().enumerate() {
            totals[state][0] += of_state[0];
            totals[state][1] += of_state[1];
            let ratio = of_state[1] / of_state[0];
            let aim = Some(Aim::MedianUnder(1.10));
            experiment.add(format!("{name} {word}, plain"), "ms", vec![of_state[0]], None);
            experiment.add(format!("{name} {word}, millrace"), "ms", vec![of_state[1]], None);
            experiment.add(format!("{name} {word}"), "x", vec![ratio], aim);
            points[state].push(((number + 1) as f64, ratio));
        }
        eprintln!(
            "{name}: cold {:.2}, warm {:.2}",
            cold[1] / cold[0],
            warm[1] / warm[0]
        );
    }
    for (word, [theirs, ours]) in ["cold", "warm"].into_iter().zip(totals) {
        let aim = Some(Aim::MedianUnder(1.03));
        experiment.add(format!("all, {word}"), "x", vec![ours / theirs], aim);
    }
    experiment.add("thesis: monotasks against Spark, most", "x", vec![1.09], None);
    run.draw(Chart {
        name: "cost",
        title: "TPC-H: time with monotasks against plain DataFusion".to_owned(),
        x: "query",
        y: "ratio",
        lines: (["cold", "warm"].into_iter().zip(points))
            .map(|(name, points)| Line {
                name: name.to_owned(),
                points,
            })
            .collect(),
    });
    run.add(experiment);
    bed.stop().await;
    Ok(())
}

/// Tells the system to forget the files' pages.
fn forget(workload: &Workload) -> Result<(), BenchError> {
    for file in &workload.files {
        let failed = || BenchError::io(format!("cannot have {} forgotten", file.path.display()));
        let opened = File::open(&file.path).map_err(failed())?;
        // What was not written yet stays.
        opened.sync_all().map_err(failed())?;
        let forgotten = rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed);
        forgotten.map_err(|error| failed()(error.into()))?;
    }
    Ok(())
}

async fn plain(workload: &Workload, cores: usize) -> Result<SessionContext, BenchError> {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(cores));
    for file in &workload.files {
        let path = file.path.display().to_string();
        context
            .register_parquet(file.table, path, ParquetReadOptions::default())
            .await
            .map_err(BenchError::engine)?;
    }
    Ok(context)
}

async fn answer(context: &SessionContext, sql: &str) -> Result<Vec<TextRow>, BenchError> {
    Ok(text::rows(&context.sql(sql).await?.collect().await?)?)
}

/// Compares two answers in their order: numbers to as many digits as the plain answer has behind the point too, since quotients
/// of numerics have fewer there than PostgreSQL's.
fn same(name: &str, found: &[TextRow], expected: &[TextRow]) -> Result<(), BenchError> {
    let is_same = |(found, expected): (&Option<String>, &Option<String>)| {
        text::is_same(found, expected) || is_rounded(found.as_deref(), expected.as_deref())
    };
    let wrong = (found.iter().zip(expected)).position(|(found, expected)| {
        found.len() != expected.len() || !found.iter().zip(expected).all(is_same)
    });
    match wrong {
        None if found.len() == expected.len() => Ok(()),
        None => Err(BenchError::Wrong(format!(
            "{name}: {} rows instead of {}",
            found.len(),
            expected.len()
        ))),
        Some(row) => Err(BenchError::Wrong(format!(
            "{name}, row {row}: {:?} instead of {:?}",
            found[row], expected[row]
        ))),
    }
}

/// Whether a number is the plain answer, which has fewer digits behind the point.
fn is_rounded(found: Option<&str>, expected: Option<&str>) -> bool {
    let (Some(found), Some(expected)) = (found, expected) else {
        return false;
    };
    let digits = expected.split_once('.').map_or(0, |(_, digits)| digits.len());
    match (found.parse::<f64>(), expected.parse::<f64>()) {
        (Ok(number), Ok(plain)) => {
            // Small sums of large numbers that cancel each other are equal to nine digits behind the point.
            let last = if found.len() > expected.len() {
                0.1_f64.powi(digits as i32)
            } else {
                1e-9
            };
            (number - plain).abs() <= last
        }
        _ => false,
    }
}
