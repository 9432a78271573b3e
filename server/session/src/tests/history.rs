//! Views as they were: each epoch of a history against the view's query over what its inputs were then.

use millrace_postgres::error::SqlState;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::tests::Fixture;

/// A view's name and its query.
const VIEWS: [(&str, &str); 4] = [
    ("sums", "SELECT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g"),
    // The same row more than once.
    ("plain", "SELECT g, v FROM t"),
    ("joined", "SELECT t.id, t.v, u.w FROM t LEFT JOIN u ON t.g = u.g"),
    ("one", "SELECT max(v) AS m, count(*) AS n FROM t"),
];

async fn fixture() -> Fixture {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, g INT, v INT)").await;
    f.ok("CREATE TABLE u (g INT PRIMARY KEY, w TEXT)").await;
    f.ok("INSERT INTO t SELECT x, x % 3, x FROM generate_series(0, 9) AS g(x)")
        .await;
    for (view, query) in VIEWS {
        f.ok(&format!(
            "CREATE MATERIALIZED VIEW {view} WITH (history = '1 hour') AS {query}"
        ))
        .await;
    }
    f
}

async fn sorted(f: &Fixture, sql: &str) -> Vec<String> {
    let mut rows = f.ok(sql).await;
    rows.sort();
    rows
}

/// What a view is now, and the epoch of its history as of which it is that.
async fn now(f: &Fixture, view: &str, query: &str) -> (u64, Vec<String>) {
    // What is visible is in the history then.
    let rows = sorted(f, &format!("SELECT * FROM {view} AS OF now()")).await;
    assert_eq!(rows, sorted(f, query).await, "{view}");
    let newest = format!("SELECT newest_epoch FROM mr_catalog.subscriptions WHERE name = '{view}$history'");
    (f.ok(&newest).await[0].parse().unwrap(), rows)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_as_of_an_epoch_is_its_query_over_what_there_was() {
    let mut f = fixture().await;
    let mut random = StdRng::seed_from_u64(20_261_126);
    let mut seen: Vec<(usize, u64, Vec<String>)> = vec![];
    for round in 0..40 {
        let (id, g, v) = (
            random.random_range(0..20),
            random.random_range(0..4),
            random.random_range(0..5),
        );
        let statement = match random.random_range(0..6) {
            0 => format!("DELETE FROM t WHERE id % 7 = {}", id % 7),
            1 => format!("UPDATE t SET v = v + 1 WHERE g = {g}"),
            2 => format!("INSERT INTO u VALUES ({g}, 'w{v}') ON CONFLICT (g) DO UPDATE SET w = EXCLUDED.w"),
            3 => format!("DELETE FROM u WHERE g = {g}"),
            _ => format!(
                "INSERT INTO t VALUES ({id}, {g}, {v}) ON CONFLICT (id) DO UPDATE SET g = EXCLUDED.g, v = EXCLUDED.v"
            ),
        };
        f.ok(&statement).await;
        for (number, (view, query)) in VIEWS.into_iter().enumerate() {
            let (epoch, rows) = now(&f, view, query).await;
            seen.push((number, epoch, rows));
        }
        match round {
            13 => f = f.restart().await,
            26 => f = f.killed().await,
            _ => {}
        }
    }
    for (number, epoch, rows) in seen {
        let (view, _) = VIEWS[number];
        let found = sorted(&f, &format!("SELECT * FROM {view} FOR SYSTEM_TIME AS OF {epoch}")).await;
        assert_eq!(found, rows, "{view} as of {epoch}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_is_joined_with_what_is_and_followed_from_then_on() {
    let f = fixture().await;
    let (before, _) = now(&f, "sums", VIEWS[0].1).await;
    f.ok("UPDATE t SET v = v + 100 WHERE g = 1").await;
    now(&f, "sums", VIEWS[0].1).await;
    let changed = format!(
        "SELECT n.g, n.s - o.s FROM sums AS n JOIN sums AS OF {before} AS o ON n.g = o.g WHERE n.s <> o.s"
    );
    assert_eq!(f.ok(&changed).await, ["1|300"]);
    assert_eq!(
        f.ok(&format!(
            "SELECT count(*) FROM sums AS OF {before} WHERE sums.s > 100"
        ))
        .await,
        ["0"]
    );
    // Through a cursor too, and as a column's moment.
    f.ok(&format!(
        "DECLARE c CURSOR WITH HOLD FOR SELECT sum(s) FROM sums AS OF {before}"
    ))
    .await;
    assert_eq!(f.ok("FETCH 1 FROM c").await, ["45"]);
    assert_eq!(f.ok("SELECT sum(s) FROM sums AS OF now()").await, ["345"]);
    // Following begins with what was.
    f.ok(&format!(
        "DECLARE s CURSOR WITH HOLD FOR SUBSCRIBE sums AS OF {before}"
    ))
    .await;
    let mut told = vec![];
    while told.len() < 5 {
        told.extend(f.ok("FETCH 10 FROM s WITH (timeout = '100ms')").await);
    }
    let mut told: Vec<&str> = told.iter().map(|row| row.split_once('|').unwrap().1).collect();
    told[..3].sort_unstable();
    assert_eq!(
        told,
        [
            "insert|0|18|4",
            "insert|1|12|3",
            "insert|2|15|3",
            "update_delete|1|12|3",
            "update_insert|1|312|3"
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_in_a_history_is_refused() {
    let f = fixture().await;
    f.ok("CREATE MATERIALIZED VIEW bare AS SELECT g FROM t").await;
    let error = f.error("SELECT * FROM bare AS OF now()").await;
    assert_eq!(error.code, SqlState::ObjectNotInPrerequisiteState);
    assert_eq!(error.message, "materialized view bare has no history");
    let error = f.error("SELECT * FROM t AS OF 5").await;
    assert_eq!(error.message, "table t has no history");
    let error = f.error("SELECT * FROM sums AS OF 5").await;
    assert_eq!(error.code, SqlState::SnapshotTooOld);
    assert_eq!(error.message, "materialized view sums has no history back to 5");
    for wrong in ["'soon'", "begin()", "now() + interval '1 hour'", "-1"] {
        let error = f
            .error(&format!("SELECT * FROM sums FOR SYSTEM_TIME AS OF {wrong}"))
            .await;
        assert_eq!(error.code, SqlState::InvalidParameterValue, "{wrong}: {error:?}");
    }
    let error = f.error("CREATE VIEW w AS SELECT * FROM sums AS OF 5").await;
    assert_eq!(error.code, SqlState::FeatureNotSupported);
    let error = f
        .error("CREATE MATERIALIZED VIEW w WITH (history = 'long') AS SELECT g FROM t")
        .await;
    assert_eq!(error.code, SqlState::InvalidParameterValue);
    // It goes with its view, and not without it.
    let error = f.error("DROP SUBSCRIPTION \"sums$history\"").await;
    assert_eq!(error.code, SqlState::DependentObjectsStillExist);
    let (before, _) = now(&f, "sums", VIEWS[0].1).await;
    // Another definition has another history.
    f.ok("CREATE OR REPLACE MATERIALIZED VIEW sums WITH (history = '2 hours') AS SELECT g, count(*) AS n FROM t GROUP BY g")
        .await;
    let error = f.error(&format!("SELECT * FROM sums AS OF {before}")).await;
    assert_eq!(error.code, SqlState::SnapshotTooOld);
    assert_eq!(f.ok("SELECT count(*) FROM sums AS OF now()").await, ["3"]);
    let shown = f.ok("SHOW CREATE MATERIALIZED VIEW sums").await;
    assert!(shown[0].contains("history = '2 hours'"), "{shown:?}");
    f.ok("CREATE OR REPLACE MATERIALIZED VIEW sums AS SELECT g, count(*) AS n FROM t GROUP BY g")
        .await;
    let error = f.error("SELECT * FROM sums AS OF now()").await;
    assert_eq!(error.message, "materialized view sums has no history");
    f.ok("DROP MATERIALIZED VIEW plain").await;
    let left = f
        .ok("SELECT name FROM mr_catalog.subscriptions ORDER BY name")
        .await;
    assert_eq!(left, ["joined$history", "one$history"]);
}
