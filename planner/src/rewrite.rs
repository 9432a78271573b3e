//! Queries in forms that DataFusion answers rightly and that views can maintain: the same for a SELECT and for a view.
//!
//! ```text
//!  AST --syntax--> AST --binder (relations planned by `relations`)--> logical plan --subquery--> logical plan
//! ```
//! * [`syntax`]: set-returning functions in FROM, `EXCEPT ALL` and `INTERSECT ALL`, comparisons with ALL.
//! * [`names`]: what names mean: joins with USING and NATURAL, what is ambiguous or hidden, aliases and numbers of the select list.
//! * [`aggregate_order`]: aggregates that are ordered by one expression twice.
//! * [`windows`]: TUMBLE, HOP and CUMULATE.
//! * [`relations`]: how the relations that [`syntax`] names are planned.
//! * [`subquery`], with [`dependent`], [`row_wise`] and [`membership`]: LATERAL, and the subqueries in expressions that DataFusion cannot plan or answers wrongly, as joins.

mod aggregate_order;
mod bind;
mod dependent;
mod membership;
mod names;
mod native;
mod relations;
mod row_wise;
mod single_value;
mod subquery;
mod syntax;
mod windows;

pub(crate) use aggregate_order::ordered_once;
pub(crate) use relations::planners;
pub(crate) use subquery::{decorrelate, single_rows};
pub(crate) use syntax::{Names, statement};
pub(crate) use windows::function as window_function;
