//! `mr_catalog.jobs` (SHOW JOBS): views that are being made, or could not be.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Float64Array, IntervalMonthDayNanoArray, StringArray};
use arrow::datatypes::IntervalMonthDayNano;
use millrace_database::Database;
use millrace_database::database::jobs::JobInfo;

use super::{Columns, numbers, texts};

/// One row a view that is being made, or could not be.
pub(super) fn columns(database: &Database) -> Columns {
    let jobs = database.job_infos();
    let time = |value: Option<Duration>| {
        let nanoseconds = i64::try_from(value?.as_nanos()).ok()?;
        Some(IntervalMonthDayNano::new(0, 0, nanoseconds))
    };
    let elapsed = jobs.iter().map(|job| time(Some(job.elapsed)));
    let time_left = jobs.iter().map(|job| time(job.time_left));
    vec![
        ("id", numbers(jobs.iter().map(|job| job.id.0))),
        ("view", texts(jobs.iter().map(|job| job.view.clone()))),
        ("state", texts(jobs.iter().map(|job| job.state.to_string()))),
        ("rows_done", numbers(jobs.iter().map(|job| job.rows_done))),
        ("rows_total", numbers(jobs.iter().map(|job| job.rows_total))),
        (
            "percent",
            Arc::new(Float64Array::from_iter_values(jobs.iter().map(JobInfo::percent))),
        ),
        ("elapsed", Arc::new(IntervalMonthDayNanoArray::from_iter(elapsed))),
        (
            "time_left",
            Arc::new(IntervalMonthDayNanoArray::from_iter(time_left)),
        ),
        ("on_disk_bytes", numbers(jobs.iter().map(|job| job.on_disk_bytes))),
        (
            "error",
            Arc::new(StringArray::from_iter(jobs.iter().map(|job| job.error.clone()))),
        ),
    ]
}
