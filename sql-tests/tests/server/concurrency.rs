//! Many sessions at once: a SELECT sees one epoch, a session sees its own writes in every view, and making and dropping
//! views while data flows neither loses nor doubles a row.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_sql_tests::{Failure, connect, rows, run, seed, sorted_rows, start, words};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

const ACCOUNTS: i64 = 10;
const WRITERS: u64 = 3;
const TRANSFERS: usize = 60;
/// Views that are made, compared and dropped while the transfers go on.
const LATE_VIEWS: usize = 12;

/// What is kept, and the query that it must equal.
const VIEWS: [(&str, &str); 4] = [
    (
        "total",
        "SELECT count(*) AS accounts, sum(balance) AS balance FROM account",
    ),
    (
        "moved",
        "SELECT writer, count(*) AS n, sum(amount) AS amount FROM ledger GROUP BY writer",
    ),
    (
        "by_owner",
        "SELECT a.owner, count(*) AS n, sum(l.amount) AS amount FROM ledger l JOIN account a ON l.account = a.id \
         GROUP BY a.owner",
    ),
    (
        "owners",
        "SELECT owner, sum(balance) AS balance FROM account GROUP BY owner",
    ),
];

/// Runs a transaction, again when another was in its way: it left nothing behind then.
async fn commit(client: &Client, transaction: &str) -> Result<(), Failure> {
    loop {
        let Err(error) = client.batch_execute(transaction).await else {
            return Ok(());
        };
        if error.code() != Some(&SqlState::T_R_SERIALIZATION_FAILURE) {
            return Err(format!("{transaction}\n{}", words(&error)).into());
        }
        run(client, "ROLLBACK").await?;
    }
}

/// Moves money about, and looks after each time whether its own session sees it.
async fn transfer(client: Client, writer: u64, seed: u64) -> Result<(), Failure> {
    let mut random = StdRng::seed_from_u64(seed);
    for count in 1..=TRANSFERS {
        let from = random.random_range(0..ACCOUNTS);
        let to = (from + random.random_range(1..ACCOUNTS)) % ACCOUNTS;
        let amount = random.random_range(1..100);
        let transaction = format!(
            "BEGIN; UPDATE account SET balance = balance - {amount} WHERE id = {from}; \
             UPDATE account SET balance = balance + {amount} WHERE id = {to}; \
             INSERT INTO ledger VALUES ({writer}, {from}, -{amount}), ({writer}, {to}, {amount}); COMMIT"
        );
        commit(&client, &transaction).await?;
        let seen = rows(
            &client,
            &format!("SELECT n, amount FROM moved WHERE writer = {writer}"),
        )
        .await?;
        let expected = vec![vec![Some((2 * count).to_string()), Some("0".to_owned())]];
        if seen != expected {
            return Err(format!("writer {writer} wrote {count} transfers and sees {seen:?}").into());
        }
    }
    Ok(())
}

/// Reads over and over; what is moved within one transaction never shows as half.
async fn watch(client: Client, done: Arc<AtomicBool>) -> Result<(), Failure> {
    let sql = "SELECT (SELECT sum(balance) FROM account), (SELECT balance FROM total), (SELECT sum(balance) FROM owners), \
               (SELECT coalesce(sum(amount), 0) FROM ledger), (SELECT coalesce(sum(amount), 0) FROM moved), \
               (SELECT count(*) FROM ledger) - (SELECT coalesce(sum(n), 0) FROM by_owner)";
    let balance = (ACCOUNTS * 1000).to_string();
    let expected: Vec<_> = [balance.as_str(), &balance, &balance, "0", "0", "0"]
        .iter()
        .map(|text| Some((*text).to_owned()))
        .collect();
    while !done.load(Ordering::Acquire) {
        let seen = rows(&client, sql).await?;
        if seen != [expected.clone()] {
            return Err(format!("a query saw a state that never was: {seen:?}").into());
        }
    }
    Ok(())
}

/// Makes views while rows come in; each must have all rows that were there, and all that come.
async fn make_views(client: Client) -> Result<(), Failure> {
    for number in 0..LATE_VIEWS {
        let (_, query) = VIEWS[number % VIEWS.len()];
        run(&client, &format!("CREATE MATERIALIZED VIEW late AS {query}")).await?;
        for _ in 0..3 {
            // One statement, so both sides are of one epoch.
            let sql =
                format!("(SELECT * FROM late EXCEPT {query}) UNION ALL ({query} EXCEPT SELECT * FROM late)");
            let different = rows(&client, &sql).await?;
            if !different.is_empty() {
                return Err(format!("{query}: view and query differ in {different:?}").into());
            }
        }
        run(&client, "DROP MATERIALIZED VIEW late").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_do_not_disturb_each_other() -> Result<(), Failure> {
    let seed = seed();
    let directory = tempfile::tempdir()?;
    let server = start(directory.path()).await?;
    let client = connect(server.pg_addr()).await?;
    run(
        &client,
        "CREATE TABLE account (id INT PRIMARY KEY, owner TEXT, balance BIGINT)",
    )
    .await?;
    run(
        &client,
        "CREATE STREAM ledger (writer INT, account INT, amount BIGINT)",
    )
    .await?;
    run(
        &client,
        &format!(
            "INSERT INTO account SELECT x, 'owner ' || x % 3, 1000 FROM generate_series(0, {}) AS g(x)",
            ACCOUNTS - 1
        ),
    )
    .await?;
    for (name, query) in VIEWS {
        run(&client, &format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await?;
    }

    let done = Arc::new(AtomicBool::new(false));
    let watcher = tokio::spawn(watch(connect(server.pg_addr()).await?, Arc::clone(&done)));
    let maker = tokio::spawn(make_views(connect(server.pg_addr()).await?));
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let session = connect(server.pg_addr()).await?;
        writers.push(tokio::spawn(transfer(session, writer, seed.wrapping_add(writer))));
    }
    let mut outcomes = Vec::new();
    for writer in writers {
        outcomes.push(writer.await?);
    }
    outcomes.push(maker.await?);
    done.store(true, Ordering::Release);
    outcomes.push(watcher.await?);
    outcomes.into_iter().collect::<Result<(), Failure>>()?;

    for (name, query) in VIEWS {
        let view = sorted_rows(&client, &format!("SELECT * FROM {name}")).await?;
        assert_eq!(view, sorted_rows(&client, query).await?, "{name}");
    }
    let moved = rows(&client, "SELECT count(*) FROM ledger").await?;
    assert_eq!(moved, [[Some((2 * WRITERS as usize * TRANSFERS).to_string())]]);
    drop(client);
    server.shutdown().await;
    Ok(())
}
