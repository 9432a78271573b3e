//! The time by the machine's calendar.

/// Milliseconds since 1970-01-01 UTC.
pub fn now_ms() -> i64 {
    chrono::Utc::now().timestamp_millis()
}
