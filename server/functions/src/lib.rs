//! Functions that PostgreSQL has and DataFusion has not, and the rewriting of PostgreSQL's spellings into DataFusion's.
//!
//! ```text
//!   rewrite ── syntax trees, before they are bound        registry ── which functions there are
//!     └── literals, quantified, row_values, ...              └── cast, jsonb, regex, format, ...
//!   comparisons, equality, bound, type_check ── plans, once they are bound
//!   bounded ── limits around every function
//! ```
//!
//! It knows no catalog and no session: what depends on them is replaced or registered by the layers above.
//!
//! | module | what |
//! |---|---|
//! | [`rewrite`] | the AST, before it is bound: casts, operators and names of functions |
//! | [`column_names`] | what columns are called that a query does not name |
//! | [`cancel`] | `pg_cancel_backend`, `pg_terminate_backend` |
//! | [`cast`] | `pg_cast`: casts with PostgreSQL's inputs, rounding and errors |
//! | [`operators`] | operators chosen by the types of their sides: jsonb, intervals, dates, arrays |
//! | [`jsonb`] | the functions over json and jsonb |
//! | [`sort_key`] | ORDER BY of jsonb and interval |
//! | [`equality`] | groups, sets and joins of jsonb and interval by value |
//! | [`zoned_cast`] | casts in the time zone of the session |
//! | [`zoned_shift`] | `timestamptz + interval` in the time zone of the session |
//! | [`date_part`] | `date_part`, EXTRACT |
//! | [`date_trunc`] | `date_trunc` |
//! | [`datetime`] | scaling and comparing intervals, `age`, `AT TIME ZONE`, `OVERLAPS` |
//! | [`bound`] | what is replaced in a bound plan |
//! | [`padded`] | char(n) where its padding counts |
//! | [`arrays`] | subscripts, slices, `unnest`, `@>`, `&&` |
//! | [`length`] | `length`, `array_length` |
//! | [`system`] | `version()`, `pg_typeof`, `pg_sleep`, the visibility and size functions that clients ask |
//! | [`arithmetic`] | integer operators that fail on overflow, literals beside typed expressions |
//! | [`comparisons`] | literals in IN and BETWEEN |
//! | [`quantified`] | comparisons with ANY and ALL of an array; `ARRAY(SELECT ..)` |
//! | [`row_values`] | comparisons of rows |
//! | [`type_check`] | types that are not brought together |
//! | [`ranking`] | the types of `row_number` and the like |
//! | [`division`] | division of floats and numerics |
//! | [`literals`] | the types of literals, found in the AST |
//! | [`numeric`] | rounding, logarithms, powers, `width_bucket` |
//! | [`sum`] | sums of integers that fail on overflow |
//! | [`regex`] | regular expressions, SIMILAR TO, `substring` |
//! | [`text`] | `format`, quoting, lengths |
//! | [`format`] | `to_char`, `to_number` |
//! | [`bounded`] | limits on what functions make, and on how long they take |
//! | [`by_pattern`] | `to_date`, `to_timestamp` by a pattern |
//!
//! Not there yet: the `*_populate_record` and `jsonb_path_*` families, text
//! search, ranges, and functions over large objects.

mod arguments;
pub mod arithmetic;
pub mod arrays;
pub mod bound;
pub mod bounded;
pub mod by_pattern;
pub mod cast;
pub mod column_names;
pub mod comparisons;
pub mod date_part;
pub mod date_trunc;
pub mod datetime;
pub mod division;
pub mod equality;
pub mod format;
mod in_plans;
pub mod jsonb;
pub mod length;
pub mod literals;
pub mod numeric;
pub mod operators;
pub mod ordered_set;
pub mod padded;
pub mod quantified;
mod ranking;
pub mod regex;
pub mod registry;
pub mod rewrite;
mod row_values;
pub mod sort_key;
pub mod sum;
pub mod syntax;
pub mod system;
pub mod text;
pub mod type_check;
mod without;
pub mod zoned_cast;
pub mod zoned_shift;
