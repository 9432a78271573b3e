//! What the demo shows: one screen while it runs, a few plain lines at the end. Pure: text from numbers.

use std::net::SocketAddr;
use std::time::Duration;

use chrono::NaiveDateTime;

use crate::table::ResultTable;

/// What stands above every screen and summary.
pub const TITLE: &str = "millrace demo: the flights from New York in January 2013, replayed";
/// Between the panels of a row.
const GAP: &str = "   ";
/// Lines of a panel that are not rows: title, header, rule.
const PANEL_LINES: usize = 3;
/// Lines around the panels: title, progress, freshness, two addresses, an empty line before each of the two rows of
/// panels, and two lines of news.
const OTHER_LINES: usize = 9;

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
    /// One line for each way to connect, and one where a port was taken.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "psql:  psql -h {} -p {} -U millrace millrace",
                self.pg.ip(),
                self.pg.port()
            ),
            format!("look:  http://{}/ in a browser", self.http),
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
        let query = r#"{"query": "SELECT * FROM punctuality"}"#;
        format!("curl http://{}/api/sql --json '{query}'", self.http)
    }
}

/// A view on the screen.
#[derive(Debug)]
pub struct Panel {
    /// The view's name.
    pub name: &'static str,
    /// What it is an example of.
    pub kind: &'static str,
    /// Its rows.
    pub table: ResultTable,
}

/// One screen.
#[derive(Debug)]
pub struct Frame {
    /// How to reach the server.
    pub addresses: Addresses,
    /// The time in the flights' world.
    pub clock: Option<NaiveDateTime>,
    /// Flights so far.
    pub rows: u64,
    /// Flights in one pass.
    pub rows_a_pass: u64,
    /// Flights a second of late.
    pub rows_per_second: f64,
    /// From sending a batch to reading it in a view: median and 99th percentile.
    pub freshness: [Duration; 2],
    /// Two beside each other, in rows.
    pub panels: Vec<Panel>,
    /// What was changed last and what came of it.
    pub news: Vec<String>,
}

impl Frame {
    /// The screen's lines, for a terminal of that size.
    pub fn render(&self, width: usize, height: usize) -> Vec<String> {
        let clock = self
            .clock
            .map_or_else(String::new, |time| time.format("%Y-%m-%d %H:%M").to_string());
        let mut lines = vec![
            TITLE.to_owned(),
            format!(
                "{clock}   {} of {} flights   {} rows/s",
                grouped(self.rows),
                grouped(self.rows.div_ceil(self.rows_a_pass.max(1)).max(1) * self.rows_a_pass),
                grouped(self.rows_per_second.round() as u64)
            ),
            freshness(self.freshness),
        ];
        lines.extend(self.addresses.lines());
        let panel_rows = self.panels.len().div_ceil(2).max(1);
        let extra = usize::from(!self.addresses.taken.is_empty());
        let rows_max = (height.saturating_sub(OTHER_LINES + extra) / panel_rows).saturating_sub(PANEL_LINES);
        for pair in self.panels.chunks(2) {
            lines.push(String::new());
            lines.extend(beside(pair, rows_max));
        }
        lines.extend(self.news.iter().cloned());
        lines.truncate(height);
        for line in &mut lines {
            *line = line.chars().take(width).collect::<String>().trim_end().to_owned();
        }
        lines
    }
}

/// Two panels beside each other, cut to that many rows.
fn beside(panels: &[Panel], rows_max: usize) -> Vec<String> {
    let blocks: Vec<Vec<String>> = panels
        .iter()
        .map(|panel| {
            let mut lines = vec![format!("{}: {}", panel.name, panel.kind)];
            lines.extend(table_lines(&panel.table, rows_max));
            lines
        })
        .collect();
    let height = blocks.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = blocks
        .iter()
        .map(|lines| lines.iter().map(|line| line.chars().count()).max().unwrap_or(0))
        .collect();
    (0..height)
        .map(|row| {
            let cells: Vec<String> = blocks
                .iter()
                .zip(&widths)
                .map(|(lines, width)| format!("{:<width$}", lines.get(row).map_or("", String::as_str)))
                .collect();
            cells.join(GAP)
        })
        .collect()
}

/// A table as psql shows it, cut to that many rows, without the count below it.
fn table_lines(table: &ResultTable, rows_max: usize) -> Vec<String> {
    let text = table.render();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let rows = lines.len().saturating_sub(PANEL_LINES);
    lines.into_iter().take(2 + rows.min(rows_max)).collect()
}

/// How fresh the views are.
pub fn freshness([median, worst]: [Duration; 2]) -> String {
    format!(
        "freshness, from sending a batch to reading it in a view: p50 {}, p99 {}",
        milliseconds(median),
        milliseconds(worst)
    )
}

/// A duration as people compare them.
pub fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
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

    fn table(columns: &[&str], rows: &[&[&str]]) -> ResultTable {
        ResultTable {
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            rows: rows
                .iter()
                .map(|row| row.iter().map(|value| Some((*value).to_owned())).collect())
                .collect(),
        }
    }

    fn frame() -> Frame {
        let many = [
            ["UA", "415", "5.8", "66"],
            ["B6", "377", "2.1", "41"],
            ["EV", "311", "14.0", "88"],
            ["DL", "290", "1.2", "20"],
        ];
        let many: Vec<&[&str]> = many.iter().map(|row| &row[..]).collect();
        Frame {
            addresses: Addresses {
                pg: "127.0.0.1:5433".parse().unwrap(),
                http: "127.0.0.1:40123".parse().unwrap(),
                taken: vec!["127.0.0.1:8033".parse().unwrap()],
            },
            clock: Some("2013-01-03T09:15:00".parse().unwrap()),
            rows: 2_160,
            rows_a_pass: 27_004,
            rows_per_second: 1_799.7,
            freshness: [Duration::from_micros(3_140), Duration::from_micros(12_900)],
            panels: vec![
                Panel {
                    name: "carrier_delays",
                    kind: "a filtered aggregate",
                    table: table(&["carrier", "departed", "delay", "late"], &many),
                },
                Panel {
                    name: "airline_delays",
                    kind: "a join",
                    table: table(
                        &["airline", "departed"],
                        &[&["United Air Lines Inc.", "415"], &["JetBlue Airways", "377"]],
                    ),
                },
                Panel {
                    name: "punctuality",
                    kind: "a view over a view",
                    table: table(&["class", "departed"], &[&["punctual", "1082"], &["late", "311"]]),
                },
            ],
            news: vec!["UPDATE airlines ...".into(), "  moved".into()],
        }
    }

    #[test]
    fn a_frame_fills_an_ordinary_terminal() {
        let lines = frame().render(80, 24);
        assert!(lines.len() <= 24 && lines.iter().all(|line| line.chars().count() <= 80));
        insta::assert_snapshot!(lines.join("\n"), @r#"
        millrace demo: the flights from New York in January 2013, replayed
        2013-01-03 09:15   2,160 of 27,004 flights   1,800 rows/s
        freshness, from sending a batch to reading it in a view: p50 3.1 ms, p99 12.9 ms
        psql:  psql -h 127.0.0.1 -p 5433 -U millrace millrace
        look:  http://127.0.0.1:40123/ in a browser
        (127.0.0.1:8033 in use: using free ports instead)

        carrier_delays: a filtered aggregate   airline_delays: a join
         carrier | departed | delay | late      airline               | departed
        ---------+----------+-------+------    -----------------------+----------
         UA      |      415 |   5.8 |   66      United Air Lines Inc. |      415
         B6      |      377 |   2.1 |   41      JetBlue Airways       |      377
         EV      |      311 |  14.0 |   88
         DL      |      290 |   1.2 |   20

        punctuality: a view over a view
         class    | departed
        ----------+----------
         punctual |     1082
         late     |      311
        UPDATE airlines ...
          moved
        "#);
    }

    #[test]
    fn a_frame_is_cut_to_a_small_terminal() {
        for (width, height) in [(0, 0), (1, 1), (20, 9), (40, 14)] {
            let lines = frame().render(width, height);
            assert!(lines.len() <= height, "{width}x{height}");
            assert!(
                lines.iter().all(|line| line.chars().count() <= width),
                "{width}x{height}"
            );
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
