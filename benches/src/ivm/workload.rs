//! The tables, a model of what is in them, and random changes.
//!
//! A row is a few numbers, and texts are made from them: so the model is small beside what is measured.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use millrace_planner::RelationId;
use millrace_storage::ChangeBatch;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::error::BenchError;

/// Rows of `fact` for each key.
const ROWS_PER_KEY: usize = 10;
/// Keys for each region.
const KEYS_PER_REGION: usize = 100;
/// Edges of each component of the graph, and so nearly as many nodes.
const EDGES_PER_COMPONENT: i64 = 8;

/// A base table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// `id, k, v, g, name`: ten rows a `k`.
    Fact,
    /// `k, region, label`: for nine of ten keys.
    Dim,
    /// `r, title`.
    Region,
    /// `id, a, b`: a graph of small components.
    Edges,
}

/// The numbers that a row is made of; what they are depends on the table.
type Row = [i64; 4];

impl Table {
    pub fn name(self) -> &'static str {
        match self {
            Table::Fact => "fact",
            Table::Dim => "dim",
            Table::Region => "region",
            Table::Edges => "edges",
        }
    }

    pub fn id(self) -> RelationId {
        RelationId(1 + self as u64)
    }

    pub fn schema(self) -> SchemaRef {
        let number = |name| Field::new(name, DataType::Int64, false);
        let text = |name| Field::new(name, DataType::Utf8, true);
        Arc::new(Schema::new(match self {
            Table::Fact => vec![number("id"), number("k"), number("v"), number("g"), text("name")],
            Table::Dim => vec![number("k"), number("region"), text("label")],
            Table::Region => vec![number("r"), text("title")],
            Table::Edges => vec![number("id"), number("a"), number("b")],
        }))
    }

    /// How many rows there are in it for so many of `fact`.
    fn rows(self, base_rows: usize) -> usize {
        match self {
            Table::Fact | Table::Edges => base_rows,
            Table::Dim => keys(base_rows),
            Table::Region => regions(base_rows),
        }
    }

    fn batch(self, rows: &[Row]) -> Result<RecordBatch, ArrowError> {
        let number = |place: usize| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row[place])))
        };
        let text = |make: fn(&Row) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(rows.iter().map(make)))
        };
        let columns = match self {
            Table::Fact => {
                let name = text(|row| format!("name {:07}", row[2] % 10_000_000));
                vec![number(0), number(1), number(2), number(3), name]
            }
            Table::Dim => vec![
                number(0),
                number(1),
                text(|row| format!("label {} {}", row[0], row[2])),
            ],
            Table::Region => vec![number(0), text(|row| format!("region {} {}", row[0], row[2]))],
            Table::Edges => vec![number(0), number(1), number(2)],
        };
        RecordBatch::try_new(self.schema(), columns)
    }

    /// The row that the table begins with in this place.
    fn first(self, place: i64, base_rows: usize, random: &mut StdRng) -> Row {
        match self {
            Table::Fact => fact(place, base_rows, random),
            // Every tenth key has no row here.
            Table::Dim => [
                place + place / 9,
                random.random_range(0..regions(base_rows) as i64),
                0,
                0,
            ],
            Table::Region => [place, 0, 0, 0],
            Table::Edges => {
                let node = place + place / EDGES_PER_COMPONENT;
                [place, node, node + 1, 0]
            }
        }
    }

    /// A new row with this id.
    fn another(self, id: i64, base_rows: usize, random: &mut StdRng) -> Row {
        match self {
            Table::Fact => fact(id, base_rows, random),
            Table::Edges => {
                let components = (base_rows as i64 / EDGES_PER_COMPONENT).max(1);
                let first = random.random_range(0..components) * (EDGES_PER_COMPONENT + 1);
                let mut node = || first + random.random_range(0..=EDGES_PER_COMPONENT);
                [id, node(), node(), 0]
            }
            // These are only updated.
            Table::Dim | Table::Region => [id, 0, 0, 0],
        }
    }

    /// The row with another value.
    fn updated(self, row: Row, base_rows: usize, random: &mut StdRng) -> Row {
        match self {
            Table::Fact | Table::Edges => self.another(row[0], base_rows, random),
            Table::Dim | Table::Region => [row[0], row[1], row[2] + 1, 0],
        }
    }
}

fn keys(base_rows: usize) -> usize {
    (base_rows / ROWS_PER_KEY).max(1)
}

fn regions(base_rows: usize) -> usize {
    (keys(base_rows) / KEYS_PER_REGION).max(1)
}

fn fact(id: i64, base_rows: usize, random: &mut StdRng) -> Row {
    [
        id,
        random.random_range(0..keys(base_rows) as i64),
        random.random_range(0..1_000_000_000),
        random.random_range(0..8),
    ]
}

/// One transaction: what it does to each table.
pub type Write = Vec<(RelationId, ChangeBatch)>;

/// What the tables hold.
pub struct Model {
    random: StdRng,
    base_rows: usize,
    tables: BTreeMap<Table, Vec<Row>>,
    next_id: i64,
}

impl Model {
    /// The tables as they are at first, with `base_rows` rows in `fact` or `edges`.
    pub fn new(tables: &[Table], base_rows: usize, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let tables = tables.iter().map(|table| {
            let rows =
                (0..table.rows(base_rows) as i64).map(|place| table.first(place, base_rows, &mut random));
            (*table, rows.collect())
        });
        let tables = tables.collect();
        Model {
            random,
            base_rows,
            tables,
            next_id: base_rows as i64,
        }
    }

    /// The tables' rows now, in batches of at most `rows_max`.
    pub fn batches(&self, table: Table, rows_max: usize) -> Result<Vec<RecordBatch>, BenchError> {
        let rows = self.tables.get(&table).map_or(&[][..], Vec::as_slice);
        let batches = rows.chunks(rows_max).map(|rows| table.batch(rows));
        Ok(batches.collect::<Result<_, _>>()?)
    }

    /// The tables, those that others refer to first.
    pub fn tables(&self) -> Vec<Table> {
        self.tables.keys().rev().copied().collect()
    }

    pub fn rows(&self) -> usize {
        self.tables.values().map(Vec::len).sum()
    }

    /// A transaction of so many changes, a third each of insertions, updates and deletions. Where there are labels, every
    /// tenth change is the update of one.
    pub fn write(&mut self, changes: usize) -> Result<Write, BenchError> {
        let Some(main) = self.tables.keys().next().copied() else {
            return Ok(Vec::new());
        };
        let mut deltas: BTreeMap<Table, Vec<(Row, i64)>> = BTreeMap::new();
        for change in 0..changes {
            let has_labels = self.tables.contains_key(&Table::Dim);
            let (table, kind) = match change % 10 {
                9 if has_labels => (Table::Dim, 1),
                // So that single changes are of every kind too.
                _ => (main, self.random.random_range(0..3)),
            };
            let delta = deltas.entry(table).or_default();
            let rows = self.tables.entry(table).or_default();
            if kind == 0 || rows.is_empty() {
                let row = table.another(self.next_id, self.base_rows, &mut self.random);
                self.next_id += 1;
                rows.push(row);
                delta.push((row, 1));
                continue;
            }
            let place = self.random.random_range(0..rows.len());
            let old = rows[place];
            delta.push((old, -1));
            if kind == 1 {
                let new = table.updated(old, self.base_rows, &mut self.random);
                rows[place] = new;
                delta.push((new, 1));
            } else {
                rows.swap_remove(place);
            }
        }
        let batches = deltas.into_iter().map(|(table, delta)| {
            let (rows, weights): (Vec<Row>, Vec<i64>) = delta.into_iter().unzip();
            let batch = ChangeBatch::new(table.batch(&rows)?, Some(Int64Array::from(weights)));
            Ok((table.id(), batch.map_err(BenchError::engine)?))
        });
        batches.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_lead_from_one_state_of_the_model_to_the_next() {
        let tables = [Table::Fact, Table::Dim, Table::Region];
        let mut model = Model::new(&tables, 1_000, 7);
        let mut rows = model.tables.get(&Table::Fact).unwrap().clone();
        assert_eq!((rows.len(), model.tables[&Table::Dim].len()), (1_000, 100));
        let before = model.batches(Table::Fact, 10_000).unwrap();
        assert_eq!(before[0].num_rows(), 1_000);
        for _ in 0..20 {
            let write = model.write(100).unwrap();
            assert!(write.iter().any(|(table, _)| *table == Table::Dim.id()));
        }
        // Ids stay unique.
        rows = model.tables[&Table::Fact].clone();
        let ids: std::collections::BTreeSet<i64> = rows.iter().map(|row| row[0]).collect();
        assert_eq!(ids.len(), rows.len());
    }
}
