//! CREATE SUBSCRIPTION: what its readers are told, over restarts and kills, and what they are not told any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_postgres::error::SqlState;

use crate::session::Session;
use crate::tests::subscribe;
use crate::tests::{Fixture, run};

/// A row that was told: its epoch, and the rest.
type Told = (u64, String);

/// So many rows of a cursor over a subscription.
async fn told(session: &Arc<Session>, cursor: &str, count: usize) -> Vec<Told> {
    let mut all = vec![];
    while all.len() < count {
        let fetch = format!("FETCH {} FROM {cursor} WITH (timeout = '10s')", count - all.len());
        let rows = run(session, &fetch).await;
        let rows = rows.unwrap_or_else(|error| panic!("{fetch}: {error:?}"));
        assert!(!rows.is_empty(), "{all:?}");
        all.extend(rows.iter().map(|row| {
            let (epoch, rest) = row.split_once('|').unwrap();
            (epoch.parse().unwrap(), rest.to_owned())
        }));
    }
    all
}

fn rests(told: &[Told]) -> Vec<&str> {
    told.iter().map(|(_, rest)| rest.as_str()).collect()
}

async fn sales() -> Fixture {
    let f = subscribe::sales().await;
    f.ok("CREATE SUBSCRIPTION s FROM totals WITH (retention = '1 hour')")
        .await;
    f
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_goes_on_where_it_was_over_restarts_and_kills() {
    let f = sales().await;
    // What was there is no change.
    f.ok("DECLARE c SUBSCRIPTION CURSOR FOR s SINCE begin()").await;
    assert!(f.ok("FETCH 10 FROM c").await.is_empty());
    f.ok("INSERT INTO orders VALUES (3, 'ann', 5)").await;
    let first = told(&f.session, "c", 2).await;
    assert_eq!(rests(&first), ["update_delete|ann|10", "update_insert|ann|15"]);
    f.ok("DELETE FROM orders WHERE id = 2").await;
    let second = told(&f.session, "c", 1).await;
    assert_eq!(rests(&second), ["delete|bob|20"]);
    assert!(second[0].0 > first[0].0);
    let mut behind = first[0].0;
    let mut expected = vec!["delete|bob|20".to_owned()];
    let mut f = f;
    for round in 0..6 {
        f = match round % 2 {
            0 => f.killed().await,
            _ => f.restart().await,
        };
        f.ok(&format!("INSERT INTO orders VALUES ({}, 'cid', 1)", 10 + round))
            .await;
        match round {
            0 => expected.push("insert|cid|1".to_owned()),
            _ => expected.extend([
                format!("update_delete|cid|{round}"),
                format!("update_insert|cid|{}", round + 1),
            ]),
        }
        f.ok(&format!("DECLARE c SUBSCRIPTION CURSOR FOR s SINCE {behind}"))
            .await;
        let all = told(&f.session, "c", expected.len()).await;
        assert_eq!(rests(&all), expected, "round {round}");
        assert!(all.iter().all(|(epoch, _)| *epoch > behind));
        assert!(all.is_sorted_by_key(|(epoch, _)| *epoch));
        assert!(f.ok("FETCH 10 FROM c").await.is_empty());
        // From the second round on it goes on behind what it has.
        if round >= 1 {
            behind = all.last().unwrap().0;
            expected.clear();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_rows_come_first_when_they_are_wanted_and_what_follows_has_no_gap() {
    let f = sales().await;
    f.ok("INSERT INTO orders VALUES (3, 'cid', 7)").await;
    f.ok("DECLARE c SUBSCRIPTION CURSOR FOR s FULL").await;
    f.ok("DELETE FROM orders WHERE id = 1").await;
    let mut all = told(&f.session, "c", 4).await;
    let last = all.pop().unwrap();
    all.sort_by(|one, other| one.1.cmp(&other.1));
    assert_eq!(rests(&all), ["insert|ann|10", "insert|bob|20", "insert|cid|7"]);
    assert_eq!(last.1, "delete|ann|10");
    assert!(last.0 > all[0].0);
    // As rows of SUBSCRIBE, of the newest form of each key.
    f.ok("DECLARE u CURSOR WITH HOLD FOR SUBSCRIBE s ENVELOPE UPSERT")
        .await;
    let mut upserts = told(&f.session, "u", 2).await;
    upserts.sort_by(|one, other| one.1.cmp(&other.1));
    assert_eq!(rests(&upserts), ["upsert|bob|20", "upsert|cid|7"]);
    // Without a clause, what changes from now on.
    f.ok("DECLARE n SUBSCRIPTION CURSOR FOR s").await;
    f.ok("INSERT INTO orders VALUES (4, 'dan', 1)").await;
    assert_eq!(rests(&told(&f.session, "n", 1).await), ["insert|dan|1"]);
    assert_eq!(rests(&told(&f.session, "u", 1).await), ["upsert|dan|1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_queries_are_kept_too() {
    let f = Fixture::new().await;
    f.ok("CREATE STREAM clicks (page TEXT, n INT)").await;
    f.ok("INSERT INTO clicks VALUES ('old', 0)").await;
    f.ok("CREATE SUBSCRIPTION c FROM clicks WITH (retention = '1 day')")
        .await;
    f.ok("CREATE SUBSCRIPTION q FOR SELECT page, max(n) AS n FROM clicks GROUP BY page WITH (retention = '1 day')")
        .await;
    f.ok("INSERT INTO clicks VALUES ('a', 1)").await;
    let f = f.killed().await;
    f.ok("INSERT INTO clicks VALUES ('a', 2), ('b', 3)").await;
    f.ok("DECLARE c SUBSCRIPTION CURSOR FOR c SINCE begin()").await;
    let clicks = told(&f.session, "c", 3).await;
    assert_eq!(rests(&clicks), ["insert|a|1", "insert|a|2", "insert|b|3"]);
    f.ok("DECLARE q SUBSCRIPTION CURSOR FOR q SINCE begin()").await;
    let mut by_page: BTreeMap<String, i64> = BTreeMap::new();
    while !by_page.contains_key("b") || by_page.get("a").is_none_or(|n| *n < 2) {
        for (_, row) in told(&f.session, "q", 1).await {
            let cells: Vec<&str> = row.split('|').collect();
            match cells[0] {
                "insert" | "update_insert" => by_page.insert(cells[1].to_owned(), cells[2].parse().unwrap()),
                _ => by_page.remove(cells[1]),
            };
        }
    }
    // The rows that there were are all told where they are wanted.
    f.ok("DECLARE full SUBSCRIPTION CURSOR FOR c FULL").await;
    assert_eq!(told(&f.session, "full", 4).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_takes_the_place_of_a_view_is_told_as_the_difference() {
    let f = sales().await;
    f.ok("DECLARE c SUBSCRIPTION CURSOR FOR s").await;
    f.ok("CREATE OR REPLACE MATERIALIZED VIEW totals AS SELECT who, sum(amount * amount / 10) AS total, count(*) AS n FROM orders GROUP BY who")
        .await;
    // Ann's sum stays what it was.
    assert_eq!(
        rests(&told(&f.session, "c", 2).await),
        ["update_delete|bob|20", "update_insert|bob|40"]
    );
    f.ok("INSERT INTO orders VALUES (3, 'cid', 10)").await;
    assert_eq!(rests(&told(&f.session, "c", 1).await), ["insert|cid|10"]);
    let f = f.killed().await;
    f.ok("DECLARE c SUBSCRIPTION CURSOR FOR s SINCE begin()").await;
    assert_eq!(
        rests(&told(&f.session, "c", 3).await),
        ["update_delete|bob|20", "update_insert|bob|40", "insert|cid|10"]
    );
    assert!(f.ok("FETCH 10 FROM c").await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_retention_takes_is_not_told_and_said_to_be_gone() {
    let f = sales().await;
    f.ok("DROP SUBSCRIPTION s").await;
    f.ok("CREATE SUBSCRIPTION s FROM totals WITH (retention = '1 hour', retention_size = '40kB')")
        .await;
    f.ok("DECLARE slow SUBSCRIPTION CURSOR FOR s").await;
    f.ok("INSERT INTO orders VALUES (3, 'ann', 1)").await;
    let behind = told(&f.session, "slow", 2).await[0].0;
    let oldest = "SELECT oldest_epoch FROM mr_catalog.subscriptions";
    let mut number = 4;
    let hour = 3_600_000;
    let mut now = millrace_database::clock::now_ms();
    while f.ok(oldest).await[0].parse::<u64>().unwrap() <= behind {
        let insert = format!(
            "INSERT INTO orders SELECT x, repeat('x', 100) || x, 1 FROM generate_series({number}, {}) AS g(x)",
            number + 99
        );
        f.ok(&insert).await;
        number += 100;
        f.ok("FLUSH").await;
        f.ok("DECLARE n SUBSCRIPTION CURSOR FOR s").await;
        f.ok("CLOSE n").await;
        now += hour;
        f.db.maintain(now, now).await;
        assert!(number < 10_000);
    }
    let error = f
        .error(&format!("DECLARE c SUBSCRIPTION CURSOR FOR s SINCE {behind}"))
        .await;
    assert_eq!(error.code, SqlState::SnapshotTooOld);
    assert_eq!(error.hint.as_deref(), Some("Subscribe again with a snapshot."));
    // What is kept is whole, and somebody who has it all so far goes on.
    f.ok("DECLARE c SUBSCRIPTION CURSOR FOR s SINCE begin()").await;
    f.ok("DECLARE f SUBSCRIPTION CURSOR FOR s FULL").await;
    f.ok("INSERT INTO orders VALUES (1000000, 'last', 1)").await;
    let mut last = String::new();
    while last != "insert|last|1" {
        last = told(&f.session, "c", 1).await.remove(0).1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_readers_cost_one_following() {
    let f = sales().await;
    let sessions: Vec<_> = (0..1_000).map(|_| f.other_session()).collect();
    for session in &sessions {
        run(session, "DECLARE c SUBSCRIPTION CURSOR FOR s").await.unwrap();
    }
    f.ok("INSERT INTO orders VALUES (3, 'cid', 1)").await;
    for session in &sessions {
        assert_eq!(rests(&told(session, "c", 1).await), ["insert|cid|1"]);
    }
    // One task follows the view; nobody else does.
    assert_eq!(
        (f.db.sinks().list().len(), f.db.subscriptions().followed()),
        (1, 0)
    );
    assert_eq!(
        f.ok("SELECT readers FROM mr_catalog.subscriptions").await,
        ["1000"]
    );
    drop(sessions);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_step_is_one_epoch() {
    let f = sales().await;
    f.ok("CREATE SUBSCRIPTION o FROM orders WITH (retention = '1 hour')")
        .await;
    f.ok("DECLARE c SUBSCRIPTION CURSOR FOR o").await;
    // More than what is in one write of the log.
    f.ok("INSERT INTO orders SELECT x, 'x', 1 FROM generate_series(10, 250009) AS g(x)")
        .await;
    let rows = told(&f.session, "c", 250_000).await;
    assert!(rows.iter().all(|(epoch, _)| *epoch == rows[0].0));
    let f = f.killed().await;
    f.ok("DECLARE c SUBSCRIPTION CURSOR FOR o SINCE begin()").await;
    let again = told(&f.session, "c", 250_000).await;
    assert!(again == rows);
    assert!(f.ok("FETCH 10 FROM c").await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_the_rows_that_there_were_is_cut_off() {
    let f = sales().await;
    let slow = f.other_session();
    run(&slow, "SET subscription_buffer = '64kB'").await.unwrap();
    run(&slow, "DECLARE c SUBSCRIPTION CURSOR FOR s FULL")
        .await
        .unwrap();
    // One that has read them may be as slow as it likes.
    let other = f.other_session();
    run(&other, "SET subscription_buffer = '64kB'").await.unwrap();
    run(&other, "DECLARE c SUBSCRIPTION CURSOR FOR s FULL")
        .await
        .unwrap();
    assert_eq!(told(&other, "c", 2).await.len(), 2);
    assert!(run(&other, "FETCH 1 FROM c").await.unwrap().is_empty());
    f.ok("INSERT INTO orders SELECT x, repeat('x', 100) || x, 1 FROM generate_series(10, 2009) AS g(x)")
        .await;
    f.ok("FLUSH").await;
    let error = run(&slow, "FETCH 1 FROM c WITH (timeout = '10s')")
        .await
        .unwrap_err();
    assert_eq!(error.code, SqlState::ProgramLimitExceeded, "{error:?}");
    assert_eq!(told(&other, "c", 2_000).await.len(), 2_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_whose_log_is_damaged_says_so_and_holds_nothing_up() {
    let f = sales().await;
    f.ok("INSERT INTO orders VALUES (3, 'cid', 7)").await;
    f.ok("FLUSH").await;
    let catalog = f.db.catalog();
    let object = catalog.relation("millrace", "public", "s").unwrap();
    let log = f.path().join("log").join(object.id.0.to_string());
    assert!(log.exists());
    let directory = f.stop().await;
    for file in std::fs::read_dir(directory.path().join("log").join(log.file_name().unwrap())).unwrap() {
        let path = file.unwrap().path();
        let bytes = vec![7; std::fs::metadata(&path).unwrap().len() as usize];
        std::fs::write(&path, bytes).unwrap();
    }
    let f = Fixture::open(directory).await;
    f.ok("INSERT INTO orders VALUES (4, 'dan', 1)").await;
    f.ok("FLUSH").await;
    assert_eq!(f.ok("SELECT count(*) FROM totals").await, ["4"]);
    for start in ["FULL", "SINCE begin()", ""] {
        let error = f
            .error(&format!("DECLARE c SUBSCRIPTION CURSOR FOR s {start}"))
            .await;
        assert_eq!(error.message, "subscription s does not go on", "{start}");
        assert!(error.detail.is_some());
    }
    let state = f
        .ok("SELECT state, error IS NOT NULL FROM mr_catalog.subscriptions")
        .await;
    assert_eq!(state, ["failing|t"]);
    f.ok("DROP SUBSCRIPTION s").await;
    let f = f.restart().await;
    assert!(f.ok("SHOW SUBSCRIPTIONS").await.is_empty());
}
