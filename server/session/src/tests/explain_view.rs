//! EXPLAIN ANALYZE of a running view: the monotasks of its epochs come to what was counted, and the model speaks of them.

use std::time::Duration;

use millrace_clarity::profile::Kind;
use millrace_clarity::render::json::{Document, Watched};
use millrace_postgres::error::SqlState;

use crate::tests::explain::{check, with_rows};
use crate::tests::{Fixture, run};

/// What a watch says, in which some rows came with quiet before and after them.
async fn watched_between_quiet(f: &Fixture) -> Watched {
    let mut next = 100_000;
    loop {
        let watcher = f.other_session();
        let sql = "EXPLAIN ANALYZE (DURATION '1s', FORMAT JSON) MATERIALIZED VIEW by_v";
        let watching = tokio::spawn(async move { run(&watcher, sql).await.unwrap() });
        tokio::time::sleep(Duration::from_millis(200)).await;
        for _ in 0..30 {
            let rows = format!(
                "INSERT INTO t SELECT i, i % 7 FROM generate_series({next}, {}) AS g(i)",
                next + 49
            );
            f.ok(&rows).await;
            next += 50;
        }
        f.ok("FLUSH").await;
        let was_in_time = !watching.is_finished();
        let lines = watching.await.unwrap();
        if was_in_time {
            let document: Document<Watched> = serde_json::from_str(&lines[0]).unwrap();
            return document.content;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_monotasks_of_epochs_come_to_what_was_counted() {
    let f = with_rows().await;
    f.ok("CREATE MATERIALIZED VIEW by_v AS SELECT v, count(*) AS n FROM t GROUP BY v")
        .await;
    f.ok("CREATE MATERIALIZED VIEW large AS SELECT * FROM by_v WHERE n > 3")
        .await;
    let Watched { id, view, analysis } = watched_between_quiet(&f).await;
    let trace = view.trace.as_ref().unwrap();
    let epochs = analysis.epochs.as_ref().unwrap();
    check(&trace.run);
    // Each task that was counted was seen, of this view and of the other one.
    let stages = &trace.run.stages;
    for (stage, counted) in stages.iter().zip(&analysis.stages) {
        assert_eq!(stage.tasks.len() as u64, counted.sums.tasks, "{stage:?}");
        assert_eq!(
            stage.tasks.iter().map(|task| task.rows).sum::<u64>(),
            counted.sums.rows_out
        );
        assert_eq!(stage.name, view.stages[stage.id].name);
        // Cores, without what tells the schedulers; the rest of the time that tasks ran is waiting and what others had of the core.
        let cpu: u64 = stage.tasks.iter().map(|task| task.cpu()).sum();
        assert!(
            cpu > 0 && cpu <= counted.sums.busy,
            "{cpu} of {} ns",
            counted.sums.busy
        );
    }
    let others = &stages[analysis.stages.len()..stages.len() - 1];
    assert!(
        others
            .iter()
            .all(|stage| stage.name.starts_with("large, its stage "))
    );
    assert!(others.iter().any(|stage| !stage.tasks.is_empty()));
    // Sums by resource are those of the bars that are drawn.
    for (stage, sums) in stages.iter().zip(&epochs.stages) {
        for usage in sums {
            let listed = stage.tasks.iter().flat_map(|task| &task.monotasks);
            let listed = listed.filter(|monotask| monotask.resource == usage.resource);
            let (count, service) = listed.fold((0, 0), |(count, service), monotask| {
                (count + 1, service + monotask.service)
            });
            assert_eq!((count, service), (usage.monotasks, usage.service), "{usage:?}");
        }
    }
    for sum in &epochs.resources {
        let of_stages = epochs.stages.iter().flatten();
        let same = of_stages.filter(|usage| usage.resource == sum.resource);
        assert_eq!(same.map(|usage| usage.service).sum::<u64>(), sum.service);
    }
    // The log is what the line on the log says.
    let (log, counted) = (epochs.stages.last().unwrap(), view.log.as_ref().unwrap());
    assert_eq!(log.len(), 1);
    assert_eq!(
        (log[0].monotasks, log[0].bytes, log[0].service, log[0].queue),
        (counted.groups, counted.bytes, counted.service, counted.queue)
    );
    // Every epoch with rows was seen whole, and the model speaks of all of them.
    assert_eq!(epochs.epochs as usize, view.samples.len());
    assert!(epochs.modelled.total > 0.0 && epochs.modelled.total <= epochs.elapsed as f64);
    let one_core = epochs.what_ifs.iter().find(|line| line.scenario.cores == Some(1));
    assert!(one_core.is_none_or(|line| line.elapsed >= epochs.elapsed));
    // It answers other questions later, and is not watched again.
    let id = id.unwrap();
    let sql = format!("EXPLAIN ANALYZE (FORMAT JSON, WHAT IF (cores = 64, disk = 'x2')) PROFILE {id}");
    let again: Document<Watched> = serde_json::from_str(&f.ok(&sql).await[0]).unwrap();
    let again = again.content;
    assert_eq!(again.view, view);
    assert_eq!(again.analysis.what_if.unwrap().0.cores, Some(64));
    let asked = &again.analysis.epochs.unwrap().what_ifs[0];
    assert!(asked.elapsed <= epochs.elapsed);
    let lines = f.ok(&format!("EXPLAIN ANALYZE PROFILE {id}")).await;
    for wanted in [
        "resource",
        "an epoch with rows, from its cut",
        "what if, an epoch",
        "memory: ",
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(wanted)),
            "{wanted}: {lines:#?}"
        );
    }
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{lines:#?}");
}

/// State that comes and goes is disk monotasks of its epochs, and enough memory removes them.
#[tokio::test(flavor = "multi_thread")]
async fn spilled_state_is_in_the_trace() {
    let f = Fixture::open_with(tempfile::tempdir().unwrap(), |options| {
        options.spill_by_chance = true
    })
    .await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
    f.ok("CREATE MATERIALIZED VIEW by_v AS SELECT v, count(*) AS n FROM t GROUP BY v")
        .await;
    let Watched { id, view, analysis } = watched_between_quiet(&f).await;
    let run = &view.trace.as_ref().unwrap().run;
    let memory = run.machine.memory.unwrap();
    let epochs = analysis.epochs.as_ref().unwrap();
    let usages = epochs.stages.iter().flatten();
    let spilled = usages.filter(|usage| usage.kind.is_some_and(Kind::is_spilling));
    assert!(spilled.map(|usage| usage.bytes).sum::<u64>() > 0);
    let id = id.unwrap();
    let ask =
        |bytes: u64| format!("EXPLAIN ANALYZE (FORMAT JSON, WHAT IF (memory = '{bytes}B')) PROFILE {id}");
    let enough: Document<Watched> = serde_json::from_str(&f.ok(&ask(memory.needed())).await[0]).unwrap();
    let enough = enough.content.analysis.epochs.unwrap();
    assert!(enough.what_ifs[0].modelled < epochs.modelled.total, "{enough:?}");
    assert!(enough.what_ifs[0].elapsed < epochs.elapsed);
    let error = f.error(&ask(memory.needed() - 1)).await;
    assert_eq!(error.code, SqlState::InvalidParameterValue);
    assert!(error.hint.is_some());
}
