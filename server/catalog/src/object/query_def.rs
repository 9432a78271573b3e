//! A view's query, its options, and how both are said.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use millrace_planner::{Emit, OnError, Priority};
use millrace_storage::ObjectId;

use super::QueryDef;
use crate::bound::BoundName;
use crate::flow::FlowDef;
use crate::temporary::is_temporary;

impl QueryDef {
    /// A query and what its names mean.
    pub fn new(text: impl Into<String>, search_path: Vec<String>, column_names: Vec<String>) -> Self {
        QueryDef {
            text: text.into(),
            search_path,
            column_names,
            names: vec![],
            emit: Emit::Changes,
            slides: true,
            flow: FlowDef::default(),
            priority: Priority::default(),
            freshness_us: None,
            on_error: OnError::default(),
            keeps_errors: false,
            history_ms: None,
            bound: OnceLock::new(),
        }
    }

    /// The same query, its names meaning this.
    #[must_use]
    pub fn with_names(&self, names: Vec<BoundName>) -> Self {
        QueryDef {
            names,
            emit: self.emit,
            slides: self.slides,
            flow: self.flow,
            priority: self.priority,
            freshness_us: self.freshness_us,
            on_error: self.on_error,
            keeps_errors: self.keeps_errors,
            history_ms: self.history_ms,
            ..QueryDef::new(
                self.text.clone(),
                // Nothing that lasts is over what goes with a session.
                (self.search_path.iter())
                    .filter(|schema| !is_temporary(schema))
                    .cloned()
                    .collect(),
                self.column_names.clone(),
            )
        }
    }

    /// The same query, whose rows are shown then.
    #[must_use]
    pub fn with_emit(self, emit: Emit) -> Self {
        QueryDef { emit, ..self }
    }

    /// The same query, overlapping windows put together from panes or not.
    #[must_use]
    pub fn with_slides(self, slides: bool) -> Self {
        QueryDef { slides, ..self }
    }

    /// The same query, with so much of it in flight.
    #[must_use]
    pub fn with_flow(self, flow: FlowDef) -> Self {
        QueryDef { flow, ..self }
    }

    /// The same query, its epochs so urgent.
    #[must_use]
    pub fn with_priority(self, priority: Priority) -> Self {
        QueryDef { priority, ..self }
    }

    /// The same query, what readers see being so old at most, in microseconds.
    #[must_use]
    pub fn with_freshness(self, freshness_us: Option<u64>) -> Self {
        QueryDef { freshness_us, ..self }
    }

    /// The same query, which does this with rows on which an expression fails, and keeps them or not.
    #[must_use]
    pub fn with_on_error(self, on_error: OnError, keeps_errors: bool) -> Self {
        QueryDef {
            on_error,
            keeps_errors,
            ..self
        }
    }

    /// The same query, which can be read as it was for so long.
    #[must_use]
    pub fn with_history(self, history_ms: Option<i64>) -> Self {
        QueryDef { history_ms, ..self }
    }

    /// The options of a materialized view, where they are not the defaults.
    pub(super) fn options_clause(&self) -> String {
        let batches = self.flow.batches.map(|batches| match batches {
            0 => "flow_batches = 'off'".to_owned(),
            batches => format!("flow_batches = {batches}"),
        });
        let rows = self
            .flow
            .batch_rows
            .map(|rows| format!("flow_batch_rows = {rows}"));
        let priority = self.priority;
        let priority = (priority != Priority::default()).then(|| format!("priority = '{}'", priority.name()));
        let on_error = self.on_error;
        let is_said = self.keeps_errors || on_error != OnError::default();
        let on_error = is_said.then(|| format!("on_error = '{}'", on_error.name()));
        let history = self
            .history_ms
            .map(|ms| format!("history = '{} seconds'", ms as f64 / 1e3));
        let freshness = self.freshness_us.map(|us| match us {
            us if us.is_multiple_of(1_000) => format!("freshness = '{} ms'", us / 1_000),
            us => format!("freshness = '{us} us'"),
        });
        let options = [freshness, history, on_error, priority, batches, rows];
        let options: Vec<String> = options.into_iter().flatten().collect();
        match options.is_empty() {
            true => String::new(),
            false => format!(" WITH ({})", options.join(", ")),
        }
    }

    /// The clause that says when rows are shown.
    pub(super) fn emit_clause(&self) -> String {
        let seconds = |micros: i64| micros as f64 / 1e6;
        match self.emit {
            Emit::Changes => String::new(),
            Emit::OnWindowClose { delay: 0 } => " EMIT ON WINDOW CLOSE".to_owned(),
            Emit::OnWindowClose { delay } => {
                format!(
                    " EMIT ON WINDOW CLOSE WITH DELAY INTERVAL '{} seconds'",
                    seconds(delay)
                )
            }
            Emit::Every(every) => format!(" EMIT EVERY INTERVAL '{} seconds'", seconds(every)),
        }
    }

    /// What it names directly, views as themselves.
    pub fn depends(&self) -> Vec<ObjectId> {
        let objects: BTreeSet<ObjectId> = self.names.iter().map(|name| name.object).collect();
        objects.into_iter().collect()
    }
}
