//! `mr_catalog.views` and `.unbounded_state`: materialized views, and their operators whose state grows without bound.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use millrace_catalog::Object;
use millrace_database::Database;
use millrace_planner::growth::GrowingState;
use millrace_postgres::from_internal::view_message;
use millrace_storage::ObjectId;

use super::{Columns, numbers, texts};

/// One row a materialized view: its size, how often an expression of it failed, and why it failed, if it did.
pub(super) fn views(database: &Database) -> Columns {
    let catalog = database.catalog();
    let mut views = database.runtime().views();
    for view in &mut views {
        // It may have been renamed since it was made.
        if let Some(object) = catalog.object(ObjectId(view.relation.0)) {
            view.name = object.name.clone();
        }
    }
    let optional = |values: Vec<Option<String>>| -> ArrayRef { Arc::new(StringArray::from(values)) };
    vec![
        ("relation", numbers(views.iter().map(|view| view.relation.0))),
        ("name", texts(views.iter().map(|view| view.name.clone()))),
        ("rows", numbers(views.iter().map(|view| view.rows as u64))),
        (
            "state_bytes",
            numbers(views.iter().map(|view| view.state_bytes as u64)),
        ),
        (
            "on_disk_bytes",
            numbers(views.iter().map(|view| view.on_disk_bytes as u64)),
        ),
        (
            "expression_errors",
            numbers(views.iter().map(|view| view.expression_errors)),
        ),
        (
            "last_expression_error",
            optional(
                views
                    .iter()
                    .map(|view| view.last_expression_error.as_deref().map(view_message))
                    .collect(),
            ),
        ),
        (
            "failure",
            optional(
                views
                    .iter()
                    .map(|view| view.failure.as_deref().map(view_message))
                    .collect(),
            ),
        ),
    ]
}

/// One row an operator of a materialized view whose state grows without bound.
pub(super) fn unbounded_state(database: &Database) -> Columns {
    let catalog = database.catalog();
    let growing: Vec<(&Object, &GrowingState)> = catalog
        .objects()
        .filter_map(|object| Some((object.as_ref(), object.relation()?)))
        .flat_map(|(object, relation)| relation.growth.state.iter().map(move |state| (object, state)))
        .collect();
    vec![
        ("relation", numbers(growing.iter().map(|(object, _)| object.id.0))),
        (
            "name",
            texts(growing.iter().map(|(object, _)| object.name.clone())),
        ),
        (
            "operator",
            texts(growing.iter().map(|(_, state)| state.operator.clone())),
        ),
        (
            "keeps",
            texts(growing.iter().map(|(_, state)| state.keeps.clone())),
        ),
        (
            "stream",
            texts(growing.iter().map(|(_, state)| state.stream.clone())),
        ),
    ]
}
