//! Plays the acts: sends the flights of each, does what happens in it, and puts down what came of it, for the screen or as
//! plain lines.

use std::io::Write;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millrace_console::flights::VIEWS;

use super::DemoError;
use super::acts::{ACTS, Act, Event, flights_until};
use super::changes::Seen;
use super::client::Client;
use super::frame::{Addresses, Beside, Frame, Outcome, Sample, freshness, grouped};
use super::heavy::Heavy;
use super::pace::{Rate, percentile};
use super::replay::{Replay, Sent};
use super::server::ServerProcess;

/// Flights of a batch in the acts that are compared: small ones, so that there are many. And how many a second, whatever the pace of
/// the others.
const COMPARED_BATCH_ROWS: usize = 20;
const COMPARED_RATE: Rate = Rate::RowsPerSecond(NonZeroU32::new(450).expect("it is not zero"));
/// Samples that are kept, where the replay goes on forever.
const SAMPLES_MAX: usize = 20_000;

/// What is shown, between who plays, who reads the views and who draws.
pub struct Stage {
    frame: Mutex<Frame>,
    started: Instant,
    skip: AtomicBool,
}

impl Stage {
    /// An empty one.
    pub fn new(addresses: Addresses) -> Self {
        Stage {
            frame: Mutex::new(Frame::new(addresses)),
            started: Instant::now(),
            skip: AtomicBool::new(false),
        }
    }

    /// What is shown now.
    pub fn frame(&self) -> MutexGuard<'_, Frame> {
        let mut frame = self.frame.lock().unwrap_or_else(PoisonError::into_inner);
        frame.elapsed = self.started.elapsed();
        frame
    }

    /// Goes on to the next act.
    pub fn skip(&self) {
        self.skip.store(true, Ordering::Relaxed);
    }

    /// Shows what the views hold.
    pub fn show(&self, seen: Vec<Seen>) {
        let mut frame = self.frame();
        let now = frame.elapsed;
        for (panel, seen) in frame.panels.iter_mut().zip(seen) {
            panel.is_changed = matches!(seen, Seen::Changed);
            if let Seen::Rows(table) = seen {
                panel.lights.observe(&table, now);
                panel.table = table;
            }
        }
    }
}

/// One play of the month.
pub struct Story<'a, W> {
    /// What sends the flights.
    pub replay: Replay,
    /// To whom.
    pub server: &'a mut ServerProcess,
    /// What is shown.
    pub stage: &'a Stage,
    /// The pace of the acts.
    pub rate: Rate,
    /// Where the acts are told in lines, if nobody watches the screen.
    pub lines: Option<&'a mut W>,
}

impl<W: Write> Story<'_, W> {
    /// Plays all acts, unless somebody asks for the end.
    ///
    /// # Errors
    /// The server failed, or does not hold what it must.
    pub async fn play(&mut self) -> Result<(), DemoError> {
        self.replay.start();
        for (index, act) in ACTS.iter().enumerate() {
            self.stage.skip.store(false, Ordering::Relaxed);
            self.stage.frame().act = index;
            self.tell_beginning(index, act)?;
            let began = self.stage.frame().samples.len();
            match act.event {
                Event::Heavy(policy) => {
                    let pg = self.server.addresses().pg;
                    let admin = Client::connect(pg).await?;
                    let set = format!("ALTER SYSTEM SET scheduler_policy = '{}'", policy.name());
                    admin.run(&set).await?;
                    let heavy = Heavy::start(pg);
                    let played = self.send_flights(index, act).await;
                    heavy.end().await?;
                    admin.run("ALTER SYSTEM RESET scheduler_policy").await?;
                    played?;
                }
                Event::Watch | Event::Alone | Event::Rename | Event::Kill => {
                    self.send_flights(index, act).await?;
                }
            }
            if self.replay.is_stopped() {
                return Ok(());
            }
            self.tell_end(act, began).await?;
            if self.replay.is_cut_off() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Replays the month once more, a month later, with the name changed in the middle.
    ///
    /// # Errors
    /// As [`Story::play`].
    pub async fn play_again(&mut self) -> Result<(), DemoError> {
        self.replay.next_pass();
        self.replay.keep_pace(self.rate);
        let mut is_renamed = false;
        while !self.replay.is_stopped() {
            self.replay.wait().await;
            if !self.send(self.rate.batch_rows(), Beside::Nothing).await? {
                break;
            }
            let (sent, all) = self.replay.progress();
            if !is_renamed && sent * 2 >= all {
                self.rename().await?;
                is_renamed = true;
            }
        }
        if let Some(lines) = &mut self.lines {
            let meter = self.replay.meter();
            writeln!(
                lines,
                "{} flights   {} flights/s   {}",
                grouped(meter.rows()),
                grouped(meter.recent_rows_per_second().round() as u64),
                freshness([meter.freshness(50.0), meter.freshness(99.0)])
            )?;
        }
        Ok(())
    }

    async fn send_flights(&mut self, index: usize, act: &Act) -> Result<(), DemoError> {
        self.replay.keep_pace(if act.is_compared() {
            COMPARED_RATE
        } else {
            self.rate
        });
        let (start, all) = self.replay.progress();
        let end = flights_until(index, all);
        let is_last = index + 1 == ACTS.len();
        let month = self.rate.due(all as u64);
        let began = Instant::now();
        let mut is_over = false;
        let mut has_happened = false;
        while !is_over && !self.replay.is_stopped() {
            self.replay.wait().await;
            let (sent, _) = self.replay.progress();
            let half_time = began.elapsed() >= act.lasts(month) / 2;
            if !has_happened && (half_time || sent >= start.midpoint(end) || self.is_skipped()) {
                match act.event {
                    Event::Rename => self.rename().await?,
                    Event::Kill => self.kill().await?,
                    Event::Watch | Event::Alone | Event::Heavy(_) => {}
                }
                has_happened = true;
            }
            // What is compared is not cut short by its share of the flights.
            let rows = if act.is_compared() {
                COMPARED_BATCH_ROWS
            } else if is_last {
                self.rate.batch_rows()
            } else {
                self.rate.batch_rows().min(end.saturating_sub(sent).max(1))
            };
            let beside = match act.event {
                Event::Heavy(policy) => Beside::Heavy(policy),
                Event::Alone => Beside::Alone,
                _ => Beside::Nothing,
            };
            let is_sent = self.send(rows, beside).await?;
            let (sent, _) = self.replay.progress();
            let timed_out = began.elapsed() >= act.lasts(month);
            let is_all_sent = sent >= end && !act.is_compared();
            is_over = !is_sent || (!is_last && (is_all_sent || timed_out || self.is_skipped()));
        }
        Ok(())
    }

    /// Whether somebody wants the next act. What happens in this one happens all the same.
    fn is_skipped(&self) -> bool {
        self.stage.skip.load(Ordering::Relaxed)
    }

    /// Sends a batch; says whether there was one.
    async fn send(&mut self, rows: usize, beside: Beside) -> Result<bool, DemoError> {
        let sent = self.replay.send(rows).await?;
        self.tell_changes()?;
        match sent {
            Sent::Seen(freshness) => self.note(Some(freshness), beside),
            Sent::Unseen => self.note(None, beside),
            Sent::Nothing => return Ok(false),
        }
        Ok(true)
    }

    /// Shows what others have changed; in plain lines what is new of it.
    fn tell_changes(&mut self) -> Result<(), DemoError> {
        let changed = self.replay.changes().lines();
        let mut frame = self.stage.frame();
        if frame.changed.len() == changed.len() {
            return Ok(());
        }
        if let Some(lines) = &mut self.lines {
            for line in changed.iter().filter(|line| !frame.changed.contains(line)) {
                writeln!(lines, "\n{line}")?;
            }
        }
        frame.changed = changed;
        Ok(())
    }

    fn note(&self, freshness: Option<Duration>, beside: Beside) {
        let meter = self.replay.meter();
        let mut frame = self.stage.frame();
        let at = frame.elapsed;
        if frame.samples.len() >= SAMPLES_MAX {
            frame.samples.drain(..SAMPLES_MAX / 2);
        }
        frame.samples.extend(freshness.map(|freshness| Sample {
            at,
            freshness,
            beside,
        }));
        frame.clock = self.replay.clock();
        frame.rows = meter.rows();
        frame.rows_a_pass = self.replay.progress().1 as u64;
        frame.rows_per_second = meter.recent_rows_per_second();
    }

    async fn rename(&mut self) -> Result<(), DemoError> {
        let renamed = self.replay.rename().await?;
        if let Some(renamed) = renamed {
            self.stage.frame().outcome = Some(Outcome::Renamed(renamed));
        }
        self.tell_changes()
    }

    async fn kill(&mut self) -> Result<(), DemoError> {
        let killed = self.replay.kill(self.server, self.rate.batch_rows()).await?;
        if let Some(killed) = killed {
            self.note(Some(killed.down_for), Beside::Kill);
            let checked = self.replay.check().await?;
            self.stage.frame().outcome = Some(Outcome::Killed(killed, checked));
        }
        self.replay.keep_pace(self.rate);
        self.tell_changes()
    }

    fn tell_beginning(&mut self, index: usize, act: &Act) -> Result<(), DemoError> {
        let Some(lines) = &mut self.lines else {
            return Ok(());
        };
        writeln!(lines, "\n== {} of {}: {}", index + 1, ACTS.len(), act.title)?;
        writeln!(lines, "{}", wrapped(act.words, LINE_WIDTH).join("\n"))?;
        if !matches!(act.event, Event::Kill | Event::Alone) && index + 1 < ACTS.len() {
            writeln!(lines, "\n{}", act.sql())?;
        }
        lines.flush()?;
        Ok(())
    }

    async fn tell_end(&mut self, act: &Act, began: usize) -> Result<(), DemoError> {
        if self.lines.is_none() {
            return Ok(());
        }
        let client = Client::connect(self.server.addresses().pg).await?;
        let view = &VIEWS[act.view];
        let shown = match client.rows(view.show).await {
            Ok(shown) => head(&shown.render()),
            Err(DemoError::Changed(how)) => format!("{}: changed by you ({how})", view.name),
            Err(error) => return Err(error),
        };
        let frame = self.stage.frame();
        let text = match (act.event, &frame.outcome) {
            (Event::Rename, Some(Outcome::Renamed(renamed))) => {
                format!("{}{}", renamed.table().render(), renamed.sentence())
            }
            (Event::Kill, Some(Outcome::Killed(killed, checked))) => {
                format!("{}{}", killed.table().render(), killed.sentence(checked))
            }
            (Event::Heavy(_), _) if !frame.comparison().rows.is_empty() => frame.comparison().render(),
            _ => {
                let own = frame.samples.get(began..).unwrap_or_default();
                let own: Vec<Duration> = own.iter().map(|sample| sample.freshness).collect();
                match &own[..] {
                    [] => shown,
                    _ => format!(
                        "{shown}\n{}",
                        freshness([50, 99].map(|percent| percentile(&own, percent)))
                    ),
                }
            }
        };
        let progress = frame.progress();
        drop(frame);
        if let Some(lines) = &mut self.lines {
            writeln!(lines, "\n{}\n{progress}", text.trim_end())?;
            lines.flush()?;
        }
        Ok(())
    }
}

/// How wide the plain lines are.
const LINE_WIDTH: usize = 100;

/// A text in lines of at most so many characters.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The beginning of a table: its header and a few rows.
fn head(table: &str) -> String {
    const LINES: usize = 2 + 5;
    table.lines().take(LINES).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_wrapped_at_spaces() {
        assert_eq!(wrapped("one two  three\nfour", 9), ["one two", "three", "four"]);
        assert_eq!(wrapped("incomprehensible", 4), ["incomprehensible"]);
        assert_eq!(wrapped("", 4), Vec::<String>::new());
    }
}
