//! The flights that the demo replays, ready to be sent.

use std::io::{BufRead, BufReader};

use chrono::{NaiveDateTime, TimeDelta};
use flate2::read::GzDecoder;
use millrace_console::flights::FLIGHTS;
use serde::Deserialize;

/// What one pass over the flights covers. Later passes are shifted by multiples of it.
pub const MONTH: TimeDelta = TimeDelta::days(31);

/// A flight as the file has it.
#[derive(Deserialize)]
struct Record {
    sched_dep: String,
    carrier: String,
    flight: i32,
    tailnum: Option<String>,
    origin: String,
    dest: String,
    dep_delay: Option<i32>,
    arr_delay: Option<i32>,
    air_time: Option<i32>,
    distance: i32,
}

/// A flight, ready to be sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Flight {
    /// When it should have departed.
    pub scheduled: NaiveDateTime,
    /// Whether it departed at all.
    pub departed: bool,
    /// All columns but the first as COPY's text format has them, each with its tab before it.
    columns: String,
}

impl Flight {
    /// Adds the flight's line in COPY's text format, its time later by `shift`.
    pub fn write_copy_line(&self, shift: TimeDelta, lines: &mut String) {
        lines.push_str(&(self.scheduled + shift).format("%Y-%m-%d %H:%M:%S").to_string());
        lines.push_str(&self.columns);
        lines.push('\n');
    }
}

impl From<Record> for Flight {
    fn from(record: Record) -> Self {
        let mut columns = String::new();
        let mut push = |value: Option<String>| {
            columns.push('\t');
            columns.push_str(value.as_deref().unwrap_or("\\N"));
        };
        push(Some(record.carrier));
        push(Some(record.flight.to_string()));
        push(record.tailnum);
        push(Some(record.origin));
        push(Some(record.dest));
        for number in [record.dep_delay, record.arr_delay, record.air_time] {
            push(number.map(|number| number.to_string()));
        }
        push(Some(record.distance.to_string()));
        Flight {
            scheduled: NaiveDateTime::parse_from_str(&record.sched_dep, "%Y-%m-%dT%H:%M:%S")
                .expect("the file's times are well formed: a test reads them"),
            departed: record.dep_delay.is_some(),
            columns,
        }
    }
}

/// All flights of the month, in the order of their scheduled departures.
pub fn flights() -> Vec<Flight> {
    BufReader::new(GzDecoder::new(FLIGHTS))
        .lines()
        .map(|line| {
            let line = line.expect("the file inside the binary is whole: a test reads it");
            let record: Record =
                serde_json::from_str(&line).expect("its lines are flights: a test reads them");
            record.into()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use millrace_console::flights::TABLE_FILES;

    use super::*;

    #[test]
    fn the_files_are_whole_and_in_order() {
        let flights = flights();
        assert_eq!(flights.len(), 27_004);
        assert!(flights.is_sorted_by_key(|flight| flight.scheduled));
        assert!(flights[flights.len() - 1].scheduled < flights[0].scheduled + MONTH);
        // The text format's special characters would have to be escaped.
        for flight in &flights {
            assert_eq!(flight.columns.matches('\t').count(), 9);
            assert!(!flight.columns.replace("\\N", "").contains(['\\', '\n', '\r']));
        }
        let lines: Vec<usize> = TABLE_FILES
            .iter()
            .map(|file| file.csv().iter().filter(|byte| **byte == b'\n').count())
            .collect();
        assert_eq!(lines, [17, 1459, 3323]);
    }

    #[test]
    fn a_flight_becomes_a_line_of_copy() {
        let flight = Flight::from(Record {
            sched_dep: "2013-01-31T23:59:00".into(),
            carrier: "B6".into(),
            flight: 739,
            tailnum: None,
            origin: "JFK".into(),
            dest: "PSE".into(),
            dep_delay: None,
            arr_delay: Some(-3),
            air_time: None,
            distance: 1617,
        });
        let mut lines = String::new();
        flight.write_copy_line(MONTH, &mut lines);
        assert_eq!(
            lines,
            "2013-03-03 23:59:00\tB6\t739\t\\N\tJFK\tPSE\t\\N\t-3\t\\N\t1617\n"
        );
        assert!(!flight.departed);
    }
}
