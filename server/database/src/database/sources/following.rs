//! A table that follows one of a PostgreSQL server: from the values of changes to what the table gets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::FieldRef;
use millrace_catalog::connector::encoding::SchemaChange;
use millrace_catalog::connector::postgres::{PostgresDef, UpstreamTable};
use millrace_catalog::{Object, Relation};
use millrace_connectors::changes::{Changes, Placed};
use millrace_connectors::decode::{BadRecord, Given, halves, key_rows};
use millrace_connectors::news::New;
use millrace_connectors::postgres::{Cell, ColumnInfo, Message, Server, TableInfo};
use millrace_connectors::source::ConnectorError;
use millrace_planner::RelationId;
use millrace_postgres::error::SqlResult;
use millrace_postgres::types::parse;
use millrace_storage::ObjectId;

use super::news::{Wanted, Watch};
use super::place::Place;
use super::tables::Target;
use super::task::End;
use crate::database::Database;
use crate::database::rows::RowBuilder;

/// The table.
pub(super) struct Following {
    pub id: ObjectId,
    pub relation: RelationId,
    pub upstream: UpstreamTable,
    pub target: Target,
    /// What to do about columns that are only there; none: nothing.
    pub watch: Option<Watch>,
    builder: RowBuilder,
    /// The columns that come from there.
    fields: Vec<FieldRef>,
    /// Those that were added later.
    added: BTreeSet<String>,
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
        schema_change: SchemaChange,
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
            watch: Watch::new(schema_change, relation),
            builder: RowBuilder::new(db, &db.scope_of(object), relation, &given)?,
            added: (given.iter())
                .filter(|position| relation.columns[**position].added.is_some())
                .map(|position| field(position).name().clone())
                .collect(),
            fields: given.iter().map(field).collect(),
            key: relation.key().iter().map(field).collect(),
        })
    }

    pub fn column_names(&self) -> Vec<String> {
        self.fields.iter().map(|field| field.name().clone()).collect()
    }

    /// Refuses what cannot be followed. Tells the columns that are only there, each with its type.
    pub async fn check(
        &self,
        def: &PostgresDef,
        server: &Server,
        is_copied: bool,
    ) -> Result<Vec<New>, ConnectorError> {
        let UpstreamTable { schema, name, .. } = &self.upstream;
        let upstream = server.table(def, schema, name).await?;
        if let Some(field) = self
            .fields
            .iter()
            .find(|field| !upstream.columns.contains_key(field.name()))
        {
            return Err(no_column(field.name(), schema, name));
        }
        let is_hidden = |field: &&FieldRef| !upstream.readable.contains(field.name());
        if !is_copied && self.fields.iter().any(|field| is_hidden(&field)) {
            return Err(ConnectorError::lasting(
                format!(
                    "role \"{}\" may not read {schema}.{name} upstream",
                    def.place.user
                ),
                format!("Run there: GRANT SELECT ON {schema}.{name} TO {}", def.place.user),
            ));
        }
        if let Some(key) = self
            .key
            .iter()
            .find(|key| !upstream.identity.contains(key.name()))
        {
            return Err(ConnectorError::lasting(
                format!(
                    "updates and deletes of {schema}.{name} do not include column \"{}\", which is in the primary key here",
                    key.name()
                ),
                format!(
                    "Use the upstream primary key, or run upstream: ALTER TABLE {schema}.{name} REPLICA IDENTITY FULL"
                ),
            ));
        }
        let others = upstream.columns.iter();
        Ok(others
            .filter(|(name, _)| !self.is_here(name))
            .map(|(name, sql_type)| New {
                name: name.clone(),
                sql_type: Some(sql_type.clone()),
                at: 0,
            })
            .collect())
    }

    fn is_here(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name() == name)
    }

    /// What is to be done about columns that are only there.
    ///
    /// # Errors
    /// The source is to stop; they cannot be added.
    pub fn consider(&self, new: Vec<New>) -> Result<Option<Wanted>, ConnectorError> {
        let Some(watch) = &self.watch else { return Ok(None) };
        let UpstreamTable { schema, name, .. } = &self.upstream;
        watch.consider(self.id, new, |_| format!("{schema}.{name}"))
    }

    /// The columns that a change has and this has not.
    pub fn new_columns(&self, info: &TableInfo) -> Vec<New> {
        let others = info.columns.iter().filter(|column| !self.is_here(&column.name));
        let new = |column: &ColumnInfo| New {
            name: column.name.clone(),
            sql_type: Some(column.sql_type.clone()),
            at: 0,
        };
        others.map(new).collect()
    }

    /// A column that is only here cannot be filled; one that is only there can be taken over. A change may be older than a column that was
    /// added: then it is NULL, until a change has had it. `told_of` remembers these.
    pub fn tell_of_columns(
        &self,
        source: &str,
        info: &TableInfo,
        told_of: &mut BTreeSet<String>,
    ) -> Result<(), ConnectorError> {
        for field in &self.fields {
            let name = field.name();
            let key = format!("{}.{name}", self.id.0);
            if info.columns.iter().any(|column| column.name == *name) {
                told_of.insert(key);
            } else if !self.added.contains(name) || told_of.contains(&key) {
                return Err(no_column(name, &info.schema, &info.name));
            }
        }
        let more: Vec<&str> = (info.columns.iter())
            .map(|column| column.name.as_str())
            .filter(|name| !self.is_here(name))
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
        let keys = |given: &Given, rows: usize| key_rows(&self.key, given, rows);
        let (deletes, mut bad) = decoded(&self.key, &gathered.deletes, &gathered.keys, &keys);
        let rows = |given: &Given, rows: usize| {
            let built = self.builder.build(given, rows);
            built.map_err(|failure| *failure.error)
        };
        let (puts, more) = decoded(&self.fields, &gathered.puts, &gathered.columns, &rows);
        let mut changes = Changes {
            puts,
            deletes,
            kept: gathered.kept.clone(),
            bad: vec![],
        };
        changes.keep_rows_of(&more);
        bad.extend(more);
        bad.sort_by_key(|bad| bad.at);
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
        "Use the upstream column names; if a column was dropped or renamed upstream, create a new table.",
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
                        .any(|key| cell(info, before, key).ok() != cell(info, row, key).ok())
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
            let value = match cell(info, row, field) {
                // It is older than the column.
                Err(_) if table.added.contains(field.name()) => &Cell::Null,
                value => value?,
            };
            if *value == Cell::Unchanged {
                self.kept.entry(at).or_default().push(field.name().clone());
                column.push(Some(stand_in(field).to_owned()));
            } else {
                column.push(text(value)?);
            }
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
            column.push(text(cell(info, row, field)?)?);
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
        // In their order.
        let row = |places: &[usize]| places.binary_search(&at).ok();
        match row(&self.gathered.puts) {
            Some(row) => values(&self.gathered.columns, row),
            None => values(&self.gathered.keys, row(&self.gathered.deletes)?),
        }
    }
}

/// Tables by the names that they have there.
pub(super) type ByName = BTreeMap<(String, String), Vec<Arc<Following>>>;

/// Why a transaction cannot be taken yet: it has columns of which something is to be done first.
pub(super) fn news(
    open: &[(Message, Vec<Arc<TableInfo>>)],
    tables: &ByName,
    (at, place): (i64, &Place),
) -> Option<End> {
    let mut last: Option<&Arc<TableInfo>> = None;
    for info in open.iter().flat_map(|(_, of)| of) {
        if last.replace(info).is_some_and(|last| Arc::ptr_eq(last, info)) {
            continue;
        }
        let name = (info.schema.clone(), info.name.clone());
        for table in tables.get(&name).into_iter().flatten() {
            if table.watch.is_none() || place.tables.get(&table.id.0).is_none_or(|since| at < *since) {
                continue;
            }
            match table.consider(table.new_columns(info)) {
                Ok(None) => {}
                Ok(Some(wanted)) => return Some(End::Wants(wanted)),
                Err(error) => return Some(End::Failed(error)),
            }
        }
    }
    None
}

/// The value of a column.
fn cell<'r>(info: &TableInfo, row: &'r [Cell], field: &FieldRef) -> Result<&'r Cell, ConnectorError> {
    let position = info
        .columns
        .iter()
        .position(|column| column.name == *field.name());
    let value = position.and_then(|position| row.get(position));
    value.ok_or_else(|| ConnectorError::passing("a change has fewer columns than its table"))
}

/// A value as a text; none where there is none.
fn text(value: &Cell) -> Result<Option<String>, ConnectorError> {
    let Cell::Text(text) = value else { return Ok(None) };
    let text = std::str::from_utf8(text);
    text.map(|text| Some(text.to_owned()))
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

/// Rows of texts, and of those that are none the reasons.
fn decoded(
    fields: &[FieldRef],
    places: &[usize],
    texts: &Texts,
    build: &dyn Fn(&Given, usize) -> SqlResult<RecordBatch>,
) -> (Vec<Placed>, Vec<BadRecord>) {
    let texts: Vec<StringArray> = texts.iter().map(|column| column.iter().collect()).collect();
    let (rows, bad) = halves(places.len(), &|range| {
        let one = |(field, texts): (&FieldRef, &StringArray)| {
            let array = parse::column(field, &texts.slice(range.start, range.len()));
            Ok((Arc::clone(field), array.map_err(|failure| *failure.error)?))
        };
        let given = fields.iter().zip(&texts).map(one).collect::<SqlResult<Given>>()?;
        build(&given, range.len())
    });
    let placed =
        |(first, batch): (usize, RecordBatch)| (places[first..first + batch.num_rows()].to_vec(), batch);
    let bad = bad.into_iter().map(|bad| BadRecord {
        at: places[bad.at],
        ..bad
    });
    (rows.into_iter().map(placed).collect(), bad.collect())
}
