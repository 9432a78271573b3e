//! Functions that PostgreSQL has and DataFusion has not, and the rewriting of PostgreSQL's spellings into DataFusion's.
//!
//! ```text
//!   sql ── what is rewritten in a statement, and in its plan      registry ── which functions there are
//!    │                                                              │
//!    └── arrays, regex, cast, datetime, jsonb, format, numeric, text, ... ── the functions
//!          syntax, in_plans, arguments ── tools                   bounded ── limits around every function
//! ```
//!
//! It knows no catalog and no session: what depends on them is replaced or registered by the layers above.
//!
//! | module | what |
//! |---|---|
//! | [`sql`] | from PostgreSQL's spellings to DataFusion's, in syntax trees and in bound plans |
//! | [`cast`] | `pg_cast`: casts with PostgreSQL's inputs, rounding and errors |
//! | [`operators`] | operators chosen by the types of their sides: jsonb, intervals, dates, arrays |
//! | [`jsonb`] | the functions over json and jsonb |
//! | [`zoned_shift`] | `timestamptz + interval` in the time zone of the session |
//! | [`date_part`] | `date_part`, EXTRACT |
//! | `date_bin`, [`date_trunc`] | `date_bin`, `date_trunc` |
//! | `clock` | `clock_timestamp` |
//! | [`datetime`] | scaling and comparing intervals, `age`, `AT TIME ZONE`, `OVERLAPS` |
//! | [`padded`] | char(n) where its padding counts |
//! | [`arrays`] | subscripts, slices, `unnest`, `@>`, `&&` |
//! | [`length`] | `length`, `array_length` |
//! | [`system`] | `version()`, `pg_typeof`, `pg_sleep`, the visibility and size functions that clients ask |
//! | [`arithmetic`] | integer operators that fail on overflow, literals beside typed expressions |
//! | `ranking` | the types of `row_number` and the like; `ntile` |
//! | `shifted` | `lag` and `lead` |
//! | `integers` | `gcd`, `lcm`, `exp` |
//! | `alike` | `coalesce` and its like over uuid and jsonb |
//! | [`division`] | division of floats and numerics |
//! | [`numeric`] | rounding, logarithms, powers, `width_bucket` |
//! | [`series`] | `generate_series` of numbers |
//! | [`sum`] | sums of integers that fail on overflow |
//! | `exclusions` | frames of windows with EXCLUDE |
//! | `average` | `avg` |
//! | `numeric_average` | averages of numerics |
//! | `interval_sum` | sums and averages of intervals |
//! | `float_frames` | `sum` and `avg` of floats over frames that move |
//! | [`regex`] | regular expressions, SIMILAR TO, `substring` |
//! | [`text`] | `format`, quoting, lengths |
//! | `format` | `to_char`, `to_number` |
//! | `by_row` | functions told by what they do with a row's values: `encode`, `unistr`, `parse_ident` |
//! | `scale`, `buckets`, `trim_array` | `scale`, `trim_scale`; `width_bucket` of an array; `trim_array` |
//! | `text_or_bytes` | trims, `position` and `overlay` of bytes |
//! | [`bounded`] | limits on what functions make, and on how long they take |
//! | [`by_pattern`] | `to_date`, `to_timestamp` by a pattern |
//!
//! Not there yet: the `*_populate_record` and `jsonb_path_*` families, text
//! search, ranges, and functions over large objects.

mod alike;
mod arguments;
pub mod arithmetic;
pub mod arrays;
mod average;
pub mod bounded;
mod buckets;
pub mod by_pattern;
mod by_row;
mod bytes;
pub mod cast;
mod clock;
mod date_bin;
pub mod date_part;
pub mod date_trunc;
pub mod datetime;
mod digits;
pub mod division;
pub mod domain;
pub mod encoding;
pub mod enums;
pub mod exclusions;
mod float_frames;
pub mod format;
mod grouped;
mod in_plans;
mod integers;
mod interval_sum;
pub mod jsonb;
pub mod length;
mod made_times;
mod names;
pub mod numeric;
mod numeric_average;
pub mod operators;
pub mod ordered_set;
pub mod own;
pub mod padded;
mod quoted;
mod ranking;
pub mod records;
pub mod regex;
pub mod registry;
mod scale;
pub mod series;
mod shifted;
mod spread;
pub mod sql;
pub mod sum;
pub mod syntax;
pub mod system;
pub mod text;
mod text_or_bytes;
mod trigonometry;
mod trim_array;
pub mod unknown;
mod without;
pub mod zoned_shift;
