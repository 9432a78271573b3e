//! The highest rate that a view is said to sustain, against the one found by pushing.

use serde_json::Value;

use super::{Scale, median};
use crate::drizzle::typed::{burst, paced};
use crate::drizzle::ysb::{Bed, Form, TypedEvents};
use crate::error::BenchError;
use crate::results::{Aim, Experiment, Run};

/// The experiment's name.
pub const NAME: &str = "head-room of a view";

/// Events a second while the view is watched, as shares of the highest rate.
const SHARES: [f64; 3] = [0.1, 0.25, 0.5];

/// Pushes, then watches at some rates.
///
/// # Errors
/// A server fails, or a view is wrong.
pub async fn run(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        NAME,
        "The Yahoo streaming benchmark with typed events. *Found*: the highest rate, with writes under way all the time. \
         *Predicted*: what `EXPLAIN ANALYZE MATERIALIZED VIEW` says while events come at a share of that rate.",
    );
    let events = TypedEvents::new(scale.batch_events);
    let mut found = vec![];
    for trial in 0..=scale.repetitions.min(3) {
        let bed = Bed::new(Form::Typed, 1).await?;
        let pushed = burst(&bed, &events, scale.watched).await?;
        bed.check(pushed.views).await?;
        bed.stop().await;
        if trial > 0 {
            found.push(pushed.rate);
        }
    }
    let highest = median(found.clone());
    experiment.add("found", "events/s", found, None);
    for share in SHARES {
        let bed = Bed::new(Form::Typed, 1).await?;
        let seconds = scale.watched.as_secs_f64();
        let sql = format!(
            "EXPLAIN (ANALYZE, FORMAT JSON, DURATION '{} ms') MATERIALIZED VIEW counts",
            (seconds * 500.0) as u64
        );
        let watch = async {
            tokio::time::sleep(scale.watched / 4).await;
            bed.client.rows(&sql).await
        };
        let (seen, rows) = tokio::join!(paced(&bed, &events, highest * share, scale.watched), watch);
        let (_, counted) = seen?;
        let text: Vec<String> = rows?.into_iter().flatten().flatten().collect();
        let json: Value = serde_json::from_str(&text.join("\n")).map_err(BenchError::engine)?;
        bed.check(counted).await?;
        bed.stop().await;
        let predicted = json["analysis"]["head_room"]["rows_per_second"].as_f64();
        let name = format!("predicted at {:.0} % of it", share * 100.0);
        let Some(predicted) = predicted else {
            run.note(format!(
                "{name}: the view was said to have no head-room that can be told"
            ));
            continue;
        };
        experiment.add(name.clone(), "events/s", vec![predicted], None);
        experiment.add(
            format!("{name}: error"),
            "%",
            vec![100.0 * (predicted - highest).abs() / highest],
            Some(Aim::MedianUnder(15.0)),
        );
    }
    run.add(experiment);
    Ok(())
}
