//! millrace in a program of your own: no sockets, rows as Arrow's batches, and a view that is followed.
//!
//! `cargo run -p millrace-session --example embed`

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use millrace_database::sessions::SessionInfo;
use millrace_database::{Database, DatabaseOptions};
use millrace_session::{Outcome, Session};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    for batches in embedded(directory.path()).await? {
        println!("{}", pretty_format_batches(&batches)?);
    }
    Ok(())
}

/// A query's rows, and then the changes of a view: those that were there, and those that one more order makes.
async fn embedded(data: &Path) -> Result<Vec<Vec<RecordBatch>>, Box<dyn Error>> {
    let database = millrace_system::open(DatabaseOptions::new(data)).await?;
    let session = session(&database)?;
    run(&session, "CREATE TABLE orders (customer INT, amount INT)").await?;
    run(
        &session,
        "CREATE MATERIALIZED VIEW totals AS SELECT customer, sum(amount) AS total FROM orders GROUP BY customer",
    )
    .await?;
    run(&session, "INSERT INTO orders VALUES (1, 40), (2, 25), (1, 2)").await?;

    // A SELECT reads what was acknowledged before it: nothing is waited for.
    let totals = run(&session, "SELECT customer, total FROM totals ORDER BY customer").await?;

    // A session runs one statement at a time, so what follows has a session of its own.
    let follower = self::session(&database)?;
    let mut query = follower.run("SUBSCRIBE TO totals").await?;
    let Some(Outcome::Rows { mut stream, .. }) = query.next().await.transpose()? else {
        return Err("a SUBSCRIBE gives rows".into());
    };
    let before = rows(&mut stream, 2).await?;
    run(&session, "INSERT INTO orders VALUES (2, 5)").await?;
    // The row of customer 2 as it was goes, and another comes.
    let after = rows(&mut stream, 2).await?;

    // Whoever drops the stream has ended the SUBSCRIBE.
    drop((stream, query));
    database.close().await?;
    Ok(vec![totals, before, after])
}

/// A conversation with the database, as a connection would have it.
fn session(database: &Arc<Database>) -> Result<Arc<Session>, Box<dyn Error>> {
    let info = SessionInfo {
        user: "millrace".to_owned(),
        database: "millrace".to_owned(),
        application: "embed".to_owned(),
        ..SessionInfo::default()
    };
    Ok(Session::new(Arc::clone(database), info)?)
}

/// The next batches, until they have so many rows. One without rows says that nothing more is there yet.
async fn rows(
    stream: &mut SendableRecordBatchStream,
    count: usize,
) -> Result<Vec<RecordBatch>, Box<dyn Error>> {
    let mut batches: Vec<RecordBatch> = vec![];
    while batches.iter().map(RecordBatch::num_rows).sum::<usize>() < count {
        let batch = stream.next().await.ok_or("the SUBSCRIBE has ended")??;
        if batch.num_rows() > 0 {
            batches.push(batch);
        }
    }
    Ok(batches)
}

/// Runs statements, and returns the rows of those that have some.
async fn run(session: &Arc<Session>, sql: &str) -> Result<Vec<RecordBatch>, Box<dyn Error>> {
    let mut batches = vec![];
    let mut query = session.run(sql).await?;
    while let Some(outcome) = query.next().await {
        if let Outcome::Rows { mut stream, .. } = outcome? {
            while let Some(batch) = stream.next().await {
                batches.push(batch?);
            }
        }
    }
    for notice in session.take_notices() {
        eprintln!("{}", notice.message);
    }
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;

    use super::*;

    /// The values of a column.
    fn column(batches: &[RecordBatch], name: &str) -> Vec<i64> {
        let mut values: Vec<i64> = vec![];
        for batch in batches {
            let column = batch.column_by_name(name).expect("there is such a column");
            let column = arrow::compute::cast(column, &arrow::datatypes::DataType::Int64);
            let column = column.expect("it is a number");
            values.extend(column.as_primitive::<Int64Type>().values());
        }
        values.sort_unstable();
        values
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn it_runs() {
        let directory = tempfile::tempdir().expect("there is a place for it");
        let found = embedded(directory.path()).await.expect("it runs");
        let [totals, before, after] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(column(totals, "total"), [25, 42]);
        assert_eq!(column(before, "total"), [25, 42]);
        // The sum of customer 2 goes, and the new one comes.
        assert_eq!(column(after, "total"), [25, 30]);
        assert_eq!(column(after, "customer"), [2, 2]);
    }
}
