//! The highest rate that a view is said to sustain, against the one found by pushing.

use serde_json::Value;

use super::Scale;
use crate::drizzle::typed::{Writes, burst, paced_in};
use crate::drizzle::ysb::{Form, TypedEvents, Yahoo};
use crate::error::BenchError;
use crate::results::{Aim, Experiment, Run};
use crate::statistics::median;

/// The experiment's name.
pub const NAME: &str = "head-room of a view";

/// Events a second while the view is watched, as shares of the highest rate.
const SHARES: [f64; 3] = [0.1, 0.25, 0.5];

/// Pushes, and watches at some rates, by turns.
///
/// # Errors
/// A server fails, or a view is wrong.
pub async fn run(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let trials = scale.repetitions.min(3);
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "The Yahoo streaming benchmark with typed events. *Found*: the highest rate, with writes under way all the time. \
             *Predicted*: what `EXPLAIN ANALYZE MATERIALIZED VIEW` says while events come at a share of the rate found just \
             before, in writes of the same size. {trials} times by turns, each with a server of its own; the error is between the medians."
        ),
    );
    let events = TypedEvents::new(scale.batch_events);
    let mut found = vec![];
    let mut predicted = SHARES.map(|_| vec![]);
    for trial in 0..=trials {
        let bed = Yahoo::new(Form::Typed, 1).await?;
        let pushed = burst(&bed, &events, scale.watched).await?;
        bed.check(pushed.views).await?;
        bed.stop().await;
        // The first warms up.
        if trial == 0 {
            continue;
        }
        found.push(pushed.rate);
        for (share, predicted) in SHARES.into_iter().zip(&mut predicted) {
            if let Some(seen) = watched(&events, pushed.rate * share, scale).await? {
                predicted.push(seen);
            }
        }
    }
    let highest = median(&found);
    experiment.add("found", "events/s", found, None);
    for (share, predicted) in SHARES.into_iter().zip(predicted) {
        let name = format!("predicted at {:.0} % of it", share * 100.0);
        if predicted.is_empty() {
            run.note(format!(
                "{name}: the view was said to have no head-room that can be told"
            ));
            continue;
        }
        let rates: Vec<f64> = predicted.iter().map(|seen| seen.rate).collect();
        let error = 100.0 * (median(&rates) - highest).abs() / highest;
        experiment.add(name.clone(), "events/s", rates, None);
        for (what, of) in [
            ("processor time of tasks", (|seen| seen.tasks) as fn(&Seen) -> f64),
            ("processor time outside of tasks", |seen| seen.outside),
        ] {
            let times = predicted.iter().map(of).collect();
            experiment.add(format!("{name}: {what} then"), "ns an event", times, None);
        }
        experiment.add(
            format!("{name}: error"),
            "%",
            vec![error],
            Some(Aim::MedianUnder(15.0)),
        );
    }
    run.add(experiment);
    Ok(())
}

/// What is said of a view while events come.
struct Seen {
    /// The highest rate that it could sustain, in events a second.
    rate: f64,
    /// Nanoseconds of processors an event.
    tasks: f64,
    outside: f64,
}

/// The highest rate that a view is said to sustain while so many events a second come, if that can be told.
async fn watched(events: &TypedEvents, rate: f64, scale: &Scale) -> Result<Option<Seen>, BenchError> {
    let bed = Yahoo::new(Form::Typed, 1).await?;
    let sql = format!(
        "EXPLAIN (ANALYZE, FORMAT JSON, DURATION '{} ms') MATERIALIZED VIEW counts",
        scale.watched.as_millis() / 2
    );
    let watch = async {
        tokio::time::sleep(scale.watched / 4).await;
        bed.host.client.rows(&sql).await
    };
    let (seen, rows) = tokio::join!(paced_in(&bed, events, rate, scale.watched, Writes::Whole), watch);
    let (_, counted) = seen?;
    let text: Vec<String> = rows?.into_iter().flatten().flatten().collect();
    let json: Value = serde_json::from_str(&text.join("\n")).map_err(BenchError::engine)?;
    bed.check(counted).await?;
    bed.stop().await;
    let analysis = &json["analysis"];
    let number = |name: &str| analysis[name].as_f64().unwrap_or_default();
    let cores = json["view"]["cores"].as_f64().unwrap_or(1.0);
    let an_event = |share: f64| 1e9 * cores * share / number("rows_per_second");
    let rate = analysis["head_room"]["rows_per_second"].as_f64();
    Ok(rate.map(|rate| Seen {
        rate,
        tasks: an_event(number("pipeline_cpu")),
        outside: an_event(number("outside_cpu")),
    }))
}
