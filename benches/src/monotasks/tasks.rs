//! How many tasks it takes until disk and cores work at the same time (Ousterhout's thesis, figure 5.7).

use millrace_engine::testing::Testing;

use super::{Layout, Scale, Workload, profiles};
use crate::error::BenchError;
use crate::plot::{Chart, Line};
use crate::results::{Experiment, Run};
use crate::statistics::median;

/// The experiment's name.
pub const NAME: &str = "pipelining: time against tasks (figure 5.7)";

const CORES: usize = 2;
/// The query whose stage is cut.
const SCAN: &str = "SELECT sum(sqrt(l_extendedprice::double precision) * ln(1 + l_quantity::double precision)), \
                    count(l_comment) FROM lineitem";
/// Disk time as a multiple of the cpu's ideal time.
const BALANCES: [f64; 3] = [0.5, 1.0, 2.0];

/// Runs one stage in more and more tasks, with disks that make it bound by cpu, by both, and by disk.
///
/// # Errors
/// A query fails.
pub async fn run(run: &mut Run, workload: &Workload, scale: &Scale) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "A scan of `lineitem` with some arithmetic in 1 to {} tasks on {CORES} cores, with limits in the disk scheduler \
             by which reading takes half of the ideal time on the cores, as long, or twice as long. With few tasks a disk \
             stands idle while cores compute, and the other way round; medians of {} runs.",
            scale.tasks.last().copied().unwrap_or_default(),
            scale.repetitions
        ),
    );
    let Some(lineitem) = workload.files.iter().find(|file| file.table == "lineitem") else {
        return Err(BenchError::Wrong("there is no lineitem".to_owned()));
    };
    let bytes = std::fs::metadata(&lineitem.path).map_err(BenchError::io("cannot look at lineitem"))?;
    // What the server takes a row of a file for, where it knows bytes alone.
    let rows = bytes.len() / 64;
    let mut points: Vec<Vec<(f64, f64)>> = vec![vec![]; BALANCES.len()];
    let mut rates = None;
    for tasks in &scale.tasks {
        let layout = Layout {
            partition_rows: Some((rows as usize / tasks).max(1)),
            ..Layout::cores(CORES)
        };
        let bed = layout.start(&[lineitem.create()]).await?;
        let rates = match &rates {
            Some(rates) => rates,
            None => {
                let seen = profiles(&bed.client, SCAN, scale.repetitions).await?;
                let ideal = median(seen.iter().map(|run| run.cpu / CORES as f64 / 1e3));
                let read = median(seen.iter().map(|run| run.disk_bytes() as f64));
                rates.insert(BALANCES.map(|balance| ((read / (balance * ideal)) as u64).max(1)))
            }
        };
        for (balance, (rate, points)) in BALANCES.iter().zip(rates.iter().zip(&mut points)) {
            bed.runtime.set_disk_rate(Some(*rate));
            let seen = profiles(&bed.client, SCAN, scale.repetitions).await?;
            let had = |run: &super::Analyzed| run.profile.stages.iter().map(|stage| stage.tasks.len()).max();
            let had = seen.iter().filter_map(had).max().unwrap_or_default();
            let times: Vec<f64> = seen.iter().map(|run| run.elapsed).collect();
            points.push((had as f64, median(&times)));
            let name = format!("disk {balance} x cpu: {had} tasks");
            experiment.add(name, "ms", times, None);
        }
        bed.stop().await;
        eprintln!("{NAME}: {tasks}");
    }
    run.draw(Chart {
        name: "tasks",
        title: "Time of a scan against the tasks into which it is cut".to_owned(),
        x: "tasks",
        y: "ms",
        lines: (BALANCES.iter().zip(points))
            .map(|(balance, points)| Line {
                name: format!("disk {balance} x cpu"),
                points,
            })
            .collect(),
    });
    run.add(experiment);
    Ok(())
}
