//! What coordination costs in one process: the driver's time and the waiting for it, by epoch and by task.

use super::Scale;
use super::ysb::{Form, TypedEvents, Yahoo, now_micros};
use crate::error::BenchError;
use crate::process;
use crate::results::Experiment;

/// The experiment's name.
pub const NAME: &str = "coordination in one process";

/// Writes events one by one, each when the one before is visible: an epoch each, with as little work as there can be.
///
/// # Errors
/// The server fails, or the view is wrong.
pub async fn run(scale: &Scale) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "The view of the Yahoo streaming benchmark (a join and an aggregate: four stages) over one worker, over four, \
             and over the one of the four that is enough for it, each with as many slots as the machine has cores, log in memory. {} events one by one, each when the one before \
             is visible. *The driver* is its time an epoch, sending included; *waiting* is the time that input waited for \
             the next group; *tasks* is the time in which tasks ran; *beside the tasks* is the time from an epoch's cut to \
             its end in which none ran (of one worker).",
            scale.epochs
        ),
    );
    let events = TypedEvents::new(1);
    // Over one, over four, and over as many of the four as there is work for.
    for (workers, spread) in [(1, "all"), (4, "all"), (4, "auto")] {
        let bed = Yahoo::new(Form::Typed, workers).await?;
        let mut views = 0;
        let set_spread = format!("ALTER SYSTEM SET pipeline_spread = {spread}");
        bed.host.client.run(&set_spread).await?;
        while spread == "auto" && used(&bed) > 1 {
            views += round(&bed, &events).await?;
        }
        for group_size in ["1", "25", "100", "auto"] {
            bed.host
                .client
                .run(&format!("ALTER SYSTEM SET group_size = {group_size}"))
                .await?;
            // Groups of the size before end first.
            for _ in 0..scale.epochs / 4 {
                views += round(&bed, &events).await?;
            }
            let from = epochs(&bed);
            let (cpu, start) = (process::cpu_time(std::process::id())?, std::time::Instant::now());
            for _ in 0..scale.epochs {
                views += round(&bed, &events).await?;
            }
            let elapsed = start.elapsed().as_secs_f64() * 1e6 / scale.epochs as f64;
            let cpu = process::cpu_time(std::process::id())?.saturating_sub(cpu);
            let one = if spread == "auto" { ", one in use" } else { "" };
            let name = |what: &str| format!("{workers} workers{one}, G = {group_size}: {what}");
            report(&bed, from, workers, &name, &mut experiment);
            experiment.add(name("a write until visible"), "us", vec![elapsed], None);
            let cpu = cpu.as_secs_f64() * 1e6 / scale.epochs as f64;
            experiment.add(name("processor time of a write"), "us", vec![cpu], None);
        }
        bed.check(views).await?;
        bed.stop().await;
    }
    Ok(experiment)
}

async fn round(bed: &Yahoo, events: &TypedEvents) -> Result<u64, BenchError> {
    let now = now_micros();
    let (rows, views) = events.between(1, now, now)?;
    let token = bed.append(rows).await?;
    bed.host
        .runtime
        .wait_for(&token)
        .await
        .map_err(BenchError::engine)?;
    Ok(views)
}

/// Workers over which the view's pipeline is spread.
fn used(bed: &Yahoo) -> usize {
    let pipelines = bed.host.runtime.pipelines().into_iter();
    let mut of_view = pipelines.filter(|status| status.pipeline.views.contains(&bed.view));
    of_view.next().map_or(0, |status| status.pipeline.workers)
}

/// Epochs of the view's pipeline so far.
fn epochs(bed: &Yahoo) -> u64 {
    let pipelines = bed.host.runtime.pipelines();
    let of_view = pipelines
        .iter()
        .find(|pipeline| pipeline.pipeline.views.contains(&bed.view));
    of_view.map_or(0, |pipeline| pipeline.pipeline.committed)
}

/// Adds what the groups since an epoch took, a value for each group.
fn report(
    bed: &Yahoo,
    from: u64,
    workers: usize,
    name: &dyn Fn(&str) -> String,
    experiment: &mut Experiment,
) {
    let pipelines = bed.host.runtime.pipelines();
    let Some(pipeline) = pipelines
        .iter()
        .find(|pipeline| pipeline.pipeline.views.contains(&bed.view))
    else {
        return;
    };
    let groups: Vec<_> = pipeline
        .pipeline
        .groups
        .iter()
        .filter(|group| group.first_epoch > from && group.tasks > 0)
        .collect();
    let by_epoch = |part: &dyn Fn(&millrace_schedule::driver::GroupRecord) -> f64| -> Vec<f64> {
        let epochs = |group: &millrace_schedule::driver::GroupRecord| {
            (group.last_epoch + 1 - group.first_epoch) as f64
        };
        groups
            .iter()
            .map(|group| part(group) / 1e3 / epochs(group))
            .collect()
    };
    experiment.add(
        name("the driver, an epoch"),
        "us",
        by_epoch(&|group| group.costs.scheduling_ns as f64),
        None,
    );
    experiment.add(
        name("waiting, an epoch"),
        "us",
        by_epoch(&|group| group.costs.waited_ns as f64),
        None,
    );
    experiment.add(
        name("tasks, an epoch"),
        "us",
        by_epoch(&|group| group.busy_ns as f64),
        None,
    );
    if workers == 1 {
        experiment.add(
            name("beside the tasks, an epoch"),
            "us",
            by_epoch(&|group| group.costs.execution_ns.saturating_sub(group.busy_ns) as f64),
            None,
        );
    }
    let per_task = groups
        .iter()
        .map(|group| (group.costs.scheduling_ns + group.costs.waited_ns) as f64 / 1e3 / group.tasks as f64);
    experiment.add(
        name("the driver and waiting, a task"),
        "us",
        per_task.collect(),
        None,
    );
}
