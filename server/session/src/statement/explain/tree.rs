//! A plan as JSON, in the form that PostgreSQL gives to `EXPLAIN (FORMAT JSON)`: a list with one object, whose `Plan` has `Plans`
//! below it. What the nodes are is our own.

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::displayable;
use millrace_postgres::error::{SqlError, SqlResult};
use serde_json::{Map, Value, json};

/// The lines of a plan of a query.
///
/// # Errors
/// It cannot be written, which no plan brings about.
pub(super) fn lines(plan: &dyn ExecutionPlan) -> SqlResult<Vec<String>> {
    let tree = json!([{ "Plan": node(plan) }]);
    let text = serde_json::to_string_pretty(&tree)
        .map_err(|error| SqlError::internal(format!("a plan as JSON: {error}")))?;
    Ok(vec![text])
}

fn node(plan: &dyn ExecutionPlan) -> Value {
    let line = displayable(plan).one_line().to_string();
    let (kind, detail) = match line.trim().split_once(':') {
        Some((kind, detail)) => (kind.to_owned(), detail.trim().to_owned()),
        None => (line.trim().to_owned(), String::new()),
    };
    let mut members = Map::new();
    members.insert("Node Type".to_owned(), Value::String(kind));
    if !detail.is_empty() {
        members.insert(
            "Detail".to_owned(),
            Value::String(super::unnested::as_written(&detail)),
        );
    }
    let below: Vec<Value> = plan.children().iter().map(|child| node(child.as_ref())).collect();
    if !below.is_empty() {
        members.insert("Plans".to_owned(), Value::Array(below));
    }
    Value::Object(members)
}
