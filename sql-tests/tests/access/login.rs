//! Roles and their passwords.

use crate::http::{basic, request};
use crate::{Fixture, PASSWORD, code, rows, start};

#[tokio::test(flavor = "multi_thread")]
async fn a_role_logs_in_with_its_password_and_no_other() {
    let fixture = Fixture::new().await;
    let first = fixture.first().await;
    first
        .batch_execute("CREATE USER ann PASSWORD 'secret'; CREATE ROLE nobody; CREATE USER bare")
        .await
        .unwrap();
    let ann = fixture.connect("ann", "secret").await.unwrap();
    assert_eq!(
        rows(&ann, "SELECT current_user, session_user").await.unwrap(),
        ["ann|ann"]
    );
    // What is wrong, unknown or without a password is refused in the same words.
    for (user, password) in [
        ("ann", "secre"),
        ("eve", "secret"),
        ("bare", ""),
        ("bare", "x"),
        ("nobody", "x"),
    ] {
        let error = fixture.connect(user, password).await.err().unwrap();
        let expected = format!("28P01 password authentication failed for user \"{user}\"");
        assert_eq!(code(&error), expected);
    }
    first
        .batch_execute("ALTER ROLE nobody PASSWORD 'x'")
        .await
        .unwrap();
    let error = fixture.connect("nobody", "x").await.err().unwrap();
    assert_eq!(code(&error), "28000 role \"nobody\" is not permitted to log in");
    first
        .batch_execute("ALTER ROLE ann VALID UNTIL '2001-01-01'")
        .await
        .unwrap();
    assert!(fixture.connect("ann", "secret").await.is_err());
    first
        .batch_execute("ALTER ROLE ann VALID UNTIL 'infinity' CONNECTION LIMIT 1")
        .await
        .unwrap();
    let error = fixture.connect("ann", "secret").await.err().unwrap();
    assert_eq!(code(&error), "53300 too many connections for role \"ann\"");
    drop(ann);
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_nowhere_to_be_read() {
    let fixture = Fixture::new().await;
    let first = fixture.first().await;
    let statement = "CREATE USER ann PASSWORD 'abracadabra'";
    first.batch_execute(statement).await.unwrap();
    assert_eq!(
        rows(&first, "SELECT rolpassword FROM pg_authid WHERE rolname = 'ann'")
            .await
            .unwrap(),
        ["********"]
    );
    let other = fixture.first().await;
    first
        .batch_execute("ALTER ROLE ann PASSWORD 'abracadabra'")
        .await
        .unwrap();
    let queries = rows(&other, "SELECT query FROM pg_stat_activity").await.unwrap();
    assert!(
        queries
            .iter()
            .any(|query| query == "ALTER ROLE ann PASSWORD '********'"),
        "{queries:?}"
    );
    fixture.server.shutdown().await;
    let mut files = vec![fixture.directory.path().to_owned()];
    let mut is_kept = false;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            let bytes = std::fs::read(&path).unwrap();
            let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
            assert!(!has(b"abracadabra"), "{}", path.display());
            is_kept |= has(b"SCRAM-SHA-256$4096:");
        }
    }
    assert!(is_kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn verifiers_that_others_made_are_taken() {
    let fixture = Fixture::new().await;
    let first = fixture.first().await;
    // Of PostgreSQL 15, for the password pencil.
    let verifier = "SCRAM-SHA-256$4096:8BUEdlO/Mp9dO02cZ9WBeg==$7rBNVIneRdHUO6MVIDWZLNCHIYbNN6ufcCNZH7/tSRo=:EZ7kCEoN18tumxJh1D/eeI5VStQOUfs+HcBJ32ITjpc=";
    first
        .batch_execute(&format!("CREATE USER ann PASSWORD '{verifier}'"))
        .await
        .unwrap();
    fixture.connect("ann", "pencil").await.unwrap();
    assert!(fixture.connect("ann", verifier).await.is_err());
    let md5 = rows(
        &first,
        "ALTER ROLE ann PASSWORD 'md5c0ffeec0ffeec0ffeec0ffeec0ffee12'",
    )
    .await;
    assert!(md5.unwrap_err().starts_with("0A000"));
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_roles_and_tokens_are_known_over_http() {
    let fixture = Fixture::new().await;
    let first = fixture.first().await;
    first
        .batch_execute("CREATE USER ann PASSWORD 'secret'")
        .await
        .unwrap();
    let token = rows(&first, "CREATE TOKEN ci FOR ROLE ann")
        .await
        .unwrap()
        .remove(0);
    let old = rows(&first, "CREATE TOKEN old FOR ann VALID UNTIL '2001-01-01'")
        .await
        .unwrap()
        .remove(0);
    let address = fixture.server.http_addr();
    let ask = async |authorization: Option<String>| {
        let query = "SELECT current_user AS who";
        let answer = request(
            address,
            "POST",
            "/api/sql",
            authorization.as_deref(),
            "text/plain",
            query,
        )
        .await;
        match answer.status {
            200 => answer
                .body
                .split("[[\"")
                .nth(1)
                .map(|rest| rest.split('"').next().unwrap().to_owned())
                .unwrap_or(answer.body),
            status => status.to_string(),
        }
    };
    for (authorization, who) in [
        (basic("ann", "secret"), "ann"),
        // A second time it is known.
        (basic("ann", "secret"), "ann"),
        (basic("ann", "wrong"), "401"),
        (basic("eve", "secret"), "401"),
        (basic("millrace", PASSWORD), "millrace"),
        (basic("root", PASSWORD), "millrace"),
        (format!("Bearer {PASSWORD}"), "millrace"),
        (format!("Bearer {token}"), "ann"),
        (format!("Bearer {old}"), "401"),
        (format!("Bearer {}x", token), "401"),
        ("Basic !!!".to_owned(), "401"),
    ] {
        let answer = ask(Some(authorization.clone())).await;
        assert!(
            answer == who || answer.contains(&format!("\"{who}\"")),
            "{authorization}: {answer}"
        );
    }
    assert_eq!(ask(None).await, "401");
    first
        .batch_execute("ALTER ROLE ann PASSWORD 'other'")
        .await
        .unwrap();
    assert_eq!(ask(Some(basic("ann", "secret"))).await, "401");
    first.batch_execute("DROP TOKEN ci").await.unwrap();
    assert_eq!(ask(Some(format!("Bearer {token}"))).await, "401");
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_followed_ends_with_its_token() {
    let fixture = Fixture::new().await;
    let first = fixture.first().await;
    first
        .batch_execute("CREATE USER ann PASSWORD 'secret'; CREATE TABLE t (id INT); GRANT SELECT ON t TO ann")
        .await
        .unwrap();
    let address = fixture.server.http_addr();
    let follow = async |authorization: String| {
        // To the end.
        let path = "/api/subscribe?";
        let json = "application/json";
        request(
            address,
            "POST",
            path,
            Some(&authorization),
            json,
            "{\"query\": \"t\"}",
        )
        .await
    };
    for (made, ended) in [
        ("CREATE TOKEN ci FOR ann", "DROP TOKEN ci"),
        ("CREATE TOKEN ci FOR ann", "DROP OWNED BY ann; DROP ROLE ann"),
    ] {
        let token = rows(&first, made).await.unwrap().remove(0);
        let end = async {
            let followers = "SELECT count(*) FROM mr_catalog.subscribers";
            while rows(&first, followers).await.unwrap() != ["1"] {
                tokio::task::yield_now().await;
            }
            first.batch_execute(ended).await.unwrap();
        };
        let (answer, ()) = tokio::join!(follow(format!("Bearer {token}")), end);
        assert_eq!(answer.status, 200, "{made}");
        assert!(
            answer.body.contains("\"code\":\"28000\""),
            "{made}: {}",
            answer.body
        );
    }
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_role_can_always_be_recovered() {
    let fixture = Fixture::new().await;
    let first = fixture.first().await;
    for statement in [
        "ALTER ROLE millrace NOSUPERUSER",
        "ALTER ROLE millrace NOLOGIN",
        "ALTER ROLE millrace RENAME TO eve",
    ] {
        assert!(rows(&first, statement).await.unwrap_err().starts_with("42501"));
    }
    first
        .batch_execute("ALTER ROLE millrace PASSWORD 'forgotten' VALID UNTIL '2001-01-01'")
        .await
        .unwrap();
    first
        .batch_execute("ALTER SYSTEM SET access_control = on")
        .await
        .unwrap();
    let Fixture { server, directory } = fixture;
    server.shutdown().await;
    // Without the password of the configuration its own counts, which has ended.
    let server = start(&directory, None).await;
    let fixture = Fixture { server, directory };
    assert!(fixture.connect("millrace", "forgotten").await.is_err());
    let Fixture { server, directory } = fixture;
    server.shutdown().await;
    let server = start(&directory, Some("again")).await;
    let fixture = Fixture { server, directory };
    let first = fixture.connect("millrace", "again").await.unwrap();
    first
        .batch_execute("ALTER SYSTEM SET access_control = off")
        .await
        .unwrap();
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn access_control_is_not_turned_on_by_who_could_not_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&directory, None).await;
    let fixture = Fixture { server, directory };
    let first = fixture.connect("millrace", "").await.unwrap();
    let refused = rows(&first, "ALTER SYSTEM SET access_control = on")
        .await
        .unwrap_err();
    assert!(refused.starts_with("55000"), "{refused}");
    first
        .batch_execute("ALTER ROLE millrace PASSWORD 'mine'; ALTER SYSTEM SET access_control = on")
        .await
        .unwrap();
    assert!(fixture.connect("millrace", "").await.is_err());
    fixture.connect("millrace", "mine").await.unwrap();
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_begins_with_the_settings_of_its_role() {
    let fixture = Fixture::new().await;
    let first = fixture.first().await;
    first
        .batch_execute(
            "CREATE ROLE grp; CREATE USER ann PASSWORD 'ann' IN ROLE grp; ALTER ROLE ann SET statement_timeout TO '7s'; \
             ALTER ROLE ann SET role TO grp",
        )
        .await
        .unwrap();
    let ann = fixture.role("ann").await;
    assert_eq!(rows(&ann, "SHOW statement_timeout").await.unwrap(), ["7s"]);
    assert_eq!(
        rows(&ann, "SELECT current_user, session_user").await.unwrap(),
        ["grp|ann"]
    );
    ann.batch_execute("SET statement_timeout = '1s'; RESET statement_timeout")
        .await
        .unwrap();
    assert_eq!(rows(&ann, "SHOW statement_timeout").await.unwrap(), ["7s"]);
    fixture.server.shutdown().await;
}
