//! Whether a name is somebody's is not told by how much work a login makes: the hashes of each are counted, which tells more than time
//! does. Server and clients run on the one thread of a test, whose hashes nobody else's are.

use millrace_auth::hashed;

use crate::http::{basic, request};
use crate::{Fixture, code, rows};

/// Names with which nobody can come in by this password: one that is somebody's, one that is nobody's, somebody without a password,
/// somebody whose time is over, and somebody who may not log in.
const USERS: [&str; 5] = ["ann", "eve", "bare", "old", "closed"];
const WRONG: &str = "wrong";

async fn start() -> Fixture {
    let fixture = Fixture::new().await;
    let first = fixture.first().await;
    for sql in [
        "CREATE USER ann PASSWORD 'ann'",
        "CREATE USER bare",
        "CREATE USER old PASSWORD 'old' VALID UNTIL '2001-01-01'",
        "CREATE ROLE closed PASSWORD 'closed'",
        "ALTER SYSTEM SET access_control = on",
    ] {
        rows(&first, sql).await.unwrap();
    }
    fixture
}

#[tokio::test]
async fn a_login_makes_the_same_work_for_a_name_that_nobody_has() {
    let fixture = start().await;
    let mut work = vec![];
    for user in USERS {
        let before = hashed();
        let error = fixture.connect(user, WRONG).await.err().unwrap();
        work.push(hashed() - before);
        let expected = format!("28P01 password authentication failed for user \"{user}\"");
        assert_eq!(code(&error), expected);
    }
    assert!(
        work[0] > 0 && work.iter().all(|hashes| *hashes == work[0]),
        "{work:?}"
    );
    fixture.server.shutdown().await;
}

#[tokio::test]
async fn a_request_makes_the_same_work_for_a_name_that_nobody_has() {
    let fixture = start().await;
    let address = fixture.server.http_addr();
    let mut work = vec![];
    for user in USERS {
        let before = hashed();
        let authorization = basic(user, WRONG);
        let answer = request(
            address,
            "POST",
            "/api/sql",
            Some(&authorization),
            "text/plain",
            "SELECT 1",
        )
        .await;
        work.push(hashed() - before);
        assert_eq!(answer.status, 401);
    }
    // As often as PostgreSQL hashes a password.
    assert!(
        work[0] >= 4_096 && work.iter().all(|hashes| *hashes == work[0]),
        "{work:?}"
    );
    fixture.server.shutdown().await;
}
