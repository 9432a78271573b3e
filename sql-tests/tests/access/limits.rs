//! The limits that strangers meet on both listeners. How long they are waited for is tested beside the code (`http/patience`).

use std::net::SocketAddr;
use std::time::Duration;

use millrace_cli::test::throw_away;
use millrace_wire::Server;
use millrace_wire::config::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{Fixture, PASSWORD, code};

async fn start(adjust: impl FnOnce(&mut Config)) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config {
        password: Some(PASSWORD.to_owned()),
        ..throw_away(&directory.path().join("data"))
    };
    adjust(&mut config);
    Fixture {
        server: Server::start(config).await.unwrap(),
        directory,
    }
}

/// Sends bytes; everything that comes back until the server closes.
async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut answer = vec![];
    // It may hang up before it has read everything.
    let _ = stream.write_all(bytes).await;
    let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut answer)).await;
    let _ = read.expect("the server hangs up");
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(host: &str) -> Vec<u8> {
    format!("GET /health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_strangers_are_short() {
    let fixture = start(|_| ()).await;
    let body = b"\0\x03\0\0user\0millrace\0\0";
    let begin = [&(body.len() as u32 + 4).to_be_bytes()[..], body].concat();
    let password = |length: u32| [&begin[..], b"p", &length.to_be_bytes()].concat();
    let answer = exchange(fixture.server.pg_addr(), &password(64 * 1024 + 1)).await;
    assert!(answer.contains("54000"), "{answer}");
    // Once it has shown who it is, it may say more.
    let client = fixture.first().await;
    let long = format!("SELECT length('{}')", "x".repeat(100_000));
    assert_eq!(crate::rows(&client, &long).await.unwrap(), ["100000"]);
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_has_so_many_connections() {
    let fixture = start(|config| config.connections_per_address_max = Some(2)).await;
    let (one, two) = (fixture.first().await, fixture.first().await);
    let error = fixture.connect("millrace", PASSWORD).await.err().unwrap();
    assert_eq!(code(&error), "53300 too many connections from this address");
    // Those of HTTP count too.
    assert_eq!(exchange(fixture.server.http_addr(), &get("localhost")).await, "");
    drop(two);
    // Whoever has left makes room as soon as the server has seen it.
    loop {
        let answer = exchange(fixture.server.http_addr(), &get("localhost")).await;
        if answer.starts_with("HTTP/1.1 200") {
            break;
        }
        tokio::task::yield_now().await;
    }
    drop(one);
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_for_the_names_of_the_server() {
    let fixture = start(|config| config.http_hosts = vec!["db.example.com".to_owned()]).await;
    let address = fixture.server.http_addr();
    for (host, status) in [
        ("db.example.com", 200),
        ("DB.example.com:8033", 200),
        ("evil.example", 421),
        ("db.example.com.evil.example", 421),
        ("127.0.0.1", 421),
    ] {
        let answer = exchange(address, &get(host)).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{host}: {answer}"
        );
        for header in [
            "x-content-type-options: nosniff",
            "x-frame-options: DENY",
            "content-security-policy: ",
        ] {
            assert!(answer.contains(header), "{host}: {answer}");
        }
    }
    fixture.server.shutdown().await;
}
