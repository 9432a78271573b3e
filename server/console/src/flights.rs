//! What the demo declares and replays: a stream, three tables, four views, and the flights of a month.
//!
//! The files are compressed, as they are in the binary. Where they come from, and under which terms, is in
//! `server/console/data/flights/README.md`.

use serde_json::json;

use crate::gzip::decompressed;

/// The flights, compressed: an object of JSON a line, in the order of their scheduled departures.
pub const FLIGHTS: &[u8] = include_bytes!("../data/flights/flights.ndjson.gz");

/// A table that is loaded before the replay.
pub struct TableFile {
    /// The table's name.
    pub table: &'static str,
    pub(crate) compressed: &'static [u8],
}

/// The tables, in the order in which they are loaded. All are CSV with a header and `NA` for NULL.
pub const TABLE_FILES: [TableFile; 3] = [
    TableFile {
        table: "airlines",
        compressed: include_bytes!("../data/flights/airlines.csv.gz"),
    },
    TableFile {
        table: "airports",
        compressed: include_bytes!("../data/flights/airports.csv.gz"),
    },
    TableFile {
        table: "planes",
        compressed: include_bytes!("../data/flights/planes.csv.gz"),
    },
];

impl TableFile {
    /// The file's bytes, as COPY takes them.
    pub fn csv(&self) -> Vec<u8> {
        decompressed(self.compressed)
    }
}

/// The stream and the tables.
pub const RELATIONS: [&str; 4] = [
    "CREATE STREAM flights (
  sched_dep TIMESTAMP NOT NULL, carrier TEXT NOT NULL, flight INT NOT NULL, tailnum TEXT,
  origin TEXT NOT NULL, dest TEXT NOT NULL,
  dep_delay INT, arr_delay INT, air_time INT, distance INT NOT NULL
)",
    "CREATE TABLE airlines (carrier TEXT PRIMARY KEY, name TEXT NOT NULL)",
    "CREATE TABLE airports (
  faa TEXT PRIMARY KEY, name TEXT NOT NULL, lat DOUBLE PRECISION, lon DOUBLE PRECISION, alt INT,
  tz INT, dst TEXT, tzone TEXT
)",
    "CREATE TABLE planes (
  tailnum TEXT PRIMARY KEY, year INT, type TEXT, manufacturer TEXT, model TEXT, engines INT,
  seats INT, speed INT, engine TEXT
)",
];

/// A view, and how the demo shows it.
pub struct View {
    /// Its name.
    pub name: &'static str,
    /// What it is an example of.
    pub kind: &'static str,
    /// Its query: the view holds what this would answer, all the time.
    pub query: &'static str,
    /// Reads it for showing, the rows that matter most first.
    pub show: &'static str,
}

impl View {
    /// The statement that makes it.
    pub fn create(&self) -> String {
        format!("CREATE MATERIALIZED VIEW {} AS\n{}", self.name, self.query)
    }
}

/// Every batch is looked for here; the column `departed` sums up to the flights that departed.
pub const CARRIER_DELAYS: &str = "carrier_delays";
/// Where the change of an airline's name shows.
pub const AIRLINE_DELAYS: &str = "airline_delays";

/// The views. Each may read those before it.
pub const VIEWS: [View; 4] = [
    View {
        name: CARRIER_DELAYS,
        kind: "a filtered aggregate",
        query: "SELECT carrier, count(*) AS departed, avg(dep_delay) AS mean_delay,
  count(*) FILTER (WHERE dep_delay > 15) AS late
FROM flights WHERE dep_delay IS NOT NULL GROUP BY carrier",
        show: "SELECT carrier, departed, round(mean_delay::numeric, 1) AS delay, late
FROM carrier_delays ORDER BY departed DESC, carrier",
    },
    View {
        name: AIRLINE_DELAYS,
        kind: "the stream joined with a table",
        query: "SELECT a.name AS airline, count(*) AS departed, avg(f.dep_delay) AS mean_delay
FROM flights f JOIN airlines a ON a.carrier = f.carrier
WHERE f.dep_delay IS NOT NULL GROUP BY a.name",
        show: "SELECT airline, departed, round(mean_delay::numeric, 1) AS delay
FROM airline_delays ORDER BY departed DESC, airline",
    },
    View {
        name: "punctuality",
        kind: "a view over a view",
        query: "SELECT CASE WHEN mean_delay < 5 THEN 'punctual' WHEN mean_delay < 12 THEN 'late' ELSE 'very late' END AS class,
  count(*) AS airlines, sum(departed) AS departed
FROM airline_delays GROUP BY 1",
        show: "SELECT class, airlines, departed FROM punctuality ORDER BY departed DESC, class",
    },
    View {
        name: "maker_miles",
        kind: "a join, distinct planes",
        query: "SELECT p.manufacturer AS maker, count(*) AS flights, count(DISTINCT f.tailnum) AS planes,
  sum(f.distance) AS miles
FROM flights f JOIN planes p ON p.tailnum = f.tailnum GROUP BY p.manufacturer",
        show: "SELECT maker, flights, planes, miles FROM maker_miles ORDER BY flights DESC, maker",
    },
];

/// What a program has to do to have all of it, as JSON: statements to run, files to load, the stream to feed.
pub(crate) fn description() -> String {
    let views = VIEWS.iter().map(|view| {
        json!({
            "name": view.name,
            "kind": view.kind,
            "create": view.create(),
            "show": view.show,
        })
    });
    let tables = TABLE_FILES
        .iter()
        .map(|file| json!({"table": file.table, "file": format!("{}.csv", file.table)}));
    json!({
        "relations": RELATIONS,
        "tables": tables.collect::<Vec<_>>(),
        "views": views.collect::<Vec<_>>(),
        "stream": "flights",
        "rows": "flights.ndjson",
    })
    .to_string()
}
