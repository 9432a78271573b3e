//! EXPLAIN ANALYZE: what its answers look like, and what holds for the numbers in them. The numbers themselves vary.

use millrace_clarity::forecast::interval::Certainty;
use millrace_clarity::render::json::{Document, Predicted, PredictedView, Run, Watched, WatchedViews};
use millrace_clarity::{Profile, Scenario, Speed};
use millrace_postgres::error::SqlState;

use crate::tests::{Fixture, run};

const QUERY: &str = "SELECT v, count(*) AS n, sum(id) FROM t GROUP BY v ORDER BY n DESC";

pub(crate) async fn with_rows() -> Fixture {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
    f.ok("INSERT INTO t SELECT i, i % 7 FROM generate_series(1, 20000) AS g(i)")
        .await;
    f
}

async fn document(f: &Fixture, options: &str, query: &str) -> Document<Run> {
    let lines = f
        .ok(&format!("EXPLAIN ANALYZE (FORMAT JSON{options}) {query}"))
        .await;
    assert_eq!(lines.len(), 1);
    serde_json::from_str(&lines[0]).unwrap()
}

/// What holds for every run.
pub(crate) fn check(profile: &Profile) {
    let all = (profile.machine.cores as u64) * profile.end;
    let tasks = || profile.stages.iter().flat_map(|stage| &stage.tasks);
    let cpu: u64 = tasks().map(|task| task.cpu()).sum();
    assert!(cpu > 0 && cpu <= all, "{cpu} of {all} ns");
    for task in tasks() {
        assert!(task.start <= task.end && task.end <= profile.end, "{task:?}");
        assert!(task.suspended <= task.end - task.start, "{task:?}");
    }
    for stage in &profile.stages {
        for upstream in &stage.depends_on {
            let position = |id| profile.stages.iter().position(|stage| stage.id == id);
            assert!(position(*upstream) < position(stage.id));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_text_reads_well() {
    let f = with_rows().await;
    let lines = f.ok(&format!("EXPLAIN ANALYZE {QUERY}")).await;
    assert!(lines[0].starts_with("Stage "), "{lines:?}");
    for line in &lines {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for wanted in [
        "operator",
        "resource",
        "tasks",
        "Run: ",
        "what if",
        "cores = 4",
        "profile 1: ",
    ] {
        assert!(
            lines.iter().any(|line| line.trim_start().starts_with(wanted)),
            "{wanted}: {lines:#?}"
        );
    }
    let verdict = lines.last().unwrap();
    assert!(verdict.contains(" of "), "{verdict}");
    let verbose = f.ok(&format!("EXPLAIN ANALYZE VERBOSE {QUERY}")).await;
    assert!(verbose.iter().any(|line| line.contains("metrics=[")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_json_has_what_the_schedulers_saw() {
    let f = with_rows().await;
    let asked = ", WHAT IF (cores = 8, disk = 'infinite', input = memory)";
    let Document {
        version,
        content: Run {
            id,
            profile,
            analysis,
        },
    } = document(&f, asked, QUERY).await;
    assert_eq!((version, id), (1, Some(1)));
    check(&profile);
    assert_eq!(profile.machine.cores, 2);
    for rows in [20_000, 7] {
        let mut operators = profile.stages.iter().flat_map(|stage| &stage.operators);
        assert!(operators.any(|operator| operator.rows == Some(rows)), "{rows}");
    }
    assert_eq!(analysis.elapsed, profile.planning + profile.end);
    assert!(analysis.modelled.total <= profile.end as f64);
    assert_eq!(
        analysis.what_ifs[0].scenario,
        Scenario {
            cores: Some(8),
            disk: Speed::Infinite,
            input_in_memory: true,
            ..Scenario::default()
        }
    );
    assert!(analysis.what_ifs.iter().all(|line| line.elapsed > 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_are_kept() {
    let f = with_rows().await;
    f.ok(&format!("EXPLAIN ANALYZE {QUERY}")).await;
    f.ok("EXPLAIN ANALYZE SELECT 1").await;
    let kept = f.db.profiles().all();
    assert_eq!(kept.len(), 2);
    assert!(kept[0].query.starts_with("SELECT v, count(*)"));
    check(&kept[0].profile);
    assert!(f.db.profiles().get(1).is_some());
}

/// Each query that takes some time is forecast, and the next interval is as wide as those before were off.
#[tokio::test(flavor = "multi_thread")]
async fn forecasts_are_kept_beside_outcomes() {
    let f = with_rows().await;
    let long = "SELECT count(*) FROM generate_series(1, 20000) AS a(x), generate_series(1, 3000) AS b(y) WHERE x % 7 > y % 5";
    f.ok("SELECT 1").await;
    let forecasts = "SELECT kind, subject, took_ms >= 20, expected_ms >= 0, (took_ms BETWEEN low_ms AND high_ms) = inside, \
                     certainty IN ('low', 'medium', 'high') FROM mr_catalog.forecasts";
    assert_eq!(f.ok(forecasts).await, Vec::<String>::new());
    for _ in 0..9 {
        f.ok(long).await;
    }
    assert_eq!(f.ok(forecasts).await, vec![format!("query|{long}|t|t|t|t"); 9]);
    let ratios =
        f.db.forecasts()
            .all()
            .into_iter()
            .map(|kept| kept.outcome.ratio());
    let (least, most) = ratios.fold((f64::MAX, 0_f64), |(least, most), ratio| {
        (least.min(ratio), most.max(ratio))
    });
    let said = f.ok(&format!("EXPLAIN (PREDICT, FORMAT JSON) {long}")).await;
    let said: serde_json::Value = serde_json::from_str(&said[0]).unwrap();
    let time = |name: &str| said["forecast"][name].as_f64().unwrap();
    assert!(time("low") <= time("expected") * least * 1.01, "{said} {least}");
    assert!(time("high") >= time("expected") * most * 0.99, "{said} {most}");
    let without_parentheses = f.ok(&format!("EXPLAIN PREDICT {long}")).await;
    assert_eq!(
        without_parentheses.len(),
        f.ok(&format!("EXPLAIN (PREDICT) {long}")).await.len()
    );
    // What is not read to its end is no outcome.
    let mut query = f.session.run(long).await.unwrap();
    drop(query.next().await);
    drop(query);
    assert_eq!(f.db.forecasts().all().len(), 9);
    f.stop().await;
}

/// What another machine would do is asked of the model, and nothing is run again.
#[tokio::test(flavor = "multi_thread")]
async fn a_kept_profile_answers_other_questions() {
    let f = with_rows().await;
    let first = document(&f, "", QUERY).await.content;
    let sql = "EXPLAIN ANALYZE (FORMAT JSON, WHAT IF (cores = 64, input = 'memory')) PROFILE 1";
    let again: Document<Run> = serde_json::from_str(&f.ok(sql).await[0]).unwrap();
    let again = again.content;
    assert_eq!((again.id, &again.profile), (Some(1), &first.profile));
    assert_eq!(again.analysis.what_ifs[0].scenario.cores, Some(64));
    assert!(again.analysis.what_ifs[0].elapsed <= again.analysis.elapsed);
    assert_eq!(f.db.profiles().all().len(), 1);
    let lines = f.ok("EXPLAIN ANALYZE PROFILE 1").await;
    assert_eq!(lines.last(), Some(&again.analysis.verdict));
    let kept = f
        .ok("SELECT id, query, stages, verdict FROM mr_catalog.profiles")
        .await;
    let stages = first.profile.stages.len();
    assert_eq!(kept, [format!("1|{QUERY}|{stages}|{}", first.analysis.verdict)]);
    let error = f.error("EXPLAIN ANALYZE PROFILE 2").await;
    assert_eq!(error.code, SqlState::UndefinedObject);
    assert!(error.hint.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_do_not_fit_are_refused() {
    let f = with_rows().await;
    for (sql, message) in [
        (
            "EXPLAIN (WHAT IF (cores = 2)) SELECT 1",
            "EXPLAIN option WHAT IF requires ANALYZE",
        ),
        (
            "EXPLAIN ANALYZE (DURATION '1s') SELECT 1",
            "EXPLAIN option DURATION requires a materialized view",
        ),
        (
            "EXPLAIN ANALYZE (DURATION '1s') PROFILE 1",
            "EXPLAIN option DURATION requires a materialized view",
        ),
        (
            "EXPLAIN MATERIALIZED VIEWS",
            "EXPLAIN MATERIALIZED VIEWS and EXPLAIN PROFILE require ANALYZE",
        ),
        (
            "EXPLAIN (PREDICT) PROFILE 1",
            "EXPLAIN MATERIALIZED VIEWS and EXPLAIN PROFILE require ANALYZE",
        ),
    ] {
        let error = f.error(sql).await;
        assert_eq!(
            (error.code, error.message.as_str()),
            (SqlState::InvalidParameterValue, message)
        );
        assert!(error.hint.is_some());
    }
    let error = f.error("EXPLAIN ANALYZE (FORMAT DOT) SELECT 1").await;
    assert_eq!(error.code, SqlState::FeatureNotSupported);
    let error = f.error("EXPLAIN ANALYZE SELECT 1 / (id - 1) FROM t").await;
    assert_eq!(error.code, SqlState::DivisionByZero);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_predicted_from_others() {
    let f = with_rows().await;
    let predict = format!("EXPLAIN (PREDICT) {QUERY}");
    // Before anything has run it is a guess, and says so.
    let lines = f.ok(&predict).await;
    let guess = lines.last().unwrap();
    assert!(
        guess.contains("certainty low, no run has been analysed yet"),
        "{guess}"
    );
    for _ in 0..3 {
        f.ok(&format!("EXPLAIN ANALYZE {QUERY}")).await;
    }
    let lines = f.ok(&predict).await;
    assert!(lines.last().unwrap().starts_with("expected: "), "{lines:#?}");
    let sql = format!("EXPLAIN (PREDICT, FORMAT JSON) {QUERY}");
    let Document {
        version,
        content: Predicted { forecast },
    } = serde_json::from_str(&f.ok(&sql).await[0]).unwrap();
    assert_eq!((version, forecast.runs), (1, 3));
    let time = forecast.time;
    assert!(time.low <= time.expected && time.expected <= time.high);
    assert!(time.low > 0);
    let scan = forecast.operators.last().unwrap();
    assert_eq!(scan.rows_in, 20_000.0);
    // Everything in it was seen thrice, but groups are estimated.
    assert_eq!(forecast.certainty, Certainty::Medium);
    let lines = f.ok(&format!("EXPLAIN ANALYZE {QUERY}")).await;
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("before it ran, expected: ")),
        "{lines:#?}"
    );
    let error = f.error("EXPLAIN ANALYZE (PREDICT) SELECT 1").await;
    assert_eq!(error.code, SqlState::InvalidParameterValue);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_predicted_from_others() {
    let f = with_rows().await;
    let view = "SELECT v, sum(id) AS s FROM t GROUP BY v";
    let predict = format!("EXPLAIN (PREDICT, DURATION '10ms') CREATE MATERIALIZED VIEW later AS {view}");
    let error = f.error(&predict).await;
    assert_eq!(error.code, SqlState::ObjectNotInPrerequisiteState);
    assert!(error.hint.is_some());
    f.ok(&format!("CREATE MATERIALIZED VIEW first AS {view}")).await;
    let lines = f.ok(&predict).await;
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{lines:#?}");
    assert!(
        lines[lines.len() - 2].starts_with("back-fill, expected: "),
        "{lines:#?}"
    );
    assert!(lines[lines.len() - 1].starts_with("no rows are arriving; its limit: "));
    let sql = predict.replace("PREDICT", "PREDICT, FORMAT JSON");
    let Document {
        version,
        content: PredictedView { view_forecast: found },
    } = serde_json::from_str(&f.ok(&sql).await[0]).unwrap();
    assert_eq!((version, found.views, found.certainty), (1, 1, Certainty::Medium));
    assert_eq!(found.inputs[0].rows, 20_000);
    assert_eq!(found.stages[0].rows_in, 20_000.0);
    let time = found.time;
    assert!(time.low > 0 && time.low < time.expected && time.expected < time.high);
    // The one that is there already, as if it were made again.
    let lines = f
        .ok("EXPLAIN (PREDICT, DURATION '10ms') MATERIALIZED VIEW first")
        .await;
    assert!(lines[lines.len() - 2].starts_with("back-fill, expected: "));
}

/// Watches a view, or all of them, while rows come, whose numbers begin with `next`.
async fn watched(f: &Fixture, mut next: u64, options: &str, what: &str) -> Vec<String> {
    let watcher = f.other_session();
    let sql = format!("EXPLAIN ANALYZE (DURATION '300ms'{options}) MATERIALIZED {what}");
    let watching = tokio::spawn(async move { run(&watcher, &sql).await.unwrap() });
    while !watching.is_finished() {
        f.ok(&format!("INSERT INTO t VALUES ({next}, {})", next % 7))
            .await;
        next += 1;
    }
    watching.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_view_is_watched() {
    let f = with_rows().await;
    f.ok("CREATE MATERIALIZED VIEW by_v AS SELECT v, count(*) AS n FROM t GROUP BY v")
        .await;
    let lines = watched(&f, 30_000, ", WHAT IF (cores = 8)", "VIEW by_v").await;
    assert!(lines[0].starts_with("Materialized view by_v, watched for "));
    for wanted in [
        "stage",
        "1: Aggregate",
        "cpu: ",
        "groups: ",
        "freshness",
        "head-room: ",
        "what if cores = 8: ",
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(wanted)),
            "{wanted}: {lines:#?}"
        );
    }
    assert!(lines.last().unwrap().contains("rows/s"), "{lines:#?}");

    let lines = watched(&f, 60_000, ", FORMAT JSON", "VIEW by_v").await;
    let Document {
        version,
        content: Watched { id, view, analysis },
    } = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(version, 1);
    assert!(id.is_some() && view.watched >= 300_000_000);
    assert!(view.epochs as usize >= view.samples.len() && !view.samples.is_empty());
    // An epoch's tasks take a core each; counting ends a little later than it began.
    assert!(
        analysis.view_cpu > 0.0 && analysis.view_cpu <= 1.1,
        "{analysis:?}"
    );
    assert!(analysis.view_cpu <= analysis.pipeline_cpu + 0.1, "{analysis:?}");
    let rows: u64 = view.samples.iter().map(|sample| sample.rows).sum();
    let first = &analysis.stages[0].sums;
    assert!(first.rows_in > 0 && rows > 0 && first.tasks > 0);
    assert!(analysis.head_room.unwrap().rows_per_second > 0.0);
    let freshness = analysis.freshness.unwrap();
    assert!(freshness.p50 <= freshness.p99);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_was_not_measured_is_refused() {
    let f = with_rows().await;
    let run = document(&f, "", QUERY).await.content;
    let memory = run.profile.machine.memory.unwrap();
    assert!(memory.held > 0);
    assert_eq!(memory.spilled, 0);
    // It fitted: more would not change it.
    let enough = document(
        &f,
        &format!(", WHAT IF (memory = '{}B')", 100 * memory.held),
        QUERY,
    )
    .await;
    let Run {
        profile, analysis, ..
    } = enough.content;
    assert_eq!(analysis.what_ifs[0].scenario.memory, Some(100 * memory.held));
    assert_eq!(analysis.what_ifs[0].elapsed, profile.planning + profile.end);
    let lines = f.ok("EXPLAIN ANALYZE PROFILE 1").await;
    let said = "nothing was spilled: more would not change it";
    assert!(lines.iter().any(|line| line.contains(said)), "{lines:#?}");
    for (what, message) in [
        (
            "memory = '1B'",
            "what it would do with less memory was not measured",
        ),
        (
            "memory = 'much'",
            "invalid value for \"memory\" in WHAT IF: \"much\"",
        ),
    ] {
        let error = f
            .error(&format!("EXPLAIN ANALYZE (WHAT IF ({what})) PROFILE 1"))
            .await;
        assert_eq!(error.code, SqlState::InvalidParameterValue);
        assert!(
            error.message.contains(message) && error.hint.is_some(),
            "{error:?}"
        );
    }
    let error = f
        .error("EXPLAIN ANALYZE (DURATION '1ms', WHAT IF (memory = '1GB')) MATERIALIZED VIEWS")
        .await;
    assert_eq!(error.code, SqlState::InvalidParameterValue);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_watched_for_a_while_that_makes_sense() {
    let f = with_rows().await;
    f.ok("CREATE MATERIALIZED VIEW by_v AS SELECT v, count(*) AS n FROM t GROUP BY v")
        .await;
    for duration in ["soon", "0s", "2h", "10"] {
        let error = f
            .error(&format!(
                "EXPLAIN ANALYZE (DURATION '{duration}') MATERIALIZED VIEW by_v"
            ))
            .await;
        assert_eq!(error.code, SqlState::InvalidParameterValue, "{duration}");
    }
    let lines = f
        .ok("EXPLAIN ANALYZE (DURATION '1ms') MATERIALIZED VIEW by_v")
        .await;
    assert_eq!(
        lines.last().unwrap(),
        "no rows arrived while the view was watched"
    );
    f.ok("SET statement_timeout = '20ms'").await;
    let error = f.error("EXPLAIN ANALYZE MATERIALIZED VIEW by_v").await;
    assert_eq!(error.code, SqlState::QueryCanceled);
    let error = f.error("EXPLAIN ANALYZE MATERIALIZED VIEW t").await;
    assert_eq!(error.code, SqlState::WrongObjectType);
}

#[tokio::test(flavor = "multi_thread")]
async fn how_a_cycle_is_joined_is_chosen_and_said() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE edge (a INT, b INT)").await;
    f.ok("CREATE TABLE node (id INT PRIMARY KEY, next INT)").await;
    f.ok("INSERT INTO edge SELECT i % 30, (i * 7) % 31 FROM generate_series(1, 900) AS g(i)")
        .await;
    let triangles =
        "SELECT count(*) FROM edge x JOIN edge y ON x.b = y.a JOIN edge z ON y.b = z.a AND z.b = x.a";
    let explained = async |sql: &str| f.ok(&format!("EXPLAIN (TYPE PHYSICAL) {sql}")).await.join("\n");
    let generic = explained(triangles).await;
    let why =
        "because the cycle has at most 2.7e4 results, and binary joins make up to 8.1e5 intermediate rows";
    assert!(
        generic.contains("GenericJoinExec: (a, b) (b, b#2) (b#2, a)") && generic.contains(why),
        "{generic}"
    );
    let answer = f.ok(triangles).await;
    f.ok("SET cyclic_joins = binary").await;
    let binary = explained(triangles).await;
    assert!(!binary.contains("GenericJoin"), "{binary}");
    assert_eq!(f.ok(triangles).await, answer);
    // What is found by its key is not multiplied.
    f.ok("SET cyclic_joins = auto").await;
    let keyed =
        "SELECT count(*) FROM edge x JOIN node y ON x.b = y.id JOIN edge z ON y.next = z.a AND z.b = x.a";
    let plan = explained(keyed).await;
    assert!(
        plan.contains("cycle with binary joins: a relation of the cycle is found by its key"),
        "{plan}"
    );
    f.ok("SET cyclic_joins = generic").await;
    assert!(explained(keyed).await.contains("because cyclic_joins is generic"));
    let error = run(&f.session, "SET cyclic_joins = leapfrog").await.unwrap_err();
    assert_eq!(error.code, SqlState::InvalidParameterValue);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_came_in_one_write_are_read_by_several_tasks() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE large (id INT PRIMARY KEY, v INT)").await;
    f.ok("INSERT INTO large VALUES (-1, 0), (-2, 0)").await;
    f.ok("INSERT INTO large SELECT i, i % 7 FROM generate_series(0, 299999) AS g(i)")
        .await;
    f.ok("DELETE FROM large WHERE id % 3 = 0").await;
    f.ok("INSERT INTO large VALUES (300001, 5)").await;
    let query = "SELECT count(*), count(DISTINCT id), sum(v), min(id), max(id) FROM large";
    let left = || (0..300_000).filter(|id| id % 3 != 0);
    let sum: i64 = left().map(|id| id % 7).sum::<i64>() + 5;
    let count = left().count() + 3;
    assert_eq!(f.ok(query).await, [format!("{count}|{count}|{sum}|-2|300001")]);
    let document = document(&f, "", query).await;
    let scan = &document.content.profile.stages[0];
    assert!(scan.name.contains("SnapshotScan"), "{}", scan.name);
    let busy = scan.tasks.iter().filter(|task| task.cpu() > 100_000).count();
    // How many depends on how busy the machine is.
    assert!(busy >= 2, "{busy} of {} tasks have rows", scan.tasks.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn all_views_are_watched_at_once() {
    let f = with_rows().await;
    f.ok("CREATE MATERIALIZED VIEW by_v AS SELECT v, count(*) AS n FROM t GROUP BY v")
        .await;
    f.ok("CREATE TABLE other (a INT)").await;
    f.ok("CREATE MATERIALIZED VIEW idle AS SELECT a FROM other WHERE a > 1")
        .await;
    let lines = watched(&f, 30_000, "", "VIEWS").await;
    assert!(
        lines[0].starts_with("2 materialized views, watched for "),
        "{lines:#?}"
    );
    for wanted in [
        "view",
        "by_v",
        "idle",
        "by_v: it keeps up with ",
        "idle: no rows arrived",
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(wanted)),
            "{wanted}: {lines:#?}"
        );
    }
    let lines = watched(&f, 60_000, ", FORMAT JSON, WHAT IF (cores = 8)", "VIEWS").await;
    let document: Document<WatchedViews> = serde_json::from_str(&lines[0]).unwrap();
    let views = document.content.views;
    let names: Vec<&str> = views.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(names, ["by_v", "idle"]);
    let busy = views[0].analysis.as_ref().unwrap();
    assert!(busy.rows_per_second > 0.0 && busy.freshness.is_some());
    assert!(busy.head_room.is_some() && busy.what_if.is_some());
    assert!(views[1].analysis.as_ref().unwrap().head_room.is_none());
}
