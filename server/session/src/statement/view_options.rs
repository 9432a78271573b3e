//! `WITH (freshness = '50 ms', on_error = 'skip', ..)`: the options of a view.

use datafusion::sql::sqlparser::ast::{CreateTableOptions, SqlOption};
use millrace_catalog::QueryDef;
use millrace_catalog::connector::options::length;
use millrace_catalog::flow::FlowDef;
use millrace_parser::ast::{OptionEntry, Options};
use millrace_planner::{OnError, Priority};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::query::view_flow;
use crate::session::Session;

/// Refuses options of a view that is not materialized.
pub(super) fn refuse_options(options: &CreateTableOptions) -> SqlResult<()> {
    let (CreateTableOptions::With(options)
    | CreateTableOptions::Options(options)
    | CreateTableOptions::Plain(options)
    | CreateTableOptions::TableProperties(options)) = options
    else {
        return Ok(());
    };
    let Some(option) = options.first() else {
        return Ok(());
    };
    let name = match option {
        SqlOption::KeyValue { key, .. } | SqlOption::Ident(key) => millrace_parser::fold(key),
        other => other.to_string(),
    };
    Err(
        SqlError::unsupported(format!("option \"{name}\" of a view is not supported"))
            .with_hint("A view that is not materialized has no options."),
    )
}

/// What the options of a view say.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ViewOptions {
    /// How much of it may be in flight.
    flow: FlowDef,
    pub priority: Priority,
    /// How old what readers see may be, in microseconds.
    freshness_us: Option<u64>,
    on_error: OnError,
    /// It was said, and the view goes on: the rows are kept.
    pub keeps_errors: bool,
    /// For how long it can be read as it was, in milliseconds.
    pub history_ms: Option<i64>,
}

impl ViewOptions {
    /// The query of a view with these options.
    pub fn apply(self, query: QueryDef) -> QueryDef {
        query
            .with_flow(self.flow)
            .with_priority(self.priority)
            .with_freshness(self.freshness_us)
            .with_on_error(self.on_error, self.keeps_errors)
            .with_history(self.history_ms)
    }
}

/// What the options of a view say, and where they say nothing the session's settings.
///
/// # Errors
/// An option is not known, or has a value that it cannot have.
pub(super) fn options(session: &Session, options: &Options) -> SqlResult<ViewOptions> {
    let mut found = ViewOptions {
        flow: view_flow(session)?,
        ..ViewOptions::default()
    };
    for option in &options.0 {
        let name = option.name.value.as_str();
        if name == "priority" {
            found.priority = [Priority::Stream, Priority::Batch]
                .into_iter()
                .find(|priority| option.value.eq_ignore_ascii_case(priority.name()))
                .ok_or_else(|| invalid(option).with_hint("The priorities are stream and batch."))?;
        } else if name == "on_error" {
            found.on_error = OnError::ALL
                .into_iter()
                .find(|on_error| option.value.eq_ignore_ascii_case(on_error.name()))
                .ok_or_else(|| invalid(option).with_hint("It can be 'null', 'skip' or 'fail'."))?;
            found.keeps_errors = found.on_error != OnError::Fail;
        } else if name == "freshness" {
            found.freshness_us = Some(freshness(option)?);
        } else if name == "history" {
            let micros = length(&option.value).ok().filter(|micros| *micros >= 1_000);
            let micros = micros.ok_or_else(|| invalid(option).with_hint("Give a time, such as '1 hour'."))?;
            found.history_ms = Some(micros / 1_000);
        } else if !found.flow.set(name, &option.value)? {
            return Err(
                SqlError::unsupported(format!("option \"{name}\" is not supported")).with_hint(
                    "The options of a materialized view are freshness, history, on_error, priority, \
                     flow_batches and flow_batch_rows.",
                ),
            );
        }
    }
    Ok(found)
}

fn invalid(option: &OptionEntry) -> SqlError {
    let message = format!(
        "invalid value for option \"{}\": \"{}\"",
        option.name.value, option.value
    );
    SqlError::new(SqlState::InvalidParameterValue, message)
}

/// Microseconds of a target for freshness; 0: as fresh as can be. A number alone is none: it might be seconds or milliseconds.
///
/// # Errors
/// 22023.
pub(super) fn freshness(option: &OptionEntry) -> SqlResult<u64> {
    const SHORTEST: u64 = 1_000;
    const LONGEST: u64 = 3_600_000_000;
    let has_unit = option.value.trim().parse::<f64>().is_err();
    let us = length(&option.value).ok().and_then(|us| u64::try_from(us).ok());
    us.filter(|us| *us == 0 || (has_unit && (SHORTEST..=LONGEST).contains(us)))
        .ok_or_else(|| {
            invalid(option)
                .with_hint("Give a time from 1 ms to 1 hour, such as '50 ms'; '0': as fresh as can be.")
        })
}
