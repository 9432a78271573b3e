//! A moving average by key (figure 3): windows that jump, windows of which nine tenths overlap, recomputed and incremental.

use arrow::datatypes::{DataType, Field, TimeUnit};
use millrace_generator::Generator;
use millrace_generator::datagen::{Column, Datagen, Values};

use super::Scale;
use crate::bed::Bed;
use crate::error::BenchError;
use crate::results::{Aim, Experiment};

/// Events of one write.
const WRITE_ROWS: usize = 50_000;
/// Event time from one event to the next.
const GAP_MICROS: i64 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Jumping,
    Incremental,
    Recomputed,
}

pub(super) async fn run(scale: &Scale) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        "moving average",
        format!(
            "The average of a value by {} keys over windows in event time ({} events, {GAP_MICROS} us from one to the next), each window told \
             once, when it is closed, to a view that keeps none of them. Sliding windows overlap by nine tenths.",
            scale.keys, scale.events
        ),
    );
    for size in &scale.window_micros {
        let name = format!("{} ms", *size as f64 / 1e3);
        let jumping = rate(scale, *size, Form::Jumping).await?;
        let incremental = rate(scale, *size, Form::Incremental).await?;
        let recomputed = rate(scale, *size, Form::Recomputed).await?;
        eprintln!(
            "{name}: jumping {jumping:.0}/s, incremental {incremental:.0}/s, recomputed {recomputed:.0}/s"
        );
        experiment.add(format!("{name}: jumping"), "events/s", vec![jumping], None);
        experiment.add(
            format!("{name}: sliding, incremental"),
            "events/s",
            vec![incremental],
            None,
        );
        experiment.add(
            format!("{name}: sliding, recomputed"),
            "events/s",
            vec![recomputed],
            None,
        );
        experiment.add(
            format!("{name}: incremental / recomputed"),
            "times",
            vec![incremental / recomputed],
            Some(Aim::MedianOver(10.0)),
        );
        experiment.add(
            format!("{name}: jumping / incremental"),
            "times",
            vec![jumping / incremental],
            Some(Aim::MedianUnder(2.0)),
        );
    }
    Ok(experiment)
}

/// Events a second.
async fn rate(scale: &Scale, size: i64, form: Form) -> Result<f64, BenchError> {
    let windows = match form {
        Form::Jumping => format!("TUMBLE(reading, ts, INTERVAL '{size} microseconds')"),
        _ => format!(
            "HOP(reading, ts, INTERVAL '{} microseconds', INTERVAL '{size} microseconds')",
            size / 10
        ),
    };
    let setting = match form {
        Form::Recomputed => "SET sliding_windows = 'recompute'",
        _ => "SET sliding_windows = 'panes'",
    };
    let view = format!(
        "CREATE MATERIALIZED VIEW average AS SELECT key, window_start, avg(value) AS mean FROM {windows} \
         GROUP BY key, window_start HAVING avg(value) < 0 EMIT ON WINDOW CLOSE"
    );
    let stream =
        "CREATE STREAM reading (key BIGINT, value DOUBLE PRECISION, ts TIMESTAMPTZ, WATERMARK FOR ts AS ts)";
    let bed = Bed::new(&[stream, setting, &view]).await?;
    let reading = bed.relation("reading")?;
    let generator = readings(scale);
    let mut first = 0;
    let time = bed
        .feed(|| {
            let rows = WRITE_ROWS.min(usize::try_from(scale.events - first).unwrap_or(usize::MAX));
            if rows == 0 {
                return Ok(None);
            }
            let made = generator.generate(first, rows).map_err(BenchError::engine)?;
            first += rows as u64;
            Ok(Some(vec![(reading, made)]))
        })
        .await?;
    let kept = bed.client.number("SELECT count(*) FROM average").await?;
    if kept != 0.0 {
        return Err(BenchError::Wrong(format!(
            "{kept} averages of positive values are negative"
        )));
    }
    bed.stop().await;
    Ok(scale.events as f64 / time.as_secs_f64())
}

fn readings(scale: &Scale) -> Datagen {
    let column = |name: &str, data_type: DataType, values: Values| Column {
        field: Field::new(name, data_type, true),
        values,
        seed: 2011,
    };
    let max = i64::try_from(scale.keys).unwrap_or(i64::MAX) - 1;
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let times = Values::Sequence {
        start: 0,
        step: GAP_MICROS,
        end: None,
        jitter: 0,
    };
    let columns = vec![
        column("key", DataType::Int64, Values::Whole { min: 0, max }),
        column("value", DataType::Float64, Values::Real { min: 0.0, max: 100.0 }),
        column("ts", time, times),
    ];
    Datagen::new(columns, Some(scale.events))
}
