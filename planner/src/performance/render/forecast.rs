//! A forecast as text, and as JSON: `{"version": 1, "forecast": {..}}`, the fields of [`Forecast`].

use serde::{Deserialize, Serialize};

use super::json::VERSION;
use super::table::Table;
use super::text::WIDTH_MAX;
use super::units::{count, duration};
use crate::performance::forecast::Forecast;

/// The JSON document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForecastDocument {
    pub version: u32,
    pub forecast: Forecast,
}

impl ForecastDocument {
    pub fn new(forecast: Forecast) -> ForecastDocument {
        ForecastDocument {
            version: VERSION,
            forecast,
        }
    }
}

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
        1 => "from 1 run".to_owned(),
        runs => format!("from {runs} runs"),
    };
    format!(
        "expected: {}, between {} and {}; certainty {}, {source}",
        duration(forecast.expected as f64),
        duration(forecast.low as f64),
        duration(forecast.high as f64),
        forecast.certainty.name(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::performance::fixtures::two_stages;
    use crate::performance::forecast::{PlannedOperator, Rates, forecast};

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
}
