//! Those who write until the server is killed, and what they know afterwards.
//!
//! Some commit transactions, one sends rows over HTTP, one makes and drops views.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_oracle::text::TextRow;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::process::Process;
use super::relations::{PASSING, SQL_WRITERS};
use crate::{Failure, connect, rows, run, words};

/// Within so long after the last write that is waited for the kill comes, in microseconds: writes are on their way to the disk
/// then, or there and not yet acknowledged.
const KILL_DELAY_US_MAX: u64 = 12_000;
/// The most rows of a write.
pub const ROWS_MAX: u64 = 4;
/// The share of requests that are sent again although they were answered.
const POSTED_TWICE: f64 = 0.1;

/// Rows that were sent over HTTP.
#[derive(Debug, Clone)]
pub struct Post {
    pub ids: Vec<i64>,
    amount: i64,
}

/// Whether a view is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existence {
    There,
    Gone,
    /// It was being made or dropped.
    InDoubt,
}

/// What the writers know.
#[derive(Default)]
pub struct Known {
    /// Ids whose write was acknowledged.
    pub acknowledged: BTreeSet<i64>,
    /// Writes whose answer never came: each is there whole or not at all.
    pub in_doubt: Vec<Vec<i64>>,
    /// The same of rows that were sent over HTTP.
    pub posted: BTreeSet<i64>,
    pub posts_in_doubt: Vec<Post>,
    /// The views that come and go.
    pub passing: BTreeMap<String, Existence>,
    /// Rows of the lookup join that somebody has read.
    pub looked_up: BTreeSet<TextRow>,
    /// Files of sinks.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
}

/// What a writer tried, and why it failed if it did.
enum Report {
    Write(Vec<i64>, Option<String>),
    Post(Post, Option<String>),
    /// Whether the view is there if it went well.
    View(String, Existence, Option<String>),
}

/// Where reports go. The receiver is gone when the round failed.
type Reports = UnboundedSender<Report>;

/// Writes from several connections; the server is killed soon after so many writes were acknowledged.
///
/// # Errors
/// Something failed while the server ran.
pub async fn write_until_killed(
    process: Process,
    kill_after: u64,
    next_id: &Arc<AtomicU64>,
    random: &mut StdRng,
    known: &mut Known,
) -> Result<(), Failure> {
    let (reports, mut reported) = unbounded_channel::<Report>();
    for writer in 0..SQL_WRITERS {
        let client = connect(process.pg).await?;
        let random = StdRng::seed_from_u64(random.random());
        tokio::spawn(write_all(
            client,
            writer,
            Arc::clone(next_id),
            random,
            reports.clone(),
        ));
    }
    let poster = StdRng::seed_from_u64(random.random());
    tokio::spawn(post_all(
        process.http,
        Arc::clone(next_id),
        poster,
        reports.clone(),
    ));
    let there = known
        .passing
        .iter()
        .filter(|(_, existence)| **existence == Existence::There);
    let there: Vec<String> = there.map(|(name, _)| name.clone()).collect();
    let client = connect(process.pg).await?;
    tokio::spawn(make_and_drop(client, there, known.passing.len(), reports));

    let reader = connect(process.pg).await?;
    let (stop, mut is_over) = oneshot::channel::<()>();
    let reading = tokio::spawn(async move {
        let mut read = vec![];
        // It ends with the server, or with the round.
        while is_over.try_recv() == Err(oneshot::error::TryRecvError::Empty)
            && let Ok(rows) = rows(&reader, "SELECT * FROM looked_up").await
        {
            read = rows;
        }
        read
    });
    let mut writes = 0;
    let delay = Duration::from_micros(random.random_range(0..KILL_DELAY_US_MAX));
    let mut process = Some(process);
    let mut killing = None;
    while let Some(report) = reported.recv().await {
        let failure = match &report {
            Report::Write(_, failure) | Report::Post(_, failure) | Report::View(_, _, failure) => failure,
        };
        if let Some(failure) = failure
            && killing.is_none()
        {
            return Err(format!("a write failed while the server ran: {failure}").into());
        }
        writes += u64::from(failure.is_none());
        match report {
            Report::Write(ids, None) => known.acknowledged.extend(ids),
            Report::Write(ids, Some(_)) => known.in_doubt.push(ids),
            Report::Post(post, None) => known.posted.extend(post.ids),
            Report::Post(post, Some(_)) => known.posts_in_doubt.push(post),
            Report::View(name, existence, None) => _ = known.passing.insert(name, existence),
            Report::View(name, _, Some(_)) => _ = known.passing.insert(name, Existence::InDoubt),
        }
        if writes >= kill_after
            && let Some(process) = process.take()
        {
            killing = Some(tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                process.kill().map_err(|error| error.to_string())
            }));
        }
    }
    if let Some(killing) = killing {
        killing.await??;
    }
    drop(stop);
    known.looked_up.extend(reading.await?);
    Ok(())
}

/// The ids of a new write.
fn take_ids(next_id: &AtomicU64, random: &mut StdRng) -> Vec<i64> {
    let count = random.random_range(1..=ROWS_MAX);
    let first = next_id.fetch_add(count, Ordering::Relaxed);
    (first..first + count).map(|id| id as i64).collect()
}

/// Commits transactions until one fails.
async fn write_all(
    client: Client,
    writer: u64,
    next_id: Arc<AtomicU64>,
    mut random: StdRng,
    reports: Reports,
) {
    loop {
        let ids = take_ids(&next_id, &mut random);
        let failure = commit(&client, &write(writer, &ids, &mut random)).await.err();
        let is_last = failure.is_some();
        if reports.send(Report::Write(ids, failure)).is_err() || is_last {
            return;
        }
    }
}

/// Sends rows over HTTP until that fails.
async fn post_all(http: SocketAddr, next_id: Arc<AtomicU64>, mut random: StdRng, reports: Reports) {
    loop {
        let post = Post {
            ids: take_ids(&next_id, &mut random),
            amount: random.random_range(0..100),
        };
        let mut failure = post.send(http).await.err();
        if failure.is_none() && random.random_bool(POSTED_TWICE) {
            // Whether the answer to this is lost makes no difference.
            let again = post.send(http).await.err();
            failure = again.filter(|error| error.downcast_ref::<std::io::Error>().is_none());
        }
        let failure = failure.map(|error| error.to_string());
        let is_last = failure.is_some();
        if reports.send(Report::Post(post, failure)).is_err() || is_last {
            return;
        }
    }
}

impl Post {
    /// Sends the rows with a key that is theirs alone.
    ///
    /// # Errors
    /// The server refuses them (with its answer), or there is no answer ([`std::io::Error`]).
    pub async fn send(&self, http: SocketAddr) -> Result<(), Failure> {
        let row = |id: &i64| format!("{{\"id\": {id}, \"amount\": {}}}\n", self.amount);
        let body: String = self.ids.iter().map(row).collect();
        let request = format!(
            "POST /api/ingest/posted HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\nContent-Type: application/x-ndjson\r\n\
             Idempotency-Key: post-{}\r\nContent-Length: {}\r\n\r\n{body}",
            self.ids[0],
            body.len(),
        );
        let mut stream = TcpStream::connect(http).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        if answer.is_empty() {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        let is_whole =
            answer.starts_with("HTTP/1.1 200") && answer.ends_with(&format!("\"rows\":{}}}", self.ids.len()));
        if is_whole { Ok(()) } else { Err(answer.into()) }
    }
}

/// Makes views, and drops those that were made before, until that fails.
async fn make_and_drop(client: Client, mut there: Vec<String>, mut made: usize, reports: Reports) {
    loop {
        let name = format!("passing_{made}");
        made += 1;
        let create = format!("CREATE MATERIALIZED VIEW {name} AS {PASSING}");
        there.push(name.clone());
        if !step(&client, &create, name, Existence::There, &reports).await {
            return;
        }
        while there.len() > 1 {
            let name = there.remove(0);
            let drop = format!("DROP MATERIALIZED VIEW {name}");
            if !step(&client, &drop, name, Existence::Gone, &reports).await {
                return;
            }
        }
    }
}

/// Runs a statement about a view; whether to go on.
async fn step(client: &Client, sql: &str, name: String, existence: Existence, reports: &Reports) -> bool {
    let failure = run(client, sql).await.err().map(|error| error.to_string());
    let is_last = failure.is_some();
    reports.send(Report::View(name, existence, failure)).is_ok() && !is_last
}

/// Runs a transaction, again when another was in its way: it left nothing behind then.
async fn commit(client: &Client, transaction: &str) -> Result<(), String> {
    loop {
        let Err(error) = client.batch_execute(transaction).await else {
            return Ok(());
        };
        if error.code() != Some(&SqlState::T_R_SERIALIZATION_FAILURE) {
            return Err(words(&error));
        }
        client
            .batch_execute("ROLLBACK")
            .await
            .map_err(|error| words(&error))?;
    }
}

/// A write over a stream and three tables, as one transaction: each time in one of the ways to say so.
fn write(writer: u64, ids: &[i64], random: &mut StdRng) -> String {
    let amount = random.random_range(0..100);
    let events: Vec<String> = ids
        .iter()
        .map(|id| format!("({id}, {writer}, {amount})"))
        .collect();
    let pairs: Vec<String> = ids.iter().map(|id| format!("({id})")).collect();
    let newest: Vec<String> = ids.iter().map(|id| format!("({id}, {writer})")).collect();
    let last = ids[ids.len() - 1];
    let statements = format!(
        "INSERT INTO event VALUES {}; INSERT INTO paired VALUES {}; \
         UPDATE account SET last = {last}, version = version + 1 WHERE writer = {writer}; \
         DELETE FROM newest_of WHERE writer = {writer}; INSERT INTO newest_of VALUES {}",
        events.join(", "),
        pairs.join(", "),
        newest.join(", ")
    );
    if random.random() {
        format!("BEGIN; {statements}; COMMIT")
    } else {
        statements
    }
}
