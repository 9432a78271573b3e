//! A thousand clients that do not behave, beside a view that is written to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Scale;
use crate::error::BenchError;
use crate::results::Experiment;
use crate::statistics::{ms_since, quantile};
use crate::target::{FreshServer, Target};

/// The experiment's name.
pub const NAME: &str = "tenants/strangers";

/// How often a row is written and looked for in the view.
const EVERY: Duration = Duration::from_millis(10);
/// How long a slow one waits between two bytes, and anyone for an answer.
const SLOW: Duration = Duration::from_millis(100);

/// Alone, and beside the strangers, by turns.
///
/// # Errors
/// The server fails, or the view has not what was written.
pub async fn run(scale: &Scale, target: &Target) -> Result<Experiment, BenchError> {
    let server = FreshServer::start(target).await?;
    for sql in [
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)",
        "CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t",
        // Whoever comes from now on is asked for a password, also under a name that nobody has.
        "ALTER ROLE millrace PASSWORD 'open sesame'",
        "ALTER SYSTEM SET access_control = on",
    ] {
        server.client.run(sql).await?;
    }
    let mut written = 0;
    let (mut alone, mut beside, mut come) = (vec![], vec![], vec![]);
    for _ in 0..scale.runs {
        alone.push(freshness(scale, &server, &mut written).await?);
        let counted = Arc::new(AtomicU64::new(0));
        let mut strangers = JoinSet::new();
        for number in 0..scale.strangers {
            let (address, counted) = (server.server.pg(), Arc::clone(&counted));
            strangers.spawn(async move { misbehave(address, number, &counted).await });
        }
        let begin = Instant::now();
        beside.push(freshness(scale, &server, &mut written).await?);
        come.push(counted.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64());
        strangers.shutdown().await;
    }
    server.stop().await?;
    let ratio = beside
        .iter()
        .zip(&alone)
        .map(|(beside, alone)| 100.0 * beside / alone);
    let ratio: Vec<f64> = ratio.collect();
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "A row is written every {} ms, and the view that counts the rows is read at once; beside it {} clients of the same port connect \
             again and again: they say nothing, send a start-up packet byte by byte, stop in its middle, send garbage, announce a message of \
             a gigabyte, or give a wrong password's first message. {:.1} s a turn, by turns. Each value is one turn's p99 of a write and the \
             read behind it.",
            EVERY.as_millis(),
            scale.strangers,
            scale.steady.as_secs_f64()
        ),
    );
    experiment.add("alone: p99", "ms", alone, None);
    experiment.add("beside strangers: p99", "ms", beside, None);
    experiment.add("beside / alone", "%", ratio, None);
    experiment.add("connections of strangers", "1/s", come, None);
    Ok(experiment)
}

/// The p99 of a write and the read of the view behind it.
async fn freshness(scale: &Scale, server: &FreshServer, written: &mut u64) -> Result<f64, BenchError> {
    let (begin, mut times) = (Instant::now(), vec![]);
    let mut next = tokio::time::interval(EVERY);
    while begin.elapsed() < scale.steady {
        next.tick().await;
        *written += 1;
        let asked = Instant::now();
        server
            .client
            .run(&format!("INSERT INTO t VALUES ({written}, 1)"))
            .await?;
        let seen = server.client.number("SELECT n FROM n").await?;
        times.push(ms_since(asked));
        if seen != *written as f64 {
            return Err(BenchError::Wrong(format!(
                "the view has {seen} of {written} rows"
            )));
        }
    }
    Ok(quantile(times, 0.99))
}

/// Connects again and again, and does something wrong each time.
async fn misbehave(address: SocketAddr, number: usize, counted: &AtomicU64) {
    let body = b"\0\x03\0\0user\0nobody\0database\0millrace\0\0";
    let start = [&(body.len() as u32 + 4).to_be_bytes()[..], body].concat();
    for turn in number.. {
        let Ok(mut stream) = TcpStream::connect(address).await else {
            tokio::time::sleep(SLOW).await;
            continue;
        };
        counted.fetch_add(1, Ordering::Relaxed);
        match turn % 6 {
            0 => tokio::time::sleep(SLOW * 10).await,
            1 => {
                for byte in &start {
                    if stream.write_all(&[*byte]).await.is_err() {
                        break;
                    }
                    tokio::time::sleep(SLOW).await;
                }
            }
            2 => {
                let _ = stream.write_all(&start[..start.len() / 2]).await;
                tokio::time::sleep(SLOW).await;
            }
            3 => {
                let garbage: Vec<u8> = (0..4_096_u32)
                    .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
                    .collect();
                let _ = stream.write_all(&garbage).await;
            }
            4 => {
                let _ = stream.write_all(&start).await;
                let _ = stream.write_all(b"p\x40\0\0\0").await;
                let _ = stream.write_all(&[b'x'; 64 << 10]).await;
            }
            _ => {
                let _ = stream.write_all(&start).await;
                let _ = stream.write_all(b"p\0\0\0\x08nope").await;
            }
        }
        let mut answer = [0; 1_024];
        let _ = tokio::time::timeout(SLOW, stream.read(&mut answer)).await;
    }
}
