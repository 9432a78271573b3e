//! How fast a year of flights is copied into a stream while views over it are live.

use std::time::Instant;

use arrow::array::RecordBatch;
use millrace_oracle::plain::Plain;
use millrace_oracle::text::{self, TextRow};

use crate::error::BenchError;
use crate::first_light::views::ViewSet;
use crate::first_light::{Scale, create};
use crate::flights::Flights;
use crate::process::{self, megabytes};
use crate::results::{Aim, Experiment};
use crate::statistics::ms_since;
use crate::target::{FreshServer, Target};

/// What is compared with the oracle: a query's text, the name for messages, the rows that it must have.
struct Expected {
    name: &'static str,
    query: String,
    rows: Vec<TextRow>,
}

/// What the repetitions measured, one value each.
#[derive(Default)]
struct Measured {
    acknowledged_ms: Vec<f64>,
    visible_ms: Vec<f64>,
    rate: Vec<f64>,
    server_cpu_s: Vec<f64>,
    client_cpu_s: Vec<f64>,
    resident_mb: Vec<f64>,
    peak_mb: Vec<f64>,
}

/// Copies the flights into fresh servers with this set of views.
pub async fn run(
    scale: &Scale,
    target: &Target,
    flights: &Flights,
    set: &ViewSet,
) -> Result<Experiment, BenchError> {
    let (probes, contents) = expected(flights, set).await?;
    let csv = flights.csv()?;
    let megabytes_sent = megabytes(csv.len() as u64);
    let mut measured = Measured::default();
    for _ in 0..scale.copies {
        let bed = FreshServer::start(target).await?;
        create(&bed.client, flights, set).await?;
        let (server, client) = (bed.server.pid(), std::process::id());
        let (server_cpu, client_cpu) = (process::cpu_time(server)?, process::activity(client)?);
        let start = Instant::now();
        let rows = bed
            .client
            .copy_in("COPY flights FROM STDIN (FORMAT csv)", &csv)
            .await?;
        measured.acknowledged_ms.push(ms_since(start));
        compare(&bed, &probes).await?;
        let visible = start.elapsed().as_secs_f64();
        let server_cpu = process::cpu_time(server)?.saturating_sub(server_cpu);
        let client_cpu_ns = process::activity(client)?.since(client_cpu).cpu_ns;
        let memory = process::memory(server)?;
        if rows != flights.rows() as u64 {
            return Err(BenchError::Wrong(format!(
                "COPY took {rows} of {} rows",
                flights.rows()
            )));
        }
        measured.visible_ms.push(visible * 1e3);
        measured.rate.push(rows as f64 / visible);
        measured.server_cpu_s.push(server_cpu.as_secs_f64());
        measured.client_cpu_s.push(client_cpu_ns as f64 / 1e9);
        measured.resident_mb.push(megabytes(memory.resident));
        measured.peak_mb.push(megabytes(memory.peak));
        compare(&bed, &contents).await?;
        bed.stop().await?;
    }

    let mut experiment = Experiment::new(
        set.experiment,
        format!(
            "COPY of {} flights ({megabytes_sent:.1} MB of CSV, encoded before) into a stream of a new server, over \
             one connection. The clock runs from the COPY until the same session has read from every view that every \
             flight is in it. Then every row of every view is compared with the oracle's. {}",
            flights.rows(),
            set.text
        ),
    );
    experiment.add(
        "rate until visible",
        "rows/s",
        measured.rate,
        set.rate_aim.map(Aim::MedianOver),
    );
    experiment.add("until acknowledged", "ms", measured.acknowledged_ms, None);
    experiment.add("until visible in every view", "ms", measured.visible_ms, None);
    experiment.add("CPU time of the server", "s", measured.server_cpu_s, None);
    experiment.add("CPU time of the load generator", "s", measured.client_cpu_s, None);
    experiment.add("resident memory after it", "MB", measured.resident_mb, None);
    experiment.add("peak of resident memory", "MB", measured.peak_mb, None);
    Ok(experiment)
}

/// What the oracle says: the probes' answers, and the views' contents.
async fn expected(flights: &Flights, set: &ViewSet) -> Result<(Vec<Expected>, Vec<Expected>), BenchError> {
    let mut plain = Plain::new();
    for (name, rows) in [("flights", &flights.batches), ("airlines", &flights.airlines)] {
        let schema = rows.first().map(RecordBatch::schema);
        let schema = schema.ok_or_else(|| BenchError::Wrong(format!("there are no rows of {name}")))?;
        plain.set_rows(name, schema, rows.clone())?;
    }
    for view in set.views {
        plain.create_view(view.name, view.select).await?;
    }
    let (mut probes, mut contents) = (Vec::new(), Vec::new());
    for view in set.views {
        for (query, all) in [
            (view.probe.to_owned(), &mut probes),
            (format!("SELECT * FROM {}", view.name), &mut contents),
        ] {
            let rows = text::rows(&plain.answer(&query).await?)?;
            let name = view.name;
            all.push(Expected { name, query, rows });
        }
    }
    let query = "SELECT count(*), sum(distance), count(dep_delay) FROM flights".to_owned();
    let rows = text::rows(&plain.answer(&query).await?)?;
    contents.push(Expected {
        name: "flights",
        query,
        rows,
    });
    Ok((probes, contents))
}

async fn compare(bed: &FreshServer, expected: &[Expected]) -> Result<(), BenchError> {
    for expected in expected {
        let shown = bed.client.rows(&expected.query).await?;
        if let Some(difference) = text::difference(shown, expected.rows.clone()) {
            return Err(BenchError::Wrong(format!("{} shows {difference}", expected.name)));
        }
    }
    Ok(())
}
