//! What moves when a worker comes, goes or is lost, by policy: how much state, and whether all have as much to do as the others.

use std::sync::Arc;

use millrace_planner::RelationId;
use millrace_schedule::cpu::policy::SchedulerPolicy;
use millrace_schedule::driver::CheckpointPolicy;
use millrace_schedule::group_size::GroupSize;
use millrace_schedule::id::{PipelineId, Ticket, WorkerId};
use millrace_schedule::simulation::{Costs, Setup, Simulation};
use millrace_schedule::template::{StageInput, StageShape, ViewShape};

const PARTITIONS: usize = 16;
/// Of each partition: those of the first worker, which has every fourth one, are small, and the last ones are largest.
const STATE: [u64; PARTITIONS] = [1, 20, 30, 40, 2, 50, 60, 70, 3, 80, 90, 100, 4, 200, 300, 400];

struct Cluster {
    simulation: Simulation,
    pipeline: PipelineId,
}

impl Cluster {
    /// Four workers with a view that has state on each of its partitions.
    fn start(policy: SchedulerPolicy) -> Cluster {
        let mut simulation = Simulation::new(Setup {
            workers: 4,
            cores: 2,
            group_size: GroupSize::Fixed(3),
            costs: Costs::reliable((10_000, 10_000), 10_000),
            checkpoints: CheckpointPolicy::Shared {
                every_ns: 1_000_000_000,
            },
            seed: 1,
        });
        simulation.set_policy(policy, 0);
        simulation.set_state_bytes(STATE.to_vec());
        simulation.set_heartbeats(1_000_000);
        let source = RelationId(1);
        simulation.add_source(source, PipelineId(1));
        simulation.quiesce(Ticket(1), vec![source], PipelineId(1_001));
        while simulation.held.is_empty() {
            assert!(!simulation.run(1) || !simulation.held.is_empty(), "never held");
        }
        let (ticket, pipeline) = simulation.held.remove(0);
        let stage = |input, reader| StageShape {
            input,
            reader,
            is_single: false,
            has_faucet: false,
            flow_rows: None,
            pieces_max: usize::MAX,
        };
        let view = Arc::new(ViewShape {
            id: RelationId(100),
            incarnation: 0,
            partitions: PARTITIONS,
            stages: vec![
                stage(StageInput::Relation(source), Some(1)),
                stage(StageInput::Stages(vec![0]), None),
            ],
            is_batch: false,
        });
        simulation.resume(ticket, pipeline, vec![view], vec![]);
        let mut cluster = Cluster { simulation, pipeline };
        cluster.settle();
        cluster
    }

    /// Epochs with heartbeats between them; returns how much state was brought to other workers meanwhile.
    fn settle(&mut self) -> u64 {
        let before = self.simulation.report.restored_bytes;
        for _ in 0..10 {
            self.simulation.input(self.pipeline, 3);
            assert!(self.simulation.run(1_000_000), "it never comes to rest");
        }
        self.simulation.assert_idle();
        self.simulation.report.restored_bytes - before
    }

    fn counts(&self) -> Vec<usize> {
        self.simulation
            .partitions()
            .into_iter()
            .map(|(_, count)| count)
            .collect()
    }
}

#[test]
fn a_newcomer_is_brought_as_little_state_as_balance_allows() {
    let moved = |policy| {
        let mut cluster = Cluster::start(policy);
        assert_eq!(cluster.counts(), [4; 4]);
        cluster.simulation.add_worker(WorkerId(4));
        let moved = cluster.settle();
        assert_eq!(cluster.counts().iter().sum::<usize>(), PARTITIONS);
        assert!(
            cluster.counts().iter().all(|count| (3..=4).contains(count)),
            "{:?}",
            cluster.counts()
        );
        moved
    };
    let (lma, lb) = (moved(SchedulerPolicy::Lma), moved(SchedulerPolicy::Lb));
    println!("brought to a newcomer: {lma} by lma, {lb} by lb");
    // Three of the four give up what they have least of, and the one may keep four that would have to give most. By load the last
    // ones move, whatever they have.
    assert_eq!(lma, 1 + 20 + 30);
    assert_eq!(lb, 400 + 300 + 200);
}

#[test]
fn what_leaves_or_is_lost_is_spread_and_nothing_else_moves() {
    for is_lost in [false, true] {
        let mut cluster = Cluster::start(SchedulerPolicy::Lma);
        // It has every fourth partition, from the fourth one on.
        let has: u64 = STATE.iter().skip(3).step_by(4).sum();
        match is_lost {
            true => cluster.simulation.kill_worker(WorkerId(3), 0),
            false => cluster.simulation.remove_worker(WorkerId(3)),
        }
        assert_eq!(cluster.settle(), has, "{is_lost}");
        assert_eq!(cluster.counts().iter().sum::<usize>(), PARTITIONS);
        assert!(cluster.counts().iter().all(|count| (5..=6).contains(count)));
    }
}

#[test]
fn a_worker_that_comes_and_goes_costs_what_it_had() {
    let mut cluster = Cluster::start(SchedulerPolicy::Lma);
    cluster.simulation.add_worker(WorkerId(4));
    let brought = cluster.settle();
    cluster.simulation.remove_worker(WorkerId(4));
    assert_eq!(cluster.settle(), brought);
    assert_eq!(cluster.counts(), [4; 4]);
}
