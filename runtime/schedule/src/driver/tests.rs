//! The driver by itself: events in, commands out. Whole schedules are in `tests/schedule.rs`.

use std::sync::Arc;

use millrace_planner::RelationId;

use super::*;
use crate::id::TaskId;
use crate::message::{EpochCosts, WorkerLoad};
use crate::template::{StageInput, StageShape, ViewShape};

const WORKER: WorkerId = WorkerId(0);

fn view(id: u64, inputs: &[u64]) -> Arc<ViewShape> {
    let mut stages: Vec<StageShape> = inputs
        .iter()
        .map(|input| StageShape {
            input: StageInput::Relation(RelationId(*input)),
            reader: Some(inputs.len()),
            is_single: false,
            has_faucet: false,
            flow_rows: None,
            pieces_max: usize::MAX,
        })
        .collect();
    stages.push(StageShape {
        input: StageInput::Stages((0..inputs.len()).collect()),
        reader: None,
        is_single: false,
        has_faucet: false,
        flow_rows: None,
        pieces_max: usize::MAX,
    });
    Arc::new(ViewShape {
        id: RelationId(id),
        partitions: 2,
        incarnation: 0,
        stages,
        is_batch: false,
    })
}

/// A driver of one worker, with groups of two epochs, over these sources.
fn driver(sources: &[u64]) -> Driver {
    let mut driver = Driver::default();
    driver.on(Event::GroupSize(GroupSize::Fixed(2)), 0);
    driver.on(
        Event::WorkerJoined {
            worker: WORKER,
            has_sources: true,
        },
        0,
    );
    for source in sources {
        let (relation, pipeline) = (RelationId(*source), PipelineId(*source));
        driver.on(Event::SourceAdded { relation, pipeline }, 0);
    }
    driver
}

fn quiesce(driver: &mut Driver, ticket: u64, relations: &[u64]) -> Vec<Command> {
    let relations = relations.iter().copied().map(RelationId).collect();
    let (ticket, or_new) = (Ticket(ticket), PipelineId(100 + ticket));
    let event = Event::Quiesce {
        ticket,
        relations,
        or_new,
    };
    driver.on(event, 0)
}

fn version(driver: &Driver, pipeline: u64) -> u64 {
    let template = &driver.pipelines[&PipelineId(pipeline)].template;
    template.as_ref().map_or(0, |template| template.version)
}

fn epoch_done(driver: &mut Driver, pipeline: u64, epoch: u64) -> Vec<Command> {
    epoch_took(driver, pipeline, epoch, EpochCosts::default(), 0)
}

fn epoch_took(driver: &mut Driver, pipeline: u64, epoch: u64, costs: EpochCosts, now: u64) -> Vec<Command> {
    let message = ToDriver::EpochDone {
        pipeline: PipelineId(pipeline),
        version: version(driver, pipeline),
        epoch,
        worker: WORKER,
        costs,
        stages: vec![],
        is_checkpoint: false,
    };
    driver.on(Event::Worker(message), now)
}

fn closed(driver: &mut Driver, pipeline: u64, last: u64) -> Vec<Command> {
    let message = ToDriver::Closed {
        pipeline: PipelineId(pipeline),
        version: version(driver, pipeline),
        last,
    };
    driver.on(Event::Worker(message), 0)
}

fn commits(commands: &[Command]) -> Vec<(u64, u64)> {
    let commits = commands.iter().filter_map(|command| match command {
        Command::Commit { pipeline, epoch } => Some((pipeline.0, *epoch)),
        _ => None,
    });
    commits.collect()
}

fn launches(commands: &[Command]) -> Vec<(u64, u64)> {
    let launches = commands.iter().filter_map(|command| match command {
        Command::Send(_, ToWorker::Launch { first, last, .. }) => Some((*first, *last)),
        _ => None,
    });
    launches.collect()
}

#[test]
fn an_epoch_runs_on_input() {
    let mut driver = driver(&[1]);
    assert!(quiesce(&mut driver, 1, &[1]).contains(&Command::Send(
        WORKER,
        ToWorker::Close {
            pipeline: PipelineId(1),
            version: 1,
            is_checkpoint: false,
        }
    )));
    let held = closed(&mut driver, 1, 0);
    assert!(
        held.iter()
            .any(|command| matches!(command, Command::Quiesced { .. }))
    );
    let opened = driver.on(
        Event::Resume {
            ticket: Ticket(1),
            views: vec![view(9, &[1])],
            dropped: vec![],
        },
        0,
    );
    // Two epochs may run from here on; the driver hears of them when they have run.
    assert_eq!(launches(&opened), [(1, 2)]);
    assert_eq!(driver.pipeline_of(RelationId(9)), Some(PipelineId(1)));
    assert_eq!(commits(&epoch_done(&mut driver, 1, 2)), []);
    assert_eq!(commits(&epoch_done(&mut driver, 1, 1)), [(1, 1), (1, 2)]);
    assert_eq!(commits(&epoch_done(&mut driver, 1, 2)), [], "told twice");
}

/// What neither coordination nor an epoch took of the time since the group before.
#[test]
fn a_group_knows_how_long_it_was_idle() {
    let mut driver = driver(&[1]);
    quiesce(&mut driver, 1, &[1]);
    closed(&mut driver, 1, 0);
    let resume = Event::Resume {
        ticket: Ticket(1),
        views: vec![view(9, &[1])],
        dropped: vec![],
    };
    assert_eq!(launches(&driver.on(resume, 1_000)), [(1, 2)]);
    let costs = EpochCosts {
        tasks: 1,
        waited_ns: 50,
        elapsed_ns: 200,
        ..EpochCosts::default()
    };
    epoch_took(&mut driver, 1, 1, costs, 1_300);
    let need = ToDriver::NeedEpochs {
        pipeline: PipelineId(1),
        version: version(&driver, 1),
        last: 2,
    };
    assert_eq!(launches(&driver.on(Event::Worker(need), 1_400)), [(3, 4)]);
    epoch_took(&mut driver, 1, 2, costs, 2_000);
    for epoch in [3, 4] {
        epoch_took(&mut driver, 1, epoch, costs, 2_100);
    }
    let groups = &driver.pipelines()[0].groups;
    let idle: Vec<u64> = groups.iter().map(|group| group.idle_ns).collect();
    // Of 2,000 ns since there is a source; the epochs of the second group ran side by side.
    assert_eq!(idle, [1_500, 0]);
}

#[test]
fn a_view_over_two_sources_joins_pipelines_only_once_both_are_idle() {
    let mut driver = driver(&[1, 2]);
    epoch_done(&mut driver, 1, 1);
    quiesce(&mut driver, 1, &[1, 2]);
    let is_held = |commands: &[Command]| {
        commands
            .iter()
            .any(|command| matches!(command, Command::Quiesced { pipeline, .. } if pipeline.0 == 1))
    };
    assert!(!is_held(&closed(&mut driver, 1, 2)));
    assert!(!is_held(&closed(&mut driver, 2, 1)));
    assert!(!is_held(&epoch_done(&mut driver, 1, 2)));
    let held = epoch_done(&mut driver, 2, 1);
    assert!(held.contains(&Command::Joined {
        into: PipelineId(1),
        from: PipelineId(2)
    }));
    assert!(is_held(&held));
    let opened = driver.on(
        Event::Resume {
            ticket: Ticket(1),
            views: vec![view(9, &[1, 2])],
            dropped: vec![],
        },
        0,
    );
    assert_eq!(launches(&opened), [(3, 4)]);
    assert_eq!(driver.pipeline_of(RelationId(2)), Some(PipelineId(1)));
}

/// A driver of three workers that are heard every millisecond, and a source with a view on them.
fn watched() -> Driver {
    let mut driver = driver(&[1]);
    driver.on(Event::Heartbeats { every_ns: 1_000_000 }, 0);
    for worker in [1, 2] {
        let worker = WorkerId(worker);
        driver.on(
            Event::WorkerJoined {
                worker,
                has_sources: true,
            },
            0,
        );
    }
    driver
}

/// A millisecond passes in which these workers are heard; returns who is held to be lost.
fn beat(driver: &mut Driver, heard: &[u32], now: &mut u64) -> Vec<u32> {
    *now += 1_000_000;
    for worker in heard {
        let (worker, load) = (WorkerId(*worker), WorkerLoad::default());
        driver.on(Event::Worker(ToDriver::Heartbeat { worker, load }), *now);
    }
    let commands = driver.on(Event::Tick, *now);
    let lost = commands.iter().filter_map(|command| match command {
        Command::Evict { worker } => Some(worker.0),
        _ => None,
    });
    lost.collect()
}

#[test]
fn a_worker_that_misses_its_heartbeats_is_lost() {
    let (mut driver, mut now) = (watched(), 0);
    let nobody: [u32; 0] = [];
    assert_eq!(beat(&mut driver, &[0, 1, 2], &mut now), nobody);
    for _ in 1..SILENT_BEATS_MAX {
        assert_eq!(beat(&mut driver, &[0, 1], &mut now), nobody);
    }
    assert_eq!(beat(&mut driver, &[0, 1], &mut now), [2]);
    let left: Vec<u32> = driver.workers().iter().map(|(worker, _)| worker.0).collect();
    assert_eq!(left, [0, 1]);
}

#[test]
fn who_hears_nobody_or_slept_holds_nobody_to_be_lost() {
    let (mut driver, mut now) = (watched(), 0);
    beat(&mut driver, &[0, 1, 2], &mut now);
    for _ in 0..3 * SILENT_BEATS_MAX {
        assert!(beat(&mut driver, &[], &mut now).is_empty());
    }
    beat(&mut driver, &[0, 1, 2], &mut now);
    // An hour in which nothing ran, and a heartbeat that was late.
    now += 3_600_000_000_000;
    assert!(beat(&mut driver, &[0], &mut now).is_empty());
    assert!(beat(&mut driver, &[0, 1, 2], &mut now).is_empty());
}

#[test]
fn an_accused_worker_is_asked_for_less_patience_and_its_accuser_tries_again() {
    let task = TaskId {
        view: RelationId(9),
        stage: 0,
        partition: 0,
        epoch: 1,
    };
    let accuse = |driver: &mut Driver, now| {
        let unreachable = ToDriver::Unreachable {
            pipeline: PipelineId(1),
            version: 1,
            task,
            lost: WorkerId(2),
            by: WorkerId(1),
        };
        assert!(driver.on(Event::Worker(unreachable), now).is_empty());
    };
    let (mut driver, mut now) = (watched(), 0);
    beat(&mut driver, &[0, 1, 2], &mut now);
    accuse(&mut driver, now);
    let (worker, load) = (WorkerId(2), WorkerLoad::default());
    let commands = driver.on(Event::Worker(ToDriver::Heartbeat { worker, load }), now);
    assert!(
        matches!(commands[..], [Command::Send(WorkerId(1), ToWorker::Retry { task: again, .. })] if again == task),
        "{commands:?}"
    );
    beat(&mut driver, &[0, 1, 2], &mut now);
    accuse(&mut driver, now);
    for _ in 1..SUSPECT_BEATS_MAX {
        assert!(beat(&mut driver, &[0, 1], &mut now).is_empty());
    }
    assert_eq!(beat(&mut driver, &[0, 1], &mut now), [2]);
}

#[test]
fn what_did_not_arrive_is_sent_again_when_the_worker_is_heard() {
    let mut driver = watched();
    let message = ToWorker::Forget {
        pipeline: PipelineId(7),
        version: 3,
    };
    let to = WorkerId(1);
    let undelivered = Event::Undelivered {
        to,
        message: message.clone(),
    };
    assert!(driver.on(undelivered, 1).is_empty());
    assert!(driver.is_in_doubt());
    let (worker, load) = (to, WorkerLoad::default());
    let commands = driver.on(Event::Worker(ToDriver::Heartbeat { worker, load }), 2);
    assert_eq!(commands, [Command::Send(to, message)]);
    assert!(!driver.is_in_doubt());
}

/// A checkpoint that is due is the cutter's business at once; a pipeline at rest has nobody to tell.
#[test]
fn a_checkpoint_that_is_due_is_told_to_the_cutter_of_an_open_pipeline() {
    let mut driver = driver(&[1]);
    let pipeline = PipelineId(1);
    let told = driver.on(Event::CheckpointDue { pipeline }, 0);
    let message = ToWorker::Checkpoint {
        pipeline,
        version: version(&driver, 1),
    };
    assert_eq!(told, [Command::Send(WORKER, message)]);
    let heads = driver.heads();
    assert_eq!(
        (heads.len(), heads[0].relations.clone()),
        (1, vec![RelationId(1)])
    );
    quiesce(&mut driver, 1, &[1]);
    assert_eq!(driver.on(Event::CheckpointDue { pipeline }, 0), []);
}

/// What epochs leave is kept for lost workers until a checkpoint lets it go: with many rows one is made before its time.
#[test]
fn many_rows_make_a_checkpoint_due() {
    let mut driver = driver(&[1]);
    let every_ns = 3_600_000_000_000;
    driver.on(Event::Checkpoints(CheckpointPolicy::Always { every_ns }), 0);
    quiesce(&mut driver, 1, &[1]);
    closed(&mut driver, 1, 0);
    let resume = Event::Resume {
        ticket: Ticket(1),
        views: vec![view(9, &[1])],
        dropped: vec![],
    };
    let checkpoints = |commands: &[Command]| -> Vec<u64> {
        let launches = commands.iter().filter_map(|command| match command {
            Command::Send(_, ToWorker::Launch { checkpoints, .. }) => Some(checkpoints.clone()),
            _ => None,
        });
        launches.flatten().collect()
    };
    let opened = driver.on(resume, 0);
    assert_eq!((launches(&opened), checkpoints(&opened)), (vec![(1, 1)], vec![1]));
    let done = ToDriver::EpochDone {
        pipeline: PipelineId(1),
        version: version(&driver, 1),
        epoch: 1,
        worker: WORKER,
        costs: EpochCosts::default(),
        stages: vec![],
        is_checkpoint: true,
    };
    driver.on(Event::Worker(done), 0);
    let need = |driver: &mut Driver, last| {
        let need = ToDriver::NeedEpochs {
            pipeline: PipelineId(1),
            version: version(driver, 1),
            last,
        };
        driver.on(Event::Worker(need), 0)
    };
    let of_rows = |rows| EpochCosts {
        rows,
        ..EpochCosts::default()
    };
    let launched = need(&mut driver, 1);
    assert_eq!(
        (launches(&launched), checkpoints(&launched)),
        (vec![(2, 3)], vec![])
    );
    epoch_took(&mut driver, 1, 2, of_rows(pipeline::RETAINED_ROWS_MAX - 1), 0);
    epoch_took(&mut driver, 1, 3, of_rows(0), 0);
    let launched = need(&mut driver, 3);
    assert_eq!(
        (launches(&launched), checkpoints(&launched)),
        (vec![(4, 5)], vec![])
    );
    epoch_took(&mut driver, 1, 4, of_rows(1), 0);
    epoch_took(&mut driver, 1, 5, of_rows(0), 0);
    let launched = need(&mut driver, 5);
    assert_eq!(
        (launches(&launched), checkpoints(&launched)),
        (vec![(6, 7)], vec![7])
    );
}

fn is_granted(commands: &[Command], ticket: u64) -> bool {
    commands
        .iter()
        .any(|command| matches!(command, Command::Quiesced { ticket: granted, .. } if granted.0 == ticket))
}

fn resume(driver: &mut Driver, ticket: u64, views: Vec<Arc<ViewShape>>, dropped: &[u64]) -> Vec<Command> {
    let event = Event::Resume {
        ticket: Ticket(ticket),
        views,
        dropped: dropped.iter().copied().map(RelationId).collect(),
    };
    driver.on(event, 0)
}

/// A driver over a source, with a view that is filled in a pipeline of its own, 50.
fn with_job() -> Driver {
    let mut driver = driver(&[1]);
    let job = Event::JobAdded {
        views: vec![view(9, &[1])],
        pipeline: PipelineId(50),
    };
    driver.on(job, 0);
    driver
}

#[test]
fn a_view_may_be_dropped_while_it_is_filled() {
    let mut driver = with_job();
    quiesce(&mut driver, 1, &[9]);
    // The back-fill wants its turn, behind whoever drops the view.
    quiesce(&mut driver, 2, &[9]);
    assert!(is_granted(&closed(&mut driver, 50, 0), 1));
    assert!(is_granted(&resume(&mut driver, 1, vec![], &[9]), 2));
    resume(&mut driver, 2, vec![], &[]);
    assert!(!driver.pipelines.contains_key(&PipelineId(50)));
    // It does not know yet that its view is gone.
    assert!(is_granted(&quiesce(&mut driver, 3, &[9]), 3));
    resume(&mut driver, 3, vec![], &[]);
    driver.on(Event::JobRemoved { view: RelationId(9) }, 0);
    quiesce(&mut driver, 4, &[1]);
    assert!(
        is_granted(&closed(&mut driver, 1, 0), 4),
        "the source's pipeline goes on"
    );
}

#[test]
fn who_waits_at_a_back_fill_that_ends_has_a_turn() {
    // It fails.
    let mut driver = with_job();
    quiesce(&mut driver, 1, &[9]);
    let removed = driver.on(Event::JobRemoved { view: RelationId(9) }, 0);
    assert!(is_granted(&removed, 1));
    resume(&mut driver, 1, vec![], &[9]);
    assert!(!driver.pipelines.contains_key(&PipelineId(50)));
    // Its view goes on with its input: whoever waits for the one waits for the other.
    let mut driver = with_job();
    quiesce(&mut driver, 1, &[1]);
    assert!(is_granted(&closed(&mut driver, 1, 0), 1));
    quiesce(&mut driver, 2, &[9]);
    assert!(is_granted(&closed(&mut driver, 50, 0), 2));
    quiesce(&mut driver, 3, &[9]);
    let attached = resume(&mut driver, 1, vec![view(9, &[1])], &[]);
    assert!(is_granted(&attached, 3));
    assert!(!driver.pipelines.contains_key(&PipelineId(50)));
    resume(&mut driver, 3, vec![], &[9]);
    assert_eq!(driver.pipeline_of(RelationId(9)), None);
    quiesce(&mut driver, 4, &[1]);
    let last = driver.pipelines[&PipelineId(1)].committed;
    assert!(is_granted(&closed(&mut driver, 1, last), 4));
}
