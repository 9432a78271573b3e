//! A table that follows one of a PostgreSQL server: from the values of changes to what the table gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{FieldRef, Schema};
use millrace_catalog::connector::postgres::{PostgresDef, UpstreamTable};
use millrace_catalog::{Object, Relation};
use millrace_connectors::changes::{Changes, Placed};
use millrace_connectors::decode::{BadRecord, Given};
use millrace_connectors::postgres::{Cell, Message, Server, TableInfo};
use millrace_connectors::source::ConnectorError;
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_postgres::types::parse;
use millrace_storage::ObjectId;

use super::tables::Target;
use crate::database::Database;
use crate::database::rows::{RowBuilder, RowError};

/// The table.
pub(super) struct Following {
    pub id: ObjectId,
    pub relation: RelationId,
    pub upstream: UpstreamTable,
    pub target: Target,
    builder: RowBuilder,
    /// The columns that come from there.
    fields: Vec<FieldRef>,
    key: Vec<FieldRef>,
}

/// Values of columns, as texts.
type Texts = Vec<Vec<Option<String>>>;

/// Changes of one table.
#[derive(Default)]
pub(super) struct Gathered {
    /// The places of rows that are there from then on, and the values by column.
    puts: Vec<usize>,
    columns: Texts,
    kept: BTreeMap<usize, Vec<String>>,
    /// The places of rows that are gone from then on, and the values of their keys by column.
    deletes: Vec<usize>,
    keys: Texts,
    /// All that was there before is gone.
    is_cleared: bool,
}

/// What was made of them.
pub(super) struct Made {
    pub changes: Changes,
    pub is_cleared: bool,
    /// The table there.
    pub name: String,
    gathered: Gathered,
}

impl Following {
    pub fn new(
        db: &Database,
        object: &Object,
        relation: &Relation,
        upstream: UpstreamTable,
    ) -> SqlResult<Following> {
        let given: Vec<usize> = (relation.columns.iter().enumerate())
            .filter(|(_, column)| column.generated.is_none() && !column.proctime)
            .map(|(position, _)| position)
            .collect();
        let field = |position: &usize| Arc::clone(&relation.columns[*position].field);
        Ok(Following {
            id: object.id,
            relation: relation.info.id,
            upstream,
            target: Target::new(relation),
            builder: RowBuilder::new(db, &db.scope_of(object), relation, &given)?,
            fields: given.iter().map(field).collect(),
            key: relation.key().iter().map(field).collect(),
        })
    }

    pub fn column_names(&self) -> Vec<String> {
        self.fields.iter().map(|field| field.name().clone()).collect()
    }

    /// Refuses what cannot be followed.
    pub async fn check(&self, def: &PostgresDef, server: &Server) -> Result<(), ConnectorError> {
        let UpstreamTable { schema, name, .. } = &self.upstream;
        let upstream = server.table(def, schema, name).await?;
        if let Some(field) = self
            .fields
            .iter()
            .find(|field| !upstream.columns.contains_key(field.name()))
        {
            return Err(no_column(field.name(), schema, name));
        }
        if let Some(key) = self
            .key
            .iter()
            .find(|key| !upstream.identity.contains(key.name()))
        {
            return Err(ConnectorError::lasting(
                format!(
                    "updates and deletes of {schema}.{name} do not tell column \"{}\", which is in the primary key here",
                    key.name()
                ),
                format!(
                    "Use the primary key that it has there, or run there: ALTER TABLE {schema}.{name} REPLICA IDENTITY FULL"
                ),
            ));
        }
        Ok(())
    }

    /// A column that is only here cannot be filled; one that is only there can be taken over.
    pub fn tell_of_columns(&self, source: &str, info: &TableInfo) -> Result<(), ConnectorError> {
        let is_there = |field: &&FieldRef| info.columns.iter().any(|column| column.name == *field.name());
        if let Some(field) = self.fields.iter().find(|field| !is_there(field)) {
            return Err(no_column(field.name(), &info.schema, &info.name));
        }
        let is_here = |name: &str| self.fields.iter().any(|field| field.name() == name);
        let more: Vec<&str> = (info.columns.iter())
            .map(|column| column.name.as_str())
            .filter(|name| !is_here(name))
            .collect();
        if !more.is_empty() {
            tracing::info!(
                source,
                table = format!("{}.{}", info.schema, info.name),
                columns = more.join(", "),
                "columns are not taken over; ALTER TABLE .. ADD COLUMN does that"
            );
        }
        Ok(())
    }

    /// What changes come to.
    pub fn make(&self, gathered: Gathered) -> Made {
        let mut changes = Changes {
            kept: gathered.kept.clone(),
            ..Changes::default()
        };
        let mut bad = vec![];
        if !gathered.deletes.is_empty() {
            let build = |given: &Given, rows: usize| key_rows(given, rows);
            let deletes = decoded(&self.key, &gathered.deletes, &gathered.keys, &build, &mut bad);
            changes.deletes.extend(deletes);
        }
        if !gathered.puts.is_empty() {
            let build = |given: &Given, rows: usize| self.builder.build(given, rows);
            let puts = decoded(&self.fields, &gathered.puts, &gathered.columns, &build, &mut bad);
            changes.puts.extend(puts);
        }
        bad.sort_by_key(|bad: &BadRecord| bad.at);
        changes.bad = bad;
        Made {
            changes,
            is_cleared: gathered.is_cleared,
            name: format!("{}.{}", self.upstream.schema, self.upstream.name),
            gathered,
        }
    }
}

fn no_column(column: &str, schema: &str, name: &str) -> ConnectorError {
    ConnectorError::lasting(
        format!("{schema}.{name} has no column \"{column}\""),
        "Columns are named as there. A column that was dropped or renamed there needs a new table here.",
    )
}

impl Gathered {
    pub fn of(table: &Following) -> Gathered {
        Gathered {
            columns: vec![vec![]; table.fields.len()],
            keys: vec![vec![]; table.key.len()],
            ..Gathered::default()
        }
    }

    /// Rows of a copy, the first at this place.
    pub fn copied(table: &Following, first: usize, rows: Texts) -> Gathered {
        let mut gathered = Gathered::of(table);
        for (at, row) in rows.into_iter().enumerate() {
            gathered.puts.push(first + at);
            for (column, value) in gathered.columns.iter_mut().zip(row) {
                column.push(value);
            }
        }
        gathered
    }

    /// How many rows come.
    pub fn len(&self) -> usize {
        self.puts.len()
    }

    /// Takes a change in.
    ///
    /// # Errors
    /// It does not have the columns that were described.
    pub fn take(
        &mut self,
        table: &Following,
        info: &TableInfo,
        message: &Message,
        at: usize,
    ) -> Result<(), ConnectorError> {
        match message {
            Message::Insert { row, .. } => self.put(table, info, row, at),
            Message::Update { before, row, .. } => {
                // The key of before is told only if it may have changed.
                if let Some(before) = before
                    && table
                        .key
                        .iter()
                        .any(|key| cell(info, before, key) != cell(info, row, key))
                {
                    self.delete(table, info, before, at)?;
                }
                self.put(table, info, row, at)
            }
            Message::Delete { before, .. } => self.delete(table, info, before, at),
            Message::Truncate { .. } => {
                *self = Gathered {
                    is_cleared: true,
                    ..Gathered::of(table)
                };
                Ok(())
            }
            Message::Table(_) | Message::Other => Ok(()),
        }
    }

    fn put(
        &mut self,
        table: &Following,
        info: &TableInfo,
        row: &[Cell],
        at: usize,
    ) -> Result<(), ConnectorError> {
        for (column, field) in self.columns.iter_mut().zip(&table.fields) {
            column.push(match cell(info, row, field) {
                Some(Cell::Text(text)) => Some(utf8(text)?),
                Some(Cell::Null) => None,
                Some(Cell::Unchanged) => {
                    self.kept.entry(at).or_default().push(field.name().clone());
                    Some(stand_in(field).to_owned())
                }
                None => {
                    return Err(ConnectorError::passing(
                        "a change has fewer columns than its table",
                    ));
                }
            });
        }
        self.puts.push(at);
        Ok(())
    }

    fn delete(
        &mut self,
        table: &Following,
        info: &TableInfo,
        row: &[Cell],
        at: usize,
    ) -> Result<(), ConnectorError> {
        for (column, field) in self.keys.iter_mut().zip(&table.key) {
            column.push(match cell(info, row, field) {
                Some(Cell::Text(text)) => Some(utf8(text)?),
                Some(Cell::Null | Cell::Unchanged) => None,
                None => {
                    return Err(ConnectorError::passing(
                        "a change has fewer columns than its table",
                    ));
                }
            });
        }
        self.deletes.push(at);
        Ok(())
    }
}

impl Made {
    /// The values of a change, for whoever looks why it is no row.
    pub fn text(&self, at: usize) -> Option<String> {
        let values = |texts: &Texts, row: usize| {
            let values: Vec<Option<&String>> = texts.iter().map(|column| column[row].as_ref()).collect();
            serde_json::to_string(&values).ok()
        };
        let row = |places: &[usize]| places.iter().position(|place| *place == at);
        match row(&self.gathered.puts) {
            Some(row) => values(&self.gathered.columns, row),
            None => values(&self.gathered.keys, row(&self.gathered.deletes)?),
        }
    }
}

/// The value of a column.
fn cell<'r>(info: &TableInfo, row: &'r [Cell], field: &FieldRef) -> Option<&'r Cell> {
    let position = info
        .columns
        .iter()
        .position(|column| column.name == *field.name())?;
    row.get(position)
}

fn utf8(text: &[u8]) -> Result<String, ConnectorError> {
    let text = std::str::from_utf8(text);
    text.map(str::to_owned)
        .map_err(|_| ConnectorError::passing("a text of PostgreSQL is not UTF-8"))
}

/// What any column of the type may have, until its own value is put there.
fn stand_in(field: &FieldRef) -> &'static str {
    use arrow::datatypes::DataType;
    match field.data_type() {
        DataType::List(_) | DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => "{}",
        DataType::Binary | DataType::BinaryView | DataType::LargeBinary => "\\x",
        _ => "0",
    }
}

/// Keys as a batch.
fn key_rows(given: &Given, rows: usize) -> Result<RecordBatch, RowError> {
    for (field, array) in given {
        if let Some(row) = (0..rows).find(|row| array.is_null(*row)) {
            let message = format!("the key has no value for column \"{}\"", field.name());
            return Err(RowError {
                row: Some(row),
                error: Box::new(SqlError::new(SqlState::NotNullViolation, message)),
            });
        }
    }
    let schema = Arc::new(Schema::new(
        given
            .iter()
            .map(|(field, _)| Arc::clone(field))
            .collect::<Vec<_>>(),
    ));
    let arrays = given.iter().map(|(_, array)| Arc::clone(array)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, arrays, &options).map_err(|error| RowError {
        row: None,
        error: Box::new(from_internal::arrow(error)),
    })
}

type Build<'b> = &'b dyn Fn(&Given, usize) -> Result<RecordBatch, RowError>;

/// Rows of texts; or why there are none, and by which of them if that is known.
fn attempt(
    fields: &[FieldRef],
    rows: usize,
    texts: &[StringArray],
    build: Build<'_>,
) -> Result<RecordBatch, RowError> {
    let one = |(field, texts): (&FieldRef, &StringArray)| match parse::column(field, texts) {
        Ok(array) => Ok((Arc::clone(field), array)),
        Err(failure) => Err(RowError {
            row: Some(failure.row),
            error: failure.error,
        }),
    };
    let given = fields.iter().zip(texts).map(one).collect::<Result<Given, _>>()?;
    build(&given, rows)
}

/// Rows of texts, and of those that are none the reasons.
fn decoded(
    fields: &[FieldRef],
    places: &[usize],
    texts: &Texts,
    build: Build<'_>,
    bad: &mut Vec<BadRecord>,
) -> Vec<Placed> {
    let mut places = places.to_vec();
    let mut texts: Vec<StringArray> = texts.iter().map(|column| column.iter().collect()).collect();
    while !places.is_empty() {
        let (row, error) = match attempt(fields, places.len(), &texts, build) {
            Ok(rows) => return vec![(places, rows)],
            Err(RowError {
                row: Some(row),
                error,
            }) => (row, *error),
            // Nobody can tell which: each by itself then.
            Err(RowError { row: None, .. }) => {
                let mut good = vec![];
                for (row, at) in places.into_iter().enumerate() {
                    let one: Vec<StringArray> = texts.iter().map(|column| column.slice(row, 1)).collect();
                    match attempt(fields, 1, &one, build) {
                        Ok(rows) => good.push((vec![at], rows)),
                        Err(failure) => bad.push(BadRecord {
                            at,
                            error: *failure.error,
                        }),
                    }
                }
                return good;
            }
        };
        let at = places.remove(row);
        bad.push(BadRecord { at, error });
        texts = (texts.iter())
            .map(|column| {
                let values = column.iter().enumerate().filter(|(other, _)| *other != row);
                values.map(|(_, value)| value).collect()
            })
            .collect();
    }
    vec![]
}
