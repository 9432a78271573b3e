//! Whatever bytes a PostgreSQL client sends, the wire makes messages of them or ends the connection: mutations of messages that
//! are right, drawn from a seeded generator. `MILLRACE_SEED` is the seed. `cargo fuzz run wire` runs the same check without end.

#[path = "../../../fuzz/checks/wire.rs"]
mod checks;

use bytes::BytesMut;
use millrace_sql_tests::seed;
use pgwire::messages::PgWireFrontendMessage;
use pgwire::messages::extendedquery::{Bind, Close, Describe, Execute, Parse, Sync};
use pgwire::messages::simplequery::Query;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Sequences of messages that are sent, each mutated.
const CASES: usize = 20_000;

/// A start-up packet of version 3.0, which has no type.
fn startup() -> Vec<u8> {
    let body = b"\0\x03\0\0user\0millrace\0database\0millrace\0\0";
    let mut packet = (body.len() as u32 + 4).to_be_bytes().to_vec();
    packet.extend_from_slice(body);
    packet
}

fn messages() -> Vec<Vec<u8>> {
    let text = |text: &str| Some(text.to_owned());
    let parameters = vec![None, Some(vec![1, 2, 3].into())];
    let messages = [
        PgWireFrontendMessage::Query(Query::new("select 'ä'".into())),
        PgWireFrontendMessage::Parse(Parse::new(text("s"), "select $1".into(), vec![23])),
        PgWireFrontendMessage::Bind(Bind::new(None, text("s"), vec![1], parameters, vec![0, 1])),
        PgWireFrontendMessage::Describe(Describe::new(b'S', text("s"))),
        PgWireFrontendMessage::Execute(Execute::new(None, 10)),
        PgWireFrontendMessage::Close(Close::new(b'P', None)),
        PgWireFrontendMessage::Sync(Sync::new()),
    ];
    let encoded = messages.iter().map(|message| {
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes).unwrap();
        bytes.to_vec()
    });
    encoded.collect()
}

fn mutate(bytes: &mut Vec<u8>, random: &mut StdRng) {
    for _ in 0..random.random_range(0..4) {
        if bytes.len() < 2 {
            return;
        }
        // Not the byte that says whether the connection is new.
        let at = random.random_range(1..bytes.len());
        let end = (at + random.random_range(1..9)).min(bytes.len());
        match random.random_range(0..5) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at..end].fill(*[0, 1, 0x7f, 0x80, 0xff].choose(random).unwrap()),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            _ => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
}

#[test]
fn messages_that_are_right_are_all_received() {
    let messages = messages();
    let known = [vec![1], messages.concat()].concat();
    assert_eq!(checks::check(&known), messages.len());
    let new = [vec![0], startup(), messages.concat()].concat();
    assert_eq!(checks::check(&new), messages.len() + 1);
}

#[test]
fn no_bytes_make_the_wire_panic() {
    let messages = messages();
    let mut random = StdRng::seed_from_u64(seed());
    let mut received = 0;
    for _ in 0..CASES {
        let is_new = random.random_bool(0.3);
        let mut bytes = vec![u8::from(!is_new)];
        if is_new {
            bytes.extend(startup());
        }
        for _ in 0..random.random_range(1..4) {
            bytes.extend(messages.choose(&mut random).unwrap());
        }
        mutate(&mut bytes, &mut random);
        received += checks::check(&bytes);
    }
    assert!(received > CASES / 2, "only {received} messages were received");
}
