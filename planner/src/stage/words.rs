//! How operators put their parts into words: for EXPLAIN, by name; for the identity of their state, by position.

use std::fmt::Write;

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::expressions::Column;

use super::closing::Closing;

pub(crate) fn names(schema: &SchemaRef, positions: &[usize]) -> String {
    let names: Vec<&str> = positions
        .iter()
        .map(|position| schema.field(*position).name().as_str())
        .collect();
    format!("({})", names.join(", "))
}

pub(super) fn columns(schema: &SchemaRef) -> String {
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    format!("[{}]", names.join(", "))
}

pub(super) fn order(schema: &SchemaRef, order_by: &[(usize, SortOptions)]) -> String {
    let shown: Vec<String> = order_by
        .iter()
        .map(|(column, options)| {
            let direction = if options.descending { " DESC" } else { "" };
            format!("{}{direction}", schema.field(*column).name())
        })
        .collect();
    format!("({})", shown.join(", "))
}

/// By what rows become final, after which their state is forgotten.
pub(super) fn closes(closing: Option<&Closing>) -> String {
    closing.map_or(String::new(), |closing| {
        format!(", closes by {}", closing_value(closing))
    })
}

/// The value by which rows become final.
pub(super) fn closing_value(closing: &Closing) -> String {
    let column = closing.value.downcast_ref::<Column>();
    column.map_or_else(|| closing.value.to_string(), |column| column.name().to_owned())
}

/// `k = k`, for each pair of keys.
pub(super) fn key_pairs(left: &SchemaRef, right: &SchemaRef, keys: &[(usize, usize)]) -> String {
    let pairs: Vec<String> = keys
        .iter()
        .map(|(l, r)| format!("{} = {}", left.field(*l).name(), right.field(*r).name()))
        .collect();
    format!("({})", pairs.join(", "))
}

pub(super) fn outer(is_outer: bool) -> &'static str {
    if is_outer { "Left" } else { "Inner" }
}

/// An order, for the identity of a state.
pub(super) fn state_order(columns: &[(usize, SortOptions)]) -> String {
    let columns = columns.iter().map(|(column, options)| {
        let direction = if options.descending { "desc" } else { "asc" };
        let nulls = if options.nulls_first { " nulls first" } else { "" };
        format!("{column} {direction}{nulls}")
    });
    columns.collect::<Vec<_>>().join(", ")
}

/// What is set of these, for the identity of a state.
pub(super) fn flags(text: &mut String, flags: &[(bool, &str)]) {
    for (_, name) in flags.iter().filter(|(is_set, _)| *is_set) {
        let _ = write!(text, ", {name}");
    }
}
