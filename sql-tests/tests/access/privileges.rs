//! What privileges mean: views, columns, owners, what is granted further.

use tokio_postgres::Client;

use crate::{Fixture, rows};

/// Three users, and a schema that is the first one's.
pub(crate) async fn fixture() -> (Fixture, Client) {
    let fixture = Fixture::new().await;
    let first = fixture.first().await;
    for statement in [
        "CREATE USER ann PASSWORD 'ann'",
        "CREATE USER bob PASSWORD 'bob'",
        "CREATE USER eve PASSWORD 'eve'",
        "CREATE SCHEMA s AUTHORIZATION ann",
        "GRANT USAGE ON SCHEMA s TO bob, eve",
        "GRANT CREATE ON SCHEMA s TO bob",
        "ALTER SYSTEM SET access_control = on",
    ] {
        rows(&first, statement).await.unwrap();
    }
    (fixture, first)
}

pub(crate) async fn ok(client: &Client, sql: &str) -> Vec<String> {
    rows(client, sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
}

pub(crate) async fn denied(client: &Client, sql: &str, message: &str) {
    let error = rows(client, sql).await.expect_err(sql);
    assert_eq!(error, format!("42501 {message}"), "{sql}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_reads_with_the_rights_of_its_owner() {
    let (fixture, first) = fixture().await;
    let (ann, bob, eve) = (
        fixture.role("ann").await,
        fixture.role("bob").await,
        fixture.role("eve").await,
    );
    ok(&ann, "CREATE TABLE s.secret (a int, b int)").await;
    ok(&ann, "INSERT INTO s.secret VALUES (1, 2)").await;
    ok(&ann, "CREATE VIEW s.shown AS SELECT a FROM s.secret").await;
    ok(&ann, "GRANT SELECT ON s.shown TO bob").await;
    assert_eq!(ok(&bob, "SELECT * FROM s.shown").await, ["1"]);
    denied(
        &bob,
        "SELECT * FROM s.secret",
        "permission denied for table secret",
    )
    .await;
    // A view of bob's over ann's view, for eve: each view has its owner's rights, and no more.
    ok(&bob, "CREATE VIEW s.further AS SELECT a + 1 AS a FROM s.shown").await;
    ok(&bob, "GRANT SELECT ON s.further TO eve").await;
    assert_eq!(ok(&eve, "SELECT * FROM s.further").await, ["2"]);
    denied(&eve, "SELECT * FROM s.shown", "permission denied for view shown").await;
    // Who follows it, or makes a view of it that is maintained, reads no more than who selects from it.
    let follows = [
        "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO s.further; COMMIT",
        "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE (SELECT max(a) AS a FROM s.further); COMMIT",
    ];
    for follow in follows {
        ok(&eve, follow).await;
    }
    ok(&ann, "REVOKE SELECT ON s.shown FROM bob").await;
    for follow in follows {
        denied(&eve, follow, "permission denied for view shown").await;
        ok(&eve, "ROLLBACK").await;
    }
    ok(&ann, "GRANT CREATE ON SCHEMA s TO eve").await;
    denied(
        &eve,
        "CREATE MATERIALIZED VIEW s.kept AS SELECT a FROM s.further",
        "permission denied for view shown",
    )
    .await;
    denied(
        &eve,
        "SELECT * FROM s.further",
        "permission denied for view shown",
    )
    .await;
    // As in PostgreSQL that holds for a superuser, too: inside of the view it is the owner who reads.
    denied(
        &first,
        "SELECT * FROM s.further",
        "permission denied for view shown",
    )
    .await;
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_materialized_view_is_made_of_what_its_maker_may_read() {
    let (fixture, _first) = fixture().await;
    let (ann, bob) = (fixture.role("ann").await, fixture.role("bob").await);
    ok(&ann, "CREATE TABLE s.t (a int)").await;
    let make = "CREATE MATERIALIZED VIEW s.mv AS SELECT count(*) AS n FROM s.t";
    denied(&bob, make, "permission denied for table t").await;
    denied(
        &bob,
        "CREATE TABLE s.copy AS SELECT * FROM s.t",
        "permission denied for table t",
    )
    .await;
    ok(&ann, "GRANT SELECT ON s.t TO bob").await;
    ok(&bob, make).await;
    ok(&ann, "INSERT INTO s.t VALUES (1)").await;
    assert_eq!(ok(&bob, "SELECT n FROM s.mv").await, ["1"]);
    denied(
        &ann,
        "SELECT n FROM s.mv",
        "permission denied for materialized view mv",
    )
    .await;
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_alone_needs_no_reading() {
    let (fixture, _first) = fixture().await;
    let (ann, bob) = (fixture.role("ann").await, fixture.role("bob").await);
    ok(&ann, "CREATE TABLE s.t (a int PRIMARY KEY, b int)").await;
    ok(&ann, "INSERT INTO s.t VALUES (1, 1)").await;
    ok(&ann, "GRANT INSERT, UPDATE, DELETE ON s.t TO bob").await;
    let no = "permission denied for table t";
    ok(&bob, "INSERT INTO s.t VALUES (2, 2)").await;
    denied(&bob, "INSERT INTO s.t VALUES (3, 3) RETURNING a", no).await;
    denied(
        &bob,
        "INSERT INTO s.t VALUES (2, 2) ON CONFLICT (a) DO UPDATE SET b = 9",
        no,
    )
    .await;
    ok(&bob, "UPDATE s.t SET b = 7").await;
    denied(&bob, "UPDATE s.t SET b = a", no).await;
    denied(&bob, "UPDATE s.t SET b = (SELECT max(a) FROM s.t)", no).await;
    denied(&bob, "UPDATE s.t SET b = 1 WHERE a = 1", no).await;
    denied(&bob, "UPDATE s.t SET b = 1 FROM s.t AS u", no).await;
    denied(&bob, "DELETE FROM s.t WHERE a = 1", no).await;
    // Over the extended protocol, too.
    bob.execute("UPDATE s.t SET b = $1", &[&8]).await.unwrap();
    assert_eq!(ok(&ann, "SELECT * FROM s.t ORDER BY a").await, ["1|8", "2|8"]);
    ok(&bob, "DELETE FROM s.t").await;
    assert_eq!(ok(&ann, "SELECT count(*) FROM s.t").await, ["0"]);
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_granted_further_goes_with_the_right_to_grant_it() {
    let (fixture, _first) = fixture().await;
    let (ann, bob, eve) = (
        fixture.role("ann").await,
        fixture.role("bob").await,
        fixture.role("eve").await,
    );
    ok(&ann, "CREATE TABLE s.t (a int)").await;
    ok(&ann, "GRANT SELECT ON s.t TO bob WITH GRANT OPTION").await;
    ok(&bob, "GRANT SELECT ON s.t TO eve").await;
    ok(&eve, "SELECT * FROM s.t").await;
    let error = rows(&ann, "REVOKE SELECT ON s.t FROM bob").await.unwrap_err();
    assert_eq!(error, "2BP01 dependent privileges exist");
    ok(&ann, "REVOKE SELECT ON s.t FROM bob CASCADE").await;
    denied(&eve, "SELECT * FROM s.t", "permission denied for table t").await;
    denied(
        &bob,
        "GRANT SELECT ON s.t TO eve",
        "permission denied for table t",
    )
    .await;
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_keeps_nothing_of_what_it_was() {
    let (fixture, first) = fixture().await;
    let ann = fixture.role("ann").await;
    ok(&ann, "CREATE TABLE s.t (a int)").await;
    let error = rows(&first, "DROP ROLE ann").await.unwrap_err();
    assert!(error.starts_with("2BP01"), "{error}");
    ok(&first, "ALTER TABLE s.t OWNER TO millrace").await;
    ok(&first, "ALTER SCHEMA s OWNER TO millrace").await;
    ok(&first, "GRANT USAGE ON SCHEMA s TO PUBLIC").await;
    denied(&ann, "SELECT * FROM s.t", "permission denied for table t").await;
    ok(&first, "DROP ROLE ann").await;
    // A session that is still there is nobody's, and whoever gets the name is somebody else.
    ok(&first, "CREATE USER ann PASSWORD 'ann'").await;
    ok(&first, "GRANT SELECT ON s.t TO ann").await;
    denied(&ann, "SELECT * FROM s.t", "permission denied for schema s").await;
    ok(&fixture.role("ann").await, "SELECT * FROM s.t").await;
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lastval_is_of_a_sequence_that_may_be_read() {
    let (fixture, first) = fixture().await;
    let eve = fixture.role("eve").await;
    ok(&first, "CREATE SEQUENCE s.q").await;
    ok(&first, "GRANT USAGE ON SEQUENCE s.q TO eve").await;
    ok(&eve, "SELECT nextval('s.q')").await;
    assert_eq!(ok(&eve, "SELECT lastval()").await, ["1"]);
    ok(&first, "REVOKE USAGE ON SEQUENCE s.q FROM eve").await;
    denied(&eve, "SELECT lastval()", "permission denied for sequence q").await;
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_lasts() {
    let (fixture, _first) = fixture().await;
    let ann = fixture.role("ann").await;
    ok(
        &ann,
        "ALTER DEFAULT PRIVILEGES IN SCHEMA s GRANT SELECT ON TABLES TO bob",
    )
    .await;
    ok(&ann, "CREATE TABLE s.t (a int)").await;
    ok(
        &ann,
        "CREATE MATERIALIZED VIEW s.mv AS SELECT count(*) AS n FROM s.t",
    )
    .await;
    ok(&ann, "ALTER TABLE s.t ADD COLUMN b int").await;
    let Fixture { server, directory } = fixture;
    server.shutdown().await;
    let server = crate::start(&directory, Some(crate::PASSWORD)).await;
    let fixture = Fixture { server, directory };
    let (ann, bob, eve) = (
        fixture.role("ann").await,
        fixture.role("bob").await,
        fixture.role("eve").await,
    );
    ok(&bob, "SELECT * FROM s.t").await;
    assert_eq!(ok(&bob, "SELECT n FROM s.mv").await, ["0"]);
    denied(
        &eve,
        "SELECT n FROM s.mv",
        "permission denied for materialized view mv",
    )
    .await;
    ok(&ann, "DROP TABLE s.t CASCADE").await;
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_follow_is_hidden() {
    let (fixture, first) = fixture().await;
    let (ann, bob) = (fixture.role("ann").await, fixture.role("bob").await);
    ok(&ann, "CREATE TABLE s.t (a int)").await;
    ok(&ann, "BEGIN").await;
    ok(
        &ann,
        "DECLARE c CURSOR FOR SUBSCRIBE (SELECT count(*) AS n FROM s.t WHERE a <> 4711)",
    )
    .await;
    let seen = "SELECT query FROM mr_catalog.subscribers";
    let query = "SELECT count(*) AS n FROM s.t WHERE a <> 4711";
    assert_eq!(ok(&ann, seen).await, [query]);
    assert_eq!(ok(&first, seen).await, [query]);
    assert_eq!(ok(&bob, seen).await, ["<insufficient privilege>"]);
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_of_others_are_counted_and_hidden() {
    let (fixture, first) = fixture().await;
    let (ann, bob) = (fixture.role("ann").await, fixture.role("bob").await);
    for number in 0..7 {
        ok(&ann, &format!("SELECT {number} AS mine")).await;
    }
    let seen = "SELECT query, queryid IS NULL FROM pg_stat_statements AS s JOIN pg_roles AS r ON r.oid = s.userid \
                WHERE rolname = 'ann' AND calls = 7";
    assert_eq!(ok(&ann, seen).await, ["SELECT $1 AS mine|f"]);
    assert_eq!(ok(&first, seen).await, ["SELECT $1 AS mine|f"]);
    assert_eq!(ok(&bob, seen).await, ["<insufficient privilege>|t"]);
    let reset = "SELECT pg_stat_statements_reset()";
    denied(
        &bob,
        reset,
        "permission denied for function pg_stat_statements_reset",
    )
    .await;
    ok(&first, "GRANT pg_monitor TO bob").await;
    assert_eq!(ok(&bob, seen).await, ["SELECT $1 AS mine|f"]);
    ok(&first, reset).await;
    assert!(ok(&first, seen).await.is_empty());
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_is_its_owners() {
    let (fixture, first) = fixture().await;
    let (ann, bob, eve) = (
        fixture.role("ann").await,
        fixture.role("bob").await,
        fixture.role("eve").await,
    );
    ok(&ann, "CREATE STREAM s.st (a int)").await;
    ok(&ann, "GRANT SELECT ON s.st TO bob").await;
    let out = fixture.directory.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let create = format!(
        "CREATE SINK s.k FROM s.st WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE JSON",
        out.display()
    );
    denied(&bob, &create, "permission denied to create a sink").await;
    ok(&first, "GRANT pg_write_server_files TO bob, eve").await;
    denied(&eve, &create, "permission denied for schema s").await;
    ok(&bob, &create).await;
    ok(&bob, "PAUSE SINK s.k").await;
    ok(&bob, "RESUME SINK s.k").await;
    for sql in ["PAUSE SINK s.k", "RESUME SINK s.k", "DROP SINK s.k"] {
        denied(&eve, sql, "must be owner of sink k").await;
    }
    denied(&eve, "EXPLAIN ANALYZE SINK s.k", "permission denied for sink k").await;
    ok(&bob, "DROP SINK s.k").await;
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_loses_what_is_said_before_privileges_are_enforced() {
    let fixture = Fixture::new().await;
    let told = std::sync::Arc::new(parking_lot::Mutex::new(vec![]));
    let (client, mut connection) = tokio_postgres::Config::new()
        .host(fixture.server.pg_addr().ip().to_string())
        .port(fixture.server.pg_addr().port())
        .user("millrace")
        .password(crate::PASSWORD)
        .dbname("millrace")
        .connect(tokio_postgres::NoTls)
        .await
        .unwrap();
    let heard = std::sync::Arc::clone(&told);
    tokio::spawn(async move {
        let messages = futures::stream::poll_fn(move |context| connection.poll_message(context));
        let mut messages = std::pin::pin!(messages);
        while let Some(Ok(message)) = futures::StreamExt::next(&mut messages).await {
            if let tokio_postgres::AsyncMessage::Notice(notice) = message {
                heard.lock().push(notice.message().to_owned());
            }
        }
    });
    let take = || std::mem::take(&mut *told.lock());
    ok(&client, "CREATE USER ann PASSWORD 'ann'").await;
    assert_eq!(take(), ["access_control is off: every role may do everything"]);
    for sql in [
        "CREATE USER bare",
        "CREATE TABLE t (a int)",
        "CREATE TABLE shared (a int)",
        "CREATE VIEW v AS SELECT a FROM t",
        "ALTER VIEW v OWNER TO ann",
        "GRANT SELECT ON shared TO PUBLIC",
    ] {
        ok(&client, sql).await;
    }
    take();
    ok(&client, "ALTER SYSTEM SET access_control = on").await;
    assert_eq!(
        take(),
        [
            "role \"ann\" cannot read t any more",
            "role \"ann\" cannot write t, shared any more",
            "role \"bare\" has no password and cannot log in any more",
            "role \"bare\" cannot read t, v any more",
            "role \"bare\" cannot write t, shared any more",
            "view v cannot be read any more: its owner \"ann\" cannot read t",
        ]
    );
    ok(&client, "CREATE USER more PASSWORD 'more'").await;
    assert_eq!(take(), Vec::<String>::new());
    fixture.server.shutdown().await;
}
