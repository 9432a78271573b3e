//! What a server costs that has nothing to do.

use crate::error::BenchError;
use crate::first_light::{Scale, views};
use crate::flights;
use crate::process::{self, megabytes};
use crate::results::{Aim, Experiment};
use crate::target::{FreshServer, Target};

/// The experiment's name.
pub const NAME: &str = "idle";

/// Watches a server with one connection and three views over nothing.
pub async fn run(scale: &Scale, target: &Target) -> Result<Experiment, BenchError> {
    let bed = FreshServer::start(target).await?;
    bed.client.run(flights::CREATE_FLIGHTS).await?;
    bed.client.run(flights::CREATE_AIRLINES).await?;
    for view in views::AGGREGATED.views {
        let (name, select) = (view.name, view.select);
        let create = format!("CREATE MATERIALIZED VIEW {name} AS {select}");
        bed.client.run(&create).await?;
    }
    let pid = bed.server.pid();
    tokio::time::sleep(scale.idle).await;
    let before = process::activity(pid)?;
    tokio::time::sleep(scale.idle).await;
    let done = process::activity(pid)?.since(before);
    let memory = process::memory(pid)?;
    let threads = process::threads(pid)?;
    bed.stop().await?;

    let seconds = scale.idle.as_secs_f64();
    let cpu_ms = done.cpu_ns as f64 / 1e6;
    let sleeps = done.sleeps as f64;
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "One connection, one stream, one table and three views, all of them empty. After {seconds} s to settle \
             the process is watched for as long: the CPU time of all its threads, and how often any of them was woken."
        ),
    );
    // A thousandth of a core: what cannot be told from none.
    let none = Some(Aim::MedianUnder(1.0));
    experiment.add("CPU time per second", "ms", vec![cpu_ms / seconds], none);
    experiment.add("wake-ups per second", "1/s", vec![sleeps / seconds], None);
    let resident = vec![megabytes(memory.resident)];
    experiment.add("resident memory", "MB", resident, Some(Aim::MedianUnder(150.0)));
    experiment.add("threads", "", vec![threads as f64], None);
    Ok(experiment)
}
