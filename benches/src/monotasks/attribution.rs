//! Whose time is whose: two queries at once are charged with what each takes alone (Ousterhout's thesis, section 5.4).

use millrace_engine::testing::Testing;

use super::{Analyzed, Layout, Scale, Workload, analyze};
use crate::client::Client;
use crate::error::BenchError;
use crate::machine;
use crate::results::{Aim, Experiment, Run};
use crate::statistics::median;

/// The experiment's name.
pub const NAME: &str = "attribution (section 5.4)";

/// Pairs of queries that run at once: what each is charged with, against what it takes alone.
///
/// # Errors
/// A query fails.
pub async fn run(run: &mut Run, workload: &Workload, scale: &Scale) -> Result<(), BenchError> {
    let cores = machine::cores();
    let bed = Layout::cores(cores).start(&workload.tables()).await?;
    bed.runtime.set_disk_rate(Some(scale.disk_rate));
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "Two queries alone, then both at once, each with its profile: the difference between the processor and disk time \
             that it is charged with together and alone, of the latter. Medians. The disk has {} MB/s by a limit in its \
             scheduler; its time is that of the bytes, since requests in flight share the device.",
            scale.disk_rate / 1_000_000
        ),
    );
    let queries: Vec<&(String, String)> = workload.all().collect();
    let pairs = [
        (0, queries.len() - 2),
        (queries.len() - 4, queries.len() - 3),
        (2, 0),
    ];
    let mut errors = vec![];
    for (left, right) in pairs {
        let pair = [queries[left], queries[right]];
        let other = Client::connect(bed.server.pg_addr()).await?;
        let (mut alone, mut together) = ([vec![], vec![]], [vec![], vec![]]);
        for _ in 0..=scale.repetitions {
            for (query, alone) in pair.iter().zip(&mut alone) {
                alone.push(analyze(&bed.client, &query.1).await?);
            }
            let both = (analyze(&bed.client, &pair[0].1), analyze(&other, &pair[1].1));
            let both = futures::future::try_join(both.0, both.1).await?;
            together[0].push(both.0);
            together[1].push(both.1);
        }
        for (place, (name, _)) in pair.into_iter().enumerate() {
            for (resource, of) in [
                (
                    "cpu",
                    (|analyzed: &Analyzed| analyzed.cpu) as fn(&Analyzed) -> f64,
                ),
                ("disk", |analyzed| analyzed.disk),
            ] {
                let alone = median(alone[place][1..].iter().map(of));
                let both = median(together[place][1..].iter().map(of));
                if alone < 1.0 {
                    continue;
                }
                let error = 100.0 * (both - alone).abs() / alone;
                let beside = &pair_name(&queries, left, right, place);
                experiment.add(
                    format!("{name} beside {beside}: {resource}, alone {alone:.1} ms, together"),
                    "ms",
                    vec![both],
                    None,
                );
                errors.push(error);
            }
        }
    }
    experiment.add("error", "%", errors, Some(Aim::MedianUnder(1.0)));
    experiment.add("thesis: Spark's error, least", "%", vec![17.0], None);
    run.add(experiment);
    bed.stop().await;
    Ok(())
}

fn pair_name(queries: &[&(String, String)], left: usize, right: usize, place: usize) -> String {
    queries[if place == 0 { right } else { left }].0.clone()
}
