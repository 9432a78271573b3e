//! What the demo declares, as a user would: a stream, three tables, four views. And what it changes midway.

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

/// The airline that changes its name: it joined American at the end of 2013.
const RENAMED: &str = "US";
/// Its names, as it was and as it became; the second is another airline's too.
pub const RENAMED_FROM_TO: [&str; 2] = ["US Airways Inc.", "American Airlines Inc."];

/// The change that is made midway: in the first pass the two airlines become one, in the second two again.
pub fn rename(pass: u64) -> String {
    let name = RENAMED_FROM_TO[usize::from(pass.is_multiple_of(2))];
    format!("UPDATE airlines SET name = '{name}' WHERE carrier = '{RENAMED}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_airlines_become_one_and_two_again() {
        assert!(rename(0).contains("'American Airlines Inc.'"));
        assert!(rename(1).contains("'US Airways Inc.'"));
        assert_eq!(rename(0), rename(2));
    }
}
