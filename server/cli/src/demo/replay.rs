//! The demo's work: declare, load, replay, change, look, and check, all over one connection.
//!
//! A batch is sent with COPY, and then a view is read until it contains the batch: a session sees its own writes, so
//! the first reading must, and the time that both take is the freshness that the demo reports.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use chrono::{NaiveDateTime, TimeDelta};
use millrace_console::flights::{AIRLINE_DELAYS, CARRIER_DELAYS, RELATIONS, TABLE_FILES, VIEWS};
use millrace_wire::slot::signalled;
use tokio::sync::watch;
use tokio::time::timeout_at;

use super::DemoError;
use super::changes::Changes;
use super::client::Client;
use super::data::{self, Flight};
use super::pace::{Meter, Rate};
use super::schema::{COUNT, RENAMED_FROM_TO, rename};
use super::server::ServerProcess;

/// By name, so that a column that somebody adds is in nobody's way.
const COPY_FLIGHTS: &str = "COPY flights (sched_dep, carrier, flight, tailnum, origin, dest, dep_delay, arr_delay, air_time, distance) \
                            FROM STDIN";
/// The stream that they go to.
const FLIGHTS: &str = "flights";
/// The table in which an airline gets another name.
const AIRLINES: &str = "airlines";

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// A view has it, so long after it was sent.
    Seen(Duration),
    /// It is acknowledged; the view that would show it was changed.
    Unseen,
    /// There was none: the month is over, or somebody has changed the stream.
    Nothing,
}

/// What the views were compared with.
#[derive(Debug, Clone, Default)]
pub struct Checked {
    /// How long the queries took.
    pub took: Duration,
    /// Views that equal their queries.
    pub same: usize,
    /// Views that others have changed.
    pub changed: Vec<&'static str>,
}

/// A replay that goes on.
pub struct Replay {
    client: Client,
    pg: SocketAddr,
    rate: Rate,
    stop: watch::Receiver<bool>,
    flights: Vec<Flight>,
    /// Where the next batch begins.
    position: usize,
    /// How often the month was replayed whole.
    pass: u64,
    /// When the first batch was sent.
    started: Instant,
    /// From when on, and from which flight, the pace is kept.
    paced_from: (Instant, u64),
    meter: Meter,
    /// Flights so far, whose batches were acknowledged.
    acknowledged: u64,
    /// Those that departed: what the views must add up to.
    departed: u64,
    clock: Option<NaiveDateTime>,
    changes: Changes,
    is_cut_off: bool,
}

/// A change of an airline's name, and what came of it.
#[derive(Debug, Clone)]
pub struct Renamed {
    /// From sending it to reading the view.
    pub took: Duration,
    /// The flights of the two names before and after; `None` where the view has no such row.
    pub departed: [[Option<u64>; 2]; 2],
}

/// What became of a server that was killed.
#[derive(Debug, Clone)]
pub struct Killed {
    /// The process that was killed.
    pub process: u32,
    /// The flights that were acknowledged by then.
    pub acknowledged: u64,
    /// The flights of the batch that was on its way, and whether they had arrived.
    pub on_its_way: (u64, bool),
    /// From starting the new process to its being ready.
    pub ready_after: Duration,
    /// From the kill to reading in a view all that had been acknowledged.
    pub down_for: Duration,
}

impl Replay {
    /// Declares everything and loads the tables.
    ///
    /// # Errors
    /// The server refused something.
    pub async fn prepare(pg: SocketAddr, rate: Rate, stop: watch::Receiver<bool>) -> Result<Self, DemoError> {
        let client = Client::connect(pg).await?;
        // All or nothing: the console, which may be open already, offers to make what it misses.
        client.run("BEGIN").await?;
        for statement in RELATIONS {
            client.run(statement).await?;
        }
        for view in &VIEWS {
            client.run(&view.create()).await?;
        }
        client.run("COMMIT").await?;
        for file in &TABLE_FILES {
            let copy = format!(
                "COPY {} FROM STDIN WITH (FORMAT csv, HEADER, NULL 'NA')",
                file.table
            );
            client.copy(&copy, file.csv()).await?;
        }
        let changes = Changes::none(&client).await?;
        Ok(Replay {
            client,
            changes,
            pg,
            rate,
            stop,
            flights: data::flights(),
            position: 0,
            pass: 0,
            started: Instant::now(),
            paced_from: (Instant::now(), 0),
            meter: Meter::default(),
            acknowledged: 0,
            departed: 0,
            clock: None,
            is_cut_off: false,
        })
    }

    /// Starts the clock and measures from here on, once everything is ready to be watched.
    pub fn start(&mut self) {
        self.started = Instant::now();
        self.meter = Meter::default();
        self.keep_pace(self.rate);
    }

    /// Keeps this pace from here on, whatever was late before.
    pub fn keep_pace(&mut self, rate: Rate) {
        self.rate = rate;
        self.paced_from = (Instant::now(), self.meter.rows());
    }

    /// Whether somebody asked for the end.
    pub fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// What others have changed.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Whether no flight can be sent any more, because the stream is another.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// What was measured.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The time in the flights' world.
    pub fn clock(&self) -> Option<NaiveDateTime> {
        self.clock
    }

    /// Flights that were sent in this pass, and that a pass has.
    pub fn progress(&self) -> (usize, usize) {
        (self.position, self.flights.len())
    }

    /// Begins the month anew, a month later.
    pub fn next_pass(&mut self) {
        self.pass += 1;
        self.position = 0;
    }

    /// Waits until the next batch is due, or until somebody asks for the end.
    pub async fn wait(&mut self) {
        let (from, rows) = self.paced_from;
        let due = from + self.rate.due(self.meter.rows() - rows);
        let asked = signalled(&mut self.stop);
        // Whether it was the time or the signal shows in `is_stopped`.
        let _ = timeout_at(due.into(), asked).await;
    }

    /// Sends the next batch, of at most so many flights, and returns when a view contains it.
    ///
    /// # Errors
    /// The server failed, or the view does not contain what was sent.
    pub async fn send(&mut self, rows_max: usize) -> Result<Sent, DemoError> {
        let batch = match self.next_batch(rows_max) {
            Some(batch) if !self.is_cut_off => batch,
            _ => return Ok(Sent::Nothing),
        };
        let sent = Instant::now();
        let sent = match self.deliver(&batch).await? {
            Sent::Seen(_) => Sent::Seen(sent.elapsed()),
            other => other,
        };
        let freshness = match sent {
            Sent::Seen(freshness) => Some(freshness),
            Sent::Unseen => None,
            Sent::Nothing => return Ok(Sent::Nothing),
        };
        self.meter.record(batch.rows, freshness, self.started.elapsed());
        Ok(sent)
    }

    fn next_batch(&self, rows_max: usize) -> Option<Batch> {
        let shift = TimeDelta::days(data::MONTH.num_days() * i64::try_from(self.pass).unwrap_or(0));
        let end = self.flights.len().min(self.position + rows_max);
        let flights = &self.flights[self.position..end];
        let mut lines = String::new();
        for flight in flights {
            flight.write_copy_line(shift, &mut lines);
        }
        Some(Batch {
            rows: flights.len() as u64,
            departed: flights.iter().filter(|flight| flight.departed).count() as u64,
            clock: flights.last()?.scheduled + shift,
            lines,
            end,
        })
    }

    /// Sends a batch and returns when a view contains it.
    async fn deliver(&mut self, batch: &Batch) -> Result<Sent, DemoError> {
        match self.copy(batch).await {
            Ok(_) => {}
            Err(DemoError::Changed(how)) => {
                self.changes.note(FLIGHTS, how);
                self.is_cut_off = true;
                // The driver gives up a connection whose COPY is refused between being prepared and begun.
                self.client = Client::connect(self.pg).await?;
                return Ok(Sent::Nothing);
            }
            Err(error) => return Err(error),
        }
        self.count(batch);
        Ok(match self.see().await? {
            true => Sent::Seen(Duration::ZERO),
            false => Sent::Unseen,
        })
    }

    async fn copy(&self, batch: &Batch) -> Result<u64, DemoError> {
        self.client
            .copy(COPY_FLIGHTS, batch.lines.clone().into_bytes())
            .await
    }

    fn count(&mut self, batch: &Batch) {
        self.position = batch.end;
        self.acknowledged += batch.rows;
        self.departed += batch.departed;
        self.clock = Some(batch.clock);
    }

    /// Reads the view that is to contain all that was sent. There may be more: others have the address, too. False: others have
    /// changed the view, and it says nothing of what was sent.
    async fn see(&mut self) -> Result<bool, DemoError> {
        let view = &VIEWS[0];
        if self.changes.has(view.name) {
            return Ok(false);
        }
        let sum = format!("SELECT coalesce(sum(departed), 0) FROM {CARRIER_DELAYS}");
        let visible = match self.client.number(&sum).await {
            Ok(visible) if visible >= self.departed => return Ok(true),
            Ok(visible) => visible,
            Err(DemoError::Changed(how)) => {
                self.changes.note(view.name, how);
                return Ok(false);
            }
            Err(error) if !self.changes.is_as_made(&self.client, view).await? => {
                tracing::debug!(%error, "a view that was changed");
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if !self.changes.is_as_made(&self.client, view).await? {
            return Ok(false);
        }
        // Both of one moment.
        let both = format!(
            "SELECT coalesce(sum(departed), 0) FROM {CARRIER_DELAYS}\nUNION ALL SELECT coalesce(sum(departed), 0) FROM ({}) AS q",
            view.query
        );
        let both = self.client.rows(&both).await?.rows;
        match &both[..] {
            [kept, batch] if kept == batch => {
                self.changes.note(FLIGHTS, "rows were removed");
                let number = kept.first().and_then(|number| number.as_deref()?.parse().ok());
                self.departed = number.unwrap_or(visible);
                Ok(true)
            }
            _ => Err(DemoError::NotVisible {
                view: CARRIER_DELAYS,
                sent: self.departed,
                visible,
            }),
        }
    }

    /// Gives an airline another's name: the rows that came before move from group to group. `None`: others have changed the table
    /// or the view.
    ///
    /// # Errors
    /// The server failed.
    pub async fn rename(&mut self) -> Result<Option<Renamed>, DemoError> {
        let statement = rename(self.pass);
        let before = self.departed_of_renamed().await;
        let Some(before) = self.or_changed(AIRLINE_DELAYS, before)? else {
            return Ok(None);
        };
        let sent = Instant::now();
        let updated = self.client.run(&statement).await;
        if self.or_changed(AIRLINES, updated)?.is_none() {
            return Ok(None);
        }
        let after = self.departed_of_renamed().await;
        let took = sent.elapsed();
        let after = self.or_changed(AIRLINE_DELAYS, after)?;
        Ok(after.map(|after| Renamed {
            took,
            departed: [before, after],
        }))
    }

    /// `None`, noted, where something failed because others have changed this relation.
    fn or_changed<T>(
        &mut self,
        name: &'static str,
        outcome: Result<T, DemoError>,
    ) -> Result<Option<T>, DemoError> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(DemoError::Changed(how)) => {
                self.changes.note(name, how);
                Ok(None)
            }
            Err(error) => Err(error),
        }
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

    /// Kills the server while a batch is on its way to it, starts it again, and looks for everything that was acknowledged.
    /// `None` at the end of the month, or where others have changed the stream.
    ///
    /// # Errors
    /// The server does not start, or has other flights than those that were acknowledged, with or without the batch.
    pub async fn kill(
        &mut self,
        server: &mut ServerProcess,
        rows: usize,
    ) -> Result<Option<Killed>, DemoError> {
        let Some(batch) = self.next_batch(rows) else {
            return Ok(None);
        };
        // With those that others have sent, and without those that others have removed.
        let counted = self.client.number(COUNT).await;
        let Some(acknowledged) = self.or_changed(FLIGHTS, counted)? else {
            return Ok(None);
        };
        if acknowledged < self.acknowledged {
            self.changes.note(FLIGHTS, "rows were removed");
        }
        let killed = Instant::now();
        let (copied, process) = tokio::join!(self.copy(&batch), async { server.kill() });
        let process = process?;
        let ready_after = server.restart().await?;
        self.client = Client::connect(self.pg).await?;
        let there = self.client.number(COUNT).await?;
        let arrived = there >= acknowledged + batch.rows;
        if there < acknowledged || (!arrived && copied.is_ok()) {
            return Err(DemoError::Lost { acknowledged, there });
        }
        if arrived {
            self.count(&batch);
        }
        self.see().await?;
        let down_for = killed.elapsed();
        if !arrived {
            self.deliver(&batch).await?;
        }
        let now = Instant::now();
        self.meter
            .record(batch.rows, Some(now - killed), now - self.started);
        Ok(Some(Killed {
            process,
            acknowledged,
            on_its_way: (batch.rows, arrived),
            ready_after,
            down_for,
        }))
    }

    /// Compares every view with its query, run once over everything that was sent, but for views that others have changed.
    ///
    /// # Errors
    /// The server failed, or a view differs.
    pub async fn check(&mut self) -> Result<Checked, DemoError> {
        let mut checked = Checked::default();
        for view in &VIEWS {
            if !self.changes.is_as_made(&self.client, view).await? {
                checked.changed.push(view.name);
                continue;
            }
            // Both of one moment: others may be at work.
            let both = format!(
                "SELECT 0 AS side, kept.* FROM {} AS kept\nUNION ALL SELECT 1, q.* FROM ({}) AS q",
                view.name, view.query
            );
            let started = Instant::now();
            let rows = self.client.rows(&both).await;
            let Some(rows) = self.or_changed(view.name, rows)? else {
                checked.changed.push(view.name);
                continue;
            };
            checked.took += started.elapsed();
            let (mut kept, mut batch): (Vec<_>, Vec<_>) = rows
                .rows
                .into_iter()
                .partition(|row| matches!(row.first(), Some(Some(side)) if side == "0"));
            for side in [&mut kept, &mut batch] {
                side.iter_mut().for_each(|row| drop(row.remove(0)));
                side.sort();
            }
            if kept != batch {
                return Err(DemoError::Differs {
                    view: view.name,
                    rows_kept: kept.len(),
                    rows_batch: batch.len(),
                });
            }
            checked.same += 1;
        }
        Ok(checked)
    }
}

/// Flights that are sent together.
struct Batch {
    rows: u64,
    departed: u64,
    clock: NaiveDateTime,
    /// In COPY's text format.
    lines: String,
    /// Where the next one begins.
    end: usize,
}
