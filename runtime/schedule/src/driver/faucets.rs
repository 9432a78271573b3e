//! Which stages have a faucet (Faucet, section 4), revised when a group ends, from what was seen in it.
//!
//! A view's plan says where a faucet may be and where rows multiply for sure. Batches that went on are not kept, so that a
//! faucet has a price where what tasks left is retained: a lost worker's part cannot be run again, the views are filled again.
//!
//! * Where nothing is retained (one worker, back-fills), every place has its faucet: there it costs a counter.
//! * Elsewhere those that are planned have one from the start, the others from the end of the group in which a task emitted
//!   more than a faucet lets through at a time, and the stage twice as many rows as it read. A faucet behind a stage that has
//!   not multiplied rows for [`PATIENCE_NS`] is taken away; after each return it stays four times as long.
//!
//! The change is one of placement: the pipeline comes to rest and is opened under another template.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_planner::RelationId;

use super::pipeline::{GroupRecord, Phase};
use super::{Command, Driver};
use crate::id::PipelineId;
use crate::message::StageCosts;
use crate::template::ViewShape;

/// Rows out for each row in from which on a stage multiplies them.
const MULTIPLIED_MIN: u64 = 2;
/// Nanoseconds for which a stage has to multiply nothing before its faucet goes.
const PATIENCE_NS: u64 = 60_000_000_000;
/// Returns after which patience does not grow any more.
const RETURNS_MAX: u32 = 6;

/// Whether a stage has a faucet, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaucetRecord {
    pub view: RelationId,
    pub stage: usize,
    pub is_placed: bool,
    pub cause: FaucetCause,
}

/// Why a stage has a faucet, or has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaucetCause {
    /// As the plan has it.
    Planned,
    /// It costs nothing: what tasks leave is not kept for lost workers.
    Free,
    /// In the group that ended with this epoch, so many rows made so many.
    Multiplied { epoch: u64, rows_in: u64, rows_out: u64 },
    /// Up to this epoch rows had not multiplied for a while.
    Tame { epoch: u64 },
}

impl std::fmt::Display for FaucetCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FaucetCause::Planned => write!(f, "as planned"),
            FaucetCause::Free => write!(
                f,
                "it costs nothing, because task outputs are not stored for \
             recovery"
            ),
            FaucetCause::Multiplied {
                epoch,
                rows_in,
                rows_out,
            } => write!(f, "{rows_in} rows became {rows_out} by epoch {epoch}"),
            FaucetCause::Tame { epoch } => write!(f, "rows had not multiplied by epoch {epoch}"),
        }
    }
}

#[derive(Debug)]
struct Seen {
    /// Another placement than planned, or the same again.
    revised: Option<(bool, FaucetCause)>,
    tame_since: Option<u64>,
    returns: u32,
}

/// What is known of the stages of a pipeline that may have a faucet.
#[derive(Debug, Default)]
pub(super) struct Faucets {
    seen: BTreeMap<(RelationId, usize), Seen>,
    /// The placement is not what it is to be.
    is_revised: bool,
}

impl Faucets {
    /// Learns from a group that ended.
    pub fn learn(&mut self, group: &GroupRecord, views: &[Arc<ViewShape>], now: u64) {
        self.seen
            .retain(|(view, _), _| views.iter().any(|shape| shape.id == *view));
        for costs in &group.stages {
            let shape = views.iter().find(|shape| shape.id == costs.view);
            let Some(stage) = shape.and_then(|shape| shape.stages.get(costs.stage)) else {
                continue;
            };
            if let Some(flow_rows) = stage.flow_rows {
                let is_multiplied = costs.rows_out_max > flow_rows
                    && costs.rows_out >= MULTIPLIED_MIN.saturating_mul(costs.rows_in);
                self.look(costs, is_multiplied, stage.has_faucet, group.last_epoch, now);
            }
        }
    }

    fn look(&mut self, costs: &StageCosts, is_multiplied: bool, is_planned: bool, epoch: u64, now: u64) {
        let seen = self.seen.entry((costs.view, costs.stage)).or_insert(Seen {
            revised: None,
            tame_since: None,
            returns: 0,
        });
        let is_placed = seen.revised.map_or(is_planned, |(is_placed, _)| is_placed);
        if is_multiplied {
            seen.tame_since = None;
            if !is_placed {
                let cause = FaucetCause::Multiplied {
                    epoch,
                    rows_in: costs.rows_in,
                    rows_out: costs.rows_out,
                };
                seen.returns = (seen.returns + 1).min(RETURNS_MAX);
                seen.revised = Some((true, cause));
                self.is_revised = true;
            }
            return;
        }
        let since = *seen.tame_since.get_or_insert(now);
        if is_placed && now.saturating_sub(since) >= PATIENCE_NS << (2 * seen.returns) {
            seen.revised = Some((false, FaucetCause::Tame { epoch }));
            self.is_revised = true;
        }
    }

    /// What is known of another pipeline's stages, which are this one's from now on.
    pub fn extend(&mut self, other: Faucets) {
        self.seen.extend(other.seen);
    }

    fn placement(&self, view: &ViewShape, stage: usize, is_retained: bool) -> Option<(bool, FaucetCause)> {
        let shape = &view.stages[stage];
        shape.flow_rows?;
        if !is_retained {
            return Some((true, FaucetCause::Free));
        }
        let seen = self.seen.get(&(view.id, stage));
        let revised = seen.and_then(|seen| seen.revised);
        Some(revised.unwrap_or((shape.has_faucet, FaucetCause::Planned)))
    }

    /// The views with the faucets that they are to have from now on.
    pub fn place(&mut self, views: &[Arc<ViewShape>], is_retained: bool) -> Vec<Arc<ViewShape>> {
        self.is_revised = false;
        let views = views.iter().map(|view| {
            let mut placed = ViewShape::clone(view);
            for (number, stage) in placed.stages.iter_mut().enumerate() {
                if let Some((is_placed, _)) = self.placement(view, number, is_retained) {
                    stage.has_faucet = is_placed;
                }
            }
            match placed == **view {
                true => Arc::clone(view),
                false => Arc::new(placed),
            }
        });
        views.collect()
    }

    pub fn records(&self, views: &[Arc<ViewShape>], is_retained: bool) -> Vec<FaucetRecord> {
        let stages = views
            .iter()
            .flat_map(|view| (0..view.stages.len()).map(move |stage| (view, stage)));
        let records = stages.filter_map(|(view, stage)| {
            let (is_placed, cause) = self.placement(view, stage, is_retained)?;
            Some(FaucetRecord {
                view: view.id,
                stage,
                is_placed,
                cause,
            })
        });
        records.collect()
    }
}

impl Driver {
    /// Closes the pipeline if its faucets are to be elsewhere from now on.
    pub(super) fn revise_faucets(&mut self, id: PipelineId, commands: &mut Vec<Command>) {
        let Some(pipeline) = self.pipelines.get(&id) else {
            return;
        };
        let is_retained = (pipeline.template.as_ref()).is_some_and(|template| template.is_retained);
        if pipeline.faucets.is_revised
            && is_retained
            && pipeline.phase == Phase::Open
            && !pipeline.is_recovering
        {
            self.close(id, commands);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{StageInput, StageShape};

    const VIEW: RelationId = RelationId(7);

    fn view(has_faucet: bool) -> Arc<ViewShape> {
        let stage = |input, reader, flow_rows: Option<u64>| StageShape {
            input,
            reader,
            is_single: false,
            has_faucet: has_faucet && flow_rows.is_some(),
            flow_rows,
            pieces_max: 2,
        };
        Arc::new(ViewShape {
            id: VIEW,
            incarnation: 0,
            partitions: 2,
            stages: vec![
                stage(StageInput::Relation(RelationId(1)), Some(1), None),
                stage(StageInput::Stages(vec![0]), Some(2), Some(100)),
                stage(StageInput::Stages(vec![1]), None, None),
            ],
            is_batch: false,
        })
    }

    fn group(rows_in: u64, rows_out: u64, rows_out_max: u64) -> GroupRecord {
        let mut costs = StageCosts::new(VIEW, 1);
        (costs.rows_in, costs.rows_out, costs.rows_out_max) = (rows_in, rows_out, rows_out_max);
        let mut group = GroupRecord::new(1, 10, false);
        group.stages = vec![costs];
        group
    }

    fn placed(faucets: &mut Faucets, views: &[Arc<ViewShape>], is_retained: bool) -> bool {
        faucets.place(views, is_retained)[0].stages[1].has_faucet
    }

    #[test]
    fn a_stage_that_multiplies_gets_a_faucet_and_loses_it_when_it_is_tame_for_long() {
        let views = [view(false)];
        let mut faucets = Faucets::default();
        // Many rows that are not multiplied, and a few that are, need none.
        for (now, group) in [group(5_000, 5_000, 5_000), group(10, 90, 90)].iter().enumerate() {
            faucets.learn(group, &views, now as u64);
        }
        assert!(!faucets.is_revised && !placed(&mut faucets, &views, true));
        let records = faucets.records(&views, true);
        assert_eq!(
            (records.len(), records[0].is_placed, records[0].cause),
            (1, false, FaucetCause::Planned)
        );
        // Where it costs nothing it is there.
        assert!(placed(&mut faucets, &views, false));
        faucets.learn(&group(200, 4_000, 300), &views, 10);
        assert!(faucets.is_revised && placed(&mut faucets, &views, true));
        assert!(!faucets.is_revised);
        let cause = faucets.records(&views, true)[0].cause;
        assert_eq!(cause.to_string(), "200 rows became 4000 by epoch 10");
        // It has come back once: four times the patience.
        let mut now = 20;
        while placed(&mut faucets, &views, true) {
            now += 1_000_000_000;
            faucets.learn(&group(5, 5, 5), &views, now);
        }
        assert_eq!(now / 1_000_000_000, 4 * 60 + 1);
        assert_eq!(
            faucets.records(&views, true)[0].cause,
            FaucetCause::Tame { epoch: 10 }
        );
        faucets.learn(&group(200, 4_000, 300), &views, now);
        assert!(placed(&mut faucets, &views, true));
        // A view that is gone is forgotten.
        faucets.learn(&group(200, 4_000, 300), &[], now);
        assert!(faucets.seen.is_empty());
    }

    #[test]
    fn a_planned_faucet_stays_while_rows_multiply_now_and_then() {
        let views = [view(true)];
        let mut faucets = Faucets::default();
        let mut now = 0;
        for round in 0..300 {
            now += PATIENCE_NS / 4;
            let multiplied = if round % 3 == 0 { 1_000 } else { 1 };
            faucets.learn(&group(10, multiplied, multiplied), &views, now);
            assert!(placed(&mut faucets, &views, true), "after {now} ns");
        }
        for _ in 0..6 {
            now += PATIENCE_NS / 4;
            faucets.learn(&group(10, 1, 1), &views, now);
        }
        assert!(!placed(&mut faucets, &views, true));
    }
}
