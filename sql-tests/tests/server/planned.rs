//! Whatever a text says, the planner plans it or refuses it with an error of the client's: statements of the SQL tests, with pieces of
//! each other, drawn from a seeded generator. `MILLRACE_SEED` is the seed, `MILLRACE_PLANNED` how many. `cargo fuzz run plan` runs the
//! same check without end.

#[path = "../../../fuzz/checks/plan.rs"]
mod checks;

use std::path::Path;

use checks::Planner;
use millrace_sql_tests::seed;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Texts that are planned.
const CASES: usize = 400;
/// Longer ones are left out.
const TEXT_BYTES_MAX: usize = 400;

/// The statements of the files below a folder.
pub(super) fn statements(folder: &Path, found: &mut Vec<String>) {
    let mut entries: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            statements(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for record in text.split("\n\n") {
            let mut lines = record.lines().skip_while(|line| line.starts_with('#'));
            if lines
                .next()
                .is_some_and(|line| line.starts_with("query") || line.starts_with("statement"))
            {
                let sql: Vec<&str> = lines.take_while(|line| !line.starts_with("----")).collect();
                found.push(sql.join("\n"));
            }
        }
    }
}

/// Words, texts, and single signs.
fn pieces(sql: &str) -> Vec<String> {
    let mut pieces: Vec<String> = vec![];
    let mut in_text = false;
    for sign in sql.chars() {
        let is_word = |sign: char| sign.is_alphanumeric() || sign == '_';
        let joins = pieces
            .last()
            .and_then(|piece| piece.chars().last())
            .is_some_and(|last| in_text || is_word(last) && is_word(sign));
        match pieces.last_mut() {
            Some(piece) if joins => piece.push(sign),
            _ => pieces.push(sign.to_string()),
        }
        if sign == '\'' {
            in_text = !in_text;
        }
    }
    pieces
}

#[test]
fn whatever_a_text_says_is_planned_or_refused() {
    let mut all = vec![];
    statements(&Path::new(env!("CARGO_MANIFEST_DIR")).join("slt"), &mut all);
    all.retain(|sql| sql.len() <= TEXT_BYTES_MAX);
    assert!(all.len() > 5_000, "{} statements", all.len());
    let mut random = StdRng::seed_from_u64(seed());
    let planner = Planner::open().unwrap();
    let cases = std::env::var("MILLRACE_PLANNED").ok();
    let cases = cases.map_or(CASES, |cases| cases.parse().unwrap());
    let mut planned = 0;
    for _ in 0..cases {
        let mut text = pieces(all.choose(&mut random).unwrap());
        for _ in 0..random.random_range(0..4) {
            let other = pieces(all.choose(&mut random).unwrap());
            let (from, at) = (
                random.random_range(0..other.len()),
                random.random_range(0..text.len()),
            );
            let length = random.random_range(1..8).min(other.len() - from);
            let end = match random.random_bool(0.5) {
                true => at,
                false => (at + random.random_range(1..6)).min(text.len()),
            };
            text.splice(at..end, other[from..from + length].iter().cloned());
        }
        planned += planner.check(&text.concat());
    }
    assert!(planned > cases / 10, "only {planned} of {cases} could be planned");
}
