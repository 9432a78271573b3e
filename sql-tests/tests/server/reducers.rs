//! Reducers of a program's own: in a SELECT and in views, under deletions, over several workers, told the time, and after a
//! restart.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int64Type, TimestampMicrosecondType};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use millrace_cli::test::{VirtualClock, throw_away, virtual_clock};
use millrace_planner::reducer::{Reducer, ReducerState};
use millrace_sql_tests::{Failure, connect, run, sorted_rows};
use millrace_wire::Server;

/// The sum of squares. Called `squares` it takes values back, called `squares_kept` it does not.
#[derive(Debug)]
struct Squares {
    retracts: bool,
}

#[derive(Debug, Default)]
struct Sum(i64);

impl Reducer for Squares {
    fn name(&self) -> &str {
        if self.retracts { "squares" } else { "squares_kept" }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn init(&self) -> Box<dyn ReducerState> {
        Box::new(Sum::default())
    }

    fn retracts(&self) -> bool {
        self.retracts
    }
}

fn squares(values: &[ArrayRef]) -> i64 {
    let values = values[0].as_primitive::<Int64Type>();
    values.iter().flatten().map(|value| value * value).sum()
}

impl ReducerState for Sum {
    fn reduce(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0 += squares(values);
        Ok(())
    }

    fn retract(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0 -= squares(values);
        Ok(())
    }

    fn value(&self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(self.0)))
    }

    fn save(&self) -> Result<Vec<u8>> {
        Ok(self.0.to_le_bytes().to_vec())
    }

    fn merge(&mut self, saved: &[u8]) -> Result<()> {
        self.0 += i64::from_le_bytes(saved.try_into().unwrap());
        Ok(())
    }
}

/// How often the timer found that nothing had come for thirty seconds.
#[derive(Debug)]
struct Missed;

#[derive(Debug)]
struct Heard {
    last: i64,
    missed: i64,
}

impl Reducer for Missed {
    fn name(&self) -> &str {
        "missed"
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn init(&self) -> Box<dyn ReducerState> {
        Box::new(Heard {
            last: i64::MIN,
            missed: 0,
        })
    }

    fn is_timed(&self) -> bool {
        true
    }
}

impl ReducerState for Heard {
    fn reduce(&mut self, values: &[ArrayRef]) -> Result<()> {
        let times = values[0].as_primitive::<TimestampMicrosecondType>();
        self.last = times.iter().flatten().fold(self.last, i64::max);
        Ok(())
    }

    fn on_timer(&mut self, now: i64) -> Result<()> {
        self.missed += i64::from(now.saturating_sub(self.last) >= 30_000_000);
        Ok(())
    }

    fn value(&self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(self.missed)))
    }

    fn save(&self) -> Result<Vec<u8>> {
        Ok([self.last.to_le_bytes(), self.missed.to_le_bytes()].concat())
    }

    fn merge(&mut self, saved: &[u8]) -> Result<()> {
        let (last, missed) = saved.split_at(8);
        self.last = self.last.max(i64::from_le_bytes(last.try_into().unwrap()));
        self.missed += i64::from_le_bytes(missed.try_into().unwrap());
        Ok(())
    }
}

async fn start(directory: &Path, clock: &Arc<VirtualClock>, workers: usize) -> Result<Server, Failure> {
    let mut config = throw_away(directory);
    config.workers = Some(workers);
    let reducers: Vec<Arc<dyn Reducer>> = vec![
        Arc::new(Squares { retracts: true }),
        Arc::new(Squares { retracts: false }),
        Arc::new(Missed),
    ];
    Ok(Server::start_with(config, Some(Arc::clone(clock)), reducers).await?)
}

const QUERY: &str = "SELECT k, squares(v) AS taken, squares_kept(v) AS kept, count(*) AS n FROM t GROUP BY k";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_holds_what_the_same_code_answers() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = virtual_clock();
    let server = start(directory.path(), &clock, 2).await?;
    let client = connect(server.pg_addr()).await?;
    run(
        &client,
        "CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)",
    )
    .await?;
    run(&client, "CREATE STREAM s (k BIGINT, v BIGINT)").await?;
    run(
        &client,
        "INSERT INTO t SELECT i, i % 7, i % 100 FROM generate_series(1, 5000) AS g (i)",
    )
    .await?;
    run(&client, &format!("CREATE MATERIALIZED VIEW m AS {QUERY}")).await?;
    let over_stream = "SELECT k, squares_kept(v) AS kept FROM s GROUP BY k";
    run(&client, &format!("CREATE MATERIALIZED VIEW ms AS {over_stream}")).await?;
    for round in 0..3 {
        run(&client, &format!("DELETE FROM t WHERE id % 3 = {round}")).await?;
        run(
            &client,
            "UPDATE t SET v = v + 1, k = (k + id) % 9 WHERE id % 5 = 0",
        )
        .await?;
        run(
            &client,
            "INSERT INTO s SELECT i % 4, i FROM generate_series(1, 300) AS g (i)",
        )
        .await?;
        for (view, query) in [("m", QUERY), ("ms", over_stream)] {
            let shown = sorted_rows(&client, &format!("SELECT * FROM {view}")).await?;
            assert_eq!(shown, sorted_rows(&client, query).await?, "round {round}, {view}");
        }
    }
    // By hand: 1 + 4 + 9 and so on, of the keys of a stream, three times.
    let by_hand: i64 = (1..=300i64).filter(|i| i % 4 == 1).map(|i| i * i * 3).sum();
    let shown = sorted_rows(&client, "SELECT kept FROM ms WHERE k = 1").await?;
    assert_eq!(shown[0][0].as_deref(), Some(by_hand.to_string().as_str()));
    let plan = sorted_rows(
        &client,
        "EXPLAIN (TYPE STAGES) SELECT k, squares(v) FROM t GROUP BY k",
    )
    .await?;
    assert!(
        plan.iter().any(|line| line[0]
            .as_deref()
            .is_some_and(|line| line.contains("squares(t.v): state"))),
        "{plan:?}"
    );
    drop(client);
    server.shutdown().await;

    let server = start(directory.path(), &clock, 1).await?;
    let client = connect(server.pg_addr()).await?;
    let shown = sorted_rows(&client, "SELECT * FROM m").await?;
    assert_eq!(shown, sorted_rows(&client, QUERY).await?, "after a restart");
    server.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_of_keys_go_off_without_rows() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = virtual_clock();
    let server = start(directory.path(), &clock, 1).await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "CREATE STREAM beat (device TEXT, ts TIMESTAMPTZ)").await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW silence AS SELECT device, missed(ts) AS missed FROM beat GROUP BY device EMIT EVERY INTERVAL '10 seconds'",
    )
    .await?;
    run(&client, "INSERT INTO beat VALUES ('a', now()), ('b', now())").await?;
    let mut seen = vec![];
    for step in 1..=6 {
        run(&client, "ALTER SYSTEM SET clock = '+10 seconds'").await?;
        if step == 3 {
            run(&client, "INSERT INTO beat VALUES ('b', now())").await?;
        }
        let rows = sorted_rows(&client, "SELECT device, missed FROM silence").await?;
        let missed = |row: usize| rows[row][1].clone().unwrap();
        seen.push((missed(0), missed(1)));
    }
    // Thirty, forty, fifty and sixty seconds without a; for b the first time before its second heartbeat, then sixty.
    let expected = [
        ("0", "0"),
        ("0", "0"),
        ("1", "1"),
        ("2", "1"),
        ("3", "1"),
        ("4", "2"),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect();
    assert_eq!(seen, expected);
    server.shutdown().await;
    Ok(())
}
