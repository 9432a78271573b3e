//! The lasting form of an object: what the catalog on disk keeps of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use millrace_auth::seal::Sealed;
use millrace_parser::ast::ConflictRule;
use millrace_planner::{Emit, OnError, Priority, RelationKind};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;
use millrace_storage::{CatalogObject, ObjectId, ObjectKind};
use serde::{Deserialize, Serialize};

use super::{Definition, IndexDef, Object, QueryDef, Relation};
use crate::bound::BoundName;
use crate::column::ColumnDef;
use crate::connector::ConnectorDef;
use crate::constraint::{CheckDef, ForeignKeyDef};
use crate::event_time::{EventTimeDef, StoredEventTime};
use crate::external::{ExternalTable, Files};
use crate::flow::FlowDef;
use crate::function::{FunctionDef, StoredFunction};
use crate::object::kind_name;
use crate::retention::Retention;
use crate::rights::{AclItem, Rights};
use crate::role::RoleDef;
use crate::secret::SecretDef;
use crate::sequence::{ColumnSequence, SequenceDef};
use crate::sink::SinkDef;
use crate::user_type::{StoredType, TypeDef};

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sequence: Option<ColumnSequence>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    proctime: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    domain: Option<ObjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    added: Option<StoredValue>,
}

/// The lasting form of a CHECK constraint.
#[derive(Debug, Serialize, Deserialize)]
struct StoredCheck {
    name: String,
    expression: String,
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
    checks: Vec<StoredCheck>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    foreign_keys: Vec<ForeignKeyDef>,
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
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    recomputes_windows: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flow: Option<FlowDef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<Priority>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    freshness_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_error: Option<OnError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    history_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_time: Option<StoredEventTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connector: Option<ConnectorDef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    errors: Option<ObjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    files: Option<ObjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_conflict: Option<String>,
    #[serde(default, skip_serializing_if = "Retention::is_default")]
    keeping: Retention,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    relation: Option<ObjectId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    index_columns: Vec<usize>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_unique: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_constraint: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external: Option<Files>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    function: Option<StoredFunction>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sink: Option<SinkDef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sequence: Option<SequenceDef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    role: Option<RoleDef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Sealed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_type: Option<StoredType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<ObjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    acl: Option<Vec<AclItem>>,
}

impl Object {
    /// The lasting form.
    pub fn to_stored(&self) -> CatalogObject {
        let mut stored = StoredProperties {
            depends: self.depends.clone(),
            owner: self.rights.owner,
            acl: self.rights.acl.clone(),
            ..Default::default()
        };
        match &self.definition {
            Definition::Relation(relation) => {
                stored.columns = relation.columns.iter().map(store_column).collect();
                stored.key = relation.key().to_vec();
                stored.key_name.clone_from(&relation.key_name);
                stored.checks = relation.checks.iter().map(store_check).collect();
                stored.foreign_keys.clone_from(&relation.foreign_keys);
                stored.event_time = relation.event_time.as_ref().map(EventTimeDef::to_stored);
                stored.connector.clone_from(&relation.connector);
                stored.errors = relation.errors;
                stored.files = relation.files;
                stored.on_conflict = relation.on_conflict.map(|rule| rule.clause().to_owned());
                stored.keeping = relation.keeping;
                if let Some(query) = &relation.query {
                    store_query(query, &mut stored);
                }
            }
            Definition::View(query) => store_query(query, &mut stored),
            Definition::External(table) => {
                let fields = table.columns().fields().iter();
                stored.columns = fields
                    .map(|field| store_column(&ColumnDef::plain(Arc::clone(field))))
                    .collect();
                stored.external = Some(table.files().clone());
            }
            Definition::Function(function) => stored.function = Some(function.to_stored()),
            Definition::Index(index) => {
                stored.relation = Some(index.relation);
                stored.index_columns.clone_from(&index.columns);
                stored.is_unique = index.is_unique;
                stored.is_constraint = index.is_constraint;
            }
            Definition::Sink(sink) => stored.sink = Some(sink.as_ref().clone()),
            Definition::Sequence(sequence) => stored.sequence = Some(sequence.as_ref().clone()),
            Definition::Type(of) => stored.user_type = Some(of.to_stored()),
            Definition::Secret(secret) => stored.value.clone_from(&secret.value),
            Definition::Role(role) => stored.role = Some(role.as_ref().clone()),
            Definition::FailedToLoad(_) | Definition::Other => {}
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

    /// The object that was stored. A materialized view's columns are those that it had; its plan is built again.
    ///
    /// # Errors
    /// The properties do not say what such an object needs: the catalog is damaged, or of a later version.
    pub fn from_stored(stored: &CatalogObject) -> SqlResult<Self> {
        let damaged = |why: String| {
            SqlError::new(
                SqlState::DataCorrupted,
                format!(
                    "{} \"{}\" in the catalog cannot be read: {why}",
                    kind_name(stored.kind),
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
            let query = query.with_emit(properties.emit.unwrap_or_default());
            let query = query.with_slides(!properties.recomputes_windows);
            let query = query.with_flow(properties.flow.unwrap_or_default());
            let query = query.with_on_error(
                properties.on_error.unwrap_or_default(),
                properties.errors.is_some(),
            );
            let query = query.with_history(properties.history_ms);
            let query = query.with_freshness(properties.freshness_us);
            Arc::new(query.with_priority(properties.priority.unwrap_or_default()))
        });
        let relation = |kind: RelationKind| -> SqlResult<Definition> {
            let columns = properties
                .columns
                .iter()
                .map(load_column)
                .collect::<SqlResult<Vec<_>>>()?;
            if let Some(position) = properties.key.iter().find(|position| **position >= columns.len()) {
                return Err(damaged(format!(
                    "its key refers to column {position} of {}",
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
                    return Err(damaged("its event time is not a column".into()));
                }
                None => relation,
                some => relation.with_event_time(some),
            };
            let on_conflict = match properties.on_conflict.as_deref() {
                None => None,
                Some(clause) => {
                    let rule = ConflictRule::ALL.into_iter().find(|rule| rule.clause() == clause);
                    Some(rule.ok_or_else(|| damaged(format!("ON CONFLICT {clause} is not known")))?)
                }
            };
            let checks = properties.checks.iter().map(load_check);
            let relation = relation
                .with_checks(
                    checks
                        .collect::<SqlResult<_>>()
                        .map_err(|error| damaged(error.message))?,
                )
                .with_foreign_keys(properties.foreign_keys.clone())
                .with_connector(properties.connector.clone())
                .with_errors(properties.errors)
                .with_files(properties.files)
                .with_on_conflict(on_conflict)
                .with_keeping(properties.keeping);
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
                    .ok_or_else(|| damaged("it has no files".into()))?;
                let columns = properties.columns.iter().map(load_column);
                let fields = columns
                    .map(|column| Ok(column?.field))
                    .collect::<SqlResult<Vec<_>>>()?;
                Definition::External(Arc::new(ExternalTable::new(
                    files,
                    Arc::new(Schema::new(fields)),
                )?))
            }
            ObjectKind::Function => {
                let function = properties
                    .function
                    .ok_or_else(|| damaged("it has no body".into()))?;
                Definition::Function(Arc::new(FunctionDef::from_stored(&function).map_err(damaged)?))
            }
            ObjectKind::Index => Definition::Index(IndexDef {
                relation: properties
                    .relation
                    .ok_or_else(|| damaged("it has no relation".into()))?,
                columns: properties.index_columns,
                is_unique: properties.is_unique,
                is_constraint: properties.is_constraint,
            }),
            ObjectKind::Sink | ObjectKind::Subscription => {
                let sink = properties
                    .sink
                    .ok_or_else(|| damaged("it has no definition".into()))?;
                Definition::Sink(Arc::new(sink))
            }
            ObjectKind::Sequence => {
                let sequence = properties
                    .sequence
                    .ok_or_else(|| damaged("it has no definition".into()))?;
                Definition::Sequence(Arc::new(sequence))
            }
            ObjectKind::User => {
                let role = properties
                    .role
                    .ok_or_else(|| damaged("it has no definition".into()))?;
                Definition::Role(Arc::new(role))
            }
            ObjectKind::Type | ObjectKind::Domain => {
                let of = properties
                    .user_type
                    .ok_or_else(|| damaged("it has no definition".into()))?;
                Definition::Type(Arc::new(TypeDef::from_stored(&of).map_err(damaged)?))
            }
            ObjectKind::Secret => Definition::Secret(Arc::new(SecretDef {
                value: properties.value,
            })),
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
            rights: Rights {
                owner: properties.owner,
                acl: properties.acl,
            },
        })
    }
}

fn store_query(query: &QueryDef, stored: &mut StoredProperties) {
    stored.query = Some(query.text.clone());
    stored.search_path.clone_from(&query.search_path);
    stored.column_names.clone_from(&query.column_names);
    stored.names.clone_from(&query.names);
    stored.emit = (query.emit != Emit::Changes).then_some(query.emit);
    stored.recomputes_windows = !query.slides;
    stored.flow = (query.flow != FlowDef::default()).then_some(query.flow);
    stored.priority = (query.priority != Priority::default()).then_some(query.priority);
    stored.on_error = (query.on_error != OnError::default()).then_some(query.on_error);
    stored.history_ms = query.history_ms;
    stored.freshness_us = query.freshness_us;
}

fn store_check(check: &CheckDef) -> StoredCheck {
    StoredCheck {
        name: check.name.clone(),
        expression: check.expression.to_string(),
    }
}

fn load_check(stored: &StoredCheck) -> SqlResult<CheckDef> {
    Ok(CheckDef {
        name: stored.name.clone(),
        expression: millrace_parser::parse_expression(&stored.expression)?,
    })
}

fn store_column(column: &ColumnDef) -> StoredColumn {
    StoredColumn {
        name: column.field.name().clone(),
        sql_type: types::sql_name(&column.field),
        not_null: !column.field.is_nullable(),
        default: column.default.as_ref().map(ToString::to_string),
        generated: column.generated.as_ref().map(ToString::to_string),
        sequence: column.sequence,
        domain: column.domain,
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
        sequence: stored.sequence,
        domain: stored.domain,
        proctime: stored.proctime,
        comment: stored.comment.clone(),
        added,
    })
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
        .map(|field| load_column(&store_column(&ColumnDef::plain(Arc::clone(field)))));
    let fields = columns
        .map(|column| Ok(column?.field))
        .collect::<SqlResult<Vec<_>>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::DataType;
    use millrace_postgres::types::SqlType;

    fn column(name: &str, sql_type: &SqlType, nullable: bool) -> ColumnDef {
        ColumnDef {
            field: Arc::new(sql_type.field(name, nullable)),
            default: None,
            generated: None,
            sequence: None,
            domain: None,
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
            rights: Rights::of(ObjectId(20_000)),
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
