//! How fast rows become durable: the log at each durability level, against what its disk does by itself in the same run.
//!
//! Only storage is measured, without SQL and views. Each store's figure stands beside the disk's own, measured right
//! before it in a file of the same directory: the same bytes, synced as often.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use clap::Args;
use millrace_storage::{ChangeBatch, Durability, LogWrite, Store, StoreOptions};

use crate::bed::Place;
use crate::error::BenchError;
use crate::results::{Aim, Experiment, Run};
use crate::size::Size;
use crate::suite::Suite;

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// Clients that write at once, each its next write when the last is acknowledged.
    pub clients: Vec<usize>,
    /// How long they do.
    pub each: Duration,
    /// Rows of a large write, and how many there are of them.
    pub bulk_rows: usize,
    pub bulk_writes: usize,
    /// How often each figure is measured.
    pub rounds: usize,
}

impl Scale {
    /// Three minutes or so: 108 s of small writes and of the disk beside them, and some seconds for each large figure.
    pub fn real() -> Self {
        Scale {
            clients: vec![1, 8, 64],
            each: Duration::from_secs(2),
            bulk_rows: 50_000,
            bulk_writes: 60,
            rounds: 3,
        }
    }

    /// Enough to see that the experiments work.
    pub fn small() -> Self {
        Scale {
            clients: vec![1, 4],
            each: Duration::from_millis(60),
            bulk_rows: 1_000,
            bulk_writes: 5,
            rounds: 1,
        }
    }
}

const LEVELS: [Durability; 3] = [Durability::Fsync, Durability::Group, Durability::Off];
/// The share of the disk's own rate that is aimed at.
const AIM: f64 = 80.0;
/// Rows of a small write.
const SMALL_ROWS: usize = 10;

/// The experiments' names.
const SMALL: &str = "small writes";
const LARGE: &str = "large writes";

/// The suite; it has no options of its own.
#[derive(Debug, Args)]
pub struct Ingest;

impl Suite for Ingest {
    const NAME: &'static str = "ingest";
    const ABOUT: &'static str = "How fast rows become durable at each level, against the disk's own rates";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let scale = match run.size() {
            Size::Real => Scale::real(),
            Size::Small => Scale::small(),
        };
        if run.begins(SMALL) {
            run.add(blocking(&scale, small_writes).await?);
        }
        if run.begins(LARGE) {
            run.add(blocking(&scale, large_writes).await?);
        }
        Ok(())
    }
}

/// Runs an experiment on a thread that may block: receipts are waited for.
async fn blocking(
    scale: &Scale,
    experiment: fn(&Scale) -> Result<Experiment, BenchError>,
) -> Result<Experiment, BenchError> {
    let scale = scale.clone();
    let done = tokio::task::spawn_blocking(move || experiment(&scale)).await;
    done.map_err(BenchError::engine)?
}

fn small_writes(scale: &Scale) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        SMALL,
        "Clients write 10 rows each, the next when the last was acknowledged. Beside them, the disk alone: one thread that \
         appends as many bytes to a file, and syncs (fdatasync) after each. The share is of the disk's rate of syncs; of \
         several clients a sync serves several.",
    );
    for clients in &scale.clients {
        for level in LEVELS {
            let (mut rates, mut shares, mut disk_rates) = (vec![], vec![], vec![]);
            for _ in 0..scale.rounds {
                let directory = Place::Disk.directory()?;
                let (rate, write_bytes) = small_rate(directory.path(), level, *clients, scale.each)?;
                let disk_rate = disk_rate(directory.path(), write_bytes as usize, scale.each)?;
                rates.push(rate);
                shares.push(100.0 * rate / disk_rate);
                disk_rates.push(disk_rate);
            }
            let name = |what: &str| format!("{level}, {clients} clients: {what}");
            experiment.add(name("writes"), "1/s", rates, None);
            let aim = (level == Durability::Group).then_some(Aim::MedianOver(AIM));
            experiment.add(name("share of the disk's syncs"), "%", shares, aim);
            experiment.add(name("syncs of the disk alone"), "1/s", disk_rates, None);
        }
    }
    Ok(experiment)
}

fn large_writes(scale: &Scale) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        LARGE,
        "One client hands over one write after another, with two under way. Beside it, the disk alone: as many \
         bytes in pieces of the same size, synced (fdatasync) after each, for the level off only at the end.",
    );
    for level in LEVELS {
        let (mut rates, mut shares, mut disk_rates) = (vec![], vec![], vec![]);
        for _ in 0..scale.rounds {
            let directory = Place::Disk.directory()?;
            let (seconds, bytes) = bulk(directory.path(), level, scale)?;
            let disk_seconds = sequential(directory.path(), bytes, scale.bulk_writes, level)?;
            let megabytes = bytes as f64 / 1e6;
            rates.push(megabytes / seconds);
            shares.push(100.0 * disk_seconds / seconds);
            disk_rates.push(megabytes / disk_seconds);
        }
        experiment.add(format!("{level}: log"), "MB/s", rates, None);
        let aim = (level == Durability::Group).then_some(Aim::MedianOver(AIM));
        experiment.add(format!("{level}: share of the disk's rate"), "%", shares, aim);
        experiment.add(format!("{level}: the disk alone"), "MB/s", disk_rates, None);
    }
    Ok(experiment)
}

fn schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, false);
    Arc::new(Schema::new(vec![
        field("id", DataType::Int64),
        field("account", DataType::Int64),
        field("amount", DataType::Int64),
        field("note", DataType::Utf8),
    ]))
}

fn rows(count: usize) -> Result<ChangeBatch, BenchError> {
    let numbers = |factor: i64| -> ArrayRef {
        Arc::new(
            (0..count as i64)
                .map(|i| Some(i * factor))
                .collect::<Int64Array>(),
        )
    };
    let notes: StringArray = (0..count)
        .map(|i| Some(format!("payment number {i:09}")))
        .collect();
    let columns: Vec<ArrayRef> = vec![numbers(1), numbers(7), numbers(31), Arc::new(notes)];
    Ok(ChangeBatch::insertions(RecordBatch::try_new(schema(), columns)?))
}

fn open(directory: &Path, durability: Durability) -> Result<Store, BenchError> {
    let options = StoreOptions {
        durability,
        ..StoreOptions::default()
    };
    let store = Store::open(&directory.join("data"), options).map_err(BenchError::engine)?;
    store.logs().create(1, schema()).map_err(BenchError::engine)?;
    Ok(store)
}

/// Bytes of the log's segments.
fn log_bytes(directory: &Path) -> Result<u64, BenchError> {
    let failed = || BenchError::io("cannot look at the log");
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory.join("data/log/1")).map_err(failed())? {
        bytes += entry.and_then(|entry| entry.metadata()).map_err(failed())?.len();
    }
    Ok(bytes)
}

/// Writes a second, and the bytes of one.
fn small_rate(
    directory: &Path,
    level: Durability,
    clients: usize,
    each: Duration,
) -> Result<(f64, u64), BenchError> {
    let store = open(directory, level)?;
    let changes = rows(SMALL_ROWS)?;
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Instant::now();
    let outcome = std::thread::scope(|scope| {
        let client = || {
            while !stop.load(Ordering::Acquire) {
                let write = LogWrite {
                    relation: 1,
                    changes: changes.clone(),
                };
                store.logs().append(vec![write]).wait()?;
                written.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        std::thread::sleep(each);
        stop.store(true, Ordering::Release);
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(outcome) => outcome.map_err(|error: millrace_storage::StorageError| BenchError::engine(error)),
            Err(_) => Err(BenchError::Server("a client panicked".to_owned())),
        });
        ended.collect::<Result<Vec<()>, BenchError>>()
    });
    outcome?;
    let seconds = start.elapsed().as_secs_f64();
    let written = written.load(Ordering::Relaxed).max(1);
    Ok((written as f64 / seconds, log_bytes(directory)? / written))
}

/// Appends of so many bytes with a sync each, in a second.
fn disk_rate(directory: &Path, bytes: usize, each: Duration) -> Result<f64, BenchError> {
    let failed = || BenchError::io("cannot probe the disk");
    let mut file = File::create(directory.join("probe")).map_err(failed())?;
    let piece = vec![0x5a; bytes.max(1)];
    let (start, mut count) = (Instant::now(), 0);
    while count == 0 || start.elapsed() < each {
        file.write_all(&piece).map_err(failed())?;
        file.sync_data().map_err(failed())?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

/// Seconds, and bytes in the log.
fn bulk(directory: &Path, level: Durability, scale: &Scale) -> Result<(f64, u64), BenchError> {
    let store = open(directory, level)?;
    let changes = rows(scale.bulk_rows)?;
    let start = Instant::now();
    let mut waiting = None;
    for _ in 0..scale.bulk_writes {
        let write = LogWrite {
            relation: 1,
            changes: changes.clone(),
        };
        let receipt = store.logs().append(vec![write]);
        if let Some(before) = waiting.replace(receipt) {
            before.wait().map_err(BenchError::engine)?;
        }
    }
    if let Some(last) = waiting {
        last.wait().map_err(BenchError::engine)?;
    }
    if level == Durability::Off {
        // What was put off counts too.
        store.close().map_err(BenchError::engine)?;
    }
    Ok((start.elapsed().as_secs_f64(), log_bytes(directory)?))
}

/// Seconds that the disk takes for so many bytes in so many pieces.
fn sequential(directory: &Path, bytes: u64, pieces: usize, level: Durability) -> Result<f64, BenchError> {
    let failed = || BenchError::io("cannot probe the disk");
    let mut file = File::create(directory.join("sequential")).map_err(failed())?;
    let piece = vec![0x5a; (bytes as usize / pieces).max(1)];
    let start = Instant::now();
    for _ in 0..pieces {
        file.write_all(&piece).map_err(failed())?;
        if level != Durability::Off {
            file.sync_data().map_err(failed())?;
        }
    }
    file.sync_data().map_err(failed())?;
    Ok(start.elapsed().as_secs_f64())
}
