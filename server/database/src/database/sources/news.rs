//! What becomes of columns that records have and their relation has not: `schema_change`.
//!
//! ```text
//!  ignore   nobody looks
//!  stop     the source fails, before anything is written of the records that have them
//!  add      the column is added, and then they are read again
//! ```
//! The position stays before these records until the column is there: so whatever crash comes in between, no value is left out, and no row
//! is there twice.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::Expr;
use millrace_catalog::connector::encoding::SchemaChange;
use millrace_catalog::{ColumnDef, Relation};
use millrace_connectors::news::New;
use millrace_connectors::source::ConnectorError;
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::{from_internal, types};
use millrace_storage::ObjectId;

use crate::backoff::Backoff;
use crate::database::Database;

/// The most columns that a relation gets by itself, and the longest name of one: records that make up names as they go would have no end.
const COLUMNS_MAX: usize = 1_000;
const NAME_BYTES_MAX: usize = 63;

/// What is done about new columns of a relation.
#[derive(Debug)]
pub(super) struct Watch {
    policy: SchemaChange,
    /// The columns that it has.
    pub known: BTreeSet<String>,
}

/// Columns that are to be added to a relation.
#[derive(Debug)]
pub(super) struct Wanted {
    pub relation: ObjectId,
    pub columns: Vec<ColumnDef>,
}

impl Watch {
    /// For a relation; none: nobody looks.
    pub fn new(policy: SchemaChange, relation: &Relation) -> Option<Watch> {
        let names = relation.columns.iter().map(|column| column.field.name().clone());
        (policy != SchemaChange::Ignore).then(|| Watch {
            policy,
            known: names.collect(),
        })
    }

    /// Why a record cannot have a column of this name: no relation can. None: it can, or nobody would add it.
    pub fn refuses(&self, name: &str) -> Option<SqlError> {
        let is_refused = self.policy == SchemaChange::Add && !is_name(name);
        is_refused.then(|| {
            let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
            SqlError::new(
                SqlState::InvalidName,
                format!(
                    "field {shown:?} cannot be a column: the name of one has 1 to {NAME_BYTES_MAX} bytes"
                ),
            )
        })
    }

    /// What is to be done, if something is. `place`: where the record of a place stands, in words.
    ///
    /// # Errors
    /// The source is to stop; the columns cannot be added.
    pub fn consider(
        &self,
        relation: ObjectId,
        new: Vec<New>,
        place: impl Fn(usize) -> String,
    ) -> Result<Option<Wanted>, ConnectorError> {
        let Some(first) = new.iter().min_by_key(|new| new.at) else {
            return Ok(None);
        };
        let told = |new: &New| match &new.sql_type {
            Some(sql_type) => format!("\"{}\" ({sql_type})", new.name),
            None => format!("\"{}\"", new.name),
        };
        if self.policy == SchemaChange::Stop {
            let all: Vec<String> = new.iter().map(told).collect();
            return Err(ConnectorError::lasting(
                format!(
                    "{} has columns that were not there before: {}",
                    place(first.at),
                    all.join(", ")
                ),
                "ALTER .. ADD COLUMN adds one and resumes the source. With ALTER .. SET (schema_change = 'ignore') new columns are ignored, with 'add' they are added.",
            ));
        }
        // A column that is always NULL has no known type.
        let columns = new.iter().filter_map(|new| {
            let sql_type = new.sql_type.as_deref()?;
            Some(column(&new.name, sql_type).map_err(|why| {
                ConnectorError::lasting(
                    format!("column {} of {} cannot be added: {why}", told(new), place(new.at)),
                    "Add it by ALTER .. ADD COLUMN with a supported type, or ALTER .. SET (schema_change = 'ignore').",
                )
            }))
        });
        let columns: Vec<ColumnDef> = columns.collect::<Result<_, _>>()?;
        if self.known.len() + columns.len() > COLUMNS_MAX {
            return Err(ConnectorError::lasting(
                format!(
                    "{} has another {} columns, and with them there would be more than {COLUMNS_MAX}",
                    place(first.at),
                    columns.len()
                ),
                "ALTER .. SET (schema_change = 'ignore'): such records are better read into one column of type JSONB.",
            ));
        }
        Ok((!columns.is_empty()).then_some(Wanted { relation, columns }))
    }
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains('\0')
}

/// A column of a name and a type, as they are written.
fn column(name: &str, sql_type: &str) -> Result<ColumnDef, String> {
    if !is_name(name) {
        return Err(format!("a column's name has 1 to {NAME_BYTES_MAX} bytes"));
    }
    let cast = millrace_parser::parse_expression(&format!("CAST(NULL AS {sql_type})"));
    let sql_type = match cast {
        Ok(Expr::Cast { data_type, .. }) => types::from_sql(&data_type).map_err(|error| error.message)?,
        _ => return Err("it is of another type than there are".to_owned()),
    };
    let field = Arc::new(sql_type.field(name, true));
    let nothing = ScalarValue::try_from(field.data_type()).map_err(|error| error.to_string())?;
    Ok(ColumnDef {
        added: Some(nothing),
        ..ColumnDef::plain(field)
    })
}

/// Adds columns and starts again what feeds them; as often as it takes, as long as they are wanted. It is a task of its own, since it stops
/// the one that wants it.
pub(super) fn take_over(db: Weak<Database>, feeder: ObjectId, wanted: Wanted) {
    tokio::spawn(async move {
        let mut backoff = Backoff::new();
        loop {
            let Some(db) = db.upgrade() else { return };
            let Err(error) = db.add_columns(feeder, &wanted).await else {
                return;
            };
            let relation = wanted.relation.0;
            tracing::warn!(
                relation,
                error = error.message,
                "new columns of a source could not be added yet"
            );
            drop(db);
            backoff.wait().await;
        }
    });
}

impl Database {
    async fn add_columns(self: &Arc<Self>, feeder: ObjectId, wanted: &Wanted) -> SqlResult<()> {
        let id = wanted.relation;
        let locks = self.runtime().lock_tables(&[RelationId(id.0)]).await;
        let locks = locks.map_err(from_internal::runtime)?;
        let guard = self.ddl().await;
        let is_fed = self.sources.list().iter().any(|source| source.stream == feeder);
        let (Some(object), true) = (self.catalog().object(id).cloned(), is_fed) else {
            return Ok(());
        };
        self.jobs().check_unlocked(&[id])?;
        let add = async || {
            let mut object = object.as_ref().clone();
            for column in &wanted.columns {
                let relation = object
                    .relation()
                    .ok_or_else(|| SqlError::internal("what a source feeds is not a relation any more"))?;
                let name = column.field.name();
                // Somebody may have done so meanwhile.
                if relation.columns.iter().any(|known| known.field.name() == name) {
                    continue;
                }
                let columns = relation.columns.iter().chain([column]).cloned().collect();
                let altered = object.with_columns(relation, columns, relation.event_time.clone());
                guard.add_column(Some(&locks), altered.clone(), column)?;
                tracing::info!(target: "millrace::audit", relation = object.described(), column = name, "column added by its source");
                object = altered;
            }
            Ok(())
        };
        self.restart_source(&object, add).await
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn a_record_with_a_name_that_no_column_can_have_is_refused_where_columns_are_added() {
        let watch = |policy| Watch {
            policy,
            known: BTreeSet::new(),
        };
        let long = "ü".repeat(32);
        for (name, is_refused) in [("a", false), ("", true), ("a\0", true), (&*long, true)] {
            assert_eq!(
                watch(SchemaChange::Add).refuses(name).is_some(),
                is_refused,
                "{name}"
            );
            assert!(watch(SchemaChange::Stop).refuses(name).is_none(), "{name}");
        }
    }

    #[test]
    fn types_are_those_that_sources_say() {
        for (sql_type, expected) in [
            ("bigint", DataType::Int64),
            ("text", DataType::Utf8),
            ("numeric(9, 2)", DataType::Decimal128(9, 2)),
            ("date", DataType::Date32),
            ("jsonb", DataType::Utf8),
            ("timestamp with time zone", types::timestamptz()),
            ("double precision", DataType::Float64),
        ] {
            let column = column("A b", sql_type).unwrap();
            assert_eq!(column.field.data_type(), &expected, "{sql_type}");
            assert!(column.added.unwrap().is_null());
        }
        assert!(matches!(
            column("a", "text[]").unwrap().field.data_type(),
            DataType::List(_)
        ));
        for (name, sql_type) in [
            ("", "text"),
            ("a", "nosuchtype"),
            ("a", "1)"),
            (&*"a".repeat(64), "text"),
        ] {
            assert!(column(name, sql_type).is_err(), "{name} {sql_type}");
        }
    }
}
