//! `millrace demo --noisy`: what heavy queries do to the freshness of a view, with suspension and without.
//!
//! Flights are replayed slowly, in small batches, and each is looked for in a view. After a while as many sessions as there
//! are cores, and one more, run a heavy SELECT again and again; then the same once more under the policy that pauses nobody.

use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::DemoError;
use super::client::Client;
use super::frame::{Addresses, milliseconds};
use super::pace::Rate;
use super::replay::Replay;

/// Flights a second, and of a batch.
const RATE: NonZeroU32 = NonZeroU32::new(1_000).expect("it is not zero");
const BATCH_ROWS: usize = 20;
/// For how long each part runs.
const PART: Duration = Duration::from_secs(8);
/// Groups by the million, then a sort: what an analyst might ask for.
const HEAVY: &str = "SELECT i % 1000003 AS k, count(*) AS n, sum(sqrt(i)) AS s
FROM generate_series(1, 4000000) AS g(i) GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT 5";
/// A line's bar grows by one for each doubling of this.
const BAR_UNIT: Duration = Duration::from_micros(500);

struct Part {
    title: &'static str,
    policy: &'static str,
    is_noisy: bool,
}

const PARTS: [Part; 3] = [
    Part {
        title: "nothing else",
        policy: "lma",
        is_noisy: false,
    },
    Part {
        title: "heavy SELECTs on all cores, paused for the view (scheduler_policy = lma)",
        policy: "lma",
        is_noisy: true,
    },
    Part {
        title: "the same SELECTs, first come first served (scheduler_policy = fifo)",
        policy: "fifo",
        is_noisy: true,
    },
];

/// What came of a part.
struct Outcome {
    freshness: Vec<Duration>,
    queries: u64,
}

/// Plays the parts, a line for each second, and compares them. Each lasts for `part`, if that is given.
///
/// # Errors
/// The server failed, or the view does not contain what was sent.
pub async fn play(
    addresses: Addresses,
    stop: watch::Receiver<bool>,
    part: Option<Duration>,
    out: &mut impl Write,
) -> Result<(), DemoError> {
    let length = part.unwrap_or(PART);
    let pg = addresses.pg;
    let admin = Client::connect(pg).await?;
    let mut replay = Replay::prepare(addresses, Rate::RowsPerSecond(RATE), stop).await?;
    let mut batches = replay.batches_of(BATCH_ROWS).into_iter();
    let sessions = std::thread::available_parallelism().map_or(1, usize::from) + 1;
    writeln!(
        out,
        "\n{RATE} flights a second, each batch looked for in a view; the heavy SELECT, {sessions} times at once:\n{HEAVY}"
    )?;
    let mut outcomes = vec![];
    for part in &PARTS {
        writeln!(out, "\n{}", part.title)?;
        admin
            .run(&format!("ALTER SYSTEM SET scheduler_policy = '{}'", part.policy))
            .await?;
        let ended = Arc::new(AtomicU64::new(0));
        let mut noise = JoinSet::new();
        for _ in 0..if part.is_noisy { sessions } else { 0 } {
            noise.spawn(run_heavy(pg, Arc::clone(&ended)));
        }
        let freshness = watched(&mut replay, &mut batches, length, out).await?;
        if let Some(Ok(Err(error))) = noise.try_join_next() {
            return Err(error);
        }
        noise.shutdown().await;
        outcomes.push(Outcome {
            freshness,
            queries: ended.load(Ordering::Relaxed),
        });
        if replay.is_stopped() {
            break;
        }
    }
    admin.run("ALTER SYSTEM RESET scheduler_policy").await?;
    writeln!(
        out,
        "\nfreshness, from sending a batch to reading it in the view:"
    )?;
    for (part, outcome) in PARTS.iter().zip(&mut outcomes) {
        let queries = if part.is_noisy {
            format!("   {} heavy SELECTs ended", outcome.queries)
        } else {
            String::new()
        };
        let of = |percent| milliseconds(percentile(&outcome.freshness, percent));
        writeln!(
            out,
            "  p50 {:>9}   p99 {:>9}   {}{queries}",
            of(50),
            of(99),
            part.title
        )?;
    }
    Ok(())
}

/// Sends batches for a while; a line a second. Returns how fresh each was.
async fn watched(
    replay: &mut Replay,
    batches: &mut impl Iterator<Item = std::ops::Range<usize>>,
    length: Duration,
    out: &mut impl Write,
) -> Result<Vec<Duration>, DemoError> {
    let (mut all, mut second) = (vec![], vec![]);
    replay.start();
    let begin = Instant::now();
    let mut line_at = Duration::from_secs(1);
    while begin.elapsed() < length && !replay.is_stopped() {
        replay.wait().await;
        let Some(batch) = batches.next() else { break };
        second.push(replay.send(batch, 0).await?);
        let elapsed = begin.elapsed();
        if elapsed >= line_at || elapsed >= length {
            let [p50, p99] = [50, 99].map(|percent| percentile(&second, percent));
            writeln!(
                out,
                "  {:>3} s   p50 {:>9}   p99 {:>9}   {}",
                elapsed.as_secs(),
                milliseconds(p50),
                milliseconds(p99),
                bar(p99)
            )?;
            out.flush()?;
            all.append(&mut second);
            line_at = Duration::from_secs(elapsed.as_secs() + 1);
        }
    }
    all.append(&mut second);
    Ok(all)
}

/// Runs the heavy query until it is dropped.
async fn run_heavy(address: SocketAddr, ended: Arc<AtomicU64>) -> Result<(), DemoError> {
    let client = Client::connect(address).await?;
    client.run("SET query_priority = 'batch'").await?;
    loop {
        client.rows(HEAVY).await?;
        ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// The value that so many of a hundred do not exceed.
fn percentile(values: &[Duration], percent: usize) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort();
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).copied().unwrap_or_default()
}

fn bar(value: Duration) -> String {
    let doublings = (value.as_secs_f64() / BAR_UNIT.as_secs_f64()).max(1.0).log2();
    "#".repeat(1 + doublings as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_came() {
        let values: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&values, 50), Duration::from_millis(100));
        assert_eq!(percentile(&values, 99), Duration::from_millis(198));
        assert_eq!(percentile(&values[..1], 99), Duration::from_millis(200));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }

    #[test]
    fn a_bar_grows_with_each_doubling() {
        assert_eq!(bar(Duration::from_micros(100)), "#");
        assert_eq!(bar(Duration::from_millis(1)), "##");
        assert_eq!(bar(Duration::from_millis(64)), "########");
    }
}
