//! Views whose state is larger than memory: parts of it are on disk, and come back when they are touched.

use millrace_planner::RelationId;
use tokio::sync::Mutex;

use super::{A, B, Fixture, LARGE, LARGE_SQL, MB, SMALL, SMALL_SQL};

/// These move all of their state once an epoch: one at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// How often a view is asked what it holds: it is measured now and then, when something changes.
const LOOKS_MAX: usize = 10_000;

/// Bytes that a view takes where there is memory enough; seen once they are this many.
async fn whole(sql: &str, rows: &[(RelationId, i64)], bytes: usize) -> usize {
    let fixture = Fixture::new(1 << 40).await;
    fixture.create(LARGE, "large", sql).await.unwrap();
    for (id, rows) in rows {
        fixture.write_all(*id, *rows, *rows / 16).await;
    }
    let mut looks = 0;
    while fixture.held(LARGE) < bytes && looks < LOOKS_MAX {
        fixture.write_range(rows[0].0, 0..100).await;
        looks += 1;
    }
    let held = fixture.held(LARGE);
    println!("{held} bytes in all");
    fixture.runtime.shutdown().await;
    held
}

/// The view takes so many times the limit where there is memory enough; here it was divided once, and none failed.
async fn is_larger(fixture: &Fixture, limit: usize, times: usize, sql: &str, rows: &[(RelationId, i64)]) {
    let whole = whole(sql, rows, times * limit).await;
    assert!(whole >= times * limit, "{whole}");
    let status = fixture.runtime.memory().status();
    assert_eq!((status.views_failed, status.views_divided), (0, 1), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_of_several_times_the_memory_goes_on_from_the_disk() {
    let _alone = ALONE.lock().await;
    let limit = 4 * MB;
    let (fixture, _directory) = Fixture::spilling(limit).await;
    fixture.create(LARGE, "large", LARGE_SQL).await.unwrap();
    fixture.create(SMALL, "small", SMALL_SQL).await.unwrap();
    let rows = 250_000;
    fixture.write_all(A, rows, 10_000).await;
    assert_eq!(fixture.sum(LARGE).await.unwrap(), rows);
    // Each group changes once more, and a few groups do by themselves.
    fixture.write_all(A, rows, 25_000).await;
    fixture.write_all(A, 100, 10).await;
    assert_eq!(fixture.sum(LARGE).await.unwrap(), 2 * rows + 100);
    fixture.write(B, 0..100).await.unwrap();
    assert_eq!(fixture.sum(SMALL).await.unwrap(), 100);
    let (held, on_disk) = (fixture.held(LARGE), fixture.on_disk(LARGE));
    assert!(held <= limit && on_disk > limit, "{held} {on_disk}");
    is_larger(&fixture, limit, 2, LARGE_SQL, &[(A, rows)]).await;
    assert_eq!(fixture.on_disk(SMALL), 0);
    let status = fixture.runtime.memory().status();
    assert!(
        status.brought_back > 0 && status.spilled > status.brought_back,
        "{status:?}"
    );
    // A worker that is lost takes nothing with it that is not found on the disk.
    fixture.runtime.add_worker().unwrap();
    fixture.runtime.kill_worker(0).unwrap();
    fixture.write_all(A, 1_000, 1_000).await;
    assert_eq!(fixture.sum(LARGE).await.unwrap(), 2 * rows + 1_100);
    fixture.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_larger_than_memory_is_made_and_goes_on() {
    let _alone = ALONE.lock().await;
    let limit = 4 * MB;
    let (fixture, _directory) = Fixture::spilling(limit).await;
    let rows = 240_000;
    fixture.write_all(A, rows, 20_000).await;
    fixture.write_all(B, rows, 20_000).await;
    let sql = "SELECT a.v, b.v AS n FROM a LEFT JOIN b ON a.v = b.v";
    fixture.create(LARGE, "large", sql).await.unwrap();
    let sum = rows * (rows - 1) / 2;
    assert_eq!(fixture.sum(LARGE).await.unwrap(), sum);
    // Each finds its match among what left.
    fixture.write_all(A, 5_000, 1_000).await;
    assert_eq!(fixture.sum(LARGE).await.unwrap(), sum + 5_000 * 4_999 / 2);
    let (held, on_disk) = (fixture.held(LARGE), fixture.on_disk(LARGE));
    assert!(held <= limit && on_disk > limit, "{held} {on_disk}");
    is_larger(&fixture, limit, 2, sql, &[(A, rows), (B, rows)]).await;
    fixture.runtime.shutdown().await;
}

/// Ten times the limit in bytes as they are counted: groups, the rows of the view and their indexes. Every epoch has rows for all parts.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_of_ten_times_the_memory_goes_on_and_is_read() {
    let _alone = ALONE.lock().await;
    let limit = MB;
    let (fixture, _directory) = Fixture::spilling(limit).await;
    fixture.create(LARGE, "large", LARGE_SQL).await.unwrap();
    let rows = 280_000;
    fixture.write_all(A, rows, 8_000).await;
    assert_eq!(fixture.sum(LARGE).await.unwrap(), rows);
    fixture.write_all(A, rows, 8_000).await;
    assert_eq!(fixture.seconds(LARGE).await.unwrap(), vec![2; rows as usize]);
    fixture.until_within(LARGE, limit).await;
    is_larger(&fixture, limit, 10, LARGE_SQL, &[(A, rows)]).await;
    fixture.runtime.shutdown().await;
}

/// The same of an outer join, which counts matches.
#[tokio::test(flavor = "multi_thread")]
async fn an_outer_join_of_ten_times_the_memory_goes_on_and_is_read() {
    let _alone = ALONE.lock().await;
    let limit = MB;
    let (fixture, _directory) = Fixture::spilling(limit).await;
    let sql = "SELECT a.v, b.v AS n FROM a LEFT JOIN b ON a.v = b.v";
    fixture.create(LARGE, "large", sql).await.unwrap();
    let rows = 175_000;
    for first in (0..rows).step_by(12_500) {
        fixture.write_range(A, first..first + 12_500).await;
        fixture.write_range(B, first..first + 12_500).await;
    }
    assert_eq!(fixture.sum(LARGE).await.unwrap(), rows * (rows - 1) / 2);
    fixture.until_within(LARGE, limit).await;
    is_larger(&fixture, limit, 10, sql, &[(A, rows), (B, rows)]).await;
    fixture.runtime.shutdown().await;
}
