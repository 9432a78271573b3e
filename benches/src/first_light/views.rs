//! The sets of views that are live while flights are copied in.

/// A materialized view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Its name.
    pub name: &'static str,
    /// Its query, which DataFusion understands too.
    pub select: &'static str,
    /// A query over the view with one row, which shows whether every flight has arrived in it.
    pub probe: &'static str,
}

/// Views that are live together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ViewSet {
    /// The name of the experiment that copies flights under them.
    pub experiment: &'static str,
    /// What they are, in a sentence for the report.
    pub text: &'static str,
    /// Rows a second that are aimed at.
    pub rate_aim: Option<f64>,
    /// In the order of creation.
    pub views: &'static [View],
}

const DELAYS_BY_CARRIER: View = View {
    name: "delays_by_carrier",
    select: "SELECT carrier, count(*) AS flights, avg(dep_delay) AS mean_delay, max(dep_delay) AS worst_delay \
             FROM flights WHERE dep_delay > 0 GROUP BY carrier",
    probe: "SELECT sum(flights) FROM delays_by_carrier",
};

const FLIGHTS_BY_AIRLINE: View = View {
    name: "flights_by_airline",
    select: "SELECT a.name, f.origin, count(*) AS flights, avg(f.arr_delay) AS mean_delay \
             FROM flights f JOIN airlines a ON f.carrier = a.carrier GROUP BY a.name, f.origin",
    probe: "SELECT sum(flights) FROM flights_by_airline",
};

const AIRPORTS: View = View {
    name: "airports",
    select: "SELECT origin, sum(flights) AS flights, max(mean_delay) AS worst_mean_delay \
             FROM flights_by_airline GROUP BY origin",
    probe: "SELECT sum(flights) FROM airports",
};

const NAMED_FLIGHTS: View = View {
    name: "named_flights",
    select: "SELECT f.flight, f.tailnum, a.name, f.origin, f.dest, f.dep_delay \
             FROM flights f JOIN airlines a ON f.carrier = a.carrier",
    probe: "SELECT count(*) FROM named_flights",
};

const DELAYS_BY_DESTINATION: View = View {
    name: "delays_by_destination",
    select: "SELECT dest, count(*) AS flights, avg(dep_delay) AS mean_delay FROM named_flights GROUP BY dest",
    probe: "SELECT sum(flights) FROM delays_by_destination",
};

/// A view whose rows are looked up by key: thousands of groups.
pub const FLIGHTS_BY_PLANE: View = View {
    name: "flights_by_plane",
    select: "SELECT tailnum, count(*) AS flights, sum(distance) AS distance, avg(arr_delay) AS mean_delay \
             FROM flights GROUP BY tailnum",
    probe: "SELECT sum(flights) FROM flights_by_plane",
};

/// The three views of the first set that has any, which other experiments keep live too.
pub const AGGREGATED: ViewSet = ViewSet {
    experiment: "copy with three views",
    text: "Three views: delays per carrier of the flights that left late (a filtered aggregate); flights per airline \
           and airport (the stream joined with a table, grouped); flights per airport (a view over that view).",
    rate_aim: Some(300_000.0),
    views: &[DELAYS_BY_CARRIER, FLIGHTS_BY_AIRLINE, AIRPORTS],
};

/// All sets, the one without views first: it tells what the views cost.
pub const SETS: [ViewSet; 3] = [
    ViewSet {
        experiment: "copy without views",
        text: "No views: what writing the stream alone takes.",
        rate_aim: None,
        views: &[],
    },
    AGGREGATED,
    ViewSet {
        experiment: "copy with a join kept row by row",
        text: "Three views, one of them large: the filtered aggregate as before; every flight joined with its airline \
               and kept as a row; delays per destination over those rows.",
        rate_aim: Some(300_000.0),
        views: &[DELAYS_BY_CARRIER, NAMED_FLIGHTS, DELAYS_BY_DESTINATION],
    },
];
