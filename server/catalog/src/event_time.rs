//! A stream's event time as the catalog has it: `WATERMARK FOR column AS expression`, and the options that go with it.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast;
use millrace_engine::{EventTimeSpec, SetBack};
use millrace_functions::bounded::physical;
use millrace_functions::sql::rewrite;
use millrace_parser::ast::{Options, Watermark};
use millrace_planner::watermark::{Bound, ColumnWatermark, growing};
use millrace_planner::{Binder, RelationId};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_postgres::units;
use millrace_sql::CatalogReader;
use millrace_storage::ObjectId;
use serde::{Deserialize, Serialize};

use crate::connector::ConnectorDef;

/// After so much silence a partition is not waited for any more.
pub const IDLE_TIMEOUT: &str = "watermark.idle_timeout";
/// How much silence that is where nothing is said.
const IDLE_DEFAULT: Duration = Duration::from_secs(60);

/// How far ahead of the clock an event time may be, in microseconds, where nothing is said: a day. It lets wrong time zones pass, and keeps
/// one row of a year to come from closing every window and making all that follows late.
const FUTURE_SKEW: i64 = 86_400_000_000;

/// See the module.
#[derive(Debug, Clone)]
pub struct EventTimeDef {
    /// The column, by position.
    pub column: usize,
    /// The watermark that a row lets one assume, over the stream's columns.
    pub watermark: ast::Expr,
    /// How far ahead of the clock an event time may be, in microseconds.
    pub future_skew_max: Option<i64>,
    /// What becomes of late rows.
    pub late: Late,
    /// Somebody has set the watermark back.
    pub set_back: Option<SetBack>,
    /// How long a partition of its topic may be without records before it is not waited for any more.
    pub idle: Idle,
}

/// What `watermark.idle_timeout` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Idle {
    /// Nothing: a minute.
    #[default]
    Unsaid,
    /// Each partition is waited for, for as long as it takes.
    Off,
    /// So many microseconds.
    After(u64),
}

/// What becomes of late rows: they are counted, and
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Late {
    /// dropped.
    #[default]
    Dropped,
    /// kept in a stream of their own, which is made with the stream.
    Kept(Option<ObjectId>),
}

/// The lasting form.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredEventTime {
    column: usize,
    watermark: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    future_skew_max: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    late: Option<ObjectId>,
    /// The offset of the log at which the watermark was set back, and to what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    set_back: Option<(u64, i64)>,
    #[serde(default, skip_serializing_if = "Idle::is_unsaid")]
    idle: Idle,
}

impl Idle {
    fn is_unsaid(&self) -> bool {
        *self == Idle::Unsaid
    }
}

fn duration(option: &str, value: &str) -> SqlResult<Duration> {
    units::duration(value).map_err(|why| {
        SqlError::new(
            SqlState::InvalidParameterValue,
            format!("invalid value for option \"{option}\": {why}"),
        )
    })
}

impl EventTimeDef {
    /// What CREATE STREAM says: the clause, and its options, which are taken out of `options`.
    ///
    /// # Errors
    /// An option has a value that it cannot have, or is there without the clause.
    pub fn new(
        watermark: Option<&Watermark>,
        columns: &[String],
        options: &mut Options,
    ) -> SqlResult<Option<EventTimeDef>> {
        let connector = (options.0.iter())
            .find(|option| option.name.value.eq_ignore_ascii_case("connector"))
            .map(|option| option.value.clone());
        let is_generated = connector.as_deref().is_some_and(ConnectorDef::makes_rows);
        let has_partitions = connector.as_deref().is_some_and(ConnectorDef::has_partitions);
        // The event times of a generator have nothing to do with the clock.
        let mut future_skew_max = (!is_generated).then_some(FUTURE_SKEW);
        let mut late = Late::Dropped;
        let mut idle = Idle::Unsaid;
        let mut given = None;
        let mut left = vec![];
        for option in std::mem::take(&mut options.0) {
            let name = option.name.value.to_ascii_lowercase();
            let value = option.value.to_string();
            let value = value.trim_matches('\'');
            match name.as_str() {
                "watermark.max_future_skew" if value.eq_ignore_ascii_case("off") => future_skew_max = None,
                "watermark.max_future_skew" => {
                    let skew = duration(&name, value)?;
                    future_skew_max = Some(i64::try_from(skew.as_micros()).unwrap_or(i64::MAX));
                }
                IDLE_TIMEOUT if value.eq_ignore_ascii_case("off") => idle = Idle::Off,
                IDLE_TIMEOUT => {
                    let after = duration(&name, value)?.as_micros();
                    idle = Idle::After(u64::try_from(after).unwrap_or(u64::MAX));
                }
                "late" if value.eq_ignore_ascii_case("drop") => late = Late::Dropped,
                "late" if value.eq_ignore_ascii_case("stream") => late = Late::Kept(None),
                "late" => {
                    return Err(SqlError::new(
                        SqlState::InvalidParameterValue,
                        format!("invalid value for option \"late\": '{value}'"),
                    )
                    .with_hint("It can be 'drop' or 'stream'."));
                }
                _ => {
                    left.push(option);
                    continue;
                }
            }
            given = Some(name);
        }
        options.0 = left;
        let Some(watermark) = watermark else {
            return match given {
                Some(name) => Err(SqlError::new(
                    SqlState::InvalidTableDefinition,
                    format!("option \"{name}\" needs WATERMARK FOR"),
                )),
                None => Ok(None),
            };
        };
        let name = millrace_parser::fold(&watermark.column);
        let column = columns.iter().position(|column| *column == name).ok_or_else(|| {
            SqlError::new(
                SqlState::UndefinedColumn,
                format!("column \"{name}\" of the watermark does not exist"),
            )
        })?;
        Ok(Some(EventTimeDef {
            column,
            watermark: watermark.expr.clone(),
            future_skew_max,
            late,
            set_back: None,
            // Where there is one partition, which waits for no other, nothing is to be kept of this.
            idle: if has_partitions { idle } else { Idle::Unsaid },
        }))
    }

    /// What plans know of it.
    pub fn bound(&self, relation: RelationId, schema: &SchemaRef) -> ColumnWatermark {
        ColumnWatermark {
            column: self.column,
            bound: Bound::Stream {
                relation,
                data_type: schema.field(self.column).data_type().clone(),
                delay: 0,
            },
        }
    }

    /// What the runtime goes by.
    ///
    /// # Errors
    /// The column is no timestamp; the expression does not bind, is of another type, or goes back while the column goes on.
    pub fn spec(&self, state: &SessionState, schema: &SchemaRef) -> SqlResult<EventTimeSpec> {
        let invalid = |message: String| SqlError::new(SqlState::InvalidTableDefinition, message);
        let field = schema.field(self.column);
        let name = field.name();
        if !matches!(field.data_type(), DataType::Timestamp(..)) {
            return Err(invalid(format!(
                "column \"{name}\" of the watermark is of type {}, not timestamp or timestamptz",
                millrace_postgres::types::type_name(field)
            )));
        }
        let mut expression = self.watermark.clone();
        rewrite::expression(&mut expression)?;
        let columns = df(DFSchema::try_from(schema.as_ref().clone()))?;
        let bound = df(Binder::new(state, &NoRelations).expression(&expression, &columns))?;
        let watermark = df(physical(state, bound, &columns))?;
        if growing(&watermark, schema) != Some(self.column) {
            return Err(invalid(format!(
                "the watermark \"{}\" may decrease while column \"{name}\" increases",
                self.watermark
            ))
            .with_hint(format!(
                "Use the column, or the column minus a constant interval: {name} - INTERVAL '5 seconds'."
            )));
        }
        let watermark_type = df(watermark.data_type(schema))?;
        if !watermark_type.equals_datatype(field.data_type()) {
            return Err(invalid(format!(
                "the types of column \"{name}\" and its watermark differ"
            )));
        }
        Ok(EventTimeSpec {
            column: self.column,
            watermark,
            future_skew_max: self.future_skew_max,
            late: self.late_stream().map(|id| RelationId(id.0)),
            at_least: None,
            set_back: self.set_back,
            of_note: None,
        })
    }

    /// How long a partition may be without records before it is not waited for any more; `None`: for as long as it takes.
    pub fn idle_timeout(&self) -> Option<Duration> {
        match self.idle {
            Idle::Unsaid => Some(IDLE_DEFAULT),
            Idle::Off => None,
            Idle::After(micros) => Some(Duration::from_micros(micros)),
        }
    }

    /// The stream that keeps late rows.
    pub fn late_stream(&self) -> Option<ObjectId> {
        match self.late {
            Late::Kept(stream) => stream,
            Late::Dropped => None,
        }
    }

    /// As CREATE STREAM has it: the clause.
    pub fn clause(&self, schema: &SchemaRef) -> String {
        let name = millrace_parser::quote_identifier(schema.field(self.column).name()).to_string();
        format!("WATERMARK FOR {name} AS {}", self.watermark)
    }

    /// As CREATE STREAM has it: the options behind the columns.
    pub fn options(&self, is_generated: bool) -> Vec<String> {
        let skew = match self.future_skew_max {
            None if is_generated => None,
            None => Some("watermark.max_future_skew = 'off'".to_owned()),
            Some(FUTURE_SKEW) => None,
            Some(skew) => Some(format!("watermark.max_future_skew = '{skew}us'")),
        };
        let late = matches!(self.late, Late::Kept(_)).then(|| "late = 'stream'".to_owned());
        let idle = match self.idle {
            Idle::Unsaid => None,
            Idle::Off => Some(format!("{IDLE_TIMEOUT} = 'off'")),
            Idle::After(micros) => Some(format!("{IDLE_TIMEOUT} = '{micros}us'")),
        };
        skew.into_iter().chain(late).chain(idle).collect()
    }

    /// The lasting form.
    pub fn to_stored(&self) -> StoredEventTime {
        StoredEventTime {
            column: self.column,
            watermark: self.watermark.to_string(),
            future_skew_max: self.future_skew_max,
            late: self.late_stream(),
            set_back: self.set_back.map(|set| (set.offset, set.watermark)),
            idle: self.idle,
        }
    }

    /// From the lasting form.
    ///
    /// # Errors
    /// Its expression does not parse.
    pub fn from_stored(stored: &StoredEventTime) -> Result<EventTimeDef, String> {
        let watermark =
            millrace_parser::parse_expression(&stored.watermark).map_err(|error| error.message)?;
        Ok(EventTimeDef {
            column: stored.column,
            watermark,
            future_skew_max: stored.future_skew_max,
            late: stored
                .late
                .map_or(Late::Dropped, |stream| Late::Kept(Some(stream))),
            set_back: stored
                .set_back
                .map(|(offset, watermark)| SetBack { offset, watermark }),
            idle: stored.idle,
        })
    }
}

/// Nothing but functions can be named in a watermark.
#[derive(Debug)]
struct NoRelations;

impl CatalogReader for NoRelations {
    fn table(
        &self,
        name: &datafusion::common::TableReference,
    ) -> datafusion::error::Result<Arc<dyn datafusion::catalog::TableProvider>> {
        Err(datafusion::error::DataFusionError::Plan(format!(
            "a watermark cannot use \"{name}\""
        )))
    }
}
