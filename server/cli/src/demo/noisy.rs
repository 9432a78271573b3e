//! `millrace demo --noisy`: what heavy queries do to the freshness of a view, with suspension and without.
//!
//! Flights are replayed slowly, in small batches, and each is looked for in a view. After a while as many sessions as there
//! are cores, and one more, run a heavy SELECT again and again; then the same once more under the policy that pauses nobody.

use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::DemoError;
use super::client::Client;
use super::frame::in_few_digits;
use super::heavy::{HEAVY, Heavy, sessions};
use super::pace::{Rate, percentile};
use super::replay::{Replay, Sent};

/// Flights a second, and of a batch.
const RATE: NonZeroU32 = NonZeroU32::new(1_000).expect("it is not zero");
const BATCH_ROWS: usize = 20;
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

/// Plays the parts, each for so long, a line for each second, and compares them.
///
/// # Errors
/// The server failed, or the view does not contain what was sent.
pub async fn play(
    pg: SocketAddr,
    stop: watch::Receiver<bool>,
    length: Duration,
    out: &mut impl Write,
) -> Result<(), DemoError> {
    let admin = Client::connect(pg).await?;
    let mut replay = Replay::prepare(pg, Rate::RowsPerSecond(RATE), stop).await?;
    writeln!(
        out,
        "\n{RATE} flights a second, each batch looked for in a view;\nbeside them, {} times at once, the heavy SELECT:\n{HEAVY}",
        sessions()
    )?;
    let mut outcomes = vec![];
    for part in &PARTS {
        writeln!(out, "\n{}", part.title)?;
        admin
            .run(&format!("ALTER SYSTEM SET scheduler_policy = '{}'", part.policy))
            .await?;
        let heavy = if part.is_noisy {
            Heavy::start(pg)
        } else {
            Heavy::default()
        };
        let freshness = watched(&mut replay, length, out).await?;
        outcomes.push(Outcome {
            freshness,
            queries: heavy.end().await?,
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
        let of = |percent| in_few_digits(percentile(&outcome.freshness, percent));
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
    length: Duration,
    out: &mut impl Write,
) -> Result<Vec<Duration>, DemoError> {
    let (mut all, mut second) = (vec![], vec![]);
    replay.start();
    let begin = Instant::now();
    let mut line_at = Duration::from_secs(1);
    while begin.elapsed() < length && !replay.is_stopped() {
        replay.wait().await;
        match replay.send(BATCH_ROWS).await? {
            Sent::Seen(freshness) => second.push(freshness),
            Sent::Nothing if !replay.is_cut_off() => {
                // The month is over, and the part is not: the next one.
                replay.next_pass();
                continue;
            }
            Sent::Unseen | Sent::Nothing => {
                let changed = replay.changes().lines().join("; ");
                return Err(DemoError::Changed(changed));
            }
        }
        let elapsed = begin.elapsed();
        if elapsed >= line_at || elapsed >= length {
            let [p50, p99] = [50, 99].map(|percent| percentile(&second, percent));
            writeln!(
                out,
                "  {:>3} s   p50 {:>9}   p99 {:>9}   {}",
                elapsed.as_secs(),
                in_few_digits(p50),
                in_few_digits(p99),
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

fn bar(value: Duration) -> String {
    let doublings = (value.as_secs_f64() / BAR_UNIT.as_secs_f64()).max(1.0).log2();
    "#".repeat(1 + doublings as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_grows_with_each_doubling() {
        assert_eq!(bar(Duration::from_micros(100)), "#");
        assert_eq!(bar(Duration::from_millis(1)), "##");
        assert_eq!(bar(Duration::from_millis(64)), "########");
    }
}
