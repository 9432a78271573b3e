//! Broken statements never panic, and their errors point into the text.
//!
//! Mutations of the corpus are drawn from a seeded generator, so that a failure repeats. `cargo fuzz run sql` runs the same check
//! without end.

#[path = "../../fuzz/checks/sql.rs"]
mod checks;
mod corpus;

use checks::check;

/// A small generator (splitmix64): the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

const PIECES: &[&str] = &[
    "(",
    ")",
    ",",
    ";",
    "'",
    "\"",
    "$$",
    "--",
    "/*",
    "*/",
    ".",
    "::",
    "=",
    "=>",
    "[",
    "]",
    " ",
    "\n",
    "ä",
    "\u{1F600}",
    "\\",
    " SELECT ",
    " FROM ",
    " EMIT ",
    " CHANGES ",
    " TABLE(",
    "TUMBLE(",
    "SESSION(",
    " PARTITION BY ",
    " DESCRIPTOR(",
    " ASOF ",
    " JOIN ",
    " ON ",
    " WITH (",
    " AS ",
    " NOT ",
    " NULL ",
    " CREATE ",
    " STREAM ",
    " 1 ",
    "e'",
    "$1",
    "\0",
];

#[test]
fn truncated_statements() {
    for sql in corpus::statements() {
        let ends: Vec<usize> = sql.char_indices().map(|(i, _)| i).collect();
        let step = (ends.len() / 40).max(1);
        ends.iter().step_by(step).for_each(|&end| check(&sql[..end]));
    }
}

#[test]
fn mutated_statements() {
    let mut random = Random(2013);
    let corpus: Vec<&str> = corpus::statements().collect();
    for _ in 0..6_000 {
        let mut chars: Vec<char> = corpus[random.below(corpus.len())].chars().take(400).collect();
        for _ in 0..=random.below(3) {
            let at = random.below(chars.len());
            match random.below(4) {
                0 => {
                    let end = (at + random.below(12)).min(chars.len());
                    chars.drain(at..end);
                }
                1 => {
                    let other = corpus[random.below(corpus.len())];
                    let from = random.below(other.chars().count());
                    let part: Vec<char> = other.chars().skip(from).take(30).collect();
                    chars.splice(at..at, part);
                }
                _ => {
                    let piece = PIECES[random.below(PIECES.len())];
                    chars.splice(at..at, piece.chars());
                }
            }
        }
        check(&chars.into_iter().collect::<String>());
    }
}

#[test]
fn garbage() {
    let mut random = Random(7);
    for _ in 0..2_000 {
        let mut sql = String::new();
        for _ in 0..random.below(40) {
            sql.push_str(PIECES[random.below(PIECES.len())]);
        }
        check(&sql);
    }
}
