//! From PostgreSQL's SQL to DataFusion's: what is rewritten in a statement, and why a plan is looked at again once it is bound.
//!
//! | module | looks at | what |
//! |---|---|---|
//! | [`rewrite`] | the syntax tree | casts, operators and names of functions; calls the others |
//! | `calls` | the syntax tree | calls of functions |
//! | `call_clauses` | the syntax tree | DISTINCT, FILTER, OVER and arguments that a function does not take |
//! | [`literals`] | the syntax tree | the types of literals |
//! | [`quantified`] | the syntax tree | comparisons with ANY and ALL of an array; `ARRAY(SELECT ..)` |
//! | `row_values` | the syntax tree | comparisons of rows |
//! | `hypothetical` | the syntax tree | `rank(x) WITHIN GROUP (ORDER BY y)` |
//! | `json_aggregates` | the syntax tree | `jsonb_agg`, `jsonb_object_agg` |
//! | `set_returning`, `rows_from` | the syntax tree | functions in FROM |
//! | [`set_places`] | the syntax tree | where set-returning functions may not stand |
//! | `search` | the syntax tree | SEARCH and CYCLE of WITH RECURSIVE |
//! | `with_ties` | the syntax tree | FETCH FIRST .. WITH TIES |
//! | [`column_names`] | the syntax tree | what columns are called that a query does not name |
//! | [`alike_literals`] | the bound plan | literals in CASE, `coalesce` and the like |
//! | [`comparisons`] | the bound plan | literals beside what has a type only then, in IN and BETWEEN |
//! | [`equality`] | the bound plan | groups, sets and joins of jsonb and interval by value |
//! | `enum_arguments` | the bound plan | enums as arguments of functions |
//! | `named_types` | the syntax tree | types that somebody made |
//! | [`bound`] | the bound plan | functions and operators that PostgreSQL has otherwise |
//! | [`type_check`] | the bound plan | types that are not brought together |
//! | `extremes` | the bound plan | the least and the greatest of json |
//! | `stored_texts` | the bound plan | uuid, json and jsonb beside texts |
//! | [`sort_key`] | the bound plan | ORDER BY of jsonb and interval |
//! | [`output_types`] | the bound plan | what its columns are, where DataFusion's types forget it |
//! | [`zoned_cast`] | the bound plan | casts in the time zone of the session |
//!
//! It uses the functions beside it; none of these uses it.

pub mod alike_literals;
pub mod bound;
mod call_clauses;
mod calls;
pub mod clock_words;
pub mod column_names;
pub mod comparisons;
mod enum_arguments;
pub mod equality;
mod extremes;
mod hypothetical;
mod json_aggregates;
mod literal_inputs;
pub mod literals;
mod named_arguments;
pub mod named_types;
pub mod output_types;
pub mod quantified;
mod quoted_arguments;
pub mod rewrite;
mod row_values;
mod rows_from;
mod search;
pub mod set_places;
mod set_returning;
pub mod sort_key;
mod stored_texts;
pub mod type_check;
mod variadic;
mod window_bounds;
mod with_ties;
pub mod zoned_cast;
