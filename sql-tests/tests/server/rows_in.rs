//! Whatever bytes come as rows, they are rows or are refused, the same in pieces of any length: mutations of rows that are right, drawn
//! from a seeded generator. `MILLRACE_SEED` is the seed. `cargo fuzz run rows` runs the same check without end.

#[path = "../../../fuzz/checks/rows.rs"]
mod checks;

use millrace_sql_tests::seed;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

const CASES: usize = 20_000;

const VALUES: [&str; 13] = [
    "7",
    "a text",
    "-1.5e3",
    "12.50",
    "2024-02-29 12:34:56.789",
    "2024-02-29 12:34:56+02",
    "true",
    "[1, {\"a\": null}]",
    "{1,NULL,3}",
    "\\\\x00ff",
    "123e4567-e89b-12d3-a456-426614174000",
    "1 day 02:03:04",
    "1999-12-31",
];
const NAMES: [&str; 13] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"];

/// Two rows in each format, in the order of the first byte.
fn samples() -> Vec<Vec<u8>> {
    let text = VALUES.join("\t") + "\n" + &["\\N"; 13].join("\t") + "\n";
    let quoted: Vec<String> = VALUES
        .iter()
        .map(|value| format!("\"{}\"", value.replace("\\\\", "\\").replace('"', "\"\"")))
        .collect();
    let csv = quoted.join(",") + "\n" + &[""; 13].join(",") + "\n";
    let members: Vec<String> = NAMES
        .iter()
        .zip(VALUES)
        .map(|(name, value)| match *name {
            "a" | "c" | "d" | "g" | "h" => format!("\"{name}\": {value}"),
            "i" => "\"i\": [1, null, 3]".to_owned(),
            _ => format!("\"{name}\": \"{value}\""),
        })
        .collect();
    let document = format!("{{{}}}", members.join(", "));
    let lines = format!("{document}\n{{\"a\": null}}\n");
    let array = format!("[{document}, {{}}]");
    vec![
        text.into_bytes(),
        csv.into_bytes(),
        binary(),
        lines.into_bytes(),
        array.into_bytes(),
    ]
}

/// A row of NULLs but for the first two values.
fn binary() -> Vec<u8> {
    let mut bytes = b"PGCOPY\n\xff\r\n\0".to_vec();
    bytes.extend([0; 8]);
    bytes.extend(13_i16.to_be_bytes());
    bytes.extend(4_i32.to_be_bytes());
    bytes.extend(7_i32.to_be_bytes());
    bytes.extend(3_i32.to_be_bytes());
    bytes.extend(b"abc");
    for _ in 2..13 {
        bytes.extend((-1_i32).to_be_bytes());
    }
    bytes.extend((-1_i16).to_be_bytes());
    bytes
}

fn mutate(bytes: &mut Vec<u8>, random: &mut StdRng) {
    for _ in 0..random.random_range(0..4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.random_range(0..bytes.len());
        let end = (at + random.random_range(1..9)).min(bytes.len());
        match random.random_range(0..6) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at] = *b"\n\r\t\\\"'{}[],:|.-eN0\0\xff".choose(random).unwrap(),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            _ => {
                let piece = bytes[at..end].to_vec();
                let to = random.random_range(0..bytes.len());
                bytes.splice(to..to, piece);
            }
        }
    }
}

#[test]
fn rows_that_are_right_are_all_taken() {
    for (format, sample) in samples().into_iter().enumerate() {
        let rows = if format == 2 { 1 } else { 2 };
        for piece in [0, 1, 6, 255] {
            let bytes = [&[format as u8, piece][..], &sample].concat();
            assert_eq!(checks::check(&bytes), Some(rows), "{format} in pieces of {piece}");
        }
    }
}

#[test]
fn no_bytes_make_rows_panic() {
    let samples = samples();
    let mut random = StdRng::seed_from_u64(seed());
    let mut taken = 0;
    for _ in 0..CASES {
        let format = random.random_range(0..samples.len());
        let look = random.random_range(0..6) * samples.len();
        let mut bytes = samples[format].repeat(random.random_range(1..3));
        mutate(&mut bytes, &mut random);
        bytes.splice(0..0, [(format + look) as u8, random.random_range(0..40)]);
        taken += usize::from(checks::check(&bytes).is_some());
    }
    assert!(taken > CASES / 20, "only {taken} of {CASES} were taken");
}
