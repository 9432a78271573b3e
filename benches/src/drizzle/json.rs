//! JSON events over HTTP: how many a second are parsed, joined, aggregated and visible.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use super::ysb::{Form, JsonEvents, Yahoo};
use super::{Scale, thread_cpu};
use crate::error::BenchError;
use crate::machine;
use crate::process;
use crate::results::{Aim, Experiment};

/// The experiment's name.
pub const NAME: &str = "JSON events over HTTP";

/// Connections, each a thread that sends the next request when the one before is answered.
const CONNECTIONS: usize = 4;

/// Sends as many events as it can.
///
/// # Errors
/// The server fails, or the view is wrong.
pub async fn run(scale: &Scale) -> Result<Experiment, BenchError> {
    let bytes = JsonEvents::new(100, 1).bytes_an_event();
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "The Yahoo streaming benchmark: NDJSON of {bytes:.0} bytes an event in requests of {} events over {CONNECTIONS} \
             connections, each request answered when its rows are in the log (in memory), which keeps all seven columns; the \
             clock stops when the view has counted all. The load generator's threads share the cores with the server; their \
             processor time is given, and what the machine would do without it: events by the processor time of the \
             server's threads alone.",
            scale.request_events
        ),
    );
    let bed = Yahoo::new(Form::Text, 1).await?;
    let (mut rates, mut alone, mut generator, mut server) = (vec![], vec![], vec![], vec![]);
    let mut views = 0;
    for trial in 0..=scale.trials {
        let address = bed.host.server.http_addr();
        let before = process::cpu_time(std::process::id())?;
        let start = Instant::now();
        let (events, length) = (scale.request_events, scale.burst);
        let sent = tokio::task::spawn_blocking(move || send(address, events, length))
            .await
            .map_err(BenchError::engine)??;
        views += sent.counted;
        bed.check(views).await?;
        let seconds = start.elapsed().as_secs_f64();
        let cpu = process::cpu_time(std::process::id())?.saturating_sub(before);
        // The first one warms up.
        if trial > 0 {
            let count = sent.events as f64;
            let own = cpu.saturating_sub(sent.cpu).as_secs_f64();
            rates.push(count / seconds);
            generator.push(sent.cpu.as_nanos() as f64 / count);
            server.push(own * 1e9 / count);
            let cores = machine::cores();
            alone.push(count / own * cores as f64);
        }
    }
    experiment.add(
        "events until visible",
        "events/s",
        rates,
        Some(Aim::MedianOver(2e6)),
    );
    experiment.add("processor time of the server an event", "ns", server, None);
    experiment.add(
        "processor time of the load generator an event",
        "ns",
        generator,
        None,
    );
    experiment.add(
        "all cores by the server's processor time alone",
        "events/s",
        alone,
        None,
    );
    bed.stop().await;
    Ok(experiment)
}

struct Sent {
    events: u64,
    counted: u64,
    cpu: Duration,
}

fn send(address: SocketAddr, events: usize, length: Duration) -> Result<Sent, BenchError> {
    let is_over = Arc::new(AtomicBool::new(false));
    let ready = Arc::new(Barrier::new(CONNECTIONS + 1));
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let (is_over, ready) = (Arc::clone(&is_over), Arc::clone(&ready));
            thread::spawn(move || connection(address, events, number as u64, &is_over, &ready))
        })
        .collect();
    ready.wait();
    thread::sleep(length);
    is_over.store(true, Ordering::Relaxed);
    let mut all = Sent {
        events: 0,
        counted: 0,
        cpu: Duration::ZERO,
    };
    for thread in threads {
        let sent = thread
            .join()
            .map_err(|_| BenchError::engine("a connection panicked"))??;
        all.events += sent.events;
        all.counted += sent.counted;
        all.cpu += sent.cpu;
    }
    Ok(all)
}

/// Requests one after the other until it is over.
fn connection(
    address: SocketAddr,
    events: usize,
    seed: u64,
    is_over: &AtomicBool,
    ready: &Barrier,
) -> Result<Sent, BenchError> {
    let mut events = JsonEvents::new(events, seed);
    let connected = TcpStream::connect(address);
    ready.wait();
    let failed = || BenchError::io("cannot send events over HTTP");
    let mut stream = connected.map_err(failed())?;
    stream.set_nodelay(true).map_err(failed())?;
    let mut answers = BufReader::new(stream.try_clone().map_err(failed())?);
    let begin = thread_cpu();
    let mut sent = Sent {
        events: 0,
        counted: 0,
        cpu: Duration::ZERO,
    };
    while !is_over.load(Ordering::Relaxed) {
        let body = events.now();
        let head = format!(
            "POST /api/ingest/events HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/x-ndjson\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).map_err(failed())?;
        stream.write_all(body).map_err(failed())?;
        answer(&mut answers)?;
        sent.events += events.rows as u64;
        sent.counted += events.counted;
    }
    sent.cpu = thread_cpu().saturating_sub(begin);
    Ok(sent)
}

/// Reads an answer, which must be 200.
fn answer(stream: &mut impl BufRead) -> Result<(), BenchError> {
    let failed = || BenchError::io("cannot read an answer over HTTP");
    let mut status = String::new();
    stream.read_line(&mut status).map_err(failed())?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).map_err(failed())?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).map_err(failed())?;
    if status.split(' ').nth(1) == Some("200") {
        return Ok(());
    }
    Err(BenchError::Server(format!(
        "{}: {}",
        status.trim(),
        String::from_utf8_lossy(&body)
    )))
}
