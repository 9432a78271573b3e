//! Workers that reach the rest over links, which come and go and are killed while views run: the views do not notice.

use std::collections::HashMap;
use std::time::Duration;

use millrace_engine::cluster::{Definitions, Host, HostOptions, Left};
use millrace_mesh::{Access, Listener};
use millrace_planner::StageGraph;
use millrace_resource::memory::{Memory, Resident};
use millrace_resource::spill::state::SpillOptions;
use millrace_schedule::driver::{CheckpointPolicy, Spread};
use millrace_schedule::group_size::GroupSize;
use millrace_schedule::id::WorkerId;
use parking_lot::Mutex;

use super::*;

/// Plans views by their text, as another process does.
pub(super) struct Plans {
    relations: BTreeMap<String, RelationInfo>,
    options: Mutex<HashMap<String, ViewOptions>>,
}

impl Plans {
    pub fn new(relations: &BTreeMap<String, RelationInfo>) -> Arc<Plans> {
        Arc::new(Plans {
            relations: relations.clone(),
            options: Mutex::default(),
        })
    }

    pub fn define(&self, sql: &str, options: ViewOptions) -> Arc<[u8]> {
        self.options.lock().insert(sql.to_owned(), options);
        sql.as_bytes().into()
    }
}

impl Definitions for Plans {
    fn plan(&self, definition: &[u8]) -> Result<StageGraph, String> {
        let sql = String::from_utf8_lossy(definition).into_owned();
        let options = self.options.lock()[&sql];
        let statement = Parser::parse_sql(&PostgreSqlDialect {}, &sql).unwrap().remove(0);
        let state = SessionContext::new_with_config(config()).state();
        let planned = Binder::new(&state, &Relations(self.relations.clone()))
            .statement(&statement)
            .map_err(PlanError::from)
            .and_then(|plan| plan_view(&state, plan, options));
        planned.map_err(|error| error.to_string())
    }
}

/// Cannot plan anything.
struct NoPlans;

impl Definitions for NoPlans {
    fn plan(&self, _definition: &[u8]) -> Result<StageGraph, String> {
        Err("no such function".to_owned())
    }
}

fn access() -> Access {
    Access::encrypted("token", None).unwrap()
}

/// A coordinator that hosts can join, and those that have.
struct Machines {
    fixture: Fixture,
    address: String,
    hosts: Vec<(Host, tempfile::TempDir)>,
}

impl Machines {
    async fn over(options: RuntimeOptions) -> Machines {
        let fixture = Fixture::over(options).await;
        let listener = Listener::bind("127.0.0.1:0", access()).await.unwrap();
        let address = listener.address().to_string();
        fixture.runtime.listen_for_workers(listener, "this build");
        Machines {
            fixture,
            address,
            hosts: vec![],
        }
    }

    async fn join(&mut self) -> u32 {
        self.join_with(Arc::clone(&self.fixture.plans) as Arc<dyn Definitions>)
            .await
    }

    async fn join_with(&mut self, plans: Arc<dyn Definitions>) -> u32 {
        let directory = tempfile::tempdir().unwrap();
        let options = HostOptions {
            coordinator: self.address.clone(),
            access: access(),
            build: "this build".to_owned(),
            advertised: None,
            cores: 1,
            memory: Memory::new(None, Resident::Unknown),
            memory_limit: 0,
            spill: Some(SpillOptions {
                by_chance: true,
                ..SpillOptions::new(directory.path().join("spill"))
            }),
            directory: directory.path().to_owned(),
        };
        let listener = Listener::bind("127.0.0.1:0", access()).await.unwrap();
        let host = Host::join(options, plans, listener).await.unwrap();
        let id = host.id();
        self.hosts.push((host, directory));
        self.until(|all| all.contains(&id)).await;
        id
    }

    /// Waits until the workers are so.
    async fn until(&self, is_so: impl Fn(&[u32]) -> bool) {
        for _ in 0..1_000 {
            let workers = self.fixture.runtime.workers();
            let staying = workers.iter().filter(|worker| !worker.is_leaving);
            if is_so(&staying.map(|worker| worker.id).collect::<Vec<_>>()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the workers are {:?}", self.fixture.runtime.workers());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_equal_the_batch_answer_over_machines() {
    for seed in some_seeds(2) {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut machines = Machines::over(RuntimeOptions {
            workers: random.random_range(1..3),
            spread: Spread::All,
            group_size: GroupSize::Fixed(random.random_range(1..6)),
            ..RuntimeOptions::new(1)
        })
        .await;
        machines.fixture.options = flow::options(&mut random);
        let mut after = millrace_engine::WriteToken::default();
        let mut waiting: Vec<&str> = QUERIES.to_vec();
        for step in 0..16 {
            for _ in 0..3 {
                if !waiting.is_empty() {
                    let next = waiting.remove(random.random_range(0..waiting.len()));
                    machines.fixture.create_view(next).await;
                }
            }
            if machines.hosts.len() < 2 || random.random_bool(0.2) {
                machines.join().await;
            } else if random.random_bool(0.3) {
                let (host, _directory) = machines
                    .hosts
                    .remove(random.random_range(0..machines.hosts.len()));
                machines
                    .fixture
                    .runtime
                    .remove_worker(WorkerId(host.id()))
                    .unwrap();
                let left = tokio::time::timeout(Duration::from_secs(20), host.ended()).await;
                assert_eq!(left.unwrap(), Left::Dismissed, "seed {seed}, step {step}");
            }
            for _ in 0..3 {
                after.merge(&machines.fixture.change(&mut random).await);
            }
            machines
                .fixture
                .check(&after, &format!("seed {seed}, step {step}"))
                .await;
        }
        machines.fixture.runtime.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_equal_the_batch_answer_while_machines_are_killed() {
    for seed in some_seeds(2) {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut machines = Machines::over(RuntimeOptions {
            spread: Spread::All,
            checkpoints: CheckpointPolicy::Shared {
                every_ns: random.random_range(1_000_000..20_000_000),
            },
            group_size: GroupSize::Fixed(random.random_range(1..6)),
            ..RuntimeOptions::new(1)
        })
        .await;
        let mut after = millrace_engine::WriteToken::default();
        let mut waiting: Vec<&str> = QUERIES.to_vec();
        for step in 0..16 {
            for _ in 0..2 {
                if !waiting.is_empty() {
                    let next = waiting.remove(random.random_range(0..waiting.len()));
                    machines.fixture.create_view(next).await;
                }
            }
            while machines.hosts.len() < 2 {
                machines.join().await;
            }
            for _ in 0..3 {
                after.merge(&machines.fixture.change(&mut random).await);
                if random.random_bool(0.3) && !machines.hosts.is_empty() {
                    let at = random.random_range(0..machines.hosts.len());
                    drop(machines.hosts.remove(at));
                }
            }
            machines
                .fixture
                .check(&after, &format!("seed {seed}, step {step}"))
                .await;
        }
        let (restored, _) = machines.fixture.runtime.recoveries();
        assert!(restored > 0, "seed {seed}");
        machines.fixture.runtime.shutdown().await;
    }
}

/// It says why and goes, and the views are right without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_cannot_make_a_view_leaves() {
    for seed in some_seeds(1) {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut machines = Machines::over(RuntimeOptions {
            spread: Spread::All,
            ..RuntimeOptions::new(1)
        })
        .await;
        let mut after = millrace_engine::WriteToken::default();
        let id = machines.join_with(Arc::new(NoPlans)).await;
        machines.fixture.create_view(QUERIES[0]).await;
        let (host, _directory) = machines.hosts.remove(0);
        let left = tokio::time::timeout(Duration::from_secs(20), host.ended()).await;
        match left.unwrap() {
            Left::Unfit(why) => assert!(why.contains("no such function"), "{why}"),
            other => panic!("it left as {other:?}"),
        }
        machines.until(|all| !all.contains(&id)).await;
        after.merge(&machines.fixture.change(&mut random).await);
        machines.fixture.check(&after, &format!("seed {seed}")).await;
        machines.fixture.runtime.shutdown().await;
    }
}
