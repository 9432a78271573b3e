//! How large the result of a function is, by its arguments: exactly, or an upper bound that ordinary calls are far below.

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::functions::regex::regexp_count;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, Field, IntervalMonthDayNanoType};

use crate::zoned_shift::SERIES;

use super::VALUE_BYTES_MAX;
use super::sizes::{Columns, Measure, bytes, printed};

/// How a result follows from the arguments.
#[derive(Debug, Clone, Copy)]
pub enum Growth {
    /// All arguments together, so many times at most.
    Sum(u64),
    /// Row by row.
    Rows(fn(&Columns, usize) -> u64),
}

/// Bytes of a call's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Of the largest value.
    pub largest: u64,
    /// Of all rows.
    pub all: u64,
}

/// Bytes of a character at most.
const CHARACTER_BYTES: u64 = 4;

/// The growth of a function, by its name. One that is not named here makes no more than its arguments are: the result is made of
/// their bytes, each of them once.
pub fn of(name: &str) -> Growth {
    match name {
        "repeat" => Growth::Rows(|args, row| times(args, row, 1).saturating_mul(length(args, 0, row))),
        "lpad" | "rpad" => Growth::Rows(padded),
        "replace" => Growth::Rows(replaced),
        "regexp_replace" => Growth::Rows(replaced_by_pattern),
        // Each group has a part of the text.
        "regexp_match" => Growth::Rows(|args, row| {
            let groups = args.text(1, row).map_or(0, |pattern| count(pattern, "("));
            (groups + 1).saturating_mul(length(args, 0, row) + 8)
        }),
        // Each character may be a match of its own, with a place in the list.
        "regexp_match_all" | "regexp_split_to_array" => Growth::Rows(|args, row| {
            let groups = args.text(1, row).map_or(0, |pattern| count(pattern, "("));
            (groups + 1).saturating_mul((length(args, 0, row) + 1).saturating_mul(17))
        }),
        "concat_ws" => Growth::Rows(|args, row| {
            let values = (1..args.len()).map(|argument| args.printed(argument, row));
            let separators = (args.len() as u64).saturating_mul(length(args, 0, row));
            values.fold(separators, u64::saturating_add)
        }),
        "array_to_string" => Growth::Rows(|args, row| {
            let between = length(args, 1, row) + length(args, 2, row);
            let between = args.elements(0, row).saturating_mul(between);
            args.printed(0, row).saturating_add(between)
        }),
        // Each character may be an element, with a place of its own.
        "string_to_array" => Growth::Rows(|args, row| {
            let (text, separator) = (length(args, 0, row), length(args, 1, row));
            let elements = text / separator.max(1) + 1;
            text.saturating_add(elements.saturating_mul(8 + length(args, 2, row)))
        }),
        "array_repeat" => {
            Growth::Rows(|args, row| times(args, row, 1).saturating_mul(args.bytes(0, row) + 8))
        }
        "array_resize" => Growth::Rows(|args, row| {
            let filled = times(args, row, 1).saturating_mul(args.bytes(2, row).max(8));
            args.bytes(0, row).saturating_add(filled)
        }),
        // Places behind the last element are filled up.
        "array_with_element" | "array_with_part" => Growth::Rows(|args, row| {
            let places = (2..args.len()).filter_map(|argument| args.integer(argument, row));
            let filled = places
                .map(|place| u64::try_from(place).unwrap_or(0))
                .max()
                .unwrap_or(0);
            let given = args.bytes(0, row).saturating_add(args.bytes(1, row));
            given.saturating_add(filled.saturating_mul(8))
        }),
        "array_replace" | "array_replace_n" | "array_replace_all" => Growth::Rows(|args, row| {
            let replaced = args.elements(0, row).saturating_mul(args.bytes(2, row));
            args.bytes(0, row).saturating_add(replaced)
        }),
        // Shorter lists are filled up.
        "arrays_zip" => Growth::Rows(|args, row| {
            let lengths = (0..args.len()).map(|argument| args.elements(argument, row));
            let filled = lengths.max().unwrap_or(0).saturating_mul(16 * args.len() as u64);
            let values = (0..args.len()).map(|argument| args.bytes(argument, row));
            values.fold(filled, u64::saturating_add)
        }),
        "generate_series" | "range" | SERIES => Growth::Rows(|args, row| match numerics(args, row) {
            Some(count) => count.saturating_mul(16),
            None => series(args, row).unwrap_or(0).saturating_mul(8),
        }),
        // "Month" and the like are longer than what stands for them.
        "to_char" | "date_format" => Growth::Rows(|args, row| length(args, 1, row).saturating_mul(32)),
        "upper" | "lower" | "initcap" => Growth::Sum(3),
        "encode" => Growth::Sum(CHARACTER_BYTES),
        // A character may be eighteen in its longest form.
        "normalize" => Growth::Sum(18),
        "like_escape" | "quote_literal" | "quote_nullable" | "quote_ident" => Growth::Sum(2),
        "translate" => Growth::Sum(CHARACTER_BYTES),
        // Control characters are escaped with six.
        "to_json" | "row_to_json" | "array_to_json" | "to_jsonb" | "jsonb_build_array"
        | "jsonb_build_object" | "json_build_array" | "json_build_object" => Growth::Sum(6),
        // What indents take is counted where they are made.
        name if name.starts_with("json") => Growth::Rows(|args, row| {
            let values = (0..args.len()).map(|argument| json_length(args, argument, row));
            values.fold(0, u64::saturating_add)
        }),
        "pg_cast" | "pg_assign" => Growth::Rows(|args, row| match args.text(1, row) {
            // A digit and a comma may be a number of 16 bytes.
            Some(name) if name.contains('[') => args.printed(0, row).saturating_mul(10),
            Some("json" | "jsonb") => json_length(args, 0, row),
            _ => args.printed(0, row).saturating_mul(2),
        }),
        _ => Growth::Sum(1),
    }
}

/// A JSON text in its normal form, which has spaces, and in which exponents are written out.
fn json_length(args: &Columns, argument: usize, row: usize) -> u64 {
    let Some(text) = args.text(argument, row) else {
        return args.printed(argument, row);
    };
    let bytes = text.as_bytes();
    let exponents = memchr::memchr2_iter(b'e', b'E', bytes).map(|at| {
        let is_number = at > 0 && matches!(bytes[at - 1], b'0'..=b'9' | b'.');
        match bytes.get(at + 1..) {
            Some(after) if is_number => exponent(after),
            _ => 0,
        }
    });
    let exponents = exponents.fold(0, u64::saturating_add);
    exponents.saturating_add(2 * bytes.len() as u64)
}

/// The digits of an exponent, as a number: one that is larger than those of numerics is an error of its own.
fn exponent(text: &[u8]) -> u64 {
    let digits = text
        .strip_prefix(b"+")
        .or(text.strip_prefix(b"-"))
        .unwrap_or(text);
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit()).take(7);
    digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

impl Growth {
    /// The sizes of the results of a call over so many rows.
    pub fn sizes(self, args: &Columns, rows: usize, data_type: &DataType) -> Sizes {
        match self {
            Growth::Sum(factor) => {
                let is_text = matches!(
                    data_type,
                    DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
                );
                let measure: Measure = if is_text { printed } else { bytes };
                let all = args.total(rows, measure).saturating_mul(factor);
                // Only where all of them together are more than one may be, each is looked at.
                let largest = match all <= VALUE_BYTES_MAX {
                    true => all,
                    false => (0..rows)
                        .map(|row| one(args, row, is_text).saturating_mul(factor))
                        .max()
                        .unwrap_or(0),
                };
                Sizes { largest, all }
            }
            Growth::Rows(size) => {
                let sizes = (0..rows).map(|row| size(args, row));
                sizes.fold(Sizes { largest: 0, all: 0 }, |sizes, size| Sizes {
                    largest: sizes.largest.max(size),
                    all: sizes.all.saturating_add(size),
                })
            }
        }
    }
}

/// All arguments of a row.
fn one(args: &Columns, row: usize, is_text: bool) -> u64 {
    let values = (0..args.len()).map(|argument| match is_text {
        true => args.printed(argument, row),
        false => args.bytes(argument, row),
    });
    values.fold(0, u64::saturating_add)
}

/// The bytes of a text, or of what would be one.
fn length(args: &Columns, argument: usize, row: usize) -> u64 {
    match args.text(argument, row) {
        Some(text) => text.len() as u64,
        None => args.printed(argument, row),
    }
}

/// A number of times; none if it is negative.
fn times(args: &Columns, row: usize, argument: usize) -> u64 {
    let times = args.integer(argument, row).unwrap_or(0);
    u64::try_from(times).unwrap_or(0)
}

fn count(text: &str, part: &str) -> u64 {
    memchr::memmem::find_iter(text.as_bytes(), part).count() as u64
}

fn padded(args: &Columns, row: usize) -> u64 {
    let is_plain = |argument| args.text(argument, row).is_none_or(str::is_ascii);
    let width = if is_plain(0) && is_plain(2) {
        1
    } else {
        CHARACTER_BYTES
    };
    times(args, row, 1).saturating_mul(width)
}

/// `replace(text, from, to)`: counted only where it could be too much.
fn replaced(args: &Columns, row: usize) -> u64 {
    let (Some(text), Some(from), Some(to)) = (args.text(0, row), args.text(1, row), args.text(2, row)) else {
        return length(args, 0, row);
    };
    let length = text.len() as u64;
    let size = |times: u64| length.saturating_add(times.saturating_mul(to.len() as u64));
    if from.is_empty() {
        return size(length + 1);
    }
    match size(length / from.len() as u64) {
        possible if possible <= SEEN_BYTES => possible,
        _ => size(count(text, from)),
    }
}

/// What is not looked at any closer.
const SEEN_BYTES: u64 = 64 << 10;

/// `regexp_replace(text, pattern, to, flags)`: as often as the pattern matches, each time with what groups have matched.
fn replaced_by_pattern(args: &Columns, row: usize) -> u64 {
    let (Some(text), Some(pattern), Some(to)) = (args.text(0, row), args.text(1, row), args.text(2, row))
    else {
        return length(args, 0, row);
    };
    let flags = args.text(3, row).unwrap_or("");
    let length = text.len() as u64;
    // A group matches parts of the text that do not overlap: one reference brings in the text once at most.
    let groups = (count(to, "\\") + count(to, "$")).saturating_add(1);
    let size = |times: u64| {
        let replacements = times.saturating_mul(to.len() as u64);
        groups.saturating_mul(length).saturating_add(replacements)
    };
    if !flags.contains('g') {
        return size(1);
    }
    match size(length + 1) {
        possible if possible <= SEEN_BYTES => possible,
        possible => matches(text, pattern, flags).map_or(possible, size),
    }
}

/// How often a pattern matches; none if it is no pattern, which is an error of its own.
fn matches(text: &str, pattern: &str, flags: &str) -> Option<u64> {
    let flags: String = flags.chars().filter(|flag| *flag != 'g').collect();
    let args = [
        ScalarValue::from(text),
        ScalarValue::from(pattern),
        ScalarValue::Int64(Some(1)),
        ScalarValue::from(flags),
    ];
    let field = |data_type| Arc::new(Field::new("", data_type, true));
    let arg_fields = args.iter().map(|value| field(value.data_type())).collect();
    let counted = regexp_count().invoke_with_args(ScalarFunctionArgs {
        args: args.into_iter().map(ColumnarValue::Scalar).collect(),
        arg_fields,
        number_rows: 1,
        return_field: field(DataType::Int64),
        config_options: Arc::new(ConfigOptions::default()),
    });
    match scalar(counted) {
        Some(ScalarValue::Int64(Some(count))) => u64::try_from(count).ok(),
        _ => None,
    }
}

fn scalar(value: Result<ColumnarValue>) -> Option<ScalarValue> {
    match value.ok()? {
        ColumnarValue::Scalar(value) => Some(value),
        ColumnarValue::Array(values) => ScalarValue::try_from_array(&values, 0).ok(),
    }
}

/// Elements of a series of numerics, whose ends and step have one scale.
fn numerics(args: &Columns, row: usize) -> Option<u64> {
    let number = |argument: usize| {
        let (values, row) = args.value(argument, row)?;
        let DataType::Decimal128(_, scale) = values.data_type() else {
            return None;
        };
        let number = values.as_primitive::<Decimal128Type>().value(row);
        Some((number, *scale))
    };
    let ((from, scale), (to, _)) = (number(0)?, number(1)?);
    let step = match args.len() {
        2 => 10_i128.checked_pow(u32::try_from(scale).ok()?)?,
        _ => number(2)?.0,
    };
    if step == 0 || (step > 0) != (to >= from) {
        return Some(1);
    }
    let steps = to.abs_diff(from) / step.unsigned_abs();
    Some(u64::try_from(steps).unwrap_or(u64::MAX).saturating_add(1))
}

/// Elements of a series, or a few more.
fn series(args: &Columns, row: usize) -> Option<u64> {
    let (from, to, step) = match args.len() {
        1 => (0, args.integer(0, row)?, 1),
        2 => (place(args, 0, row)?, place(args, 1, row)?, 1),
        _ => match args.integer(2, row) {
            Some(step) => (args.integer(0, row)?, args.integer(1, row)?, step),
            None => (
                place(args, 0, row)?,
                place(args, 1, row)?,
                nanoseconds(args.value(2, row)?)?,
            ),
        },
    };
    // No step is an error of its own, and a step away from the end makes nothing.
    if step == 0 || (step > 0) != (to >= from) {
        return Some(1);
    }
    Some((to.abs_diff(from) / step.unsigned_abs()).saturating_add(1))
}

/// A bound of a series: a number, or a time in nanoseconds.
fn place(args: &Columns, argument: usize, row: usize) -> Option<i64> {
    if let Some(number) = args.integer(argument, row) {
        return Some(number);
    }
    let (values, row) = args.value(argument, row)?;
    let micros = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
    let one = arrow::compute::cast(&values.slice(row, 1), &micros).ok()?;
    let one = arrow::compute::cast(&one, &DataType::Int64).ok()?;
    let one = one.as_any().downcast_ref::<arrow::array::Int64Array>()?;
    one.is_valid(0).then(|| one.value(0).saturating_mul(1_000))
}

/// How long an interval is at least.
fn nanoseconds((values, row): (&ArrayRef, usize)) -> Option<i64> {
    let whole = DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano);
    let step = arrow::compute::cast(&values.slice(row, 1), &whole).ok()?;
    let step = step.as_primitive::<IntervalMonthDayNanoType>().value(0);
    let days = i64::from(step.months) * 28 + i64::from(step.days);
    let nanoseconds = days.saturating_mul(86_400_000_000_000);
    Some(nanoseconds.saturating_add(step.nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(name: &str, args: &[ScalarValue]) -> u64 {
        let args: Vec<ColumnarValue> = args.iter().cloned().map(ColumnarValue::Scalar).collect();
        let columns = Columns::new(&args).unwrap();
        of(name).sizes(&columns, 1, &DataType::Utf8).largest
    }

    fn text(text: &str) -> ScalarValue {
        ScalarValue::from(text)
    }

    fn number(number: i64) -> ScalarValue {
        ScalarValue::Int64(Some(number))
    }

    #[test]
    fn sizes_follow_the_arguments() {
        assert_eq!(size("repeat", &[text("abc"), number(5)]), 15);
        assert_eq!(size("repeat", &[text(""), number(i64::MAX)]), 0);
        assert_eq!(size("repeat", &[text("abc"), number(i64::MAX)]), u64::MAX);
        assert_eq!(size("repeat", &[text("x"), ScalarValue::Int64(None)]), 0);
        assert_eq!(size("lpad", &[text("x"), number(-1)]), 0);
        assert_eq!(size("rpad", &[text("x"), number(7), text("ä")]), 28);
        assert_eq!(
            size("generate_series", &[number(i64::MIN), number(i64::MAX)]),
            u64::MAX
        );
        assert_eq!(size("range", &[number(9), number(1), number(-2)]), 5 * 8);
        assert_eq!(size("range", &[number(1), number(9), number(-2)]), 8);
        let numeric = |value: i128| ScalarValue::Decimal128(Some(value), 38, 1);
        for (ends, count) in [
            (vec![numeric(10), numeric(95)], 9),
            (vec![numeric(10), numeric(95), numeric(5)], 18),
            (vec![numeric(95), numeric(10), numeric(-10)], 9),
            (vec![numeric(95), numeric(10)], 1),
            (vec![numeric(95), ScalarValue::Decimal128(None, 38, 1)], 0),
        ] {
            assert_eq!(size("generate_series", &ends), count * 16, "{ends:?}");
        }
        let widest = [numeric(i128::MIN), numeric(i128::MAX), numeric(1)];
        assert_eq!(size("generate_series", &widest), u64::MAX);
    }

    #[test]
    fn replacements_are_counted_where_they_could_be_many() {
        let long = "a".repeat(100_000);
        let to = "b".repeat(10_000);
        assert_eq!(
            size("replace", &[text(&long), text("a"), text(&to)]),
            100_000 * 10_001
        );
        assert_eq!(size("replace", &[text(&long), text("c"), text(&to)]), 100_000);
        assert_eq!(
            size("replace", &[text(&long), text(""), text(&to)]),
            100_000 + 100_001 * 10_000
        );
        let of = |pattern: &str, flags: &str| {
            size(
                "regexp_replace",
                &[text(&long), text(pattern), text(&to), text(flags)],
            )
        };
        assert!(of("a", "g") >= 100_000 * 10_000);
        assert!(of("c", "g") < 200_000);
        assert!(of("a", "") < 200_000);
        assert!(
            size(
                "regexp_replace",
                &[text(&long), text("(a*)"), text(&"\\1".repeat(10_000)), text("")]
            ) >= 1_000_000_000
        );
    }

    #[test]
    fn exponents_count_as_the_digits_that_they_are() {
        assert_eq!(size("jsonb_typeof", &[text("[1, 2]")]), 12);
        assert_eq!(
            size("pg_cast", &[text("[1e500,-2.5E-300]"), text("jsonb")]),
            34 + 800
        );
        assert_eq!(size("pg_cast", &[text("{\"one\": \"e9\"}"), text("jsonb")]), 26);
        assert!(size("jsonb_get", &[text("1e99999999999999999999"), text("a")]) > 1_000_000);
    }

    #[test]
    fn what_is_not_named_is_the_sum() {
        let sum = size("a_function_of_tomorrow", &[text("abc"), text("de")]);
        assert!((5..40).contains(&sum), "{sum}");
        assert!(
            size(
                "array_to_string",
                &[number(1), text("x"), ScalarValue::Utf8(None)]
            ) < 100
        );
    }
}
