//! Sessions: rows are exchanged by the keys, and each is given the first and the last moment of its session.

use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, lit};

use super::fragment::{Fragment, Part, Placement};
use super::lower::{Lowering, arrow_schema};
use super::session_window::SessionWindow;
use crate::error::{PlanError, Result};
use crate::stage::Output;
use crate::stage::closing::Closing;
use crate::stage::operator::Operator;
use crate::stage::session::Session;
use crate::watermark::ColumnWatermark;
use millrace_sql::streaming::windows::functions::function as window_function;

impl Lowering {
    pub(super) fn session(&mut self, session: &SessionWindow) -> Result<Fragment> {
        let fragment = self.node(&session.input)?;
        let width = fragment.schema.fields().len();
        let shift = window_function("$shift")
            .ok_or_else(|| PlanError::Internal("the function that shifts a time does not exist".into()))?;
        // In microseconds, whatever it was.
        let time = shift.call(vec![session.time.clone(), lit(0_i64)]);
        let wanted: Vec<&Expr> = session.keys.iter().chain([&time]).collect();
        let (fragment, mut keys) = self.with_columns(fragment, session.input.schema(), wanted.into_iter())?;
        let time = keys
            .pop()
            .ok_or_else(|| DataFusionError::Internal("sessions without a time".into()))?;
        let schema = arrow_schema(&session.schema);
        let input_append_only = fragment.append_only;
        let closes = Closing::by_first(
            fragment.watermarks.iter().filter(|known| known.column == time),
            &fragment.schema,
        );
        // A session to which a row can still come ends at the watermark or later.
        let watermarks = closes.iter().map(|closing| ColumnWatermark {
            column: width + 1,
            bound: closing.bound.clone(),
        });
        let watermarks = watermarks.collect();
        let (output, placement) = if keys.is_empty() {
            (Output::Single, Placement::Keyed)
        } else if keys.iter().all(|key| *key < width) {
            (Output::Hash(keys.clone()), Placement::Hash(keys.clone()))
        } else {
            (Output::Hash(keys.clone()), Placement::Keyed)
        };
        let exchanged = self.stages.exchange(fragment, output);
        let operator = Operator::Session(Box::new(Session {
            input: exchanged,
            keys,
            time,
            gap: session.gap,
            width,
            input_append_only,
            closes: closes.map(|closing| closing.bound),
            schema: Arc::clone(&schema),
        }));
        Ok(Fragment {
            parts: vec![Part { operator, placement }],
            append_only: false,
            key: None,
            watermarks,
            schema,
        })
    }
}
