//! SUBSCRIBE through cursors: what is told of snapshots and changes, and how it ends.

use std::sync::Arc;

use millrace_postgres::error::SqlState;

use crate::session::Session;
use crate::tests::{Fixture, run};

/// Rows of a FETCH without their epochs.
async fn fetch(session: &Arc<Session>, what: &str) -> Vec<String> {
    let rows = run(session, &format!("FETCH {what}")).await;
    let rows = rows.unwrap_or_else(|error| panic!("FETCH {what}: {error:?}"));
    let without_epoch = |row: &String| row.split_once('|').map(|(_, rest)| rest.to_owned());
    rows.iter().filter_map(without_epoch).collect()
}

/// The next rows of a cursor, so many of them.
async fn read(session: &Arc<Session>, cursor: &str, count: usize) -> Vec<String> {
    let mut rows = vec![];
    while rows.len() < count {
        rows.extend(fetch(session, &format!("{} FROM {cursor}", count - rows.len())).await);
    }
    rows
}

/// The same in the order of their texts.
async fn sorted(session: &Arc<Session>, cursor: &str, count: usize) -> Vec<String> {
    let mut rows = read(session, cursor, count).await;
    rows.sort();
    rows
}

/// Orders, and a view of what each customer has ordered.
pub(crate) async fn sales() -> Fixture {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE orders (id INT PRIMARY KEY, who TEXT, amount INT)")
        .await;
    f.ok("CREATE MATERIALIZED VIEW totals AS SELECT who, sum(amount) AS total FROM orders GROUP BY who")
        .await;
    f.ok("INSERT INTO orders VALUES (1, 'ann', 10), (2, 'bob', 20)")
        .await;
    f
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_there_come_first_and_then_what_changes() {
    let f = sales().await;
    f.ok("DECLARE v CURSOR WITH HOLD FOR SUBSCRIBE totals").await;
    f.ok("DECLARE t CURSOR WITH HOLD FOR SUBSCRIBE TO orders").await;
    f.ok("DECLARE later CURSOR WITH HOLD FOR SUBSCRIBE totals WITH (SNAPSHOT = false)")
        .await;
    assert_eq!(
        sorted(&f.session, "v", 2).await,
        ["insert|ann|10", "insert|bob|20"]
    );
    assert_eq!(
        sorted(&f.session, "t", 2).await,
        ["insert|1|ann|10", "insert|2|bob|20"]
    );
    f.ok("INSERT INTO orders VALUES (3, 'ann', 5), (4, 'cid', 1)")
        .await;
    let changes = ["update_delete|ann|10", "update_insert|ann|15", "insert|cid|1"];
    assert_eq!(read(&f.session, "v", 3).await, changes);
    assert_eq!(read(&f.session, "later", 3).await, changes);
    assert_eq!(
        sorted(&f.session, "t", 2).await,
        ["insert|3|ann|5", "insert|4|cid|1"]
    );
    f.ok("DELETE FROM orders WHERE id = 4").await;
    assert_eq!(read(&f.session, "v", 1).await, ["delete|cid|1"]);
    assert_eq!(read(&f.session, "t", 1).await, ["delete|4|cid|1"]);
    f.ok("UPDATE orders SET amount = 21 WHERE id = 2").await;
    let update = ["update_delete|2|bob|20", "update_insert|2|bob|21"];
    assert_eq!(read(&f.session, "t", 2).await, update);
    // One relation is followed once, however many do.
    let followed = f.db.subscriptions().followed();
    assert_eq!((followed, f.db.subscriptions().list().len()), (2, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_is_never_split_and_progress_says_when_it_is_whole() {
    let f = sales().await;
    f.ok("DECLARE v CURSOR WITH HOLD FOR SUBSCRIBE totals WITH (SNAPSHOT = false, PROGRESS)")
        .await;
    f.ok("BEGIN").await;
    f.ok("INSERT INTO orders SELECT x, 'p' || x, 1 FROM generate_series(100, 199) AS g(x)")
        .await;
    f.ok("INSERT INTO orders SELECT x, 'p' || (x - 100), 1 FROM generate_series(200, 299) AS g(x)")
        .await;
    f.ok("COMMIT").await;
    let mut rows = 0;
    loop {
        let next = run(&f.session, "FETCH 1 FROM v").await.unwrap();
        let row: Vec<&str> = next[0].split('|').collect();
        match row[1] {
            // Both parts of the transaction are in one epoch.
            "f" => {
                assert_eq!((row[2], row[4]), ("insert", "2"));
                rows += 1;
            }
            _ => {
                assert_eq!(row[1..], ["t", "null", "null", "null"]);
                if rows > 0 {
                    break;
                }
            }
        }
    }
    assert_eq!(rows, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upsert_tells_the_newest_row_of_a_key() {
    let f = sales().await;
    f.ok("DECLARE v CURSOR WITH HOLD FOR SUBSCRIBE totals ENVELOPE UPSERT (KEY (who))")
        .await;
    f.ok("DECLARE t CURSOR WITH HOLD FOR SUBSCRIBE orders ENVELOPE UPSERT WITH (SNAPSHOT = false)")
        .await;
    assert_eq!(
        sorted(&f.session, "v", 2).await,
        ["upsert|ann|10", "upsert|bob|20"]
    );
    f.ok("UPDATE orders SET amount = 11 WHERE id = 1").await;
    f.ok("DELETE FROM orders WHERE id = 2").await;
    assert_eq!(
        sorted(&f.session, "v", 2).await,
        ["delete|bob|null", "upsert|ann|11"]
    );
    assert_eq!(
        sorted(&f.session, "t", 2).await,
        ["delete|2|null|null", "upsert|1|ann|11"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_followed_from_its_log() {
    let f = Fixture::new().await;
    f.ok("CREATE STREAM s (v INT)").await;
    f.ok("INSERT INTO s SELECT * FROM generate_series(1, 3)").await;
    f.ok("DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE s").await;
    f.ok("DECLARE n CURSOR WITH HOLD FOR SUBSCRIBE s WITH (SNAPSHOT = false)")
        .await;
    assert_eq!(
        read(&f.session, "c", 3).await,
        ["insert|1", "insert|2", "insert|3"]
    );
    f.ok("INSERT INTO s VALUES (4)").await;
    assert_eq!(read(&f.session, "c", 1).await, ["insert|4"]);
    assert_eq!(read(&f.session, "n", 1).await, ["insert|4"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_ends_and_nobody_waits_for_it() {
    let f = Fixture::new().await;
    f.ok("CREATE STREAM s (v TEXT)").await;
    f.ok("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM s")
        .await;
    let slow = f.other_session();
    run(&slow, "SET subscription_buffer = '100kB'").await.unwrap();
    run(&slow, "DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE s")
        .await
        .unwrap();
    f.ok("DECLARE q CURSOR WITH HOLD FOR SUBSCRIBE s").await;
    for _ in 0..8 {
        f.ok("INSERT INTO s SELECT repeat('x', 1000) FROM generate_series(1, 50)")
            .await;
        // Whoever reads has everything.
        assert_eq!(read(&f.session, "q", 50).await.len(), 50);
    }
    let error = run(&slow, "FETCH 1 FROM c").await.unwrap_err();
    assert_eq!(error.code, SqlState::ProgramLimitExceeded, "{error:?}");
    assert!(error.message.contains("changes are read too slowly"), "{error:?}");
    assert_eq!(f.db.subscriptions().too_slow(), 1);
    assert_eq!(f.ok("SELECT n FROM n").await, ["400"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_or_replaced_ends_its_subscriptions() {
    let f = sales().await;
    f.ok("DECLARE v CURSOR WITH HOLD FOR SUBSCRIBE totals WITH (SNAPSHOT = false)")
        .await;
    f.ok("CREATE OR REPLACE MATERIALIZED VIEW totals AS SELECT who, count(*) AS total FROM orders GROUP BY who")
        .await;
    let error = f.error("FETCH 1 FROM v").await;
    assert_eq!(error.code, SqlState::ObjectNotInPrerequisiteState);
    assert!(error.message.contains("was replaced"), "{error:?}");
    f.ok("CLOSE v").await;
    f.ok("DECLARE v CURSOR WITH HOLD FOR SUBSCRIBE totals").await;
    assert_eq!(sorted(&f.session, "v", 2).await, ["insert|ann|1", "insert|bob|1"]);
    f.ok("DROP MATERIALIZED VIEW totals").await;
    let error = f.error("FETCH 1 FROM v").await;
    assert!(error.message.contains("was dropped"), "{error:?}");
    assert!(
        f.db.subscriptions()
            .list()
            .iter()
            .all(|info| info.error.is_some())
    );
    f.ok("CLOSE v").await;
    assert!(f.db.subscriptions().list().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_that_are_added_do_not_change_what_is_sent() {
    let f = sales().await;
    f.ok("DECLARE t CURSOR WITH HOLD FOR SUBSCRIBE orders WITH (SNAPSHOT = false)")
        .await;
    f.ok("ALTER TABLE orders ADD COLUMN note TEXT").await;
    f.ok("INSERT INTO orders VALUES (3, 'cid', 1, 'x')").await;
    assert_eq!(read(&f.session, "t", 1).await, ["insert|3|cid|1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_follow_one_relation_and_each_has_all_of_it() {
    let f = sales().await;
    let sessions: Vec<_> = (0..200).map(|_| f.other_session()).collect();
    for session in &sessions {
        run(
            session,
            "DECLARE v CURSOR WITH HOLD FOR SUBSCRIBE totals WITH (SNAPSHOT = false)",
        )
        .await
        .unwrap();
    }
    assert_eq!(f.db.subscriptions().followed(), 1);
    f.ok("INSERT INTO orders VALUES (3, 'cid', 1)").await;
    for session in &sessions {
        assert_eq!(read(session, "v", 1).await, ["insert|cid|1"]);
    }
    drop(sessions);
    assert!(f.db.subscriptions().list().is_empty());
}

/// What a subscriber has put together is what the view is, at the end of every epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_changes_add_up_to_the_view() {
    let f = sales().await;
    f.ok("DECLARE v CURSOR WITH HOLD FOR SUBSCRIBE totals").await;
    let mut held: Vec<String> = vec![];
    for round in 0..40 {
        f.ok(&format!(
            "INSERT INTO orders SELECT {round} * 100 + x + 10, 'p' || ({round} * 7 + x) % 13, x \
             FROM generate_series(1, 20) AS g(x)"
        ))
        .await;
        f.ok(&format!("DELETE FROM orders WHERE id % 5 = {round} % 5"))
            .await;
        let expected = {
            let mut rows = f.ok("SELECT who, total FROM totals").await;
            rows.sort();
            rows
        };
        while held != expected {
            for row in fetch(&f.session, "1000 FROM v").await {
                let (op, row) = row.split_once('|').unwrap();
                match op {
                    "insert" | "update_insert" => held.push(row.to_owned()),
                    _ => {
                        let place = held.iter().position(|held| held == row);
                        held.swap_remove(place.unwrap_or_else(|| panic!("{row} went, and was not there")));
                    }
                }
            }
            held.sort();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_is_followed_once_by_all_who_follow_it() {
    let f = sales().await;
    f.ok("CREATE VIEW large AS SELECT id, who FROM orders WHERE amount > 15")
        .await;
    let query = "SUBSCRIBE (SELECT who, count(*) AS n FROM orders GROUP BY who)";
    f.ok(&format!("DECLARE a CURSOR WITH HOLD FOR {query}")).await;
    f.ok(&format!("DECLARE b CURSOR WITH HOLD FOR {query} ENVELOPE UPSERT"))
        .await;
    f.ok("DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE large").await;
    assert_eq!(f.db.subscriptions().followed(), 2);
    assert_eq!(sorted(&f.session, "a", 2).await, ["insert|ann|1", "insert|bob|1"]);
    assert_eq!(sorted(&f.session, "b", 2).await, ["upsert|ann|1", "upsert|bob|1"]);
    assert_eq!(read(&f.session, "c", 1).await, ["insert|2|bob"]);
    // Also whoever else does, with temporary tables of its own.
    let other = f.other_session();
    for sql in [
        "CREATE TEMP TABLE mine (v INT)",
        &format!("DECLARE o CURSOR WITH HOLD FOR {query}"),
    ] {
        run(&other, sql).await.unwrap();
    }
    assert_eq!(sorted(&other, "o", 2).await, ["insert|ann|1", "insert|bob|1"]);
    assert_eq!(f.db.subscriptions().followed(), 2);
    let of_mine = "DECLARE m CURSOR WITH HOLD FOR SUBSCRIBE (SELECT count(*) AS n FROM mine)";
    assert!(run(&other, of_mine).await.is_err());
    // What somebody has written is in a snapshot that it asks for later.
    f.ok("INSERT INTO orders VALUES (3, 'ann', 50)").await;
    f.ok(&format!("DECLARE d CURSOR WITH HOLD FOR {query}")).await;
    assert_eq!(sorted(&f.session, "d", 2).await, ["insert|ann|2", "insert|bob|1"]);
    assert_eq!(
        read(&f.session, "a", 2).await,
        ["update_delete|ann|1", "update_insert|ann|2"]
    );
    assert_eq!(read(&f.session, "b", 1).await, ["upsert|ann|2"]);
    assert_eq!(read(&f.session, "c", 1).await, ["insert|3|ann"]);
    let queries = f
        .ok("SELECT DISTINCT query FROM mr_catalog.subscribers ORDER BY query")
        .await;
    assert_eq!(
        queries,
        [
            "SELECT * FROM public.large",
            "SELECT who, count(*) AS n FROM orders GROUP BY who"
        ]
    );
    // Nobody else sees the views.
    let views = f.ok("SELECT count(*) FROM pg_matviews").await;
    assert_eq!(views, ["1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_ends_with_what_it_reads() {
    let f = sales().await;
    f.ok("CREATE TABLE names (who TEXT PRIMARY KEY, name TEXT)").await;
    f.ok("DECLARE v CURSOR WITH HOLD FOR SUBSCRIBE (SELECT who, name FROM totals JOIN names USING (who))")
        .await;
    f.ok("DECLARE t CURSOR WITH HOLD FOR SUBSCRIBE (SELECT count(*) AS n FROM orders)")
        .await;
    f.ok("CREATE OR REPLACE MATERIALIZED VIEW totals AS SELECT who, count(*) AS total FROM orders GROUP BY who")
        .await;
    let error = f.error("FETCH 1 FROM v").await;
    assert_eq!(error.code, SqlState::ObjectNotInPrerequisiteState);
    assert!(error.message.contains("totals was replaced"), "{error:?}");
    // It does not hold up what is dropped, and neither does one that begins again.
    f.ok("CLOSE v").await;
    f.ok("DECLARE v CURSOR WITH HOLD FOR SUBSCRIBE (SELECT who, name FROM totals JOIN names USING (who))")
        .await;
    f.ok("DROP TABLE names").await;
    let error = f.error("FETCH 1 FROM v").await;
    assert!(error.message.contains("table names was dropped"), "{error:?}");
    f.ok("INSERT INTO orders VALUES (3, 'cid', 1)").await;
    let counted = ["insert|2", "update_delete|2", "update_insert|3"];
    assert_eq!(read(&f.session, "t", 3).await, counted);
    f.ok("CLOSE v").await;
    f.ok("CLOSE t").await;
    f.ok("DROP TABLE orders CASCADE").await;
    assert_eq!(f.db.subscriptions().followed(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_query_is_left_after_a_start() {
    let f = sales().await;
    f.ok("DECLARE t CURSOR WITH HOLD FOR SUBSCRIBE (SELECT who, max(amount) AS m FROM orders GROUP BY who)")
        .await;
    assert_eq!(read(&f.session, "t", 2).await.len(), 2);
    // A checkpoint has the state of its view.
    f.ok("CHECKPOINT").await;
    f.ok("INSERT INTO orders VALUES (3, 'ann', 5)").await;
    for f in [f.killed().await, f.restart().await] {
        let mut totals = f.ok("SELECT who, total FROM totals").await;
        totals.sort();
        assert_eq!(totals, ["ann|15", "bob|20"]);
        assert_eq!(f.ok("SELECT count(*) FROM mr_catalog.subscribers").await, ["0"]);
        // What gets its number is not taken for it.
        f.ok("CREATE MATERIALIZED VIEW smallest AS SELECT who, min(amount) AS m FROM orders GROUP BY who")
            .await;
        f.ok("CHECKPOINT").await;
        let f = f.restart().await;
        let mut smallest = f.ok("SELECT who, m FROM smallest").await;
        smallest.sort();
        assert_eq!(smallest, ["ann|5", "bob|20"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_nobody_waits_for_any_more_is_given_up() {
    let f = sales().await;
    f.ok("INSERT INTO orders SELECT x, 'x', x FROM generate_series(3, 100000) AS g(x)")
        .await;
    let other = f.other_session();
    run(&other, "SET backfill_rate_limit = 1").await.unwrap();
    let waits = {
        let other = Arc::clone(&other);
        let declare = "DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE (SELECT max(amount) AS m FROM orders)";
        tokio::spawn(async move { run(&other, declare).await })
    };
    while f.db.subscriptions().followed() == 0 {
        tokio::task::yield_now().await;
    }
    // It holds nothing up meanwhile.
    assert_eq!(f.ok("SELECT total FROM totals WHERE who = 'bob'").await, ["20"]);
    waits.abort();
    while f.db.subscriptions().followed() > 0 {
        tokio::task::yield_now().await;
    }
    f.ok("DROP TABLE orders CASCADE").await;
}
