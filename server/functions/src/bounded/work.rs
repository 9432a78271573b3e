//! Functions whose time grows faster than their arguments, by the steps that they would take.
//!
//! All functions of the registry were looked at; `tests` of [`super`] fail when there is one that was not. Faster than about
//! the sum of their arguments grow
//!
//! | function | steps | what bounds it |
//! |---|---|---|
//! | `levenshtein` | length times length | 255 characters, as in PostgreSQL |
//! | `array_has_all`, `array_has_any`, `array_contains`, `array_overlaps` (`&&`, `@>`, `<@`) | elements times elements | [`allowed`] |
//! | `regexp_*`, `similar_to`, `pg_substring`, `~`, LIKE | length times states of the pattern's automaton | [`allowed`], [`states`] |
//! | containment of jsonb | elements times elements, where arrays are in arrays | [`Work`] |
//! | many keys of jsonb | members times keys | [`allowed`] |
//! | `array_sort` | n log n | none |
//!
//! `array_intersect`, `array_union`, `array_except`, `array_distinct` and `map` hash their elements; `array_position(s)`,
//! `array_remove*`, `array_replace*`, `find_in_set`, `strpos`, `split_part`, `substring_index` and `translate` go through the
//! value once; `factorial`, `gcd`, `lcm`, `power`, `exp`, `ln` are those of machine numbers; `to_char` and `to_date` go through
//! the pattern once; aggregates sort at most; a window function with a frame of its own for each row takes as many steps as
//! rows times frame, and looks at each row whether somebody still waits for it ([`is_wanted`]).

use datafusion::common::Result;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_resource::cpu::is_unwanted;

use super::sizes::Columns;
use crate::names::MATCHED;

/// Steps that one call may take: some seconds.
const STEPS_MAX: u64 = 1 << 30;
/// A pattern of no more states takes no long time with any text.
pub const STATES_SHORT: u64 = 250;
/// Steps of an automaton, each of which is a few instructions; mostly it takes one for a byte, whatever its states.
const STATES_MAX: u64 = 1 << 36;
/// The longest text that `levenshtein` takes, in characters.
const LEVENSHTEIN_MAX: usize = 255;

/// For what takes long and suspends nowhere: ends it when nobody waits for it any more.
///
/// # Errors
/// Nobody does.
pub fn is_wanted() -> SqlResult<()> {
    match is_unwanted() {
        false => Ok(()),
        true => Err(SqlError::new(
            SqlState::QueryCanceled,
            "canceling statement due to user request",
        )),
    }
}

/// Checks a number of steps that is known before, `left` times `right`.
///
/// # Errors
/// It is too large.
pub fn allowed(name: &str, left: u64, right: u64) -> SqlResult<()> {
    match left.checked_mul(right).filter(|steps| *steps <= STEPS_MAX) {
        Some(_) => Ok(()),
        None => Err(too_long(name, left, right)),
    }
}

fn too_long(name: &str, left: u64, right: u64) -> SqlError {
    SqlError::new(
        SqlState::ProgramLimitExceeded,
        format!("{name} would take too long: {left} times {right} comparisons"),
    )
    .with_hint("Use shorter arguments, or a join instead.")
}

/// Steps that are counted while they are made.
#[derive(Debug)]
pub struct Work {
    name: &'static str,
    steps: u64,
}

impl Work {
    /// None yet, of what goes by this name.
    pub fn new(name: &'static str) -> Work {
        Work { name, steps: 0 }
    }

    /// So many more.
    ///
    /// # Errors
    /// There were too many.
    pub fn steps(&mut self, steps: u64) -> SqlResult<()> {
        // Each has a look at a value: they are slower than comparisons of numbers.
        const WORK_MAX: u64 = STEPS_MAX >> 6;
        self.steps += steps;
        if self.steps <= WORK_MAX {
            return Ok(());
        }
        Err(SqlError::new(
            SqlState::ProgramLimitExceeded,
            format!("{} takes too long: more than {WORK_MAX} comparisons", self.name),
        ))
    }
}

/// Functions of a text and a regular expression, or another pattern.
fn takes_pattern(name: &str) -> bool {
    matches!(name, MATCHED | "similar_to" | "pg_substring") || name.starts_with("regexp_")
}

/// Functions that compare each element of one array with each of another.
const COMPARES_EACH: [&str; 4] = [
    "array_has_all",
    "array_has_any",
    "array_contains",
    "array_overlaps",
];

/// Whether [`check`] has something to say of a function.
pub fn is_known(name: &str) -> bool {
    name == "levenshtein" || COMPARES_EACH.contains(&name) || takes_pattern(name)
}

/// Checks how long a call would take, by the function's name.
///
/// # Errors
/// Too long.
pub fn check(name: &str, args: &Columns, rows: usize) -> Result<()> {
    match name {
        "levenshtein" => {
            for row in 0..rows {
                let lengths =
                    [0, 1].map(|argument| args.text(argument, row).map_or(0, |text| text.chars().count()));
                if lengths.iter().all(|length| *length > 0)
                    && lengths.iter().any(|length| *length > LEVENSHTEIN_MAX)
                {
                    return Err(SqlError::new(
                        SqlState::InvalidParameterValue,
                        format!(
                            "levenshtein argument exceeds maximum length of {LEVENSHTEIN_MAX} characters"
                        ),
                    )
                    .into());
                }
            }
        }
        name if COMPARES_EACH.contains(&name) => {
            let mut all = 0_u64;
            for row in 0..rows {
                let (left, right) = (args.elements(0, row), args.elements(1, row));
                allowed(name, left, right)?;
                all = all.saturating_add(left.saturating_mul(right));
            }
            // Each row is short enough, but not all of them together: a query is to give way to others between batches.
            if all > STEPS_MAX << 3 {
                allowed(name, all, rows as u64)?;
            }
        }
        name if takes_pattern(name) => {
            let mut last: Option<(&str, u64)> = None;
            for row in 0..rows {
                let (Some(text), Some(pattern)) = (args.text(0, row), args.text(1, row)) else {
                    continue;
                };
                let states = match last {
                    Some((known, states)) if known == pattern => states,
                    _ => states(pattern),
                };
                last = Some((pattern, states));
                let length = text.len() as u64;
                if length.saturating_mul(states) > STATES_MAX {
                    return Err(SqlError::new(
                        SqlState::ProgramLimitExceeded,
                        format!("{name} would take too long: a text of {length} bytes and a pattern of {states} states"),
                    )
                    .with_hint("Use a shorter text or a simpler pattern.")
                    .into());
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// About how many states the automaton of a pattern has: its bytes, those of what is repeated as often as it is. What looks like
/// a repetition and is none makes it larger, never smaller.
pub fn states(pattern: &str) -> u64 {
    // By nesting: the states of what is open, those of its last part, and all before that.
    let mut open: Vec<(u64, u64)> = vec![];
    let (mut before, mut last) = (0_u64, 0_u64);
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '(' => {
                open.push((before.saturating_add(last), 0));
                (before, last) = (1, 0);
            }
            ')' => {
                let inside = before.saturating_add(last);
                (before, _) = open.pop().unwrap_or_default();
                last = inside;
            }
            '{' => {
                let (counts, after) = rest.split_once('}').unwrap_or((rest, ""));
                let counts = counts
                    .split(',')
                    .filter_map(|count| count.trim().parse::<u64>().ok());
                if let Some(times) = counts.max() {
                    last = last.saturating_mul(times.max(1));
                    rest = after;
                }
            }
            '\\' => {
                let escaped = rest.chars().next().map_or(0, char::len_utf8);
                rest = &rest[escaped..];
                before = before.saturating_add(last);
                last = 2;
            }
            other => {
                before = before.saturating_add(last);
                last = other.len_utf8() as u64;
            }
        }
    }
    let outside = open
        .iter()
        .map(|(before, _)| *before)
        .fold(0, u64::saturating_add);
    outside.saturating_add(before).saturating_add(last).max(1)
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::ColumnarValue;
    use datafusion::scalar::ScalarValue;

    use super::*;

    fn checked(name: &str, texts: &[&str]) -> Result<()> {
        let args: Vec<ColumnarValue> = texts
            .iter()
            .map(|text| ColumnarValue::Scalar(ScalarValue::from(*text)))
            .collect();
        check(name, &Columns::new(&args).unwrap(), 1)
    }

    #[test]
    fn repetitions_multiply_the_states() {
        assert_eq!(states("abc"), 3);
        assert!(states("a{100}") >= 100);
        assert!(states("(a{100}){100}") >= 10_000);
        assert!(states("x((ab){1,1000}){1000}y") >= 2_000_000);
        assert!(states("a|b|[a-z]+") < 20);
        assert_eq!(states(r"\{9\}"), 5);
        assert!(states("((((a{9999999999999999999}") >= 1);
    }

    #[test]
    fn what_takes_hours_is_refused() {
        let long = "ab".repeat(1_000_000);
        assert!(checked("regexp_like", &[&long, "a(bab)*c"]).is_ok());
        assert!(checked("regexp_like", &[&long, "((a|b){500}){500}c"]).is_err());
        assert!(checked("levenshtein", &[&"x".repeat(255), &"y".repeat(255)]).is_ok());
        assert!(checked("levenshtein", &[&"x".repeat(256), "y"]).is_err());
        // PostgreSQL looks at the lengths only where there is something to compare.
        assert!(checked("levenshtein", &[&"x".repeat(256), ""]).is_ok());
        assert!(allowed("f", 1 << 15, 1 << 15).is_ok());
        assert!(allowed("f", u64::MAX, 2).is_err());
    }
}
