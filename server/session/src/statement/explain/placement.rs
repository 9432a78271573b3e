//! EXPLAIN of a view that runs: which of its faucets there are at present, why, and what was seen at them.

use std::collections::BTreeMap;

use millrace_engine::{PipelineStatus, Runtime};
use millrace_planner::RelationId;

/// For each stage that may have a faucet, whether it has one now. Nothing of a view that does not run.
pub(super) fn faucets(runtime: &Runtime, view: RelationId) -> BTreeMap<usize, String> {
    let mut pipelines = runtime.pipelines().into_iter();
    let Some(PipelineStatus { pipeline, .. }) =
        pipelines.find(|status| status.pipeline.views.contains(&view))
    else {
        return BTreeMap::new();
    };
    let views = runtime.views();
    let flows = views.iter().filter(|status| status.relation == view);
    let flows: Vec<_> = flows.flat_map(|status| &status.flows).collect();
    let placed = pipeline.faucets.iter().filter(|faucet| faucet.view == view);
    let notes = placed.map(|faucet| {
        let mut note = match faucet.is_placed {
            true => format!("placed: {}", faucet.cause),
            false => format!("not placed: {}", faucet.cause),
        };
        let groups = pipeline.groups.iter().flat_map(|group| &group.stages);
        let of_stage = groups.filter(|costs| (costs.view, costs.stage) == (view, faucet.stage));
        let (read, made) = of_stage.fold((0, 0), |(read, made), costs| {
            (read + costs.rows_in, made + costs.rows_out)
        });
        if read > 0 {
            note += &format!("; recently {read} rows became {made}");
        }
        if let Some(flow) = flows.iter().find(|flow| flow.stage == faucet.stage) {
            let counts = flow.counts;
            note += &format!(
                "; {} batches with {} rows in total passed through",
                counts.batches, counts.rows
            );
            if let Some(since) = counts.since {
                let waiting_us = since.elapsed().as_micros();
                note += &format!(
                    "; {} tasks have been waiting to send for {waiting_us} us",
                    counts.waiting
                );
            }
        }
        (faucet.stage, note)
    });
    notes.collect()
}
