//! The demo's work: declare, load, replay, change, look, and check, all over one connection.
//!
//! A batch is sent with COPY, and then a view is read until it contains the batch: a session sees its own writes, so
//! the first reading must, and the time that both take is the freshness that the demo reports.

use std::time::{Duration, Instant};

use chrono::{NaiveDateTime, TimeDelta};
use millrace_console::flights::{AIRLINE_DELAYS, CARRIER_DELAYS, RELATIONS, TABLE_FILES, VIEWS};
use millrace_wire::slot::signalled;
use tokio::sync::watch;
use tokio::time::timeout_at;

use super::DemoError;
use super::client::Client;
use super::data::{self, Flight};
use super::frame::{Addresses, Frame, Panel, grouped, milliseconds};
use super::pace::{Meter, Rate};
use super::schema::{RENAMED_FROM_TO, rename};

const COPY_FLIGHTS: &str = "COPY flights FROM STDIN";

/// A replay that goes on.
pub struct Replay {
    client: Client,
    addresses: Addresses,
    rate: Rate,
    stop: watch::Receiver<bool>,
    flights: Vec<Flight>,
    /// When the first batch was sent.
    started: Instant,
    meter: Meter,
    /// Flights so far that departed: what the views must add up to.
    departed: u64,
    clock: Option<NaiveDateTime>,
    /// The last change of a table, and what came of it.
    news: Vec<String>,
}

impl Replay {
    /// Declares everything and loads the tables.
    ///
    /// # Errors
    /// The server refused something.
    pub async fn prepare(
        addresses: Addresses,
        rate: Rate,
        stop: watch::Receiver<bool>,
    ) -> Result<Self, DemoError> {
        let client = Client::connect(addresses.pg).await?;
        for statement in RELATIONS {
            client.run(statement).await?;
        }
        for view in &VIEWS {
            client
                .run(&format!(
                    "CREATE MATERIALIZED VIEW {} AS {}",
                    view.name, view.query
                ))
                .await?;
        }
        for file in &TABLE_FILES {
            let copy = format!(
                "COPY {} FROM STDIN WITH (FORMAT csv, HEADER, NULL 'NA')",
                file.table
            );
            client.copy(&copy, file.csv()).await?;
        }
        Ok(Replay {
            client,
            addresses,
            rate,
            stop,
            flights: data::flights(),
            started: Instant::now(),
            meter: Meter::default(),
            departed: 0,
            clock: None,
            news: Vec::new(),
        })
    }

    /// Starts the clock and measures from here on, once everything is ready to be watched.
    pub fn start(&mut self) {
        self.started = Instant::now();
        self.meter = Meter::default();
    }

    /// Whether somebody asked for the end.
    pub fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// What was measured.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// What was changed last and what came of it.
    pub fn news(&self) -> &[String] {
        &self.news
    }

    /// The flights' ranges that make the batches of one pass.
    pub fn batches(&self) -> Vec<std::ops::Range<usize>> {
        self.batches_of(self.rate.batch_rows())
    }

    /// The same with so many flights each.
    pub fn batches_of(&self, rows: usize) -> Vec<std::ops::Range<usize>> {
        (0..self.flights.len())
            .step_by(rows)
            .map(|start| start..(start + rows).min(self.flights.len()))
            .collect()
    }

    /// Waits until the next batch is due, or until somebody asks for the end.
    pub async fn wait(&mut self) {
        let due = self.started + self.rate.due(self.meter.rows());
        let asked = signalled(&mut self.stop);
        // Whether it was the time or the signal shows in `is_stopped`.
        let _ = timeout_at(due.into(), asked).await;
    }

    /// Sends a batch and returns when a view contains it: how long that took.
    ///
    /// # Errors
    /// The server failed, or the view does not contain what was sent.
    pub async fn send(&mut self, batch: std::ops::Range<usize>, pass: u64) -> Result<Duration, DemoError> {
        let shift = TimeDelta::days(data::MONTH.num_days() * i64::try_from(pass).unwrap_or(0));
        let flights = &self.flights[batch];
        let mut lines = String::new();
        for flight in flights {
            flight.write_copy_line(shift, &mut lines);
        }
        let rows = flights.len() as u64;
        self.departed += flights.iter().filter(|flight| flight.departed).count() as u64;
        self.clock = flights.last().map(|flight| flight.scheduled + shift);

        let sent = Instant::now();
        self.client.copy(COPY_FLIGHTS, lines.into_bytes()).await?;
        let visible = self
            .client
            .number(&format!(
                "SELECT coalesce(sum(departed), 0) FROM {CARRIER_DELAYS}"
            ))
            .await?;
        let now = Instant::now();
        if visible != self.departed {
            return Err(DemoError::NotVisible {
                view: CARRIER_DELAYS,
                sent: self.departed,
                visible,
            });
        }
        self.meter.record(rows, now - sent, now - self.started);
        Ok(now - sent)
    }

    /// Gives an airline another's name: the rows that came before move from group to group.
    ///
    /// # Errors
    /// The server failed.
    pub async fn rename(&mut self, pass: u64) -> Result<(), DemoError> {
        let statement = rename(pass);
        let before = self.departed_of_renamed().await?;
        let sent = Instant::now();
        self.client.run(&statement).await?;
        let after = self.departed_of_renamed().await?;
        let took = sent.elapsed();
        let changes: Vec<String> = RENAMED_FROM_TO
            .iter()
            .zip(before.iter().zip(&after))
            .map(|(name, (before, after))| format!("{name} {} -> {}", shown(*before), shown(*after)))
            .collect();
        self.news = vec![
            format!("{statement};"),
            format!(
                "  {AIRLINE_DELAYS}, {} later: {}",
                milliseconds(took),
                changes.join(", ")
            ),
        ];
        Ok(())
    }

    /// The flights of the two names; `None` where the view has no such row.
    async fn departed_of_renamed(&self) -> Result<[Option<u64>; 2], DemoError> {
        let mut departed = [None; 2];
        let [from, to] = RENAMED_FROM_TO;
        let query =
            format!("SELECT airline, departed FROM {AIRLINE_DELAYS} WHERE airline IN ('{from}', '{to}')");
        for row in self.client.rows(&query).await?.rows {
            if let [Some(airline), Some(count)] = &row[..]
                && let Some(index) = RENAMED_FROM_TO.iter().position(|name| name == airline)
            {
                departed[index] = count.parse().ok();
            }
        }
        Ok(departed)
    }

    /// Reads every view.
    ///
    /// # Errors
    /// The server failed.
    pub async fn frame(&self) -> Result<Frame, DemoError> {
        let mut panels = Vec::new();
        for view in &VIEWS {
            panels.push(Panel {
                name: view.name,
                kind: view.kind,
                table: self.client.rows(view.show).await?,
            });
        }
        Ok(Frame {
            addresses: self.addresses.clone(),
            clock: self.clock,
            rows: self.meter.rows(),
            rows_a_pass: self.flights.len() as u64,
            rows_per_second: self.meter.recent_rows_per_second(),
            freshness: [self.meter.freshness(50.0), self.meter.freshness(99.0)],
            panels,
            news: self.news.clone(),
        })
    }

    /// Compares every view with its query, run once over everything that was sent; says how long these queries took.
    ///
    /// # Errors
    /// The server failed, or a view differs.
    pub async fn check(&self) -> Result<Duration, DemoError> {
        let mut took = Duration::ZERO;
        for view in &VIEWS {
            let mut kept = self
                .client
                .rows(&format!("SELECT * FROM {}", view.name))
                .await?
                .rows;
            let started = Instant::now();
            let mut batch = self.client.rows(view.query).await?.rows;
            took += started.elapsed();
            kept.sort();
            batch.sort();
            if kept != batch {
                return Err(DemoError::Differs {
                    view: view.name,
                    rows_kept: kept.len(),
                    rows_batch: batch.len(),
                });
            }
        }
        Ok(took)
    }
}

fn shown(departed: Option<u64>) -> String {
    departed.map_or_else(|| "gone".to_owned(), grouped)
}
