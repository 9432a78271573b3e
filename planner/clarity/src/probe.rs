//! How slow this machine is: what is predicted before anything has run has nothing else to go by. The only place of the crate
//! that reads a clock.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

/// Values that are sorted and counted.
const VALUES: u64 = 65_536;
/// What that takes on the machine whose costs are known, in nanoseconds.
const KNOWN_NANOSECONDS: f64 = 2_200_000.0;
/// Of so many times the shortest counts: others were disturbed.
const TIMES: usize = 5;

/// How many times as long as on the known machine this one takes for the same; measured once.
pub fn slowness() -> f64 {
    static SLOWNESS: OnceLock<f64> = OnceLock::new();
    *SLOWNESS.get_or_init(|| {
        let times = (0..TIMES).map(|_| {
            let begun = Instant::now();
            black_box(work());
            begun.elapsed()
        });
        times.min().unwrap_or_default().as_nanos() as f64 / KNOWN_NANOSECONDS
    })
}

/// What queries do: it sorts, and finds rows by their keys.
fn work() -> u64 {
    let mut state = VALUES;
    let values: Vec<u64> = (0..VALUES)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 16
        })
        .collect();
    let mut sorted = values.clone();
    sorted.sort_unstable();
    let mut counts: HashMap<u64, u64> = HashMap::new();
    for value in values {
        *counts.entry(value % (VALUES / 4)).or_default() += 1;
    }
    sorted[0] + counts.len() as u64
}
