//! The driver by itself: events in, commands out. Whole schedules are in `tests/schedule.rs`.

use std::sync::Arc;

use millrace_planner::RelationId;

use super::*;
use crate::schedule::message::EpochCosts;
use crate::schedule::template::{StageInput, StageShape};

const WORKER: WorkerId = WorkerId(0);

fn view(id: u64, inputs: &[u64]) -> Arc<ViewShape> {
    let mut stages: Vec<StageShape> = inputs
        .iter()
        .map(|input| StageShape {
            input: StageInput::Relation(RelationId(*input)),
            reader: Some(inputs.len()),
            is_single: false,
        })
        .collect();
    stages.push(StageShape {
        input: StageInput::Stages((0..inputs.len()).collect()),
        reader: None,
        is_single: false,
    });
    Arc::new(ViewShape {
        id: RelationId(id),
        partitions: 2,
        incarnation: 0,
        is_restorable: true,
        stages,
    })
}

/// A driver of one worker, with groups of two epochs, over these sources.
fn driver(sources: &[u64]) -> Driver {
    let mut driver = Driver::default();
    driver.on(Event::GroupSize(GroupSize::Fixed(2)), 0);
    driver.on(Event::WorkerJoined { worker: WORKER }, 0);
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
    let message = ToDriver::EpochDone {
        pipeline: PipelineId(pipeline),
        version: version(driver, pipeline),
        epoch,
        worker: WORKER,
        costs: EpochCosts::default(),
        is_checkpoint: false,
    };
    driver.on(Event::Worker(message), 0)
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
            version: 1
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
