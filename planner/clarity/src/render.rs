//! How a run is shown: text for psql, JSON for programs, a trace for the viewer.

pub mod forecast;
pub mod json;
mod table;
pub mod text;
pub mod trace;
pub mod units;
pub mod view;
pub mod view_forecast;

pub use forecast::{ForecastDocument, forecast_line, forecast_text};
pub use json::Document;
pub use text::text;
pub use trace::trace;
pub use view::{ViewDocument, view_text};
pub use view_forecast::{ViewForecastDocument, view_forecast_text};
