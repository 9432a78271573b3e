//! Forecasts as text.

use super::table::Table;
use super::text::WIDTH_MAX;
use crate::forecast::freshness::FreshnessForecast;
use crate::forecast::interval::{Certainty, Interval};
use crate::forecast::query::Forecast;
use crate::forecast::view::ViewForecast;
use crate::units::{count, duration};

/// The lines of EXPLAIN (PREDICT); the last one is the answer.
pub fn forecast_text(forecast: &Forecast) -> Vec<String> {
    let mut table = Table::new(&["operator", "rows in", "cpu"]);
    for operator in &forecast.operators {
        table.row(vec![
            operator.name.clone(),
            count(operator.rows_in.round() as u64),
            match operator.is_measured {
                true => duration(operator.cpu as f64),
                false => format!("~ {}", duration(operator.cpu as f64)),
            },
        ]);
    }
    let mut lines = table.lines(0, WIDTH_MAX);
    lines.push(String::new());
    lines.push(forecast_line(forecast));
    lines
}

/// `expected: 1.21 s, between 900 ms and 1.60 s; certainty high, from 4 runs`.
pub fn forecast_line(forecast: &Forecast) -> String {
    let source = match forecast.runs {
        0 => "no run has been analysed yet".to_owned(),
        runs => from(runs, "run"),
    };
    expected(&forecast.time, forecast.certainty, &source)
}

/// The lines of EXPLAIN (PREDICT) of a view; the last two are the answers.
pub fn view_forecast_text(forecast: &ViewForecast) -> Vec<String> {
    let mut inputs = Table::new(&["input", "rows", "rows/s"]);
    for input in &forecast.inputs {
        inputs.row(vec![
            input.name.clone(),
            count(input.rows),
            count(input.rows_per_second.round() as u64),
        ]);
    }
    let mut stages = Table::new(&["stage", "rows to fill", "cpu to fill", "cpu a row then"]);
    for (id, stage) in forecast.stages.iter().enumerate().rev() {
        stages.row(vec![
            format!("{id}: {}", stage.name),
            count(stage.rows_in.round() as u64),
            duration(stage.cpu as f64),
            duration(stage.row_cost),
        ]);
    }
    let mut lines = inputs.lines(0, WIDTH_MAX);
    lines.push(String::new());
    lines.extend(stages.lines(0, WIDTH_MAX));
    lines.push(String::new());
    lines.push(format!(
        "back-fill, {}",
        expected(&forecast.time, forecast.certainty, &from(forecast.views, "view"))
    ));
    lines.push(forecast.verdict.clone());
    lines.extend(forecast.freshness.as_ref().map(FreshnessForecast::line));
    lines
}

/// The time that is expected, and how sure that is.
fn expected(time: &Interval, certainty: Certainty, source: &str) -> String {
    format!(
        "expected: {}, between {} and {}; certainty {}, {source}",
        duration(time.expected as f64),
        duration(time.low as f64),
        duration(time.high as f64),
        certainty.name(),
    )
}

/// What it rests on.
fn from(count: usize, noun: &str) -> String {
    match count {
        1 => format!("from 1 {noun}"),
        count => format!("from {count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{two_stages, view_forecast};
    use crate::forecast::freshness::freshness_forecast;
    use crate::forecast::query::{PlannedOperator, Rates, forecast};

    #[test]
    fn a_forecast_reads_well() {
        let planned = |name: &str, rows_in, is_exact| PlannedOperator {
            name: name.to_owned(),
            rows_in,
            is_exact,
        };
        let plan = [
            planned("Sort: n", 200_000.0, false),
            planned("Window: row_number()", 200_000.0, false),
            planned("Scan: lineitem", 1_000_000.0, true),
        ];
        let found = forecast(&plan, &Rates::of([&two_stages()], 1.0), 2, 2, 1_000_000);
        let lines = forecast_text(&found);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH_MAX));
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn a_forecast_of_a_view_reads_well() {
        let mut forecast = view_forecast();
        forecast.freshness = Some(freshness_forecast(50_000_000, Some(6_000_000), &forecast));
        let lines = view_forecast_text(&forecast);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH_MAX));
        insta::assert_snapshot!(lines.join("\n"));
    }
}
