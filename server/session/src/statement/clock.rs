//! `ALTER SYSTEM SET clock`: the time of a server whose clock is set by hand, which is that of `millrace test`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Datum, TimestampMicrosecondArray};
use arrow::compute::kernels::numeric::add;
use arrow::datatypes::{DataType, Field, IntervalUnit, TimestampMicrosecondType};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_postgres::types::{parse, timestamptz};

use crate::session::Session;

/// The setting's name.
pub(crate) const CLOCK: &str = "clock";

/// Sets the clock to a timestamp, or forward by an interval (`'+1 hour'`). When it returns the views have followed.
pub(crate) async fn alter(session: &Arc<Session>, text: Option<&str>) -> SqlResult<()> {
    let db = session.database();
    let Some(clock) = db.virtual_clock() else {
        return Err(SqlError::new(
            SqlState::CantChangeRuntimeParam,
            "parameter \"clock\" cannot be changed",
        )
        .with_hint(
            "This server uses the clock of its machine. Files that \"millrace test\" runs have a \
                    clock of their own.",
        ));
    };
    let text = text.ok_or_else(|| SqlError::unsupported("the clock has no default"))?;
    let now = db.runtime().now();
    let time = time_of(text, now)?;
    if time < now {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            "the clock can only be set forward",
        ));
    }
    clock.advance_to(time);
    db.sources().follow(time).await;
    db.runtime().follow_clock().await?;
    Ok(())
}

/// The time that is meant, in microseconds since 1970-01-01 00:00 UTC.
fn time_of(text: &str, now: i64) -> SqlResult<i64> {
    let time: ArrayRef = match text.trim_start().strip_prefix('+') {
        Some(length) => {
            let interval = Field::new("", DataType::Interval(IntervalUnit::MonthDayNano), false);
            let interval = parse::value(&interval, Some(length))?;
            let now: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![now]).with_timezone("UTC"));
            add(&now as &dyn Datum, &interval).map_err(from_internal::arrow)?
        }
        None => parse::value(&Field::new("", timestamptz(), false), Some(text))?,
    };
    Ok(time.as_primitive::<TimestampMicrosecondType>().value(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Fixture;

    #[tokio::test]
    async fn the_machines_clock_is_not_set() {
        let fixture = Fixture::new().await;
        let error = fixture.error("ALTER SYSTEM SET clock TO '+1 hour'").await;
        assert_eq!(error.code, SqlState::CantChangeRuntimeParam);
    }

    #[test]
    fn a_time_is_given_or_counted_from_now() {
        assert_eq!(time_of("1970-01-01 00:00:01+00", 5).unwrap(), 1_000_000);
        assert_eq!(time_of("+2 ms", 5).unwrap(), 2_005);
        assert_eq!(time_of(" +1 month", 0).unwrap(), 31 * 86_400_000_000);
        assert!(time_of("soon", 0).is_err());
    }
}
