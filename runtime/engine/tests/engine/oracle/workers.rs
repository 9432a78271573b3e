//! Several workers, which come and go and are killed while views run: the views do not notice.

use std::time::Duration;

use millrace_engine::testing::Testing;
use millrace_resource::spill::state::SpillOptions;
use millrace_schedule::driver::{CheckpointPolicy, Spread};
use millrace_schedule::group_size::GroupSize;
use millrace_schedule::id::WorkerId;

use super::*;

/// All workers, or so that their number changes all the time.
fn spread(random: &mut StdRng) -> Spread {
    match random.random_range(0..3) {
        0 => Spread::All,
        _ => Spread::Auto {
            worker_ns: random.random_range(10_000..2_000_000),
            patience_ns: random.random_range(1..50_000_000),
        },
    }
}

/// Parts of views leave for the disk at any time, or none does.
fn spill(random: &mut StdRng, directory: &tempfile::TempDir) -> Option<SpillOptions> {
    random.random_bool(0.7).then(|| SpillOptions {
        by_chance: true,
        ..SpillOptions::new(directory.path().join("spill"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_equal_the_batch_answer_while_workers_come_and_go() {
    for seed in some_seeds(3) {
        let mut random = StdRng::seed_from_u64(seed);
        let directory = tempfile::tempdir().unwrap();
        let mut fixture = Fixture::over(RuntimeOptions {
            workers: 3,
            spread: spread(&mut random),
            spill: spill(&mut random, &directory),
            ..RuntimeOptions::new(1)
        })
        .await;
        let mut present: Vec<WorkerId> = (0..3).map(WorkerId).collect();
        fixture.options = flow::options(&mut random);
        let mut after = millrace_engine::WriteToken::default();
        let mut waiting: Vec<&str> = QUERIES.to_vec();
        for step in 0..20 {
            for _ in 0..2 {
                if !waiting.is_empty() {
                    let next = waiting.remove(random.random_range(0..waiting.len()));
                    fixture.create_view(next).await;
                }
            }
            // Nobody waits between these: epochs are in flight when partitions move.
            for _ in 0..3 {
                after.merge(&fixture.change(&mut random).await);
                match random.random_range(0..3) {
                    0 => present.push(fixture.runtime.add_worker().unwrap()),
                    1 if present.len() > 1 => {
                        let leaving = present.remove(random.random_range(0..present.len()));
                        fixture.runtime.remove_worker(leaving).unwrap();
                    }
                    _ => {}
                }
            }
            fixture.check(&after, &format!("seed {seed}, step {step}")).await;
        }
        let mut left: Vec<u32> = present.iter().map(|worker| worker.0).collect();
        left.sort_unstable();
        let workers = fixture.runtime.workers();
        let staying = workers.iter().filter(|worker| !worker.is_leaving);
        let staying: Vec<u32> = staying.map(|worker| worker.id).collect();
        assert_eq!(staying, left, "seed {seed}");
        fixture.runtime.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_worker_stays() {
    let fixture = Fixture::new().await;
    assert!(fixture.runtime.remove_worker(WorkerId(0)).is_err());
    assert!(fixture.runtime.remove_worker(WorkerId(7)).is_err());
    fixture.runtime.shutdown().await;
}

/// Changes go on while workers are killed, several at a time, views are made and others filled: what each view shows is the
/// batch answer, every time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_equal_the_batch_answer_while_workers_are_killed() {
    for seed in some_seeds(3) {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let workers = random.random_range(1..5);
        let every_ns = random.random_range(1_000_000..20_000_000);
        let checkpoints = match random.random_range(0..3) {
            0 => CheckpointPolicy::Shared { every_ns },
            _ => CheckpointPolicy::Always { every_ns },
        };
        let directory = tempfile::tempdir().unwrap();
        let mut fixture = Fixture::over(RuntimeOptions {
            workers,
            checkpoints,
            spill: spill(&mut random, &directory),
            group_size: GroupSize::Fixed(random.random_range(1..6)),
            spread: spread(&mut random),
            ..RuntimeOptions::new(1)
        })
        .await;
        fixture.options = flow::options(&mut random);
        let mut after = millrace_engine::WriteToken::default();
        let mut waiting: Vec<&str> = QUERIES.to_vec();
        for step in 0..20 {
            for _ in 0..2 {
                if !waiting.is_empty() {
                    let next = waiting.remove(random.random_range(0..waiting.len()));
                    fixture.create_view(next).await;
                }
            }
            for _ in 0..3 {
                after.merge(&fixture.change(&mut random).await);
                match random.random_range(0..4) {
                    0 => _ = fixture.runtime.add_worker().unwrap(),
                    1 | 2 => {
                        let all = fixture.runtime.workers();
                        let worker = all[random.random_range(0..all.len())].id;
                        fixture.runtime.kill_worker(worker).unwrap();
                    }
                    _ => {}
                }
            }
            fixture.check(&after, &format!("seed {seed}, step {step}")).await;
        }
        fixture.runtime.shutdown().await;
    }
}

/// Maps of one worker after the other come to a standstill forever: their copies make the epochs whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_equal_the_batch_answer_while_maps_are_stalled() {
    let seed = seed(0);
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut fixture = Fixture::over(RuntimeOptions {
        workers: 3,
        // Who is alone has nobody to help.
        spread: Spread::All,
        ..RuntimeOptions::new(1)
    })
    .await;
    for query in QUERIES.iter().take(8) {
        fixture.create_view(query).await;
    }
    let mut after = millrace_engine::WriteToken::default();
    let (mut copied, mut won) = (0, 0);
    for round in 0..6 {
        let stalled = round % 3;
        fixture.runtime.stall_worker(stalled, true).unwrap();
        for _ in 0..3 {
            after.merge(&fixture.change(&mut random).await);
        }
        fixture
            .check(&after, &format!("seed {seed}, round {round}"))
            .await;
        fixture.runtime.stall_worker(stalled, false).unwrap();
        for _ in 0..3 {
            after.merge(&fixture.change(&mut random).await);
        }
        fixture
            .check(&after, &format!("seed {seed}, round {round}, after it"))
            .await;
    }
    // A group is known when it has ended.
    fixture.create_view(QUERIES[8]).await;
    for status in fixture.runtime.pipelines() {
        for group in &status.pipeline.groups {
            copied += group.tasks_copied;
            won += group.copies_won;
        }
    }
    assert!(won > 0 && copied >= won, "{won} of {copied} copies were first");
    fixture.runtime.shutdown().await;
}

/// A worker that lives and that nobody can reach is held to be lost after some heartbeats; what it had is restored elsewhere
/// while it still works on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_equal_the_batch_answer_when_a_worker_falls_silent() {
    for seed in some_seeds(3) {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut fixture = Fixture::over(RuntimeOptions {
            workers: 3,
            checkpoints: CheckpointPolicy::Always { every_ns: 2_000_000 },
            group_size: GroupSize::Fixed(random.random_range(1..6)),
            heartbeat_every: Duration::from_millis(40),
            ..RuntimeOptions::new(1)
        })
        .await;
        let mut after = millrace_engine::WriteToken::default();
        for query in QUERIES.iter().take(8) {
            fixture.create_view(query).await;
        }
        for round in 0..4 {
            after.merge(&fixture.change(&mut random).await);
            let all = fixture.runtime.workers();
            let silent = all[random.random_range(0..all.len())].id;
            fixture.runtime.cut_off_worker(silent).unwrap();
            for _ in 0..3 {
                after.merge(&fixture.change(&mut random).await);
            }
            fixture
                .check(&after, &format!("seed {seed}, round {round}"))
                .await;
            fixture.runtime.add_worker().unwrap();
        }
        let left = fixture.runtime.workers().len();
        assert!(
            left < 7,
            "seed {seed}: {left} workers are left of seven: nobody was held to be lost"
        );
        let (restored, refilled) = fixture.runtime.recoveries();
        assert!(restored + refilled > 0, "seed {seed}");
        fixture.runtime.shutdown().await;
    }
}

/// Views of which every operator can be put into a checkpoint are restored from it, and not filled again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_worker_is_restored_from_the_checkpoint() {
    let mut random = StdRng::seed_from_u64(5);
    let mut fixture = Fixture::over(RuntimeOptions {
        workers: 3,
        checkpoints: CheckpointPolicy::Always { every_ns: 0 },
        spread: Spread::All,
        group_size: GroupSize::Fixed(3),
        ..RuntimeOptions::new(1)
    })
    .await;
    fixture
        .create_view(
            "SELECT k, count(*) AS n, sum(v) AS total, min(v) AS lo, max(name) AS hi FROM t GROUP BY k",
        )
        .await;
    fixture
        .create_view("SELECT t.id, u.label FROM t LEFT JOIN u ON t.k = u.k")
        .await;
    fixture
        .create_view("SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY v, id) AS place FROM t")
        .await;
    fixture
        .create_view("SELECT k, count(DISTINCT v) AS n, avg(f) AS mean, bool_or(b) AS some FROM t GROUP BY k")
        .await;
    fixture
        .create_view("SELECT id, v FROM t ORDER BY v DESC, id LIMIT 5 OFFSET 2")
        .await;
    fixture
        .create_view("SELECT id, k, place FROM (SELECT id, k, rank() OVER (PARTITION BY k ORDER BY v) AS place FROM t) WHERE place <= 3")
        .await;
    fixture
        .create_view(
            "WITH RECURSIVE reach AS (SELECT id AS a, v AS b FROM t WHERE v IS NOT NULL \
             UNION SELECT reach.a, t.v FROM reach JOIN t ON reach.b = t.id) SELECT a, b FROM reach",
        )
        .await;
    for round in 0..10 {
        let mut after = millrace_engine::WriteToken::default();
        for _ in 0..5 {
            after.merge(&fixture.change(&mut random).await);
        }
        let before = fixture.runtime.recoveries();
        fixture.check(&after, &format!("round {round}, before")).await;
        fixture.runtime.kill_worker(round).unwrap();
        fixture.runtime.add_worker().unwrap();
        fixture.check(&after, &format!("round {round}, after")).await;
        let (restored, refilled) = fixture.runtime.recoveries();
        assert_eq!(refilled, before.1, "round {round}: filled again");
        assert!(restored > before.0, "round {round}: nothing was restored");
    }
    fixture.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_worker_is_followed_by_another() {
    let mut random = StdRng::seed_from_u64(9);
    let mut fixture = Fixture::new().await;
    let mut after = fixture.change(&mut random).await;
    fixture
        .create_view("SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k")
        .await;
    fixture
        .create_view("SELECT id, v FROM t ORDER BY v DESC, id LIMIT 5")
        .await;
    for worker in 0..3 {
        fixture.runtime.kill_worker(worker).unwrap();
        assert!(matches!(
            fixture.runtime.kill_worker(worker),
            Err(millrace_engine::RuntimeError::UnknownWorker(_))
        ));
        after.merge(&fixture.change(&mut random).await);
        fixture.check(&after, &format!("worker {worker}")).await;
        let workers: Vec<u32> = fixture.runtime.workers().iter().map(|worker| worker.id).collect();
        assert_eq!(workers, [worker + 1]);
    }
    fixture.runtime.shutdown().await;
}
