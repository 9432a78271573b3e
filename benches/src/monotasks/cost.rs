//! What it costs that everything is accounted for: TPC-H against plain DataFusion on the same files and cores.

use std::time::Instant;

use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};

use super::{Bed, Scale, Workload, median};
use crate::client::TextRow;
use crate::error::BenchError;
use crate::results::{Aim, Experiment, Run};

/// The experiment's name.
pub const NAME: &str = "cost (TPC-H)";

/// Measures all queries, the two engines in turn.
///
/// # Errors
/// A query fails, or the answers differ.
pub async fn run(run: &mut Run, workload: &Workload, scale: &Scale) -> Result<(), BenchError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bed = Bed::new(workload, cores).await?;
    let plain = plain(workload, cores).await?;
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "TPC-H, scale factor {}, Parquet with Snappy: millrace through PostgreSQL's protocol against plain DataFusion with \
             as many target partitions as cores ({cores}) and its own settings otherwise, in turn. *First*: the first time \
             that a query runs. *Warm*: the {} times after that; ratios are of medians. Answers are compared.",
            scale.factor, scale.repetitions
        ),
    );
    let (mut ours_total, mut plain_total) = (0.0, 0.0);
    for (name, sql) in &workload.queries {
        let (mut ours, mut theirs) = (vec![], vec![]);
        for _ in 0..=scale.repetitions {
            let begin = Instant::now();
            let expected = answer(&plain, sql).await?;
            theirs.push(begin.elapsed().as_secs_f64() * 1e3);
            let begin = Instant::now();
            let found = bed.client.rows(sql).await?;
            ours.push(begin.elapsed().as_secs_f64() * 1e3);
            same(name, &found, &expected)?;
        }
        let (first, warm) = (
            ours[0] / theirs[0],
            median(ours[1..].to_vec()) / median(theirs[1..].to_vec()),
        );
        ours_total += median(ours[1..].to_vec());
        plain_total += median(theirs[1..].to_vec());
        experiment.add(format!("{name} plain, warm"), "ms", theirs[1..].to_vec(), None);
        experiment.add(format!("{name} millrace, warm"), "ms", ours[1..].to_vec(), None);
        experiment.add(format!("{name} first"), "x", vec![first], None);
        experiment.add(
            format!("{name} warm"),
            "x",
            vec![warm],
            Some(Aim::MedianUnder(1.10)),
        );
        eprintln!("{name}: {warm:.2}");
    }
    let total = ours_total / plain_total;
    experiment.add("all, warm", "x", vec![total], Some(Aim::MedianUnder(1.03)));
    experiment.add("thesis: monotasks against Spark, most", "x", vec![1.09], None);
    run.add(experiment);
    bed.stop().await;
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
    let frame = context.sql(sql).await.map_err(BenchError::engine)?;
    let batches = frame.collect().await.map_err(BenchError::engine)?;
    let options = FormatOptions::default();
    let mut rows = vec![];
    for batch in &batches {
        let columns = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let cells = batch.columns().iter().zip(&columns);
            rows.push(
                cells
                    .map(|(column, text)| (!column.is_null(row)).then(|| text.value(row).to_string()))
                    .collect(),
            );
        }
    }
    Ok(rows)
}

/// Compares two answers in their order: numbers to nine digits, since sums of floats depend on it, or to as many as the plain
/// answer has behind the point, since quotients of numerics have fewer there than PostgreSQL's.
fn same(name: &str, found: &[TextRow], expected: &[TextRow]) -> Result<(), BenchError> {
    let is_same = |(found, expected): (&Option<String>, &Option<String>)| match (found, expected) {
        (Some(found), Some(expected)) => match (found.parse::<f64>(), expected.parse::<f64>()) {
            (Ok(number), Ok(plain)) => {
                let digits = expected.split_once('.').map_or(0, |(_, digits)| digits.len());
                let last = if found.len() > expected.len() {
                    0.1_f64.powi(digits as i32)
                } else {
                    0.0
                };
                (number - plain).abs() <= (1e-9 * plain.abs().max(1.0)).max(last)
            }
            _ => found == expected,
        },
        (found, expected) => found == expected,
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
