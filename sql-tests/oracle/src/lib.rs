//! The batch oracle: what plain DataFusion answers for a query over the base relations' rows of this moment, and whether that
//! is what a view or a server showed.
//!
//! ```text
//!   base rows --> base (tables whose rows change) --> plain (queries over them) --> expected rows --+
//!   view, or answer over a wire ------------------------------------------------> shown rows -------+--> rows, text: difference
//! ```
//!
//! * [`base`]: tables for DataFusion that give whatever rows they have when a plan runs.
//! * [`plain`]: SQL as DataFusion itself reads it, over such tables.
//! * [`rows`]: two answers in Arrow, as multisets, types included.
//! * [`text`]: two answers as texts, for what came over a wire.
//! * [`seed`] and [`cases`]: what a random test is told by its environment.
//!
//! The tests of the runtime, of whole servers and the benches use it; nothing of the product does. It knows no crate of
//! millrace, so that each of them can be compared with it: whoever has rules or functions of its own to plan with gives
//! them to [`plain::Plain::with`]. Random queries and the way from a failure to a small script are `millrace_sql_tests::oracle`.

pub mod base;
pub mod plain;
pub mod rows;
pub mod text;

/// The seed of a random test, printed: the number in `MILLRACE_SEED`, another one each time if that is `random`, else the
/// default, so that a change is judged by what it changed.
///
/// # Panics
/// The variable holds something else.
pub fn seed(default: u64) -> u64 {
    let seed = match std::env::var("MILLRACE_SEED") {
        Ok(text) if text == "random" => rand::random_range(0..1 << 40),
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("MILLRACE_SEED is a number or random, not {text}")),
        Err(_) => default,
    };
    eprintln!("MILLRACE_SEED={seed}");
    seed
}

/// How many cases a random test tries: the number in `MILLRACE_ORACLE_CASES`, else the default.
///
/// # Panics
/// The variable holds something else.
pub fn cases(default: u64) -> u64 {
    match std::env::var("MILLRACE_ORACLE_CASES") {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("MILLRACE_ORACLE_CASES is a number, not {text}")),
        Err(_) => default,
    }
}
