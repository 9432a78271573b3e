//! A stream with its view and batch work, side by side for a while.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millrace_schedule::cpu::policy::SchedulerPolicy;
use millrace_schedule::cpu::queue::Patience;
use parking_lot::Mutex;

use super::work::BatchWork;
use crate::client::Client;
use crate::drizzle::typed::{Seen, paced};
use crate::drizzle::ysb::{Form, TypedEvents, Yahoo};
use crate::error::BenchError;
use crate::process;
use crate::statistics::Sample;

/// What a server has without rows.
const SERVER_BYTES: u64 = 64 << 20;
/// Time between two looks at the memory in use.
const MEMORY_TICK: Duration = Duration::from_millis(50);

/// What came of a stream and batch work side by side.
pub(super) struct Outcome {
    pub latencies_ms: Vec<f64>,
    /// The 99th percentile of each second's events, in milliseconds.
    pub p99_of_seconds: Vec<f64>,
    /// Which statement ended, and the seconds that it took.
    pub done: Vec<(usize, f64)>,
    /// Which had not ended, and the seconds since it began.
    pub under_way: Vec<(usize, f64)>,
    /// Those that there was no memory for.
    pub refused: u64,
    pub seconds: f64,
    pub memory_peak: u64,
}

impl Outcome {
    /// Seconds of work done in a second, with what each statement takes when there is nothing else. Of a statement that has not
    /// ended, as much counts as of those that have was done in that time, and never all.
    pub fn work(&self, seconds_alone: &[f64]) -> f64 {
        let ended: f64 = self.done.iter().map(|(query, _)| seconds_alone[*query]).sum();
        let took: f64 = self.done.iter().map(|(_, seconds)| seconds).sum();
        let pace = if took > 0.0 { ended / took } else { 1.0 };
        let begun = self.under_way.iter();
        let begun: f64 = begun
            .map(|(query, seconds)| (seconds * pace).min(seconds_alone[*query]))
            .sum();
        (ended + begun) / self.seconds
    }
}

/// A server with the stream and its view, and with what the work needs if it is done there.
pub(super) async fn bed(
    policy: SchedulerPolicy,
    work: &BatchWork,
    has_work: bool,
    cores: Option<usize>,
) -> Result<Yahoo, BenchError> {
    let before = process::memory(std::process::id())?.resident;
    let bed = Yahoo::with(Form::Typed, |config| {
        config.cores = cores;
        // Queries give way from four fifths of the limit on.
        config.tuning.memory_limit = work.memory.map(|memory| (before + SERVER_BYTES + memory) / 4 * 5);
    })
    .await?;
    bed.host.runtime.set_policy(policy, Patience::default());
    let tables = has_work.then_some(&work.tables).into_iter().flatten();
    for statement in work.streams.iter().chain(tables) {
        bed.host.client.run(statement).await?;
    }
    Ok(bed)
}

/// Events at a rate (none at 0) for a while, and queries on a server if one is given.
pub(super) async fn together(
    streams: &Yahoo,
    events: &TypedEvents,
    rate: f64,
    batch: Option<&Yahoo>,
    work: &BatchWork,
    length: Duration,
) -> Result<Outcome, BenchError> {
    let is_over = Arc::new(AtomicBool::new(false));
    let done: Arc<Mutex<Vec<(usize, f64)>>> = Arc::default();
    let under_way: Arc<Mutex<BTreeMap<usize, (usize, Instant)>>> = Arc::default();
    let refused = Arc::new(AtomicU64::new(0));
    let mut clients = vec![];
    if let Some(batch) = batch {
        for client in 0..work.clients {
            let sender = Sender {
                number: client,
                address: batch.host.server.pg_addr(),
                statements: Arc::clone(&work.statements),
                first: client * work.statements.len() / work.clients,
                is_over: Arc::clone(&is_over),
                done: Arc::clone(&done),
                under_way: Arc::clone(&under_way),
                refused: Arc::clone(&refused),
            };
            clients.push(tokio::spawn(sender.send()));
        }
    }
    let watcher = tokio::spawn(watch_memory(Arc::clone(&is_over)));
    let start = Instant::now();
    let seen = if rate > 0.0 {
        let before = streams.counted().await?;
        let (seen, counted) = paced(streams, events, rate, length).await?;
        streams.check(before + counted).await?;
        seen
    } else {
        tokio::time::sleep(length).await;
        vec![]
    };
    let seconds = start.elapsed().as_secs_f64();
    let done_now = done.lock().clone();
    let begun = under_way.lock().values().copied().collect::<Vec<_>>();
    let begun = begun
        .into_iter()
        .map(|(statement, begin)| (statement, begin.elapsed().as_secs_f64()));
    let under_way = begun.collect();
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        // Under some policies what is under way might never end.
        client.abort();
        if let Ok(outcome) = client.await {
            outcome?;
        }
    }
    Ok(Outcome {
        latencies_ms: seen.iter().map(|seen| seen.latency_ms).collect(),
        p99_of_seconds: p99_of_seconds(&seen),
        done: done_now,
        under_way,
        refused: refused.load(Ordering::Relaxed),
        seconds,
        memory_peak: watcher.await.map_err(BenchError::engine)??,
    })
}

/// What the machine does now and then touches few seconds, and may be all that the 99th percentile of a run says.
fn p99_of_seconds(seen: &[Seen]) -> Vec<f64> {
    let mut seconds: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for event in seen {
        let second = (event.created / 1e6) as i64;
        seconds.entry(second).or_default().push(event.latency_ms);
    }
    let p99 = |latencies| Sample::new(latencies).map(|sample| sample.quantile(0.99));
    seconds.into_values().filter_map(p99).collect()
}

/// A client that sends statements in turn.
struct Sender {
    number: usize,
    address: SocketAddr,
    statements: Arc<Vec<String>>,
    first: usize,
    is_over: Arc<AtomicBool>,
    done: Arc<Mutex<Vec<(usize, f64)>>>,
    under_way: Arc<Mutex<BTreeMap<usize, (usize, Instant)>>>,
    refused: Arc<AtomicU64>,
}

impl Sender {
    async fn send(self) -> Result<(), BenchError> {
        let client = Client::connect(self.address).await?;
        client.run("SET query_priority = 'batch'").await?;
        for statement in (0..self.statements.len()).cycle().skip(self.first) {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let begin = Instant::now();
            self.under_way.lock().insert(self.number, (statement, begin));
            match client.rows(&self.statements[statement]).await {
                Ok(_) => self.done.lock().push((statement, begin.elapsed().as_secs_f64())),
                Err(error) if error.is_out_of_memory() => _ = self.refused.fetch_add(1, Ordering::Relaxed),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The most memory that this process has had while it is watched.
async fn watch_memory(is_over: Arc<AtomicBool>) -> Result<u64, BenchError> {
    let mut peak = 0;
    let mut tick = tokio::time::interval(MEMORY_TICK);
    while !is_over.load(Ordering::Relaxed) {
        tick.tick().await;
        peak = peak.max(process::memory(std::process::id())?.resident);
    }
    Ok(peak)
}
