//! Bytes at random, in each state of the protocol.

use std::net::SocketAddr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long the server's answer is read. It may hang up before, or wait for the rest of a message that does not come.
const LISTENS: Duration = Duration::from_millis(100);

/// Sends messages that bring a connection into some state, and then bytes that nobody expects there. Says what it did.
pub async fn attack(address: SocketAddr, random: &mut StdRng) -> String {
    let states: [(&str, Vec<u8>); 8] = [
        ("nothing", vec![]),
        ("a start", startup()),
        (
            "a parsed statement",
            [startup(), parse("SELECT $1::int")].concat(),
        ),
        (
            "a bound portal",
            [
                startup(),
                parse("SELECT 1"),
                message(b'B', &[0, 0, 0, 0, 0, 0, 0, 0]),
            ]
            .concat(),
        ),
        (
            "a failed transaction",
            [startup(), query("BEGIN"), query("SELECT 1 / 0")].concat(),
        ),
        (
            "COPY in progress",
            [startup(), query("COPY own FROM STDIN")].concat(),
        ),
        ("a failed extended query", [startup(), parse("SELEKT")].concat()),
        (
            "a query that runs",
            [
                startup(),
                query("SELECT count(*) FROM generate_series(1, 100000)"),
            ]
            .concat(),
        ),
    ];
    let (state, mut bytes) = states.choose(random).expect("there are states").clone();
    let (kind, attack) = match random.random_range(0..4) {
        0 => {
            let mut garbage = vec![0; random.random_range(1..2_000)];
            random.fill_bytes(&mut garbage);
            ("bytes", garbage)
        }
        1 => {
            // A message that is one, with bytes in it.
            let mut body = vec![0; random.random_range(0..500)];
            random.fill_bytes(&mut body);
            let kinds = *b"QPBEDSHCdcfFXp?";
            (
                "a message",
                message(*kinds.choose(random).expect("there are kinds"), &body),
            )
        }
        2 => {
            // A length that lies.
            let mut lie = vec![*b"QPBdp".choose(random).expect("there are kinds")];
            lie.extend(random.random::<u32>().to_be_bytes());
            lie.extend([0xff; 64]);
            ("a length that lies", lie)
        }
        _ => {
            // Counts that lie: of parameters, of formats, of columns.
            let mut body = b"\0\0".to_vec();
            for _ in 0..random.random_range(1..8) {
                body.extend(
                    [0x7fff_u16, 0xffff, 0, 1]
                        .choose(random)
                        .expect("there are counts")
                        .to_be_bytes(),
                );
            }
            (
                "counts that lie",
                message(*b"BPF".choose(random).expect("there are kinds"), &body),
            )
        }
    };
    bytes.extend(&attack);
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(&bytes).await?;
        stream.shutdown().await?;
        let mut answer = vec![];
        stream.read_to_end(&mut answer).await
    };
    // Whatever comes of it.
    let _ = timeout(LISTENS, exchange).await;
    format!("{kind} after {state}: {attack:?}")
}

fn startup() -> Vec<u8> {
    let mut body = 196_608_u32.to_be_bytes().to_vec();
    body.extend_from_slice(b"user\0millrace\0database\0millrace\0\0");
    let mut packet = (body.len() as u32 + 4).to_be_bytes().to_vec();
    packet.extend(body);
    packet
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend((body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}

fn query(sql: &str) -> Vec<u8> {
    message(b'Q', &[sql.as_bytes(), &[0]].concat())
}

fn parse(sql: &str) -> Vec<u8> {
    message(b'P', &[b"\0", sql.as_bytes(), b"\0\0\0"].concat())
}
