//! The time by the machine's calendar.

/// Milliseconds since 1970-01-01 UTC.
#[expect(
    clippy::disallowed_methods,
    reason = "for people and for timestamps of definitions; the time of views is the runtime's"
)]
pub fn now_ms() -> i64 {
    chrono::Utc::now().timestamp_millis()
}

/// Nanoseconds since 1970-01-01 UTC; 0 where that cannot be said.
#[expect(clippy::disallowed_methods, reason = "for timestamps that are sent to others")]
pub fn now_ns() -> u64 {
    let now = chrono::Utc::now().timestamp_nanos_opt();
    now.and_then(|now| u64::try_from(now).ok()).unwrap_or(0)
}
