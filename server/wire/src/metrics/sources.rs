//! What feeds streams and tables, each with its name. There are as many series as sources, and so those of some only.

use std::fmt;

use millrace_database::Database;
use millrace_database::clock::now_ms;
use millrace_database::database::sources::{Progress, State};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// So many sources have series of their own, those that do not read first.
const SOURCES_MAX: usize = 100;

/// A number of a source, where it is known.
type Number = fn(&Progress) -> Option<u64>;

/// Writes the series.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, database: &Database) -> fmt::Result {
    let mut all = named(database);
    let failing = all.iter().filter(|(_, progress)| is_failing(progress)).count();
    for (name, help, value) in [
        ("sources", "Streams and tables that are fed", all.len()),
        ("sources_failing", "Sources that failed, or are retrying", failing),
    ] {
        let gauge = ConstGauge::new(value as i64);
        gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
    }
    // The order of the others stays.
    all.sort_by_key(|(_, progress)| !is_failing(progress));
    all.truncate(SOURCES_MAX);
    let counters: [(&str, &str, Number); 2] = [
        (
            "source_rows",
            "Rows of a source since it was started",
            |progress| Some(progress.rows),
        ),
        (
            "source_bad_records",
            "Records of a source that are no rows, since it was started",
            |progress| Some(progress.bad),
        ),
    ];
    for (name, help, of) in counters {
        let mut series = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (source, progress) in &all {
            let labels = [("source", source.as_str())];
            ConstCounter::new(of(progress).unwrap_or_default()).encode(series.encode_family(&labels)?)?;
        }
    }
    let gauges: [(&str, &str, Number); 2] = [
        (
            "source_lag_records",
            "Records that a source has not read yet, where that is known",
            |progress| progress.lag_records,
        ),
        (
            "source_lag_bytes",
            "Bytes of its log that a PostgreSQL server holds back for a source, where that is known",
            |progress| progress.lag_bytes,
        ),
    ];
    for (name, help, of) in gauges {
        let mut series = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (source, progress) in &all {
            if let Some(value) = of(progress) {
                let labels = [("source", source.as_str())];
                ConstGauge::new(value as i64).encode(series.encode_family(&labels)?)?;
            }
        }
    }
    let (name, help) = (
        "source_lag_seconds",
        "Age of the newest record that a source has read, while there are others to be read",
    );
    let now = now_ms();
    let mut series = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (source, progress) in &all {
        if let Some(lag_ms) = progress.lag_ms(now) {
            let labels = [("source", source.as_str())];
            ConstGauge::new(lag_ms as f64 / 1_000.0).encode(series.encode_family(&labels)?)?;
        }
    }
    let (name, help) = ("source_state", "1 for the state that a source is in");
    let mut series = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (source, progress) in &all {
        let labels = [("source", source.as_str()), ("state", progress.state.name())];
        ConstGauge::new(1_i64).encode(series.encode_family(&labels)?)?;
    }
    Ok(())
}

fn is_failing(progress: &Progress) -> bool {
    matches!(progress.state, State::Failed | State::Retrying)
}

/// The sources with their full names, the oldest first.
fn named(database: &Database) -> Vec<(String, Progress)> {
    let catalog = database.catalog();
    let named = |info: millrace_database::database::sources::SourceInfo| {
        let object = catalog.object(info.stream)?;
        let name = format!("{}.{}.{}", object.database, object.schema, object.name);
        Some((name, info.progress))
    };
    database.sources().list().into_iter().filter_map(named).collect()
}
