//! What the demo shows at a moment, and the pieces of text that the screen and the plain lines have in common. Pure.

use std::net::SocketAddr;
use std::time::Duration;

use chrono::NaiveDateTime;
use millrace_console::flights::VIEWS;

use super::acts::Policy;
use super::lights::Lights;
use super::pace::percentile;
use super::replay::{Checked, Killed, Renamed};
use super::schema::RENAMED_FROM_TO;
use crate::table::ResultTable;

/// What stands above everything.
pub const TITLE: &str = "millrace demo: the flights from New York in January 2013, replayed";

/// How to reach the server.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// For PostgreSQL clients.
    pub pg: SocketAddr,
    /// For HTTP.
    pub http: SocketAddr,
    /// The addresses that a server has by default and that were taken.
    pub taken: Vec<SocketAddr>,
}

impl Addresses {
    /// A command that connects.
    pub fn psql(&self) -> String {
        format!(
            "psql -h {} -p {} -U millrace millrace",
            self.pg.ip(),
            self.pg.port()
        )
    }

    /// Where the console is.
    pub fn console(&self) -> String {
        format!("http://{}/", self.http)
    }

    /// One line for each way to connect, and one where a port was taken.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("psql:  {}", self.psql()),
            format!("look:  {} in a browser", self.console()),
        ];
        if !self.taken.is_empty() {
            let taken: Vec<String> = self.taken.iter().map(ToString::to_string).collect();
            lines.push(format!(
                "({} in use: using free ports instead)",
                taken.join(" and ")
            ));
        }
        lines
    }

    /// A command that reads a view over HTTP.
    pub fn http_example(&self) -> String {
        format!(
            "curl 'http://{}/api/sql?query=SELECT+*+FROM+punctuality'",
            self.http
        )
    }
}

/// A view on the screen.
#[derive(Debug, Default)]
pub struct Panel {
    /// Its rows.
    pub table: ResultTable,
    /// What changed of late.
    pub lights: Lights,
    /// Whether others have changed the view, so that it cannot be read as the demo made it.
    pub is_changed: bool,
}

/// What ran beside the views when a batch was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// Nothing, and batches are sent as they are beside heavy queries, to be compared with those.
    Alone,
    /// Heavy queries under a policy.
    Heavy(Policy),
    /// The server was killed, and started again.
    Kill,
}

/// How fresh a batch was.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// When it was seen, since the start.
    pub at: Duration,
    /// From sending it to reading it in a view.
    pub freshness: Duration,
    /// What ran beside it.
    pub beside: Beside,
}

/// What came of what happened.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// An airline got another's name.
    Renamed(Renamed),
    /// The server was killed, and is back; and what its views were compared with.
    Killed(Killed, Checked),
}

/// What is shown now.
#[derive(Debug)]
pub struct Frame {
    /// How to reach the server.
    pub addresses: Addresses,
    /// Which of the acts goes on.
    pub act: usize,
    /// The time in the flights' world.
    pub clock: Option<NaiveDateTime>,
    /// Flights so far.
    pub rows: u64,
    /// Flights in one pass.
    pub rows_a_pass: u64,
    /// Flights a second of late.
    pub rows_per_second: f64,
    /// The views, in their order.
    pub panels: Vec<Panel>,
    /// How fresh each batch was, of late at least.
    pub samples: Vec<Sample>,
    /// What happened last.
    pub outcome: Option<Outcome>,
    /// What others have changed, a line each.
    pub changed: Vec<String>,
    /// Since the start.
    pub elapsed: Duration,
}

impl Frame {
    /// Before anything happened.
    pub fn new(addresses: Addresses) -> Self {
        Frame {
            addresses,
            act: 0,
            clock: None,
            rows: 0,
            rows_a_pass: 0,
            rows_per_second: 0.0,
            panels: VIEWS.iter().map(|_| Panel::default()).collect(),
            samples: vec![],
            outcome: None,
            changed: vec![],
            elapsed: Duration::ZERO,
        }
    }

    /// Flights so far, of how many, and at which rate.
    pub fn progress(&self) -> String {
        let clock = self
            .clock
            .map_or_else(String::new, |time| time.format("%Y-%m-%d %H:%M   ").to_string());
        format!(
            "{clock}{} of {} flights   {} flights/s",
            grouped(self.rows),
            grouped(self.rows.div_ceil(self.rows_a_pass.max(1)).max(1) * self.rows_a_pass),
            grouped(self.rows_per_second.round() as u64)
        )
    }

    /// Median and 99th percentile beside that; `None` where nothing was sent beside it.
    pub fn freshness(&self, beside: Beside) -> Option<[Duration; 2]> {
        let of = self.samples.iter().filter(|sample| sample.beside == beside);
        let values: Vec<Duration> = of.map(|sample| sample.freshness).collect();
        (!values.is_empty()).then(|| [50, 99].map(|percent| percentile(&values, percent)))
    }

    /// The freshness beside nothing and beside heavy queries, as a table: of batches that were sent alike, for as long.
    pub fn comparison(&self) -> ResultTable {
        let kinds = [
            (Beside::Alone, "nothing"),
            (Beside::Heavy(Policy::Pausing), "SELECTs, paused"),
            (Beside::Heavy(Policy::InTurn), "SELECTs, in turn"),
        ];
        let rows = kinds.iter().filter_map(|(beside, name)| {
            let [median, worst] = self.freshness(*beside)?;
            Some([(*name).to_owned(), in_few_digits(median), in_few_digits(worst)])
        });
        table(&["beside the view", "p50", "p99"], rows)
    }
}

impl Renamed {
    /// The flights of the two names, before and after.
    pub fn table(&self) -> ResultTable {
        let shown = |departed: Option<u64>| departed.map_or_else(|| "gone".to_owned(), grouped);
        let [before, after] = self.departed;
        let rows = RENAMED_FROM_TO.iter().enumerate();
        let rows = rows.map(|(index, name)| [(*name).to_owned(), shown(before[index]), shown(after[index])]);
        table(&["airline", "before", "after"], rows)
    }

    /// How long it took, in words.
    pub fn sentence(&self) -> String {
        format!(
            "The view was right {} after the UPDATE was sent.",
            in_few_digits(self.took)
        )
    }
}

impl Killed {
    /// What was there before and after.
    pub fn table(&self) -> ResultTable {
        let (rows, arrived) = self.on_its_way;
        let on_its_way = if arrived {
            "had arrived whole"
        } else {
            "not arrived, sent again"
        };
        let facts = [
            ("killed", format!("process {}", self.process)),
            ("ready again after", in_few_digits(self.ready_after)),
            (
                "flights acknowledged",
                format!("{}, all there", grouped(self.acknowledged)),
            ),
            ("on their way", format!("{rows} flights, {on_its_way}")),
        ];
        table(
            &["kill -9", ""],
            facts.into_iter().map(|(name, value)| [name.to_owned(), value]),
        )
    }

    /// The same in words, with what the views were compared with.
    pub fn sentence(&self, checked: &Checked) -> String {
        let which = match &checked.changed[..] {
            [] => "All four views equal their queries".to_owned(),
            changed => format!(
                "Changed by you: {}; the other views equal their queries",
                changed.join(", ")
            ),
        };
        format!(
            "{which}, run over existing rows ({}); from the kill to the first right answer it took {}.",
            in_few_digits(checked.took),
            in_few_digits(self.down_for)
        )
    }
}

impl Checked {
    /// The last line of the demo.
    pub fn sentence(&self) -> String {
        let views = if self.same == 1 {
            "view equals its query"
        } else {
            "views equal their queries"
        };
        let changed = match &self.changed[..] {
            [] => String::new(),
            changed => format!("; changed by you: {}", changed.join(", ")),
        };
        format!(
            "check: {} {views} over all of the data (run in {}){changed}",
            self.same,
            in_few_digits(self.took)
        )
    }
}

fn table<const N: usize>(columns: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> ResultTable {
    ResultTable {
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        rows: rows.map(|row| row.map(Some).into()).collect(),
    }
}

/// How fresh the views are.
pub fn freshness([median, worst]: [Duration; 2]) -> String {
    format!(
        "freshness, from sending a batch to reading it in a view: p50 {}, p99 {}",
        in_few_digits(median),
        in_few_digits(worst)
    )
}

/// A duration as people compare them.
pub fn in_few_digits(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds => format!("{:.1} ms", seconds * 1000.0),
    }
}

/// A number with its thousands apart.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_checked_is_told_with_what_could_not_be() {
        let took = Duration::from_millis(7);
        let checked = |same, changed: &[&'static str]| Checked {
            took,
            same,
            changed: changed.to_vec(),
        };
        assert_eq!(
            checked(4, &[]).sentence(),
            "check: 4 views equal their queries over all of the data (run in 7.0 ms)"
        );
        assert_eq!(
            checked(1, &["punctuality", "maker_miles"]).sentence(),
            "check: 1 view equals its query over all of the data (run in 7.0 ms); changed by you: punctuality, maker_miles"
        );
    }

    #[test]
    fn a_duration_has_few_digits() {
        for (micros, text) in [(7_340, "7.3 ms"), (999_900, "999.9 ms"), (4_131_400, "4.13 s")] {
            assert_eq!(in_few_digits(Duration::from_micros(micros)), text);
        }
    }

    #[test]
    fn thousands_are_apart() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (27_004, "27,004"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
