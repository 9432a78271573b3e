//! Queries of Nexmark over windows, in events a second.

use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use millrace_generator::Generator;
use millrace_generator::nexmark::{Kind, Nexmark};
use std::sync::Arc;

use super::Scale;
use crate::bed::Bed;
use crate::drizzle::ysb::now_micros;
use crate::error::BenchError;
use crate::results::Experiment;

const QUERIES: [(&str, &str); 5] = [
    ("q5", include_str!("../../../sql-tests/nexmark/q5.sql")),
    ("q7", include_str!("../../../sql-tests/nexmark/q7.sql")),
    ("q8", include_str!("../../../sql-tests/nexmark/q8.sql")),
    ("q11", include_str!("../../../sql-tests/nexmark/q11.sql")),
    ("q12", include_str!("../../../sql-tests/nexmark/q12.sql")),
];
/// Events of one write; a multiple of fifty.
const WRITE_EVENTS: u64 = 50_000;
const STREAMS: [(&str, Kind, &str, &[&str]); 3] = [
    (
        "person",
        Kind::Person,
        "id BIGINT, name TEXT, date_time TIMESTAMPTZ",
        &["id", "name", "date_time"],
    ),
    (
        "auction",
        Kind::Auction,
        "id BIGINT, seller BIGINT, date_time TIMESTAMPTZ",
        &["id", "seller", "date_time"],
    ),
    (
        "bid",
        Kind::Bid,
        "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMPTZ, extra TEXT, p_time TIMESTAMPTZ",
        &["auction", "bidder", "price", "date_time", "extra"],
    ),
];

pub(super) async fn run(scale: &Scale) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        "nexmark",
        format!(
            "{} events of Nexmark, 100 us of event time from one to the next, persons, auctions and bids written together, with one query as a \
             view that shows every change; streams have the columns that the queries read.",
            scale.nexmark_events
        ),
    );
    for (name, query) in QUERIES {
        let rate = rate(scale, query).await?;
        eprintln!("{name}: {rate:.0} events/s");
        experiment.add(name, "events/s", vec![rate], None);
    }
    Ok(experiment)
}

async fn rate(scale: &Scale, query: &str) -> Result<f64, BenchError> {
    let mut statements: Vec<String> = STREAMS
        .iter()
        .map(|(name, _, columns, _)| {
            format!("CREATE STREAM {name} ({columns}, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')")
        })
        .collect();
    statements.push(format!("CREATE MATERIALIZED VIEW answer AS {query}"));
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    let bed = Bed::new(&statements).await?;
    let mut sources = vec![];
    for (name, kind, _, columns) in STREAMS {
        let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
        sources.push((bed.relation(name)?, kind, Nexmark::new(kind, &columns)));
    }
    let mut first = 0;
    let time = bed
        .feed(|| {
            let end = (first + WRITE_EVENTS).min(scale.nexmark_events);
            if end == first {
                return Ok(None);
            }
            let mut rows = vec![];
            for (stream, kind, generator) in &sources {
                let (from, to) = (kind.rows_of(first), kind.rows_of(end));
                let made = generator
                    .generate(from, (to - from) as usize)
                    .map_err(BenchError::engine)?;
                let made = if *kind == Kind::Bid {
                    with_time(&made)?
                } else {
                    made
                };
                rows.push((*stream, made));
            }
            first = end;
            Ok(Some(rows))
        })
        .await?;
    let rows = bed.client.number("SELECT count(*) FROM answer").await?;
    if rows == 0.0 {
        return Err(BenchError::Wrong(format!("there is no answer to {query}")));
    }
    bed.stop().await;
    Ok(scale.nexmark_events as f64 / time.as_secs_f64())
}

/// Bids with the time at which they are written.
fn with_time(bids: &RecordBatch) -> Result<RecordBatch, BenchError> {
    let times = TimestampMicrosecondArray::from(vec![now_micros(); bids.num_rows()]);
    let times: ArrayRef = Arc::new(times.with_timezone("UTC"));
    let mut fields: Vec<Field> = bids
        .schema()
        .fields()
        .iter()
        .map(|field| field.as_ref().clone())
        .collect();
    fields.push(Field::new(
        "p_time",
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        false,
    ));
    let columns = bids.columns().iter().cloned().chain([times]).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(BenchError::engine)
}
