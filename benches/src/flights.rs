//! The flights that left New York's airports in 2013, as the data of experiments.
//!
//! The rows are read once into Arrow. What is sent to the server (CSV text) and what the oracle queries both come from
//! these batches, so that they cannot differ.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::{csv, json};
use bytes::Bytes;
use flate2::read::GzDecoder;

use crate::error::BenchError;

/// How many flights there were in the year.
pub const ROWS_OF_THE_YEAR: usize = 336_776;
/// What one repetition of January is shifted by: 31 days, in microseconds.
const JANUARY_MICROS: i64 = 31 * 24 * 3600 * 1_000_000;
const BATCH_ROWS: usize = 8192;

/// The statement that makes a stream for the flights.
pub const CREATE_FLIGHTS: &str = "CREATE STREAM flights (sched_dep timestamp, carrier text, flight int, \
    tailnum text, origin text, dest text, dep_delay int, arr_delay int, air_time int, distance int)";
/// The statement that makes a table for the airlines.
pub const CREATE_AIRLINES: &str = "CREATE TABLE airlines (carrier text PRIMARY KEY, name text)";

/// Flights and airlines.
#[derive(Debug, Clone)]
pub struct Flights {
    /// Where the rows came from, in a sentence for the report.
    pub origin: String,
    /// The flights.
    pub batches: Vec<RecordBatch>,
    /// The airlines.
    pub airlines: Vec<RecordBatch>,
}

impl Flights {
    /// How many flights there are.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The flights as the text of a COPY with FORMAT csv.
    pub fn csv(&self) -> Result<Bytes, BenchError> {
        to_csv(&self.batches)
    }

    /// The airlines as the text of a COPY with FORMAT csv.
    pub fn airlines_csv(&self) -> Result<Bytes, BenchError> {
        to_csv(&self.airlines)
    }

    /// The different values of the column `tailnum`, sorted.
    pub fn tailnums(&self) -> Vec<String> {
        let columns = self
            .batches
            .iter()
            .filter_map(|batch| batch.column_by_name("tailnum"));
        let values = columns.flat_map(|column| column.as_string::<i32>().iter().flatten());
        let distinct: std::collections::BTreeSet<&str> = values.collect();
        distinct.into_iter().map(str::to_owned).collect()
    }
}

/// Reads flights until there are `rows` of them: from `file`, which must have that many, or else from the repository's
/// file of January, repeated with dates shifted.
pub fn load(file: Option<&Path>, rows: usize) -> Result<Flights, BenchError> {
    let (mut batches, origin) = match file {
        Some(file) => (
            read(file, flights_schema())?,
            format!("the first {rows} rows of {}", file_name(file)),
        ),
        None => {
            let batches = read(&repository_file("flights")?, flights_schema())?;
            let origin = format!("{rows} rows: January's, repeated with dates shifted by 31 days each time");
            (repeated(&batches, rows)?, origin)
        }
    };
    let mut missing = rows;
    batches.retain_mut(|batch| {
        *batch = batch.slice(0, batch.num_rows().min(missing));
        missing -= batch.num_rows();
        batch.num_rows() > 0
    });
    if missing > 0 {
        let (have, name) = (rows - missing, file.map_or("the file".to_owned(), file_name));
        return Err(BenchError::Server(format!(
            "{name} has only {have} of {rows} flights"
        )));
    }
    Ok(Flights {
        origin,
        batches,
        airlines: read(&repository_file("airlines")?, airlines_schema())?,
    })
}

fn flights_schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let columns = [
        ("sched_dep", time),
        ("carrier", DataType::Utf8),
        ("flight", DataType::Int32),
        ("tailnum", DataType::Utf8),
        ("origin", DataType::Utf8),
        ("dest", DataType::Utf8),
        ("dep_delay", DataType::Int32),
        ("arr_delay", DataType::Int32),
        ("air_time", DataType::Int32),
        ("distance", DataType::Int32),
    ];
    schema(&columns)
}

fn airlines_schema() -> SchemaRef {
    schema(&[("carrier", DataType::Utf8), ("name", DataType::Utf8)])
}

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let fields = columns
        .iter()
        .map(|(name, kind)| Field::new(*name, kind.clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The repository's file of January's flights, or of what belongs to them.
fn repository_file(kind: &str) -> Result<PathBuf, BenchError> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/console/data/flights");
    let doing = || BenchError::io(format!("cannot look for {kind} in server/console/data/flights"));
    for entry in fs::read_dir(&directory).map_err(doing())? {
        let file = entry.map_err(doing())?.path();
        if file_name(&file).split('.').next() == Some(kind) {
            return Ok(file);
        }
    }
    Err(BenchError::Server(format!(
        "there are no {kind} in server/console/data/flights"
    )))
}

fn file_name(file: &Path) -> String {
    file.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn read(file: &Path, schema: SchemaRef) -> Result<Vec<RecordBatch>, BenchError> {
    let name = file_name(file);
    let opened = File::open(file).map_err(BenchError::io(format!("cannot read {name}")))?;
    let (name, text): (&str, Box<dyn Read>) = match name.strip_suffix(".gz") {
        Some(name) => (name, Box::new(GzDecoder::new(opened))),
        None => (&name, Box::new(opened)),
    };
    let text = BufReader::with_capacity(1 << 20, text);
    let batches = if name.ends_with(".csv") {
        let reader = csv::ReaderBuilder::new(schema)
            .with_header(true)
            .with_batch_size(BATCH_ROWS)
            .build_buffered(text)?;
        reader.collect::<Result<Vec<_>, _>>()?
    } else {
        let reader = json::ReaderBuilder::new(schema)
            .with_batch_size(BATCH_ROWS)
            .build(text)?;
        reader.collect::<Result<Vec<_>, _>>()?
    };
    Ok(batches)
}

/// `batches` again and again, each time 31 days later, until there are at least `rows`.
fn repeated(batches: &[RecordBatch], rows: usize) -> Result<Vec<RecordBatch>, BenchError> {
    let rows_once: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let times = if rows_once == 0 {
        0
    } else {
        rows.div_ceil(rows_once)
    };
    let mut all = Vec::with_capacity(times * batches.len());
    for time in 0..times {
        let shift = i64::try_from(time)
            .unwrap_or(i64::MAX)
            .saturating_mul(JANUARY_MICROS);
        for batch in batches {
            let mut columns = batch.columns().to_vec();
            let times = columns[0].as_primitive::<TimestampMicrosecondType>();
            let shifted: TimestampMicrosecondArray = times.unary(|micros| micros.saturating_add(shift));
            columns[0] = Arc::new(shifted);
            all.push(RecordBatch::try_new(batch.schema(), columns)?);
        }
    }
    Ok(all)
}

fn to_csv(batches: &[RecordBatch]) -> Result<Bytes, BenchError> {
    let mut writer = csv::WriterBuilder::new().with_header(false).build(Vec::new());
    for batch in batches {
        writer.write(batch)?;
    }
    Ok(writer.into_inner().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"sched_dep":"2013-01-01T05:15:00","carrier":"UA","flight":1545,"tailnum":"N14228","origin":"EWR","dest":"IAH","dep_delay":2,"arr_delay":11,"air_time":227,"distance":1400}
{"sched_dep":"2013-01-02T05:15:00","carrier":"B6","flight":1,"tailnum":null,"origin":"JFK","dest":"BOS","dep_delay":null,"arr_delay":null,"air_time":null,"distance":187}
"#;

    fn file(directory: &Path) -> PathBuf {
        let file = directory.join("flights.ndjson");
        fs::write(&file, TEXT).unwrap();
        file
    }

    #[test]
    fn rows_become_csv_with_empty_nulls() {
        let directory = tempfile::tempdir().unwrap();
        let flights = load(Some(&file(directory.path())), 2).unwrap();
        let csv = String::from_utf8(flights.csv().unwrap().to_vec()).unwrap();
        assert_eq!(
            csv,
            "2013-01-01T05:15:00,UA,1545,N14228,EWR,IAH,2,11,227,1400\n2013-01-02T05:15:00,B6,1,,JFK,BOS,,,,187\n"
        );
        assert_eq!(flights.tailnums(), ["N14228"]);
    }

    #[test]
    fn rows_of_csv_are_those_of_json() {
        let directory = tempfile::tempdir().unwrap();
        let json = load(Some(&file(directory.path())), 2).unwrap();
        let header: Vec<_> = flights_schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let mut text = header.join(",").into_bytes();
        text.push(b'\n');
        text.extend(json.csv().unwrap());
        let csv = directory.path().join("flights.csv");
        fs::write(&csv, text).unwrap();
        assert_eq!(load(Some(&csv), 2).unwrap().batches, json.batches);
    }

    #[test]
    fn a_month_is_repeated_later() {
        let directory = tempfile::tempdir().unwrap();
        let once = read(&file(directory.path()), flights_schema()).unwrap();
        let text = to_csv(&repeated(&once, 3).unwrap()).unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        let dates: Vec<_> = text.lines().map(|line| &line[..10]).collect();
        assert_eq!(dates, ["2013-01-01", "2013-01-02", "2013-02-01", "2013-02-02"]);
    }

    #[test]
    fn a_file_with_too_few_rows_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error = load(Some(&file(directory.path())), 3).unwrap_err().to_string();
        assert!(
            error.contains("flights.ndjson has only 2 of 3 flights"),
            "{error}"
        );
    }
}
