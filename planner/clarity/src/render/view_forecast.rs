//! The forecast of a view as text, and as JSON: `{"version": 1, "view_forecast": {..}}`, the fields of [`ViewForecast`].

use serde::{Deserialize, Serialize};

use super::json::VERSION;
use super::table::Table;
use super::text::WIDTH_MAX;
use super::units::{count, duration};
use crate::view_forecast::ViewForecast;

/// The JSON document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewForecastDocument {
    pub version: u32,
    pub view_forecast: ViewForecast,
}

impl ViewForecastDocument {
    pub fn new(view_forecast: ViewForecast) -> ViewForecastDocument {
        ViewForecastDocument {
            version: VERSION,
            view_forecast,
        }
    }
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
    let views = if forecast.views == 1 { "view" } else { "views" };
    lines.push(format!(
        "back-fill, expected: {}, between {} and {}; certainty {}, from {} {views}",
        duration(forecast.expected as f64),
        duration(forecast.low as f64),
        duration(forecast.high as f64),
        forecast.certainty.name(),
        forecast.views
    ));
    lines.push(forecast.verdict.clone());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::Certainty;
    use crate::view_forecast::{PlannedInput, StageForecast};

    #[test]
    fn a_forecast_of_a_view_reads_well() {
        let stage = |name: &str, rows_in, cpu, row_cost| StageForecast {
            name: name.to_owned(),
            rows_in,
            cpu,
            row_cost,
        };
        let forecast = ViewForecast {
            inputs: vec![PlannedInput {
                name: "flights".to_owned(),
                rows: 600_000,
                rows_per_second: 19_175.2,
            }],
            stages: vec![
                stage("PartialAggregate, Source: flights", 600_000.0, 60_000_000, 212.0),
                stage("Aggregate", 14_000.0, 4_000_000, 1_310.0),
            ],
            expected: 41_000_000,
            low: 30_000_000,
            high: 62_000_000,
            cpu: 0.03,
            cpu_high: 0.05,
            cpu_free: 0.95,
            rows_per_second_max: Some(620_173.0),
            certainty: Certainty::Medium,
            views: 3,
            verdict: "it will keep up".to_owned(),
        };
        let lines = view_forecast_text(&forecast);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH_MAX));
        insta::assert_snapshot!(lines.join("\n"));
    }
}
