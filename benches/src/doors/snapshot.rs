//! How fast a table of a PostgreSQL server is copied.

use std::pin::pin;
use std::time::Instant;

use futures::StreamExt;
use millrace_sql_tests::postgres::Postgres;

use super::{Scale, until};
use crate::error::BenchError;
use crate::process;
use crate::results::Experiment;
use crate::target::{FreshServer, Target};

/// The experiment's name.
pub const NAME: &str = "postgres/snapshot";

const COLUMNS: &str = "l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber INT, l_quantity NUMERIC(15, 2), \
     l_extendedprice NUMERIC(15, 2), l_discount NUMERIC(15, 2), l_tax NUMERIC(15, 2), l_returnflag TEXT, l_linestatus TEXT, \
     l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct TEXT, l_shipmode TEXT, l_comment TEXT, \
     PRIMARY KEY (l_orderkey, l_linenumber)";

/// A row with the number `i`, four to an order.
const ROW: &str = "i / 4, i * 7 % 20000, i * 11 % 1000, i % 4, 1 + i % 50, (i * 37 % 9000000) / 100.0, (i % 11) / 100.0, \
     (i % 9) / 100.0, substr('ANR', (1 + i % 3)::int, 1), substr('FO', (1 + i % 2)::int, 1), date '1992-01-01' + (i % 2500)::int, \
     date '1992-02-01' + (i % 2500)::int, date '1992-01-15' + (i % 2500)::int, 'DELIVER IN PERSON', 'TRUCK', \
     substr(md5(i::text), 1, (10 + i % 20)::int)";

/// What follows a PostgreSQL server here.
pub fn create_source(there: &Postgres) -> String {
    format!(
        "CREATE SOURCE pg WITH (connector = 'postgres-cdc', hostname = '127.0.0.1', port = {}, username = 'postgres', \
         database.name = 'postgres', slot.name = 'doors')",
        there.port()
    )
}

/// Copies the table, as often as is asked.
///
/// # Errors
/// A server fails, or rows are missing.
pub async fn run(scale: &Scale, target: &Target, there: &Postgres) -> Result<Experiment, BenchError> {
    let origin = there.client().await?;
    let fill = format!(
        "CREATE TABLE lineitem ({COLUMNS}); \
         INSERT INTO lineitem SELECT {ROW} FROM generate_series(0::bigint, {}) AS i",
        scale.rows - 1
    );
    for sql in [&fill, "VACUUM ANALYZE lineitem", "CHECKPOINT"] {
        origin
            .batch_execute(sql)
            .await
            .map_err(BenchError::postgres(sql))?;
    }
    let (mut rates, mut cpu_us, mut alone, mut bytes) = (vec![], vec![], vec![], 0);
    for _ in 0..scale.runs {
        let bed = FreshServer::start(target).await?;
        bed.client.run(&create_source(there)).await?;
        let cpu = process::cpu_time(bed.server.pid())?;
        let begin = Instant::now();
        bed.client
            .run(&format!(
                "CREATE TABLE lineitem ({COLUMNS}) FROM pg TABLE 'public.lineitem'"
            ))
            .await?;
        until(&bed.client, "SELECT count(*) FROM lineitem", scale.rows).await?;
        rates.push(scale.rows as f64 / begin.elapsed().as_secs_f64());
        let cpu = process::cpu_time(bed.server.pid())?.saturating_sub(cpu);
        cpu_us.push(cpu.as_secs_f64() * 1e6 / scale.rows as f64);
        bed.client.run("DROP STREAM pg CASCADE").await?;
        bed.stop().await?;

        let begin = Instant::now();
        let copy = origin.copy_out("COPY lineitem TO STDOUT").await;
        let mut copy = pin!(copy.map_err(BenchError::postgres("cannot copy"))?);
        bytes = 0;
        while let Some(piece) = copy.next().await {
            bytes += piece.map_err(BenchError::postgres("cannot copy"))?.len();
        }
        alone.push(scale.rows as f64 / begin.elapsed().as_secs_f64());
    }
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "A table of {} rows with the columns of TPC-H's lineitem ({:.0} bytes as text) and its primary key. On a new server \
             CREATE TABLE .. FROM, until count(*) answers with all rows; by turns with COPY .. TO STDOUT of PostgreSQL alone, to a \
             client that throws it away.",
            scale.rows,
            bytes as f64 / scale.rows as f64
        ),
    );
    experiment.add("copied: rate", "rows/s", rates, None);
    experiment.add("CPU time of the server for a row", "us", cpu_us, None);
    experiment.add("COPY of PostgreSQL alone: rate", "rows/s", alone, None);
    Ok(experiment)
}
