//! Several workers, which come and go while views run: the views do not notice.

use millrace_runtime::schedule::template::WorkerId;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_equal_the_batch_answer_while_workers_come_and_go() {
    for seed in first_seed()..first_seed() + cases() {
        let mut random = StdRng::seed_from_u64(seed);
        let mut fixture = Fixture::over(RuntimeOptions {
            workers: 3,
            ..RuntimeOptions::new(1)
        })
        .await;
        let mut present: Vec<WorkerId> = (0..3).map(WorkerId).collect();
        let mut after = millrace_runtime::WriteToken::default();
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
        let workers: Vec<u32> = fixture.runtime.workers().iter().map(|worker| worker.id).collect();
        assert_eq!(workers, left, "seed {seed}");
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
