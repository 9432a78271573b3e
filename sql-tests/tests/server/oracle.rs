//! The batch oracle over PostgreSQL's wire: January's flights are copied in piece by piece, tables are changed at random
//! meanwhile, and after each step every view must equal its own SELECT over the base relations, in millrace and in plain
//! DataFusion over the same rows.
//!
//! `MILLRACE_SEED` is the first seed. Data: nycflights13, CC0.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use bytes::Bytes;
use flate2::read::GzDecoder;
use futures::SinkExt;
use millrace_oracle::plain::Plain;
use millrace_oracle::text::{self, TextRow};
use millrace_sql_tests::{Failure, connect, rows, run, seed, start};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio_postgres::Client;

/// Runs, each with a seed of its own.
const RUNS: u64 = 3;
/// Pieces that the flights come in; after each everything is compared.
const STEPS: usize = 5;
/// Changes of tables between two comparisons.
const CHANGES: usize = 12;

/// The views. Key columns come first, so that sorting puts the same rows beside each other.
const VIEWS: [(&str, &str); 15] = [
    (
        "late",
        "SELECT carrier, flight, sched_dep, origin, dest, dep_delay FROM flight WHERE dep_delay > 60",
    ),
    (
        "by_carrier",
        "SELECT carrier, count(*) AS n, count(arr_delay) AS arrived, sum(dep_delay) AS total, avg(arr_delay) AS mean, \
         min(dep_delay) AS least, max(dep_delay) AS most FROM flight GROUP BY carrier",
    ),
    (
        "by_origin",
        "SELECT origin, stddev(arr_delay) AS spread, count(DISTINCT dest) AS dests, bool_or(dep_delay > 300) AS awful, \
         bool_and(distance > 100) AS far FROM flight GROUP BY origin",
    ),
    (
        "by_airline",
        "SELECT a.name, count(*) AS n, avg(f.arr_delay) AS mean FROM flight f JOIN airline a ON f.carrier = a.carrier \
         GROUP BY a.name",
    ),
    (
        "makers",
        "SELECT p.manufacturer, count(*) AS n, sum(p.seats) AS seats, min(p.year) AS oldest, max(p.model) AS model \
         FROM flight f JOIN plane p ON f.tailnum = p.tailnum GROUP BY p.manufacturer HAVING count(*) > 20",
    ),
    (
        "sizes",
        "SELECT n > 1000 AS big, count(*) AS carriers, sum(total) AS total FROM by_carrier GROUP BY n > 1000",
    ),
    (
        "long_routes",
        "SELECT DISTINCT origin, dest FROM flight WHERE distance > 2000",
    ),
    (
        "delayed_at",
        "SELECT origin AS faa, 1 AS kind, flight FROM flight WHERE dep_delay > 120 \
         UNION ALL SELECT dest, 2, flight FROM flight WHERE arr_delay > 120",
    ),
    (
        "days",
        "SELECT date_trunc('day', sched_dep) AS day, CASE WHEN dep_delay IS NULL THEN 'cancelled' \
         WHEN dep_delay > 15 THEN 'late' ELSE 'on time' END AS state, count(*) AS n FROM flight GROUP BY 1, 2",
    ),
    (
        "whole",
        "SELECT count(*) AS n, sum(distance) AS miles, max(air_time) AS longest FROM flight",
    ),
    (
        "none",
        "SELECT count(*) AS n, sum(distance) AS miles FROM flight WHERE origin = 'XXX'",
    ),
    (
        "by_zone",
        "SELECT p.type, o.tz, count(*) AS n, max(o.alt) AS highest FROM flight f JOIN plane p ON f.tailnum = p.tailnum \
         JOIN airport o ON f.dest = o.faa GROUP BY p.type, o.tz",
    ),
    (
        "tagged",
        "SELECT t.label, a.name, count(*) AS n FROM tag t JOIN airline a ON t.carrier = a.carrier GROUP BY t.label, a.name",
    ),
    ("tags", "SELECT DISTINCT carrier FROM tag"),
    (
        "old_planes",
        "SELECT tailnum, 2013 - year AS age, upper(manufacturer) AS maker FROM plane WHERE year < 1995",
    ),
];

/// A base relation: how it is declared, and the rows that it must hold.
struct Relation {
    kind: &'static str,
    name: &'static str,
    columns: &'static [(&'static str, &'static str)],
    rows: Vec<TextRow>,
}

impl Relation {
    fn create(&self) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|(name, sql)| format!("{name} {sql}"))
            .collect();
        format!("CREATE {} {} ({})", self.kind, self.name, columns.join(", "))
    }

    /// The same rows for DataFusion.
    fn batch(&self) -> Result<RecordBatch, Failure> {
        let mut fields = Vec::new();
        let mut arrays: Vec<ArrayRef> = Vec::new();
        for (index, (name, sql)) in self.columns.iter().enumerate() {
            let data_type = match sql.split(' ').next() {
                Some("INT") => DataType::Int32,
                Some("DOUBLE") => DataType::Float64,
                Some("TIMESTAMP") => DataType::Timestamp(TimeUnit::Microsecond, None),
                _ => DataType::Utf8,
            };
            let texts: StringArray = self.rows.iter().map(|row| row[index].as_deref()).collect();
            arrays.push(cast(&texts, &data_type)?);
            fields.push(Field::new(*name, data_type, true));
        }
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
    }

    /// Copies rows in and remembers them.
    async fn copy(&mut self, client: &Client, rows: Vec<TextRow>) -> Result<(), Failure> {
        let mut text = String::new();
        for row in &rows {
            let values: Vec<&str> = row
                .iter()
                .map(|value| value.as_deref().unwrap_or("\\N"))
                .collect();
            text.push_str(&values.join("\t"));
            text.push('\n');
        }
        let sink = client
            .copy_in::<_, Bytes>(&format!("COPY {} FROM STDIN", self.name))
            .await?;
        let mut sink = Box::pin(sink);
        sink.send(Bytes::from(text)).await?;
        let copied = sink.as_mut().finish().await?;
        assert_eq!(copied, rows.len() as u64, "rows of {}", self.name);
        self.rows.extend(rows);
        Ok(())
    }
}

/// A file of the repository, unpacked.
fn file(name: &str) -> Result<String, Failure> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../server/console/data/flights")
        .join(name);
    let packed = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut text = String::new();
    GzDecoder::new(packed.as_slice()).read_to_string(&mut text)?;
    Ok(text)
}

/// The first columns of a CSV file; it has no quoted fields, and NA is NULL.
fn csv(name: &str, columns: usize) -> Result<Vec<TextRow>, Failure> {
    let value = |text: &str| (text != "NA" && !text.is_empty()).then(|| text.to_owned());
    let rows = file(name)?;
    Ok(rows
        .lines()
        .skip(1)
        .map(|line| line.split(',').take(columns).map(value).collect())
        .collect())
}

fn flights(columns: &[(&str, &str)]) -> Result<Vec<TextRow>, Failure> {
    let mut rows = Vec::new();
    for line in file("flights.ndjson.gz")?.lines() {
        let object: serde_json::Value = serde_json::from_str(line)?;
        let value = |(name, _): &(&str, &str)| match &object[*name] {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        rows.push(columns.iter().map(value).collect());
    }
    Ok(rows)
}

/// The base relations and what they must hold.
struct Model {
    flight: Relation,
    airline: Relation,
    airport: Relation,
    plane: Relation,
    tag: Relation,
}

impl Model {
    fn new() -> Model {
        let relation = |kind, name, columns| Relation {
            kind,
            name,
            columns,
            rows: Vec::new(),
        };
        Model {
            flight: relation(
                "STREAM",
                "flight",
                &[
                    ("sched_dep", "TIMESTAMP"),
                    ("carrier", "TEXT"),
                    ("flight", "INT"),
                    ("tailnum", "TEXT"),
                    ("origin", "TEXT"),
                    ("dest", "TEXT"),
                    ("dep_delay", "INT"),
                    ("arr_delay", "INT"),
                    ("air_time", "INT"),
                    ("distance", "INT"),
                ],
            ),
            airline: relation(
                "TABLE",
                "airline",
                &[("carrier", "TEXT PRIMARY KEY"), ("name", "TEXT")],
            ),
            airport: relation(
                "TABLE",
                "airport",
                &[
                    ("faa", "TEXT PRIMARY KEY"),
                    ("name", "TEXT"),
                    ("lat", "DOUBLE PRECISION"),
                    ("lon", "DOUBLE PRECISION"),
                    ("alt", "INT"),
                    ("tz", "INT"),
                ],
            ),
            plane: relation(
                "TABLE",
                "plane",
                &[
                    ("tailnum", "TEXT PRIMARY KEY"),
                    ("year", "INT"),
                    ("type", "TEXT"),
                    ("manufacturer", "TEXT"),
                    ("model", "TEXT"),
                    ("engines", "INT"),
                    ("seats", "INT"),
                ],
            ),
            tag: relation("TABLE", "tag", &[("carrier", "TEXT"), ("label", "TEXT")]),
        }
    }

    fn relations(&self) -> [&Relation; 5] {
        [&self.flight, &self.airline, &self.airport, &self.plane, &self.tag]
    }

    /// DataFusion with the base relations and the queries as its own plain views.
    async fn datafusion(&self) -> Result<Plain, Failure> {
        let mut plain = Plain::new();
        for relation in self.relations() {
            let batch = relation.batch()?;
            plain.set_rows(relation.name, batch.schema(), vec![batch])?;
        }
        for (name, query) in VIEWS {
            plain.create_view(name, query).await?;
        }
        Ok(plain)
    }

    /// A random change of a table, as SQL; it has happened in the model already.
    fn change(&mut self, random: &mut StdRng) -> String {
        let number = random.random_range(0..1_000_000);
        match random.random_range(0..8) {
            0 => {
                let row = pick(&mut self.airline.rows, random);
                row[1] = Some(format!("Airline {number}"));
                format!(
                    "UPDATE airline SET name = 'Airline {number}' WHERE carrier = {}",
                    literal(&row[0])
                )
            }
            1 => {
                let row = pick(&mut self.plane.rows, random);
                row[6] = Some((number % 400).to_string());
                row[1] = None;
                format!(
                    "UPDATE plane SET seats = {}, year = NULL WHERE tailnum = {}",
                    number % 400,
                    literal(&row[0])
                )
            }
            2 => {
                // Many rows at once, and not all groups.
                let maker = pick(&mut self.plane.rows, random)[3].clone();
                for row in self.plane.rows.iter_mut().filter(|row| row[3] == maker) {
                    row[6] = row[6]
                        .as_ref()
                        .map(|seats| (seats.parse::<i32>().unwrap() + 1).to_string());
                    row[1] = Some("1990".to_owned());
                }
                format!(
                    "UPDATE plane SET seats = seats + 1, year = 1990 WHERE manufacturer = {}",
                    literal(&maker)
                )
            }
            3 => {
                let index = random.random_range(0..self.plane.rows.len());
                let row = self.plane.rows.swap_remove(index);
                format!("DELETE FROM plane WHERE tailnum = {}", literal(&row[0]))
            }
            4 => {
                // A new key: all of its flights leave the join.
                let row = pick(&mut self.plane.rows, random);
                let old = row[0].replace(format!("X{number}-{}", random.random::<u32>()));
                format!(
                    "UPDATE plane SET tailnum = {} WHERE tailnum = {}",
                    literal(&row[0]),
                    literal(&old)
                )
            }
            5 => {
                // The plane of a flight that may already be there: it comes into being, or is replaced.
                let tailnum = self
                    .flight
                    .rows
                    .choose(random)
                    .and_then(|flight| flight[3].clone());
                let Some(tailnum) = tailnum else {
                    return "SELECT 'no plane'".to_owned();
                };
                self.plane.rows.retain(|row| row[0].as_ref() != Some(&tailnum));
                let texts = [&tailnum, "1980", "Balloon", "Montgolfier", "M1", "0", "2"];
                self.plane
                    .rows
                    .push(texts.iter().map(|text| Some((*text).to_owned())).collect());
                format!(
                    "INSERT INTO plane VALUES ('{tailnum}', 1980, 'Balloon', 'Montgolfier', 'M1', 0, 2) \
                     ON CONFLICT (tailnum) DO UPDATE SET year = 1980, type = 'Balloon', manufacturer = 'Montgolfier', \
                     model = 'M1', engines = 0, seats = 2"
                )
            }
            6 => {
                let carrier = pick(&mut self.airline.rows, random)[0].clone();
                let row = vec![carrier, Some(format!("l{}", number % 5))];
                let values = format!("({}, {})", literal(&row[0]), literal(&row[1]));
                self.tag.rows.extend([row.clone(), row]);
                format!("INSERT INTO tag VALUES {values}, {values}")
            }
            _ => {
                let label = Some(format!("l{}", number % 5));
                self.tag.rows.retain(|row| row[1] != label);
                format!("DELETE FROM tag WHERE label = {}", literal(&label))
            }
        }
    }
}

fn pick<'a>(rows: &'a mut [TextRow], random: &mut StdRng) -> &'a mut TextRow {
    let index = random.random_range(0..rows.len());
    &mut rows[index]
}

fn literal(value: &Option<String>) -> String {
    match value {
        Some(text) => format!("'{}'", text.replace('\'', "''")),
        None => "NULL".to_owned(),
    }
}

async fn compare(client: &Client, model: &Model, views: &[(&str, &str)]) -> Result<(), Failure> {
    let plain = model.datafusion().await?;
    for (name, query) in views {
        let view = rows(client, &format!("SELECT * FROM {name}")).await?;
        let batch = rows(client, query).await?;
        let oracle = text::rows(&plain.answer(query).await?)?;
        for (other, expected) in [("its query", batch), ("DataFusion", oracle)] {
            if let Some(difference) = text::difference(view.clone(), expected) {
                return Err(format!("{name} and {other} differ: {difference}").into());
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn views_equal_their_queries() -> Result<(), Failure> {
    let first = seed();
    for seed in first..first + RUNS {
        println!("seed {seed}");
        one_run(seed).await?;
    }
    Ok(())
}

async fn one_run(seed: u64) -> Result<(), Failure> {
    let mut random = StdRng::seed_from_u64(seed);
    let directory = tempfile::tempdir()?;
    let server = start(directory.path()).await?;
    let client = connect(server.pg_addr()).await?;

    let mut model = Model::new();
    for relation in model.relations() {
        run(&client, &relation.create()).await?;
    }
    model.airline.copy(&client, csv("airlines.csv.gz", 2)?).await?;
    model.airport.copy(&client, csv("airports.csv.gz", 6)?).await?;
    model.plane.copy(&client, csv("planes.csv.gz", 7)?).await?;

    let mut flights = flights(model.flight.columns)?;
    assert_eq!(flights.len(), 27_004);
    // Some views are there before the first row, the others are made over existing ones.
    let mut live = 0;
    for step in 0..STEPS {
        let until = if step + 1 == STEPS {
            VIEWS.len()
        } else {
            random.random_range(live..=VIEWS.len())
        };
        for (name, query) in &VIEWS[live..until] {
            run(&client, &format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await?;
        }
        live = until;
        let rest = STEPS - step;
        let piece = flights.split_off(flights.len() - flights.len() / rest);
        model.flight.copy(&client, piece).await?;
        for _ in 0..CHANGES {
            let sql = model.change(&mut random);
            run(&client, &sql).await?;
        }
        compare(&client, &model, &VIEWS[..live])
            .await
            .map_err(|error| format!("step {step}: {error}"))?;
    }
    drop(client);
    server.shutdown().await;

    let server = start(directory.path()).await?;
    let client = connect(server.pg_addr()).await?;
    compare(&client, &model, &VIEWS)
        .await
        .map_err(|error| format!("after a restart: {error}"))?;
    drop(client);
    server.shutdown().await;
    Ok(())
}
