//! `pg_sequence`, `pg_sequences`, and what names the sequence of a column.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use millrace_catalog::sequence::SequenceDef;
use millrace_catalog::{CatalogSnapshot, Definition, Object};
use millrace_database::Database;
use millrace_parser::quote_identifier;
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::types;
use postgres_types::Type;

use crate::listed;
use crate::pg_catalog::oid;
use crate::pg_catalog::relations::flag;
use crate::pg_catalog::table::{self, Row};

const SEQUENCES: &str = "pg_sequences schemaname:name sequencename:name sequenceowner:name data_type:text \
start_value:bigint min_value:bigint max_value:bigint increment_by:bigint cycle:boolean cache_size:bigint \
last_value:bigint";

/// The columns that a sequence has as a relation.
pub(super) const COLUMNS: [(&str, DataType); 3] = [
    ("last_value", DataType::Int64),
    ("log_cnt", DataType::Int64),
    ("is_called", DataType::Boolean),
];

/// The sequences.
pub(crate) fn all<'a>(
    catalog: &'a CatalogSnapshot,
    database: &'a str,
) -> impl Iterator<Item = (&'a Arc<Object>, &'a Arc<SequenceDef>)> {
    catalog
        .relations(database)
        .filter_map(|object| match &object.definition {
            Definition::Sequence(sequence) => Some((object, sequence)),
            _ => None,
        })
}

/// The integers that it gives: that of its column, else those that hold its bounds.
pub(crate) fn data_type(sequence: &SequenceDef) -> Type {
    match (sequence.min, sequence.max) {
        (min, max) if i16::try_from(min).is_ok() && max == i64::from(i16::MAX) => Type::INT2,
        (min, max) if i32::try_from(min).is_ok() && max == i64::from(i32::MAX) => Type::INT4,
        _ => Type::INT8,
    }
}

pub(super) fn pg_sequence(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let row = |(object, sequence): (&Arc<Object>, &Arc<SequenceDef>)| {
        Row::from([
            ("seqrelid", oid(object.id).to_string()),
            ("seqtypid", data_type(sequence).oid().to_string()),
            ("seqstart", sequence.start.to_string()),
            ("seqincrement", sequence.increment.to_string()),
            ("seqmax", sequence.max.to_string()),
            ("seqmin", sequence.min.to_string()),
            ("seqcache", "1".to_owned()),
            ("seqcycle", flag(sequence.cycles)),
        ])
    };
    all(catalog, database).map(row).collect()
}

/// `pg_sequences`: the sequences with their last values.
///
/// # Errors
/// A last value cannot be read.
pub fn with_values(
    db: &Database,
    catalog: &CatalogSnapshot,
    database: &str,
) -> SqlResult<Arc<dyn TableProvider>> {
    let mut rows = vec![];
    for (object, sequence) in all(catalog, database) {
        let mut row = Row::from([
            ("schemaname", object.schema.clone()),
            ("sequencename", object.name.clone()),
            ("sequenceowner", catalog.role_name(object.rights.owner())),
            ("data_type", types::pg_name(&data_type(sequence))),
            ("start_value", sequence.start.to_string()),
            ("min_value", sequence.min.to_string()),
            ("max_value", sequence.max.to_string()),
            ("increment_by", sequence.increment.to_string()),
            ("cycle", flag(sequence.cycles)),
            ("cache_size", "1".to_owned()),
        ]);
        if let Some(last) = db.sequences().last(object.id)? {
            row.insert("last_value", last.to_string());
        }
        rows.push(row);
    }
    let schema = listed::schema(SEQUENCES, "pg_sequences")?;
    let schema = schema.ok_or_else(|| SqlError::internal("pg_sequences has no columns"))?;
    table::provider(&schema, &rows)
}

/// The sequence that was made for a column, as `pg_get_serial_sequence` names it.
pub fn of_column(catalog: &CatalogSnapshot, table: &Object, column: &str) -> Option<String> {
    let relation = table.relation()?;
    let column = (relation.columns.iter()).find(|known| known.field.name() == column)?;
    let sequence = catalog.object(column.sequence?.id)?;
    match &sequence.definition {
        Definition::Sequence(definition) if definition.owner == Some(table.id) => Some(format!(
            "{}.{}",
            quote_identifier(&sequence.schema),
            quote_identifier(&sequence.name)
        )),
        _ => None,
    }
}
