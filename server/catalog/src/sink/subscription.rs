//! What CREATE SUBSCRIPTION says: a sink whose target is a log of the server itself, in which each step stands with its epoch.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millrace_parser::ast::Options;
use millrace_planner::{RelationInfo, RelationKind};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::names::did_you_mean;
use millrace_storage::{ObjectId, ObjectKind};
use serde::{Deserialize, Serialize};

use super::{SinkDef, SinkType, Target};
use crate::retention::Retention;

/// The time between two steps, in milliseconds: with more of them, what comes with each costs more than its rows.
const ROLLOVER_MS: u64 = 10;
/// How much is kept, unless an option says otherwise.
const RETENTION_BYTES: u64 = 1 << 30;

/// Its options.
const OPTIONS: [&str; 2] = ["retention", "retention_size"];

/// The columns of the log in front of those of the relation.
pub const LOG_COLUMNS: [&str; 3] = ["epoch", "step", "op"];

/// The steps of a relation, kept for those who read them later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionSink {
    /// What no other subscription anywhere is called.
    pub subscription: String,
    /// How long, and how much of them.
    pub kept: Retention,
    /// Whether it is the history of a view, which goes with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub history: bool,
}

impl SinkDef {
    /// The subscription to a relation, as its options have it.
    ///
    /// # Errors
    /// An option is missing, not known, or has a value that it cannot have.
    pub fn subscription(
        options: &Options,
        subscription: String,
        view: Option<ObjectId>,
        info: &RelationInfo,
    ) -> SqlResult<SinkDef> {
        let mut has_retention = false;
        for option in &options.0 {
            let name = option.name.value.to_ascii_lowercase();
            if !OPTIONS.contains(&name.as_str()) {
                return Err(SqlError::new(
                    SqlState::InvalidParameterValue,
                    format!("a subscription has no option \"{name}\""),
                )
                .with_detail(format!("Its options are {}.", OPTIONS.join(" and ")))
                .with_hint_opt(did_you_mean(&name, OPTIONS)));
            }
            has_retention |= name == OPTIONS[0];
        }
        if !has_retention {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                "a subscription needs option \"retention\"",
            )
            .with_hint(
                "Say how long changes are kept for those who read them later: WITH (retention = '1 hour').",
            ));
        }
        let kept = Retention::new(&mut options.clone(), ObjectKind::Stream)?;
        Ok(Self::keeping(kept, subscription, view, info))
    }

    /// The history of a view of so many milliseconds: a subscription to it.
    pub fn history(ms: i64, subscription: String, info: &RelationInfo) -> SinkDef {
        let mut def = Self::keeping(Retention::of_time(ms), subscription, None, info);
        if let Target::Subscription(sink) = &mut def.target {
            sink.history = true;
        }
        def
    }

    fn keeping(
        kept: Retention,
        subscription: String,
        view: Option<ObjectId>,
        info: &RelationInfo,
    ) -> SinkDef {
        SinkDef {
            relation: ObjectId(info.id.0),
            view,
            // Names are those of the relation, whatever they are by then.
            columns: (0..info.schema.fields().len())
                .map(|column| format!("c{column}"))
                .collect(),
            sink_type: match info.kind {
                RelationKind::Stream => SinkType::AppendOnly,
                // One that only grows may be replaced by one that does not.
                RelationKind::Table | RelationKind::View => SinkType::Changelog,
            },
            rollover_ms: ROLLOVER_MS,
            target: Target::Subscription(SubscriptionSink {
                subscription,
                kept: kept.of_at_most(RETENTION_BYTES),
                history: false,
            }),
        }
    }

    /// Whether it is the history of this view.
    pub fn is_history_of(&self, view: ObjectId) -> bool {
        self.relation == view && self.kept().is_some_and(|sink| sink.history)
    }

    /// What is kept, and how, if it is a subscription.
    pub fn kept(&self) -> Option<&SubscriptionSink> {
        match &self.target {
            Target::Subscription(kept) => Some(kept),
            _ => None,
        }
    }

    /// The columns as they are shown, given those of the relation: of a subscription what its readers get.
    pub fn shown(&self, relation: &Schema) -> SchemaRef {
        if self.kept().is_none() {
            return self.schema(relation);
        }
        let own = [
            Field::new(LOG_COLUMNS[0], DataType::Int64, false),
            Field::new(LOG_COLUMNS[2], DataType::Utf8, false),
        ];
        let columns = relation.fields().iter().take(self.columns.len());
        let columns = columns.map(|field| field.as_ref().clone().with_nullable(true));
        Arc::new(Schema::new(own.into_iter().chain(columns).collect::<Vec<_>>()))
    }

    /// The columns of the log of a subscription over a relation of this schema: the epoch, the number of the step, what happened, the row.
    pub fn log_schema(&self, relation: &Schema) -> SchemaRef {
        let types = [DataType::Int64, DataType::Int64, DataType::Int8];
        let own = LOG_COLUMNS.into_iter().zip(types);
        let own = own.map(|(name, data_type)| Field::new(name, data_type, false));
        let columns = self.columns.iter().zip(relation.fields());
        let columns = columns.map(|(name, field)| Field::new(name.as_str(), field.data_type().clone(), true));
        Arc::new(Schema::new(own.chain(columns).collect::<Vec<_>>()))
    }
}
