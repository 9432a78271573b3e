//! A worker whose tasks take five hundred times as long: epochs wait for its maps no longer than for their copies.

use std::sync::Arc;

use millrace_planner::RelationId;
use millrace_schedule::driver::CheckpointPolicy;
use millrace_schedule::group_size::GroupSize;
use millrace_schedule::id::{PipelineId, Ticket, WorkerId};
use millrace_schedule::local::STRAGGLER_NS_MIN;
use millrace_schedule::simulation::{Costs, Report, Setup, Simulation};
use millrace_schedule::template::{StageInput, StageShape, ViewShape};

const TASK_NS: u64 = 1_000_000;
const MESSAGE_NS: u64 = 100_000;
const EPOCHS: u64 = 20;

/// Maps on four workers and one reduce, on the first of them.
fn run(slow: Option<(WorkerId, u64)>) -> Report {
    let mut simulation = Simulation::new(Setup {
        workers: 4,
        cores: 1,
        group_size: GroupSize::Fixed(EPOCHS),
        checkpoints: CheckpointPolicy::Never,
        costs: Costs::reliable((MESSAGE_NS, MESSAGE_NS), TASK_NS),
        seed: 1,
    });
    let source = RelationId(1);
    // No cut is taken while the one before is under way.
    simulation.set_interval(1_000_000_000);
    simulation.add_source(source, PipelineId(1));
    assert!(simulation.run(1_000));
    simulation.quiesce(Ticket(1), vec![source], PipelineId(2));
    assert!(simulation.run(1_000));
    let (ticket, pipeline) = simulation.held.remove(0);
    let stage = |input, reader, is_single| StageShape {
        input,
        reader,
        is_single,
        has_faucet: false,
        flow_rows: None,
        pieces_max: usize::MAX,
    };
    let view = Arc::new(ViewShape {
        id: RelationId(100),
        incarnation: 0,
        partitions: 4,
        stages: vec![
            stage(StageInput::Relation(source), Some(1), false),
            stage(StageInput::Stages(vec![0]), None, true),
        ],
        is_batch: false,
    });
    simulation.resume(ticket, pipeline, vec![view], vec![]);
    assert!(simulation.run(10_000));
    simulation.measure();
    if let Some((worker, times)) = slow {
        simulation.slow_worker(worker, times);
    }
    simulation.input(pipeline, EPOCHS);
    assert!(simulation.run(1_000_000));
    simulation.assert_idle();
    assert_eq!(simulation.report.epochs, EPOCHS);
    simulation.report
}

fn slowest(report: &Report) -> u64 {
    report.latencies_ns.iter().copied().max().unwrap_or(0)
}

#[test]
fn an_epoch_waits_for_a_copy_and_not_for_the_straggler() {
    let fast = run(None);
    assert_eq!(fast.copies, 0);
    let slow = run(Some((WorkerId(2), 500)));
    println!("{} ns, with a straggler {} ns", slowest(&fast), slowest(&slow));
    // Noticed, told, run and taken; then the rest as ever.
    let copy_ns = STRAGGLER_NS_MIN + TASK_NS + 6 * MESSAGE_NS;
    assert!(
        slowest(&slow) <= slowest(&fast) + copy_ns,
        "{} ns against {} ns",
        slowest(&slow),
        slowest(&fast)
    );
    assert_eq!((slow.copies, slow.copies_won), (EPOCHS, EPOCHS));
}

/// Where the copy takes as long, because work is merely long there, copies become rare.
#[test]
fn copies_that_come_second_are_not_made_again_and_again() {
    let report = run(Some((WorkerId(2), 51)));
    // Copies run for 1 ms from the 50th on: the task itself, at 51 ms, is first.
    assert_eq!(report.copies_won, 0);
    assert!(
        report.copies > 0 && report.copies < EPOCHS,
        "{} copies",
        report.copies
    );
}
