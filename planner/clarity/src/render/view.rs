//! A running view as text.

use super::json::WatchedView;
use super::table::{Table, cut};
use super::text::{WIDTH_MAX, modelled, stolen, usage_table, what_if_table};
use crate::epochs::{EpochsAnalysis, Trace};
use crate::profile::{MemoryUse, Nanoseconds};
use crate::units::{bytes, count, duration, percent};
use crate::view::{Freshness, HeadRoom, ViewAnalysis, ViewProfile};

/// What of a view's state is on disk, if any is.
fn on_disk(on_disk_bytes: u64) -> String {
    match on_disk_bytes {
        0 => String::new(),
        on_disk => format!(" in memory, and {} on disk (spilled)", bytes(on_disk as f64)),
    }
}

/// Rows on their way, which wait where a view is behind.
fn in_flight(in_flight_bytes: u64) -> String {
    match in_flight_bytes {
        0 => String::new(),
        in_flight => format!("; rows on their way: {}", bytes(in_flight as f64)),
    }
}

/// The lines of EXPLAIN ANALYZE MATERIALIZED VIEW; the last one is the verdict.
pub fn view_text(profile: &ViewProfile, analysis: &ViewAnalysis) -> Vec<String> {
    let mut lines = vec![
        cut(
            &format!(
                "Materialized view {}, watched for {}",
                profile.view,
                duration(profile.watched as f64)
            ),
            WIDTH_MAX,
        ),
        format!(
            "  {} rows/s arrived in {:.1} epochs/s; the view has {} rows, {} with its state{}{}",
            count(analysis.rows_per_second.round() as u64),
            analysis.epochs_per_second,
            count(profile.rows),
            bytes(profile.state_bytes as f64),
            on_disk(profile.on_disk_bytes),
            in_flight(profile.in_flight_bytes)
        ),
        String::new(),
    ];
    lines.extend(stages(profile, analysis));
    lines.push(String::new());
    lines.push(format!(
        "cpu: {} of {} cores by this view, {} with the others of its pipeline; reading its input: {}",
        percent(analysis.view_cpu),
        profile.cores,
        percent(analysis.pipeline_cpu),
        percent(analysis.outside_cpu)
    ));
    lines.extend(stolen(profile.stolen as f64 / profile.watched.max(1) as f64));
    if let Some(log) = &profile.log {
        let each = |time: u64| duration(time as f64 / log.groups.max(1) as f64);
        let line = format!(
            "log on disk {}: {} of the time in {} groups of writes, {}; {} each, queued {}",
            log.disk,
            percent(log.service as f64 / profile.watched.max(1) as f64),
            count(log.groups),
            bytes(log.bytes as f64),
            each(log.service),
            each(log.queue)
        );
        lines.push(cut(&line, WIDTH_MAX));
    }
    let coordination = &profile.coordination;
    lines.push(format!(
        "groups: {} {}; coordination {}: driver {}, waiting for the driver {}, epochs {}",
        profile.group_size,
        if profile.group_size == 1 {
            "epoch"
        } else {
            "epochs"
        },
        percent(analysis.coordination_share),
        duration(coordination.scheduling as f64),
        duration(coordination.waited as f64),
        duration(coordination.execution as f64)
    ));
    if let Some(freshness) = &analysis.freshness {
        lines.push(format!(
            "freshness, from the arrival of input to the commit of its epoch: p50 {}, p99 {}",
            duration(freshness.p50 as f64),
            duration(freshness.p99 as f64)
        ));
    }
    if let (Some(target), Some(met)) = (profile.freshness_target, analysis.freshness_met) {
        lines.push(format!(
            "freshness target: {}, kept by {} of {} epochs with rows",
            duration(target as f64),
            percent(met),
            profile.samples.len()
        ));
    }
    if let (Some(trace), Some(epochs)) = (&profile.trace, &analysis.epochs) {
        lines.extend(epoch_lines(trace, epochs));
    }
    if let Some(head_room) = &analysis.head_room {
        lines.push(format!("head-room: {}", sustains(head_room)));
    }
    if let Some((scenario, head_room)) = &analysis.what_if {
        lines.push(format!("what if {scenario}: {}", sustains(head_room)));
    }
    lines.push(String::new());
    lines.push(analysis.verdict.clone());
    lines
}

/// The lines of EXPLAIN ANALYZE MATERIALIZED VIEWS: a row each, then their verdicts.
pub fn views_text(views: &[WatchedView], watched: Nanoseconds) -> Vec<String> {
    let mut table = Table::new(&[
        "view",
        "rows/s",
        "epochs/s",
        "p50",
        "p99",
        "cpu",
        "busiest partition",
    ]);
    for view in views {
        let Some(analysis) = &view.analysis else {
            let none = std::iter::repeat_n("-".to_owned(), 6);
            table.row(std::iter::once(view.name.clone()).chain(none).collect());
            continue;
        };
        let fresh = |of: fn(&Freshness) -> Nanoseconds| {
            let freshness = analysis.freshness.as_ref();
            freshness.map_or("-".to_owned(), |freshness| duration(of(freshness) as f64))
        };
        let busiest = analysis.stages.iter().map(|stage| stage.busiest_share);
        table.row(vec![
            view.name.clone(),
            count(analysis.rows_per_second.round() as u64),
            format!("{:.1}", analysis.epochs_per_second),
            fresh(|freshness| freshness.p50),
            fresh(|freshness| freshness.p99),
            percent(analysis.view_cpu),
            percent(busiest.fold(0.0, f64::max)),
        ]);
    }
    let watched = duration(watched as f64);
    let mut lines = vec![
        format!("{} materialized views, watched for {watched}", views.len()),
        String::new(),
    ];
    lines.extend(table.lines(0, WIDTH_MAX));
    lines.push(String::new());
    lines.extend(views.iter().map(|view| {
        let analysis = view.analysis.as_ref();
        let verdict = analysis.map(|analysis| analysis.verdict.as_str());
        let why = view.failure.as_deref().unwrap_or("it does not run");
        format!("{}: {}", view.name, verdict.unwrap_or(why))
    }));
    lines
}

fn stages(profile: &ViewProfile, analysis: &ViewAnalysis) -> Vec<String> {
    let mut table = Table::new(&[
        "stage",
        "tasks",
        "rows in",
        "rows out",
        "busy",
        "queue",
        "cpu",
        "busiest partition",
    ]);
    // The last stage first, as a plan is read.
    for (stage, analysed) in profile.stages.iter().zip(&analysis.stages).rev() {
        table.row(vec![
            format!("{}: {}", stage.id, stage.name),
            count(analysed.sums.tasks),
            count(analysed.sums.rows_in),
            count(analysed.sums.rows_out),
            duration(analysed.sums.busy as f64),
            duration(analysed.sums.queue as f64),
            percent(analysed.cpu),
            format!("{} at {}", analysed.busiest, percent(analysed.busiest_share)),
        ]);
    }
    table.lines(0, WIDTH_MAX)
}

/// What its epochs did with each resource, and what the model says of one.
fn epoch_lines(trace: &Trace, analysis: &EpochsAnalysis) -> Vec<String> {
    let run = &trace.run;
    let mut lines = vec![String::new()];
    lines.extend(state(run.machine.memory));
    lines.extend(usage_table(run, &analysis.resources).lines(0, WIDTH_MAX));
    if analysis.epochs == 0 {
        lines.push(String::new());
        return lines;
    }
    lines.push(format!(
        "an epoch with rows, from its cut to its end (mean of {}): {}",
        count(analysis.epochs),
        duration(analysis.elapsed as f64)
    ));
    lines.push(format!("  {}", modelled(&analysis.modelled, analysis.elapsed)));
    lines.push(String::new());
    let measured = (analysis.modelled.total, analysis.elapsed);
    let title = "what if, an epoch";
    lines.extend(what_if_table(
        title,
        run.machine.cores,
        measured,
        &analysis.what_ifs,
    ));
    lines.push(String::new());
    lines
}

/// What its state and that of the other views of its pipeline takes; what a query would hold is not all that a view holds.
fn state(used: Option<MemoryUse>) -> Option<String> {
    let used = used.filter(|used| used.needed() > 0)?;
    let held = bytes(used.held as f64);
    Some(match used.spilled {
        0 => format!("memory: {held} of state, nothing was spilled: more would not change it"),
        spilled => format!(
            "memory: {held} of state, {} spilled: with {} nothing would be",
            bytes(spilled as f64),
            bytes(used.needed() as f64)
        ),
    })
}

fn sustains(head_room: &HeadRoom) -> String {
    let bound = if head_room.is_fitted { "up to" } else { "at least" };
    format!(
        "{bound} {} rows/s; the limit is then {}",
        count(head_room.rows_per_second.round() as u64),
        head_room.limit.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::json::{Document, Watched};
    use crate::scenario::Scenario;
    use crate::view::{analyse_view, tests::watched};

    #[test]
    fn a_view_that_has_room() {
        let profile = watched(|epoch| 1_000 + 200 * (epoch % 10));
        let asked = Scenario {
            cores: Some(8),
            ..Scenario::default()
        };
        let lines = view_text(&profile, &analyse_view(&profile, Some(asked)));
        for line in &lines {
            assert!(line.chars().count() <= WIDTH_MAX, "{line}");
        }
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn views_side_by_side() {
        let profile = watched(|epoch| 1_000 + 200 * (epoch % 10));
        let mut idle = watched(|_| 0);
        idle.samples.clear();
        let view = |name: &str, analysis, failure: Option<&str>| WatchedView {
            relation: 1,
            name: name.to_owned(),
            failure: failure.map(str::to_owned),
            analysis,
        };
        let views = [
            view("by_carrier", Some(analyse_view(&profile, None)), None),
            view("idle", Some(analyse_view(&idle, None)), None),
            view("broken", None, Some("division by zero")),
        ];
        let lines = views_text(&views, 10_000_000_000);
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn the_json_reads_back() {
        let mut profile = watched(|_| 2_000);
        profile.samples.truncate(2);
        let document = Document::new(Watched {
            id: None,
            view: profile.clone(),
            analysis: analyse_view(&profile, None),
        });
        let json = serde_json::to_string_pretty(&document).unwrap();
        insta::assert_snapshot!(json);
        assert_eq!(
            serde_json::from_str::<Document<Watched>>(&json).unwrap(),
            document
        );
    }
}
