//! One object of the catalog, and its lasting form.
//!
//! A stored object carries the statement that made it, for people (`SHOW CREATE`), and properties, from which it is
//! made again at start-up: columns with their types, defaults and constraints, the key, a view's query with the search
//! path under which its names were meant, and what it depends on.

mod granted;
mod query_def;
mod restate;
mod stored;
mod typed;

use std::sync::{Arc, OnceLock};

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use millrace_parser::ast::ConflictRule;
use millrace_parser::quote_identifier;
use millrace_planner::growth::Growth;
use millrace_planner::{
    Emit, OnError, Priority, RelationId, RelationInfo, RelationKind, RelationTable, StageGraph,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;
use millrace_storage::{ObjectId, ObjectKind};

use crate::bound::{BoundName, BoundView};
use crate::column::ColumnDef;
use crate::connector::ConnectorDef;
use crate::constraint::{CheckDef, ForeignKeyDef};
use crate::event_time::EventTimeDef;
use crate::external::ExternalTable;
use crate::flow::FlowDef;
use crate::function::FunctionDef;
use crate::retention::Retention;
use crate::rights::Rights;
use crate::role::RoleDef;
use crate::secret::{SecretDef, Secrets, Vault};
use crate::sequence::{SequenceDef, Takes};
use crate::sink::SinkDef;
use crate::user_type::TypeDef;
pub(crate) use granted::built_in;
pub use stored::lasting_columns;

/// An object.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its identity forever.
    pub id: ObjectId,
    /// What it is.
    pub kind: ObjectKind,
    /// The database that it is in.
    pub database: String,
    /// The schema that it is in.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The statement that makes it.
    pub sql: String,
    /// What COMMENT said.
    pub comment: Option<String>,
    /// When it was made.
    pub created_at_ms: i64,
    /// What it names: it cannot be there without them.
    pub depends: Vec<ObjectId>,
    /// What it consists of.
    pub definition: Definition,
    /// Who owns it, and what others may do with it.
    pub rights: Rights,
}

/// What an object consists of.
#[derive(Debug, Clone)]
pub enum Definition {
    /// A stream, a table or a materialized view.
    Relation(Box<Relation>),
    /// A view.
    View(Arc<QueryDef>),
    /// Files, and the columns that they were found to have.
    External(Arc<ExternalTable>),
    /// An SQL expression with parameters.
    Function(Arc<FunctionDef>),
    /// An index.
    Index(IndexDef),
    /// A sink.
    Sink(Arc<SinkDef>),
    /// A sequence.
    Sequence(Arc<SequenceDef>),
    /// A role.
    Role(Arc<RoleDef>),
    /// A secret.
    Secret(Arc<SecretDef>),
    /// An enum or a domain.
    Type(Arc<TypeDef>),
    /// An object that failed to load at startup, and why.
    FailedToLoad(String),
    /// A database or a schema.
    Other,
}

/// A stored relation.
#[derive(Debug, Clone)]
pub struct Relation {
    /// What the planner knows of it.
    pub info: RelationInfo,
    /// Its columns.
    pub columns: Vec<ColumnDef>,
    /// The name of its primary key's constraint.
    pub key_name: Option<String>,
    /// What its rows must be, if it is a table.
    pub checks: Vec<CheckDef>,
    /// In which tables values of its columns must be, if it is a table.
    pub foreign_keys: Vec<ForeignKeyDef>,
    /// The event time, if it is a stream that has one.
    pub event_time: Option<EventTimeDef>,
    /// What fills it, if it is a stream that is not written to.
    pub connector: Option<ConnectorDef>,
    /// The stream that keeps what is no row: what a connector brought, or rows on which an expression of a view failed.
    pub errors: Option<ObjectId>,
    /// The stream that keeps which files were read, if it is filled from files.
    pub files: Option<ObjectId>,
    /// What becomes of a row that is inserted under a key that is there, if the table says so.
    pub on_conflict: Option<ConflictRule>,
    /// How its rows are kept, if it is a stream or table.
    pub keeping: Retention,
    /// The query, if it is a materialized view.
    pub query: Option<Arc<QueryDef>>,
    /// What of it grows without bound, if it is a materialized view.
    pub growth: Growth,
    /// The provider that plans are bound against.
    pub provider: Arc<RelationTable>,
}

/// A materialized view's plan.
#[derive(Debug)]
pub struct Planned {
    pub graph: StageGraph,
    /// The query, with what its names mean.
    pub query: Arc<QueryDef>,
    /// What of the view grows without bound.
    pub growth: Growth,
}

/// A view's query.
#[derive(Debug)]
pub struct QueryDef {
    /// The text.
    pub text: String,
    /// The schemas in which its unqualified names were looked for.
    pub search_path: Vec<String>,
    /// The names of its columns, if they were given.
    pub column_names: Vec<String>,
    /// What its names mean. A name that is not among them means what the search path says.
    pub names: Vec<BoundName>,
    /// When a materialized view shows its rows.
    pub emit: Emit,
    /// Whether a materialized view puts overlapping windows together from panes.
    pub slides: bool,
    /// Flow control of a materialized view.
    pub flow: FlowDef,
    /// How urgent its epochs are.
    pub priority: Priority,
    /// How old what readers of a materialized view see may be, in microseconds; none: as `freshness` of the server says.
    pub freshness_us: Option<u64>,
    /// What becomes of a row on which an expression fails.
    pub on_error: OnError,
    /// Whether a materialized view keeps the rows on which an expression fails.
    pub keeps_errors: bool,
    /// For how long a materialized view can be read as it was, in milliseconds.
    pub history_ms: Option<i64>,
    /// The plan of a view, once it was needed, with its columns.
    pub bound: OnceLock<BoundView>,
}

/// An index.
#[derive(Debug, Clone)]
pub struct IndexDef {
    /// The relation.
    pub relation: ObjectId,
    /// Its columns, by position.
    pub columns: Vec<usize>,
    /// Whether no two rows may have the same values in them.
    pub is_unique: bool,
    /// Whether a UNIQUE constraint made it.
    pub is_constraint: bool,
}

impl Relation {
    /// A stored relation of these columns. `key` is the primary key of a table, empty for none.
    pub fn new(
        id: ObjectId,
        name: &str,
        kind: RelationKind,
        columns: Vec<ColumnDef>,
        key: &[usize],
        append_only: bool,
    ) -> Self {
        let fields: Vec<Arc<Field>> = columns.iter().map(|column| Arc::clone(&column.field)).collect();
        let info = RelationInfo {
            id: RelationId(id.0),
            name: name.to_string(),
            kind,
            schema: Arc::new(Schema::new(fields)),
            key: (!key.is_empty()).then(|| key.to_vec()),
            append_only,
            watermarks: vec![],
        };
        let key_name = (kind == RelationKind::Table && !key.is_empty()).then(|| format!("{name}_pkey"));
        let provider = Arc::new(RelationTable::new(info.clone()));
        Relation {
            info,
            columns,
            key_name,
            checks: vec![],
            foreign_keys: vec![],
            event_time: None,
            connector: None,
            errors: None,
            files: None,
            on_conflict: None,
            keeping: Retention::default(),
            query: None,
            growth: Growth::default(),
            provider,
        }
    }

    /// A materialized view with this plan. Comments of columns that were there before are kept.
    pub fn of_view(id: ObjectId, name: &str, planned: &Planned, before: &[ColumnDef]) -> Self {
        let graph = &planned.graph;
        let columns = graph.schema.fields().iter().map(|field| ColumnDef {
            field: Arc::clone(field),
            default: None,
            generated: None,
            sequence: None,
            domain: None,
            proctime: false,
            comment: before
                .iter()
                .find(|column| column.field.name() == field.name())
                .and_then(|column| column.comment.clone()),
            added: None,
        });
        let key = graph.key.clone().unwrap_or_default();
        let mut relation = Relation::new(
            id,
            name,
            RelationKind::View,
            columns.collect(),
            &key,
            graph.append_only,
        );
        // Also what has no columns is unique: a view of one row has the empty key.
        relation.info.key.clone_from(&graph.key);
        relation.info.schema = Arc::clone(&graph.schema);
        relation.info.watermarks.clone_from(&graph.watermarks);
        relation.provider = Arc::new(RelationTable::new(relation.info.clone()));
        relation.query = Some(Arc::clone(&planned.query));
        relation.growth = planned.growth.clone();
        relation
    }

    /// The relation with an event time.
    #[must_use]
    pub fn with_event_time(mut self, event_time: Option<EventTimeDef>) -> Self {
        let bound = event_time
            .as_ref()
            .map(|event_time| event_time.bound(self.info.id, &self.info.schema));
        self.info.watermarks = bound.into_iter().collect();
        self.provider = Arc::new(RelationTable::new(self.info.clone()));
        self.event_time = event_time;
        self
    }

    /// The relation with a connector.
    #[must_use]
    pub fn with_connector(mut self, connector: Option<ConnectorDef>) -> Self {
        self.connector = connector;
        self
    }

    /// The streams that were made with it: of what is no row, of files that were read, of late rows.
    pub fn beside(&self) -> impl Iterator<Item = ObjectId> + use<> {
        let late = self.event_time.as_ref().and_then(EventTimeDef::late_stream);
        [self.errors, self.files, late].into_iter().flatten()
    }

    /// The relation with a stream for the files that were read.
    #[must_use]
    pub fn with_files(mut self, files: Option<ObjectId>) -> Self {
        self.files = files;
        self
    }

    /// The relation with a stream for what is no row.
    #[must_use]
    pub fn with_errors(mut self, errors: Option<ObjectId>) -> Self {
        self.errors = errors;
        self
    }

    /// The relation with rows that must be so.
    #[must_use]
    pub fn with_checks(mut self, checks: Vec<CheckDef>) -> Self {
        self.checks = checks;
        self
    }

    /// The relation with columns whose values must be in other tables.
    #[must_use]
    pub fn with_foreign_keys(mut self, foreign_keys: Vec<ForeignKeyDef>) -> Self {
        self.foreign_keys = foreign_keys;
        self
    }

    /// The relation with what becomes of rows under keys that are there.
    #[must_use]
    pub fn with_on_conflict(mut self, on_conflict: Option<ConflictRule>) -> Self {
        self.on_conflict = on_conflict;
        self
    }

    /// The relation with rows that are kept so.
    #[must_use]
    pub fn with_keeping(mut self, keeping: Retention) -> Self {
        self.keeping = keeping;
        self
    }

    /// Gives the relation another name.
    pub fn rename(&mut self, name: &str) {
        self.info.name = name.to_string();
        self.provider = Arc::new(RelationTable::new(self.info.clone()));
    }

    /// What rows have in the columns that were added after them, one value each.
    pub fn missing(&self) -> Vec<ScalarValue> {
        self.columns
            .iter()
            .filter_map(|column| column.added.clone())
            .collect()
    }

    /// The columns as Arrow has them.
    pub fn schema(&self) -> &SchemaRef {
        &self.info.schema
    }

    /// The columns of the primary key, if it has one.
    pub fn key(&self) -> &[usize] {
        self.info.key.as_deref().unwrap_or_default()
    }

    /// The columns by which what feeds a table tells its rows, of which there may be none; `None`: it is a stream, of which rows only come.
    pub fn source_key(&self) -> Option<&[usize]> {
        (self.info.kind == RelationKind::Table).then(|| self.key())
    }
}

impl Relation {
    /// Columns and key as CREATE TABLE has them.
    fn elements(&self) -> Vec<String> {
        let mut elements: Vec<String> = self
            .columns
            .iter()
            .map(|column| {
                let mut text = format!(
                    "{} {}",
                    quote_identifier(column.field.name()),
                    types::type_name(&column.field)
                );
                if !column.field.is_nullable() {
                    text.push_str(" NOT NULL");
                }
                if let Some(default) = &column.default {
                    text.push_str(&format!(" DEFAULT {default}"));
                }
                match column.sequence.map(|sequence| sequence.takes) {
                    Some(Takes::IdentityAlways) => text.push_str(" GENERATED ALWAYS AS IDENTITY"),
                    Some(Takes::IdentityByDefault) => text.push_str(" GENERATED BY DEFAULT AS IDENTITY"),
                    Some(Takes::Default) | None => {}
                }
                if let Some(generated) = &column.generated {
                    text.push_str(&format!(" GENERATED ALWAYS AS ({generated}) STORED"));
                }
                if column.proctime {
                    text.push_str(" AS PROCTIME()");
                }
                text
            })
            .collect();
        if !self.key().is_empty() {
            let key: Vec<_> = (self.key().iter())
                .filter_map(|position| self.columns.get(*position))
                .map(|column| quote_identifier(column.field.name()))
                .collect();
            elements.push(format!("PRIMARY KEY ({})", key.join(", ")));
        }
        elements.extend(self.checks.iter().map(|check| {
            let name = quote_identifier(&check.name);
            format!("CONSTRAINT {name} CHECK ({})", check.expression)
        }));
        elements.extend(
            self.event_time
                .iter()
                .map(|event_time| event_time.clause(self.schema())),
        );
        elements
    }
}

impl Object {
    /// The stored relation, if it is one that is up.
    pub fn relation(&self) -> Option<&Relation> {
        match &self.definition {
            Definition::Relation(relation) => Some(relation),
            _ => None,
        }
    }

    /// How old what readers of a materialized view see may be, in microseconds, where it says that itself.
    pub fn freshness_us(&self) -> Option<u64> {
        self.relation()?.query.as_ref()?.freshness_us
    }

    /// The object, whose secrets are opened so.
    #[must_use]
    pub fn with_secrets(mut self, vault: &Arc<dyn Vault>) -> Self {
        let secrets = Secrets::new(Arc::clone(vault), &self.described());
        match &mut self.definition {
            Definition::Relation(relation) => {
                relation.connector = relation
                    .connector
                    .take()
                    .map(|connector| connector.with_secrets(secrets));
            }
            Definition::Sink(sink) => *sink = Arc::new(sink.as_ref().clone().with_secrets(secrets)),
            _ => {}
        }
        self
    }

    /// The name with its schema, where that is not the first thing that a reader would think of.
    pub fn display_name(&self) -> String {
        if self.schema == super::DEFAULT_SCHEMA || self.schema.is_empty() {
            self.name.clone()
        } else {
            format!("{}.{}", self.schema, self.name)
        }
    }

    /// Refuses an object that failed to load.
    ///
    /// # Errors
    /// 55000, with the reason.
    pub fn check_up(&self) -> SqlResult<()> {
        let Definition::FailedToLoad(why) = &self.definition else {
            return Ok(());
        };
        Err(SqlError::new(
            SqlState::ObjectNotInPrerequisiteState,
            format!("{} failed to load at startup", self.described()),
        )
        .with_detail(why.clone())
        .with_hint("Drop it and create it again, or fix the cause and restart the server."))
    }

    /// The name with its kind: `materialized view mv`.
    pub fn described(&self) -> String {
        format!("{} {}", super::kind_name(self.kind), self.display_name())
    }
}

/// How a kind of object is called in messages.
pub fn kind_name(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Database => "database",
        ObjectKind::Schema => "schema",
        ObjectKind::User => "role",
        ObjectKind::Stream => "stream",
        ObjectKind::Table => "table",
        ObjectKind::View => "view",
        ObjectKind::MaterializedView => "materialized view",
        ObjectKind::ExternalTable => "external table",
        ObjectKind::Index => "index",
        ObjectKind::Sink => "sink",
        ObjectKind::Subscription => "subscription",
        ObjectKind::Function => "function",
        ObjectKind::Sequence => "sequence",
        ObjectKind::Setting => "setting",
        ObjectKind::Secret => "secret",
        ObjectKind::Type => "type",
        ObjectKind::Domain => "domain",
    }
}
