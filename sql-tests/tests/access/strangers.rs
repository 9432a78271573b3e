//! Bytes of whoever has not shown who it is, on both listeners of a server with a password: nothing that is sent lets anybody in, makes a
//! thread panic, or keeps others from being answered. `MILLRACE_STRANGERS` says how many, `MILLRACE_SEED` which.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrace_cli::test::throw_away;
use millrace_sql_tests::seed;
use millrace_wire::Server;
use millrace_wire::config::Config;
use millrace_wire::tls::{TlsMode, TlsOptions};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{PASSWORD, rows};

/// How many come, unless the variable says otherwise.
const STRANGERS: usize = 400;
/// How long an answer is read.
const LISTENS: Duration = Duration::from_millis(200);

fn packet(code: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 8).to_be_bytes();
    [&length[..], &code.to_be_bytes(), body].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[kind][..], &length, body].concat()
}

fn sasl_initial(mechanism: &str, data: &str) -> Vec<u8> {
    let length = (data.len() as u32).to_be_bytes();
    message(
        b'p',
        &[mechanism.as_bytes(), b"\0", &length, data.as_bytes()].concat(),
    )
}

/// What clients of PostgreSQL send before they are let in, and a statement that they hope to get answered.
fn of_postgres(random: &mut StdRng) -> Vec<Vec<u8>> {
    let users = ["millrace", "ann", "nobody", "", "pg_monitor"];
    let user = users.choose(random).unwrap();
    let start = packet(
        196_608,
        format!("user\0{user}\0database\0millrace\0\0").as_bytes(),
    );
    let newer = packet(196_610, format!("user\0{user}\0_pq_.x\x001\0\0").as_bytes());
    let plain = sasl_initial("SCRAM-SHA-256", "n,,n=,r=rOprNGfwEbeRWgbNEkqO");
    let plus = sasl_initial("SCRAM-SHA-256-PLUS", "p=tls-server-end-point,,n=,r=x");
    let last = message(
        b'p',
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    );
    let query = message(b'Q', b"SELECT 'let in'\0");
    let pieces = [
        packet(80_877_103, b""),
        packet(80_877_104, b""),
        packet(80_877_102, &[0, 0, 0, 1, 0, 0, 0, 2]),
        start.clone(),
        newer,
        plain,
        plus,
        last,
        message(b'p', b"open sesame\0"),
        query.clone(),
        // The beginning of a handshake of TLS.
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03".to_vec(),
    ];
    let mut sent: Vec<Vec<u8>> = vec![];
    if random.random_bool(0.7) {
        sent.push(start);
    }
    for _ in 0..random.random_range(1..6) {
        sent.push(pieces.choose(random).unwrap().clone());
    }
    sent.push(query);
    sent
}

/// Requests of HTTP without the right password.
fn of_http(random: &mut StdRng) -> Vec<Vec<u8>> {
    let paths = [
        "/api/sql?query=SELECT%20'let%20in'",
        "/api/ingest/t",
        "/api/subscribe",
        "/api/queries/x",
        "/api/jobs/1/profile",
        "/metrics",
        "/%00/..//api/sql",
    ];
    let headers = [
        "authorization: Basic bWlsbHJhY2U6d3Jvbmc=\r\n",
        "authorization: Basic \u{7f}\r\n",
        "authorization: Bearer millrace_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\r\n",
        "authorization:\r\n",
        "transfer-encoding: chunked\r\n",
        "content-length: 99999999999999999999\r\n",
        "content-length: 5\r\n",
        "expect: 100-continue\r\n",
        "upgrade: h2c\r\nconnection: upgrade\r\n",
        "x-query-id: \u{1}\r\n",
    ];
    let method = ["GET", "POST", "DELETE", "PRI", "CONNECT"]
        .choose(random)
        .unwrap();
    let path = paths.choose(random).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for _ in 0..random.random_range(0..4) {
        head.push_str(headers.choose(random).unwrap());
    }
    if random.random_bool(0.2) {
        head.push_str(&"x: y\r\n".repeat(5_000));
    }
    head.push_str("\r\n");
    vec![head.into_bytes(), b"5\r\nSELEC\r\n0\r\n\r\n".to_vec()]
}

fn mutate(bytes: &mut Vec<u8>, random: &mut StdRng) {
    for _ in 0..random.random_range(0..4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.random_range(0..bytes.len());
        let end = (at + random.random_range(1..9)).min(bytes.len());
        match random.random_range(0..5) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at..end].fill(*[0, 1, 0x7f, 0x80, 0xff].choose(random).unwrap()),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            _ => {
                let mut garbage = vec![0; random.random_range(1..300)];
                random.fill_bytes(&mut garbage);
                bytes.splice(at..at, garbage);
            }
        }
    }
}

/// Sends it in pieces; what comes back.
async fn send(address: SocketAddr, pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut answer = vec![];
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        for piece in pieces {
            stream.write_all(piece).await?;
            tokio::task::yield_now().await;
        }
        stream.shutdown().await?;
        stream.read_to_end(&mut answer).await
    };
    // Whatever comes of it.
    let _ = timeout(LISTENS, exchange).await;
    answer
}

fn has(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_bytes_let_a_stranger_in() {
    let panics = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&panics);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        counted.fetch_add(1, Ordering::Relaxed);
        before(panic);
    }));
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        password: Some(PASSWORD.to_owned()),
        tls: TlsOptions {
            mode: TlsMode::On,
            is_self_signed: true,
            ..TlsOptions::default()
        },
        ..throw_away(directory.path())
    };
    let fixture = crate::Fixture {
        server: Server::start(config).await.unwrap(),
        directory,
    };
    let witness = fixture.first().await;
    rows(&witness, "CREATE USER ann PASSWORD 'hers'").await.unwrap();
    let count = std::env::var("MILLRACE_STRANGERS").ok();
    let count = count.and_then(|text| text.parse().ok()).unwrap_or(STRANGERS);
    let mut random = StdRng::seed_from_u64(seed());
    for number in 0..count {
        let is_http = random.random_bool(0.4);
        let mut pieces = match is_http {
            true => of_http(&mut random),
            false => of_postgres(&mut random),
        };
        if random.random_bool(0.8) {
            let at = random.random_range(0..pieces.len());
            mutate(&mut pieces[at], &mut random);
        }
        let addresses = [fixture.server.pg_addr(), fixture.server.http_addr()];
        // Now and then at the other's door.
        let address = addresses[usize::from(is_http != random.random_bool(0.05))];
        let answer = send(address, &pieces).await;
        let what = || {
            format!(
                "stranger {number}: {pieces:?}: {:?}",
                String::from_utf8_lossy(&answer)
            )
        };
        assert!(!has(&answer, b"let in"), "{}", what());
        assert!(!has(&answer, b"R\0\0\0\x08\0\0\0\0"), "{}", what());
        assert!(!has(&answer, b"Z\0\0\0\x05I"), "{}", what());
        assert_eq!(panics.load(Ordering::Relaxed), 0, "{}", what());
        if number % 20 == 0 {
            assert_eq!(rows(&witness, "SELECT 1").await.unwrap(), ["1"], "{}", what());
        }
    }
    fixture.first().await;
    drop(witness);
    fixture.server.shutdown().await;
}
