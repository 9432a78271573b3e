//! `mr_catalog.shipping`: the copy of all that is written which is kept in an object store.

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use millrace_database::Database;
use millrace_database::database::shipping::ShippingStatus;

use super::{Columns, numbers, optional_texts, texts};

/// One row, if a copy is kept.
pub(super) fn columns(database: &Database) -> Columns {
    let all: Vec<ShippingStatus> = database.shipping_status().into_iter().collect();
    let times = |of: fn(&ShippingStatus) -> i64| -> ArrayRef {
        let micros = all.iter().map(|status| match of(status) {
            0 => None,
            ms => Some(ms.saturating_mul(1_000)),
        });
        Arc::new(TimestampMicrosecondArray::from_iter(micros).with_timezone("UTC"))
    };
    let counts = |of: fn(&ShippingStatus) -> u64| numbers(all.iter().map(of));
    vec![
        ("url", texts(all.iter().map(|status| status.url.clone()))),
        ("state", texts(all.iter().map(|status| status.state.to_owned()))),
        ("moment", counts(|status| status.shipped.moment)),
        ("covered_until", times(|status| status.covered_ms)),
        (
            "lag_ms",
            counts(|status| u64::try_from(status.lag_ms).unwrap_or(0)),
        ),
        ("checkpoints_at", times(|status| status.shipped.checkpoints_at_ms)),
        ("waiting_bytes", counts(|status| status.shipped.waiting_bytes)),
        ("sent_bytes", counts(|status| status.shipped.sent_bytes)),
        ("objects", counts(|status| status.shipped.objects)),
        ("bytes", counts(|status| status.shipped.bytes)),
        (
            "error",
            optional_texts(all.iter().map(|status| status.error.clone())),
        ),
    ]
}
