//! How soon a session sees its own INSERT in a view.

use std::time::Instant;

use crate::client::Client;
use crate::error::BenchError;
use crate::first_light::Scale;
use crate::machine;
use crate::results::{Aim, Experiment};
use crate::statistics::ms_since;
use crate::target::{FreshServer, Target};

/// The experiment's name.
pub const NAME: &str = "insert to visible";

/// How many groups the view has.
const CUSTOMERS: usize = 100;

/// Milliseconds of each round.
#[derive(Default)]
struct Rounds {
    insert: Vec<f64>,
    select: Vec<f64>,
    total: Vec<f64>,
}

impl Rounds {
    fn add(&mut self, start: Instant, inserted: Instant) {
        self.total.push(ms_since(start));
        self.insert.push((inserted - start).as_secs_f64() * 1e3);
        self.select.push(ms_since(inserted));
    }

    fn report(self, protocol: &str, experiment: &mut Experiment) {
        experiment.add(format!("{protocol}: INSERT"), "ms", self.insert, None);
        experiment.add(format!("{protocol}: SELECT"), "ms", self.select, None);
        let aim = Some(Aim::MedianAndP99Under(5.0));
        experiment.add(format!("{protocol}: INSERT to visible"), "ms", self.total, aim);
    }
}

/// Inserts rows one by one and looks for each in a view, in both protocols.
pub async fn run(scale: &Scale, target: &Target, fsync_probes: usize) -> Result<Experiment, BenchError> {
    let bed = FreshServer::start(target).await?;
    bed.client
        .run("CREATE STREAM orders (customer bigint, amount bigint)")
        .await?;
    bed.client
        .run(
            "CREATE MATERIALIZED VIEW spending AS \
             SELECT customer, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY customer",
        )
        .await?;
    let mut disk = machine::fsync_ms(fsync_probes)?;
    let simple = simple(&bed.client, scale.inserts).await?;
    disk.extend(machine::fsync_ms(fsync_probes)?);
    let prepared = prepared(&bed.client, scale.inserts).await?;
    disk.extend(machine::fsync_ms(fsync_probes)?);
    bed.stop().await?;

    let mut experiment = Experiment::new(
        NAME,
        format!(
            "One connection: INSERT a row into a stream, which is answered when the row is on disk; then SELECT its \
             group from a view (count and sum by one of {CUSTOMERS} keys) and check that the row is in it. The disk's \
             own time is measured before, between and after the two loops."
        ),
    );
    experiment.add("disk: write + fdatasync", "ms", disk, None);
    simple.report("simple protocol", &mut experiment);
    prepared.report("prepared", &mut experiment);
    Ok(experiment)
}

/// How many orders the customer of round `round` has then; customers take turns.
fn orders_after(round: usize) -> usize {
    round / CUSTOMERS + 1
}

async fn simple(client: &Client, rounds: usize) -> Result<Rounds, BenchError> {
    let mut times = Rounds::default();
    for round in 0..rounds {
        let customer = round % CUSTOMERS;
        let insert = format!("INSERT INTO orders VALUES ({customer}, 10)");
        let select = format!("SELECT orders FROM spending WHERE customer = {customer}");
        let start = Instant::now();
        client.run(&insert).await?;
        let inserted = Instant::now();
        let rows = client.rows(&select).await?;
        times.add(start, inserted);
        check(&rows, orders_after(round), round)?;
    }
    Ok(times)
}

async fn prepared(client: &Client, rounds: usize) -> Result<Rounds, BenchError> {
    let postgres = client.postgres();
    let failed = || BenchError::postgres("a prepared statement");
    let insert = postgres.prepare("INSERT INTO orders VALUES ($1, $2)").await;
    let insert = insert.map_err(failed())?;
    let select = postgres
        .prepare("SELECT orders FROM spending WHERE customer = $1")
        .await;
    let select = select.map_err(failed())?;
    let mut times = Rounds::default();
    for round in 0..rounds {
        // Customers that the simple protocol did not use.
        let customer = i64::try_from(CUSTOMERS + round % CUSTOMERS).unwrap_or(i64::MAX);
        let start = Instant::now();
        postgres
            .execute(&insert, &[&customer, &10_i64])
            .await
            .map_err(failed())?;
        let inserted = Instant::now();
        let rows = postgres.query(&select, &[&customer]).await.map_err(failed())?;
        times.add(start, inserted);
        let rows: Vec<_> = rows
            .iter()
            .map(|row| vec![Some(row.get::<_, i64>(0).to_string())])
            .collect();
        check(&rows, orders_after(round), round)?;
    }
    Ok(times)
}

fn check(rows: &[Vec<Option<String>>], orders: usize, round: usize) -> Result<(), BenchError> {
    if rows == [[Some(orders.to_string())]] {
        return Ok(());
    }
    Err(BenchError::Wrong(format!(
        "after INSERT number {round} the view shows {rows:?} instead of {orders} orders"
    )))
}
