//! A session is a role's, not a name's: what becomes of it when the role is renamed or dropped, and when somebody else gets the name.

use crate::privileges::{denied, fixture, ok};
use crate::{code, rows};

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_role_keeps_its_sessions_and_their_rights() {
    let (fixture, first) = fixture().await;
    let eve = fixture.role("eve").await;
    ok(&first, "CREATE TABLE s.t (a int)").await;
    ok(&first, "GRANT SELECT ON s.t TO eve").await;
    ok(&first, "ALTER ROLE eve RENAME TO eva").await;
    ok(&eve, "SELECT * FROM s.t").await;
    assert_eq!(ok(&eve, "SELECT current_user, session_user").await, ["eva|eva"]);
    let shown = "SELECT usename FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    assert_eq!(ok(&eve, shown).await, ["eva"]);
    ok(&eve, "ALTER ROLE current_user PASSWORD 'eva'").await;
    // Who gets the name is somebody else, in this session and in that.
    ok(&first, "CREATE ROLE eve SUPERUSER LOGIN PASSWORD 'eve'").await;
    let no = "permission denied to create role";
    denied(&eve, "CREATE ROLE more", no).await;
    denied(&eve, "SET ROLE eve", "permission denied to set role \"eve\"").await;
    denied(
        &eve,
        "SET SESSION AUTHORIZATION eve",
        "permission denied to set session authorization",
    )
    .await;
    for same in ["RESET ROLE", "SET ROLE eva", "SET SESSION AUTHORIZATION DEFAULT"] {
        ok(&eve, same).await;
        assert_eq!(ok(&eve, "SELECT current_user").await, ["eva"], "{same}");
        denied(&eve, "CREATE ROLE more", no).await;
    }
    // A role with this name may not end her statements, nor see them, unless it is a superuser.
    let other = fixture.role("eve").await;
    ok(&first, "ALTER ROLE eve NOSUPERUSER").await;
    let hidden = "SELECT query FROM pg_stat_activity WHERE usename = 'eva'";
    assert_eq!(ok(&other, hidden).await, ["<insufficient privilege>"]);
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'eva'";
    assert!(
        rows(&other, end)
            .await
            .is_err_and(|error| error.starts_with("42501"))
    );
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn set_role_is_of_a_role_and_not_of_its_name() {
    let (fixture, first) = fixture().await;
    let eve = fixture.role("eve").await;
    ok(&first, "CREATE ROLE readers").await;
    ok(&first, "GRANT readers TO eve").await;
    ok(&first, "GRANT USAGE ON SCHEMA s TO readers").await;
    ok(&first, "CREATE TABLE s.t (a int)").await;
    ok(&first, "GRANT SELECT ON s.t TO readers").await;
    ok(&eve, "SET ROLE readers").await;
    ok(&first, "ALTER ROLE readers RENAME TO others").await;
    ok(&first, "CREATE ROLE readers SUPERUSER").await;
    ok(&eve, "SELECT * FROM s.t").await;
    assert_eq!(
        ok(&eve, "SELECT current_user, session_user").await,
        ["others|eve"]
    );
    denied(&eve, "CREATE ROLE more", "permission denied to create role").await;
    // When the role is gone, nobody's rights are left: not even what everybody may.
    ok(&first, "GRANT SELECT ON s.t TO PUBLIC").await;
    ok(&first, "GRANT USAGE ON SCHEMA s TO PUBLIC").await;
    ok(&first, "DROP OWNED BY others").await;
    ok(&first, "DROP ROLE others").await;
    let gone = rows(&eve, "SELECT * FROM s.t").await;
    assert!(gone.is_err_and(|error| error.starts_with("42501")));
    ok(&eve, "RESET ROLE").await;
    ok(&eve, "SELECT * FROM s.t").await;
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_connections_follows_the_role() {
    let (fixture, first) = fixture().await;
    let _eve = fixture.role("eve").await;
    ok(&first, "ALTER ROLE eve CONNECTION LIMIT 1").await;
    ok(&first, "ALTER ROLE eve RENAME TO eva").await;
    ok(&first, "ALTER ROLE eva PASSWORD 'eva'").await;
    let error = fixture.connect("eva", "eva").await.unwrap_err();
    assert!(code(&error).starts_with("53300"), "{}", code(&error));
    fixture.server.shutdown().await;
}
