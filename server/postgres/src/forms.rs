//! How PostgreSQL writes single values, as text and in binary: numbers, dates, times, intervals. It knows neither columns nor
//! Arrow; `encode` and `types::output` put rows together with it.

pub mod datetime;
pub mod number;
