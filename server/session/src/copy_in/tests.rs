//! COPY of more than one write takes.

use super::*;
use crate::outcome::Outcome;
use crate::tests::{Fixture, run};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_for_one_write_is_appended_in_pieces() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT)").await;
    let mut query = f.session.run("COPY t FROM STDIN").await.unwrap();
    let Some(Ok(Outcome::CopyIn(mut copy))) = query.next().await else {
        panic!("no copy")
    };
    let rows = 2 * BATCH_ROWS as u64;
    let lines: String = (0..rows).map(|id| format!("{id}\n")).collect();
    copy.push(lines.as_bytes()).await.unwrap();
    copy.collect(0).await.unwrap();
    let other = f.other_session();
    let count = async || run(&other, "SELECT count(*) FROM t").await.unwrap();
    assert_eq!(count().await, ["0"]);
    assert_eq!(copy.chunk_bytes_max(), CHUNK_BYTES_MAX);
    let limit = 800 << 20;
    f.other_session()
        .database()
        .runtime()
        .memory()
        .set_limit(Some(limit));
    assert_eq!(copy.chunk_bytes_max(), limit / 8);
    f.other_session().database().runtime().memory().set_limit(None);
    // As if these rows were large.
    copy.charge.resize(CHUNK_BYTES_MAX + 1);
    copy.push(b"7\n").await.unwrap();
    assert_eq!((copy.appended, copy.charge.bytes()), (rows, 0));
    assert_eq!(count().await, [rows.to_string()]);
    copy.push(b"no number\n").await.unwrap();
    let error = copy.finish().await.unwrap_err();
    let detail = error.detail.unwrap();
    let kept = format!("The first {rows} rows were stored: data of more than 256 MB is appended in chunks.");
    assert!(detail.ends_with(&kept), "{detail}");
    drop(query);
    assert_eq!(count().await, [rows.to_string()]);
}
