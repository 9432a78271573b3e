//! Forecasts of queries, kept beside what they took (`mr_catalog.forecasts`). Those of new views are `statement/new_views`'.
//!
//! A query is forecast when it has ended, by its plan and by the runs that were analysed before: what EXPLAIN (PREDICT) would have said.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_plan::ExecutionPlan;
use futures::Stream;
use millrace_clarity::forecast::calibration::Outcome;
use millrace_clarity::forecast::cardinality::{partitions, planned_operators};
use millrace_clarity::forecast::query::{Forecast, Rates, forecast};
use millrace_clarity::probe::slowness;
use millrace_database::Database;
use millrace_database::database::forecasts::{FORECAST_MIN, Kind};
use millrace_engine::scanned_rows;
use millrace_storage::ObjectId;

use crate::call::Awaited;
use crate::session::Session;

/// The forecast of a plan. Runs of the same text count alone.
pub(crate) fn of_plan(
    database: &Database,
    query_text: &str,
    plan: &Arc<dyn ExecutionPlan>,
    planning: u64,
) -> Forecast {
    let recent = database.profiles().all();
    let same: Vec<_> = recent.iter().filter(|run| run.query == query_text).collect();
    let rates = match same.is_empty() {
        true => Rates::of(recent.iter().map(|run| &run.profile), slowness()),
        false => Rates::of(same.iter().map(|run| &run.profile), slowness()),
    };
    let scanned = |leaf: &dyn ExecutionPlan| scanned_rows(leaf).map(|rows| rows as f64);
    let operators = planned_operators(plan.as_ref(), &rates, &scanned);
    let partitions = partitions(plan.as_ref());
    let mut found = forecast(&operators, &rates, database.cores(), partitions, planning);
    let kept = database.forecasts();
    (found.time, found.certainty) = kept.calibrated(Kind::Query, query_text, found.time, found.certainty);
    found
}

/// A time in nanoseconds.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The rows of a query, whose forecast is kept when it has ended.
pub(crate) struct Followed {
    rows: SendableRecordBatchStream,
    plan: Arc<dyn ExecutionPlan>,
    db: Arc<Database>,
    text: String,
    role: ObjectId,
    awaited: Awaited,
}

impl Followed {
    /// Follows a query of a session.
    pub fn new(
        session: &Session,
        role: ObjectId,
        plan: Arc<dyn ExecutionPlan>,
        rows: SendableRecordBatchStream,
    ) -> Self {
        Followed {
            rows,
            plan,
            db: Arc::clone(session.database()),
            text: session.statement_shown(),
            role,
            awaited: Awaited::default(),
        }
    }
}

impl Stream for Followed {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Followed { rows, awaited, .. } = &mut *self;
        let Poll::Ready(next) = awaited.poll(rows, context) else {
            return Poll::Pending;
        };
        let took = awaited.took;
        // One that fails or is ended before its end took what it took for other reasons.
        if next.is_none() && took >= FORECAST_MIN {
            let said = of_plan(&self.db, &self.text, &self.plan, 0);
            keep(&self.db, &self.text, self.role, &said, nanoseconds(took));
            self.awaited.took = Duration::ZERO;
        }
        Poll::Ready(next)
    }
}

impl RecordBatchStream for Followed {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

/// Keeps what became of the forecast of a query.
pub(crate) fn keep(db: &Database, text: &str, role: ObjectId, said: &Forecast, took: u64) {
    let outcome = Outcome {
        time: said.time,
        certainty: said.certainty,
        took,
    };
    db.forecasts().keep(Kind::Query, text, role, said.runs, outcome);
}
