//! One object of the catalog, and its lasting form.
//!
//! A stored object carries the statement that made it, for people (`SHOW CREATE`), and properties, from which it is
//! made again at start-up: columns with their types, defaults and constraints, the key, a view's query with the search
//! path under which its names were meant, and what it depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use millrace_parser::quote_identifier;
use millrace_planner::growth::Growth;
use millrace_planner::{Emit, RelationId, RelationInfo, RelationKind, RelationTable, StageGraph};
use millrace_storage::{CatalogObject, ObjectId, ObjectKind};
use serde::{Deserialize, Serialize};

use crate::catalog::bound::BoundName;
use crate::catalog::event_time::{EventTimeDef, StoredEventTime};
use crate::catalog::external::{ExternalTable, Files};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types;

/// An object.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its identity for ever.
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
    /// An index.
    Index(IndexDef),
    /// A materialized view that could not be brought up again, and why.
    SetAside(String),
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
    /// The event time, if it is a stream that has one.
    pub event_time: Option<EventTimeDef>,
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

/// A column of a stored relation.
#[derive(Debug, Clone)]
pub struct ColumnDef {
    /// Name, type, nullability.
    pub field: Arc<Field>,
    /// `DEFAULT`.
    pub default: Option<ast::Expr>,
    /// `GENERATED ALWAYS AS`.
    pub generated: Option<ast::Expr>,
    /// `AS PROCTIME()`.
    pub proctime: bool,
    /// What COMMENT said.
    pub comment: Option<String>,
    /// What the rows have in it that were there before it was added, if it was.
    pub added: Option<ScalarValue>,
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
    /// The plan of a view, once it was needed. It stays right: what it names cannot change under it.
    pub bound: OnceLock<Arc<dyn TableProvider>>,
}

/// An index.
#[derive(Debug, Clone)]
pub struct IndexDef {
    /// The relation.
    pub relation: ObjectId,
    /// Its columns, by position.
    pub columns: Vec<usize>,
}

/// The lasting form of a column.
#[derive(Debug, Serialize, Deserialize)]
struct StoredColumn {
    name: String,
    #[serde(rename = "type")]
    sql_type: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    not_null: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generated: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    proctime: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    added: Option<StoredValue>,
}

/// The lasting form of a value: its text, `None` for NULL.
#[derive(Debug, Serialize, Deserialize)]
struct StoredValue {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// The lasting form of everything that is not in the columns of a [`CatalogObject`].
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredProperties {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    columns: Vec<StoredColumn>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    key: Vec<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    depends: Vec<ObjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    query: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    search_path: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    column_names: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    names: Vec<BoundName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    emit: Option<Emit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_time: Option<StoredEventTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    relation: Option<ObjectId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    index_columns: Vec<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external: Option<Files>,
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
            event_time: None,
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
        elements.extend(
            self.event_time
                .iter()
                .map(|event_time| event_time.clause(self.schema())),
        );
        elements
    }
}

impl QueryDef {
    /// A query and what its names mean.
    pub fn new(text: impl Into<String>, search_path: Vec<String>, column_names: Vec<String>) -> Self {
        QueryDef {
            text: text.into(),
            search_path,
            column_names,
            names: vec![],
            emit: Emit::Changes,
            bound: OnceLock::new(),
        }
    }

    /// The same query, its names meaning this.
    #[must_use]
    pub fn with_names(&self, names: Vec<BoundName>) -> Self {
        QueryDef {
            names,
            emit: self.emit,
            ..QueryDef::new(
                self.text.clone(),
                self.search_path.clone(),
                self.column_names.clone(),
            )
        }
    }

    /// The same query, whose rows are shown then.
    #[must_use]
    pub fn with_emit(self, emit: Emit) -> Self {
        QueryDef { emit, ..self }
    }

    /// The clause that says when rows are shown.
    fn emit_clause(&self) -> String {
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

impl Object {
    /// The stored relation, if it is one that is up.
    pub fn relation(&self) -> Option<&Relation> {
        match &self.definition {
            Definition::Relation(relation) => Some(relation),
            _ => None,
        }
    }

    /// The name with its schema, where that is not the first thing that a reader would think of.
    pub fn display_name(&self) -> String {
        if self.schema == super::DEFAULT_SCHEMA || self.schema.is_empty() {
            self.name.clone()
        } else {
            format!("{}.{}", self.schema, self.name)
        }
    }

    /// The name with its kind: `materialized view mv`.
    pub fn described(&self) -> String {
        format!("{} {}", super::kind_name(self.kind), self.display_name())
    }

    /// Writes the statement anew, after what it defines was altered.
    pub fn restate(&mut self) {
        let name = match self.schema.as_str() {
            super::DEFAULT_SCHEMA | "" => quote_identifier(&self.name).to_string(),
            schema => format!("{}.{}", quote_identifier(schema), quote_identifier(&self.name)),
        };
        let kind = super::kind_name(self.kind).to_uppercase();
        let view = |query: &QueryDef| {
            let columns: Vec<_> = query
                .column_names
                .iter()
                .map(|name| quote_identifier(name))
                .collect();
            let columns = match columns.is_empty() {
                true => String::new(),
                false => format!(" ({})", columns.join(", ")),
            };
            format!(
                "CREATE {kind} {name}{columns} AS {}{}",
                query.text,
                query.emit_clause()
            )
        };
        self.sql = match &self.definition {
            Definition::View(query) => view(query),
            Definition::Relation(relation) => match &relation.query {
                Some(query) => view(query),
                None => {
                    let options = relation
                        .event_time
                        .as_ref()
                        .map(EventTimeDef::options)
                        .unwrap_or_default();
                    format!(
                        "CREATE {kind} {name} ({}){options}",
                        relation.elements().join(", ")
                    )
                }
            },
            // What these say does not depend on their own name, or says it in its own way.
            Definition::External(_) | Definition::Index(_) | Definition::SetAside(_) | Definition::Other => {
                return;
            }
        };
    }

    /// The lasting form.
    pub fn to_stored(&self) -> CatalogObject {
        let mut stored = StoredProperties {
            depends: self.depends.clone(),
            ..Default::default()
        };
        match &self.definition {
            Definition::Relation(relation) => {
                stored.columns = relation.columns.iter().map(store_column).collect();
                stored.key = relation.key().to_vec();
                stored.key_name.clone_from(&relation.key_name);
                stored.event_time = relation.event_time.as_ref().map(EventTimeDef::to_stored);
                if let Some(query) = &relation.query {
                    store_query(query, &mut stored);
                }
            }
            Definition::View(query) => store_query(query, &mut stored),
            Definition::External(table) => {
                let schema = table.schema();
                stored.columns = schema
                    .fields()
                    .iter()
                    .map(|field| store_column(&plain(field)))
                    .collect();
                stored.external = Some(table.files().clone());
            }
            Definition::Index(index) => {
                stored.relation = Some(index.relation);
                stored.index_columns.clone_from(&index.columns);
            }
            Definition::SetAside(_) | Definition::Other => {}
        }
        let properties: BTreeMap<String, serde_json::Value> = match serde_json::to_value(stored) {
            Ok(serde_json::Value::Object(map)) => map.into_iter().collect(),
            _ => BTreeMap::new(),
        };
        CatalogObject {
            id: self.id,
            kind: self.kind,
            database: self.database.clone(),
            schema: self.schema.clone(),
            name: self.name.clone(),
            sql: self.sql.clone(),
            comment: self.comment.clone(),
            created_at_ms: self.created_at_ms,
            properties,
        }
    }

    /// The object that was stored. A materialized view's columns are those that it had; its plan is made anew.
    ///
    /// # Errors
    /// The properties do not say what such an object needs: the catalog is damaged, or of a later version.
    pub fn from_stored(stored: &CatalogObject) -> SqlResult<Self> {
        let damaged = |why: String| {
            SqlError::new(
                SqlState::DataCorrupted,
                format!(
                    "{} \"{}\" in the catalog cannot be read: {why}",
                    super::kind_name(stored.kind),
                    stored.name
                ),
            )
        };
        let map: serde_json::Map<String, serde_json::Value> = stored.properties.clone().into_iter().collect();
        let properties: StoredProperties = serde_json::from_value(serde_json::Value::Object(map))
            .map_err(|error| damaged(error.to_string()))?;
        let query = properties.query.as_ref().map(|text| {
            let query = QueryDef::new(
                text.clone(),
                properties.search_path.clone(),
                properties.column_names.clone(),
            );
            let query = query.with_names(properties.names.clone());
            Arc::new(query.with_emit(properties.emit.unwrap_or_default()))
        });
        let relation = |kind: RelationKind| -> SqlResult<Definition> {
            let columns = properties
                .columns
                .iter()
                .map(load_column)
                .collect::<SqlResult<Vec<_>>>()?;
            if let Some(position) = properties.key.iter().find(|position| **position >= columns.len()) {
                return Err(damaged(format!(
                    "its key names column {position} of {}",
                    columns.len()
                )));
            }
            let append_only = kind == RelationKind::Stream;
            let mut relation = Relation::new(
                stored.id,
                &stored.name,
                kind,
                columns,
                &properties.key,
                append_only,
            );
            if properties.key_name.is_some() {
                relation.key_name.clone_from(&properties.key_name);
            }
            relation.query.clone_from(&query);
            let event_time = properties.event_time.as_ref();
            let event_time = event_time
                .map(EventTimeDef::from_stored)
                .transpose()
                .map_err(damaged)?;
            let relation = match event_time {
                Some(event_time) if event_time.column >= relation.columns.len() => {
                    return Err(damaged("its event time is no column".into()));
                }
                None => relation,
                some => relation.with_event_time(some),
            };
            Ok(Definition::Relation(Box::new(relation)))
        };
        let definition = match stored.kind {
            ObjectKind::Stream => relation(RelationKind::Stream)?,
            ObjectKind::Table => relation(RelationKind::Table)?,
            ObjectKind::MaterializedView => relation(RelationKind::View)?,
            ObjectKind::View => Definition::View(query.ok_or_else(|| damaged("it has no query".into()))?),
            ObjectKind::ExternalTable => {
                let files = properties
                    .external
                    .ok_or_else(|| damaged("it names no files".into()))?;
                let columns = properties.columns.iter().map(load_column);
                let fields = columns
                    .map(|column| Ok(column?.field))
                    .collect::<SqlResult<Vec<_>>>()?;
                Definition::External(Arc::new(ExternalTable::new(
                    files,
                    Arc::new(Schema::new(fields)),
                )?))
            }
            ObjectKind::Index => Definition::Index(IndexDef {
                relation: properties
                    .relation
                    .ok_or_else(|| damaged("it names no relation".into()))?,
                columns: properties.index_columns,
            }),
            _ => Definition::Other,
        };
        Ok(Object {
            id: stored.id,
            kind: stored.kind,
            database: stored.database.clone(),
            schema: stored.schema.clone(),
            name: stored.name.clone(),
            sql: stored.sql.clone(),
            comment: stored.comment.clone(),
            created_at_ms: stored.created_at_ms,
            depends: properties.depends,
            definition,
        })
    }
}

/// A column of nothing but a name and a type.
fn plain(field: &Arc<Field>) -> ColumnDef {
    ColumnDef {
        field: Arc::clone(field),
        default: None,
        generated: None,
        proctime: false,
        comment: None,
        added: None,
    }
}

/// Columns as they will be read back from the catalog: what files have of types that are not known here becomes the nearest
/// that is.
///
/// # Errors
/// A type has no counterpart.
pub fn lasting_columns(schema: &SchemaRef) -> SqlResult<SchemaRef> {
    let columns = schema
        .fields()
        .iter()
        .map(|field| load_column(&store_column(&plain(field))));
    let fields = columns
        .map(|column| Ok(column?.field))
        .collect::<SqlResult<Vec<_>>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

fn store_query(query: &QueryDef, stored: &mut StoredProperties) {
    stored.query = Some(query.text.clone());
    stored.search_path.clone_from(&query.search_path);
    stored.column_names.clone_from(&query.column_names);
    stored.names.clone_from(&query.names);
    stored.emit = (query.emit != Emit::Changes).then_some(query.emit);
}

fn store_column(column: &ColumnDef) -> StoredColumn {
    StoredColumn {
        name: column.field.name().clone(),
        sql_type: types::type_name(&column.field),
        not_null: !column.field.is_nullable(),
        default: column.default.as_ref().map(ToString::to_string),
        generated: column.generated.as_ref().map(ToString::to_string),
        proctime: column.proctime,
        comment: column.comment.clone(),
        added: column.added.as_ref().map(|value| StoredValue {
            text: value
                .to_array()
                .ok()
                .filter(|_| !value.is_null())
                .map(|array| types::output::text(&column.field, &array, 0)),
        }),
    }
}

fn load_column(stored: &StoredColumn) -> SqlResult<ColumnDef> {
    let broken = |what: &str, why: String| {
        SqlError::new(
            SqlState::DataCorrupted,
            format!(
                "the {what} of column \"{}\" in the catalog cannot be read: {why}",
                stored.name
            ),
        )
    };
    let sql_type = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(&stored.sql_type)
        .and_then(|mut parser| parser.parse_data_type())
        .map_err(|error| broken("type", error.to_string()))?;
    let expression = |what: &str, text: &Option<String>| -> SqlResult<Option<ast::Expr>> {
        text.as_ref()
            .map(|text| millrace_parser::parse_expression(text).map_err(|error| broken(what, error.message)))
            .transpose()
    };
    let field = types::from_sql(&sql_type)?.field(&stored.name, !stored.not_null);
    let added = match &stored.added {
        None => None,
        Some(value) => {
            let array = types::parse::value(&field, value.text.as_deref())?;
            let value = ScalarValue::try_from_array(&array, 0);
            Some(value.map_err(|error| broken("value in old rows", error.to_string()))?)
        }
    };
    Ok(ColumnDef {
        field: Arc::new(field),
        default: expression("default", &stored.default)?,
        generated: expression("generation expression", &stored.generated)?,
        proctime: stored.proctime,
        comment: stored.comment.clone(),
        added,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SqlType;
    use arrow::datatypes::DataType;

    fn column(name: &str, sql_type: &SqlType, nullable: bool) -> ColumnDef {
        ColumnDef {
            field: Arc::new(sql_type.field(name, nullable)),
            default: None,
            generated: None,
            proctime: false,
            comment: None,
            added: None,
        }
    }

    #[test]
    fn a_table_comes_back_as_it_was_stored() {
        let mut columns = vec![
            column("id", &SqlType::plain(DataType::Int32), false),
            column("v", &SqlType::annotated(DataType::Utf8, "varchar(5)"), true),
            column(
                "n",
                &SqlType::annotated(DataType::Decimal128(38, 10), "numeric"),
                true,
            ),
        ];
        columns[1].added = Some(ScalarValue::Utf8(None));
        columns[2].added = Some(ScalarValue::Decimal128(Some(15_000_000_000), 38, 10));
        columns[1].default = Some(millrace_parser::parse_expression("'a' || 'b'").unwrap());
        let relation = Relation::new(ObjectId(7), "t", RelationKind::Table, columns, &[0], false);
        let object = Object {
            id: ObjectId(7),
            kind: ObjectKind::Table,
            database: "millrace".into(),
            schema: "public".into(),
            name: "t".into(),
            sql: "CREATE TABLE t (..)".into(),
            comment: Some("c".into()),
            created_at_ms: 5,
            depends: vec![ObjectId(3)],
            definition: Definition::Relation(Box::new(relation)),
        };
        let back = Object::from_stored(&object.to_stored()).unwrap();
        let (before, after) = (object.relation().unwrap(), back.relation().unwrap());
        assert_eq!(before.schema(), after.schema());
        assert_eq!(after.key(), [0]);
        assert_eq!(after.missing(), before.missing());
        assert_eq!(after.columns[1].default, before.columns[1].default);
        assert_eq!(back.depends, object.depends);
        assert_eq!(back.to_stored(), object.to_stored());
    }

    #[test]
    fn a_damaged_object_is_named() {
        let mut stored = CatalogObject {
            id: ObjectId(1),
            kind: ObjectKind::View,
            database: "millrace".into(),
            schema: "public".into(),
            name: "v".into(),
            sql: String::new(),
            comment: None,
            created_at_ms: 0,
            properties: BTreeMap::new(),
        };
        assert!(
            Object::from_stored(&stored)
                .unwrap_err()
                .message
                .contains("view \"v\"")
        );
        stored.kind = ObjectKind::Table;
        stored.properties.insert("key".into(), serde_json::json!([3]));
        assert_eq!(
            Object::from_stored(&stored).unwrap_err().code,
            SqlState::DataCorrupted
        );
    }
}
