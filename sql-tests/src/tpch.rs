//! TPC-H: its tables from `tpchgen`, its 22 queries as materialized views, and refreshes by random orders.
//!
//! A part of the orders is held back when the tables are loaded. A refresh deletes some orders with their line items and
//! inserts some of those that are out, in one write; the same orders may come back later.

mod files;
mod queries;
mod tables;

use std::collections::HashSet;

use arrow::array::{BooleanArray, Int64Array, RecordBatch};
use arrow::compute::filter_record_batch;
use millrace_planner::RelationId;
use millrace_storage::ChangeBatch;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::index::sample;
use sqlparser::ast;

use crate::Failure;
use crate::batch::Batch;
use crate::engine::{Engine, Relations, parse};
pub use files::{TableFile, write_parquet};
use tables::OrderChunk;

/// Of so many orders one is held back.
const HELD_BACK: usize = 10;

/// A query of the benchmark.
pub struct Query {
    /// Its number, 1 to 22.
    pub number: usize,
    /// What the view is called.
    pub name: String,
    /// Its text.
    pub sql: String,
    /// The same, parsed.
    pub query: ast::Query,
}

/// The 22 queries with the parameters that the specification validates with.
///
/// # Errors
/// A query does not parse.
pub fn queries(scale: f64) -> Result<Vec<Query>, Failure> {
    let of = |number: usize| {
        let sql = queries::text(number, scale)?;
        Ok(Query {
            number,
            name: format!("q{number}"),
            query: parse(&sql).map_err(|error| format!("query {number}: {error}"))?,
            sql,
        })
    };
    (1..=22).map(of).collect()
}

/// The tables in an engine and in plain DataFusion, and which orders are in them.
pub struct Tpch {
    pub relations: Relations,
    orders: RelationId,
    lineitem: RelationId,
    chunks: Vec<OrderChunk>,
    /// For each chunk, whether each of its orders is in the tables.
    live: Vec<Vec<bool>>,
    /// Rows that were loaded, all tables together.
    pub rows_loaded: usize,
    /// Bytes of Arrow arrays that they take.
    pub bytes_loaded: usize,
}

impl Tpch {
    /// Makes the tables and loads them, but for the orders that are held back.
    ///
    /// # Errors
    /// The tables cannot be generated or written.
    pub async fn load(engine: &Engine, batch: &mut Batch, scale: f64) -> Result<Tpch, Failure> {
        let mut relations = Relations::default();
        let (mut rows_loaded, mut bytes_loaded) = (0, 0);
        for table in tables::dimensions(scale)? {
            let schema = table.rows.schema();
            batch.create(table.name, schema.clone(), Some(table.key.clone()));
            batch.set_rows(table.name, vec![table.rows.clone()]);
            rows_loaded += table.rows.num_rows();
            bytes_loaded += table.rows.get_array_memory_size();
            let id = engine
                .create_source(&mut relations, table.name, schema, Some(table.key))
                .await?;
            engine
                .write(vec![(id, ChangeBatch::insertions(table.rows))])
                .await?;
        }
        let chunks = tables::orders(scale)?;
        let (order_schema, line_schema) = (chunks[0].orders.schema(), chunks[0].lines.schema());
        let order_key = vec![order_schema.index_of("o_orderkey")?];
        let line_key = vec![
            line_schema.index_of("l_orderkey")?,
            line_schema.index_of("l_linenumber")?,
        ];
        batch.create("orders", order_schema.clone(), Some(order_key.clone()));
        batch.create("lineitem", line_schema.clone(), Some(line_key.clone()));
        let orders = engine
            .create_source(&mut relations, "orders", order_schema, Some(order_key))
            .await?;
        let lineitem = engine
            .create_source(&mut relations, "lineitem", line_schema, Some(line_key))
            .await?;
        let live = chunks
            .iter()
            .map(|chunk| {
                (0..chunk.orders.num_rows())
                    .map(|order| order % HELD_BACK != 0)
                    .collect()
            })
            .collect();
        let mut tpch = Tpch {
            relations,
            orders,
            lineitem,
            chunks,
            live,
            rows_loaded,
            bytes_loaded,
        };
        tpch.show(batch)?;
        for (orders, lines) in batch.rows("orders").into_iter().zip(batch.rows("lineitem")) {
            tpch.rows_loaded += orders.num_rows() + lines.num_rows();
            tpch.bytes_loaded += orders.get_array_memory_size() + lines.get_array_memory_size();
            let changes = vec![
                (tpch.orders, ChangeBatch::insertions(orders)),
                (tpch.lineitem, ChangeBatch::insertions(lines)),
            ];
            engine.write(changes).await?;
        }
        Ok(tpch)
    }

    /// Makes the orders that are in the tables the rows of plain DataFusion's.
    ///
    /// # Errors
    /// Arrow refuses, which only a wrong mask brings about.
    pub fn show(&self, batch: &Batch) -> Result<(), Failure> {
        let (mut all_orders, mut all_lines) = (vec![], vec![]);
        for (chunk, live) in self.chunks.iter().zip(&self.live) {
            let lines: BooleanArray = chunk
                .order_of_line
                .iter()
                .map(|order| Some(live[*order]))
                .collect();
            let orders = BooleanArray::from(live.clone());
            all_orders.push(filter_record_batch(&chunk.orders, &orders)?);
            all_lines.push(filter_record_batch(&chunk.lines, &lines)?);
        }
        batch.set_rows("orders", all_orders);
        batch.set_rows("lineitem", all_lines);
        Ok(())
    }

    /// A refresh: of `orders` random orders one half is to be deleted with its line items, the other to be inserted.
    ///
    /// # Errors
    /// Arrow refuses, which only a wrong mask brings about.
    pub fn refresh(
        &mut self,
        random: &mut StdRng,
        orders: usize,
    ) -> Result<Vec<(RelationId, ChangeBatch)>, Failure> {
        let mut changes = vec![];
        let mut left = orders;
        while left > 0 {
            let place = random.random_range(0..self.chunks.len());
            let (chunk, live) = (&self.chunks[place], &mut self.live[place]);
            // As many of those that are in as of those that are out, so that a chunk never runs out of either.
            let (inside, outside): (Vec<usize>, Vec<usize>) = (0..live.len()).partition(|order| live[*order]);
            let share = left.div_ceil(2).min(inside.len()).min(outside.len());
            for (from, inserted) in [(inside, false), (outside, true)] {
                let orders: HashSet<usize> = sample(random, from.len(), share)
                    .into_iter()
                    .map(|place| from[place])
                    .collect();
                for order in &orders {
                    live[*order] = inserted;
                }
                let weight = if inserted { 1 } else { -1 };
                let (order_rows, line_rows) = (chunk.orders_of(&orders)?, chunk.lines_of(&orders)?);
                changes.push((self.orders, weighted(order_rows, weight)?));
                changes.push((self.lineitem, weighted(line_rows, weight)?));
            }
            left = left.saturating_sub(2 * share);
        }
        Ok(changes)
    }
}

fn weighted(rows: RecordBatch, weight: i64) -> Result<ChangeBatch, Failure> {
    let weights = Int64Array::from(vec![weight; rows.num_rows()]);
    Ok(ChangeBatch::new(rows, Some(weights))?)
}
