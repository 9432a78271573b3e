//! The time by the machine's calendar.

/// Milliseconds since 1970-01-01 UTC.
#[expect(
    clippy::disallowed_methods,
    reason = "for people and for timestamps of definitions; the time of views is the runtime's"
)]
pub fn now_ms() -> i64 {
    chrono::Utc::now().timestamp_millis()
}
