//! A run as text that reads well in psql: no line is longer than 100 characters.

use super::table::{Table, cut};
use crate::analysis::{Analysis, StageAnalysis, UsageAnalysis};
use crate::model::{Limit, Model};
use crate::profile::{
    Kind, MemoryUse, Nanoseconds, Parallelism, Profile, Resource, StageProfile, TaskProfile,
};
use crate::units::{bytes, count, duration, percent};
use crate::what_if::Prediction;

/// Characters of a line.
pub const WIDTH_MAX: usize = 100;
/// Stragglers told of a stage; the worst come first.
const STRAGGLERS_MAX: usize = 3;
/// What the machine's host took is said from this share of the time on.
const STOLEN_SHARE_MIN: f64 = 0.02;

/// The lines of EXPLAIN ANALYZE; the last one is the verdict.
pub fn text(profile: &Profile, analysis: &Analysis) -> Vec<String> {
    let mut lines = vec![];
    // The last stage first, as a plan is read.
    for (stage, analysed) in profile.stages.iter().zip(&analysis.stages).rev() {
        lines.extend(stage_lines(profile, stage, analysed));
        lines.push(String::new());
    }
    lines.extend(run_lines(profile, analysis));
    lines.push(String::new());
    lines.extend(what_if_lines(profile, analysis));
    lines.push(String::new());
    lines.push(analysis.verdict.clone());
    lines
}

fn stage_lines(profile: &Profile, stage: &StageProfile, analysed: &StageAnalysis) -> Vec<String> {
    let tasks = stage.tasks.len();
    let mut title = format!("Stage {} ({tasks} {}", stage.id, plural("task", tasks as u64));
    if stage.parallelism == Parallelism::Fixed {
        title.push_str(" on any machine");
    }
    // There may be fewer pieces than tasks.
    let reads = |task: &&TaskProfile| {
        task.usage
            .iter()
            .any(|usage| usage.kind == Kind::Read && usage.bytes > 0)
    };
    let reading = stage.tasks.iter().filter(reads).count();
    if reading > 0 {
        let waves = reading as f64 / profile.machine.cores.max(1) as f64;
        title.push_str(&format!(", {waves:.1} waves"));
    }
    title.push(')');
    if !stage.depends_on.is_empty() {
        let upstream: Vec<String> = stage.depends_on.iter().map(ToString::to_string).collect();
        title.push_str(&format!(" <- {}", upstream.join(", ")));
    }
    title.push_str(&format!(": {}", stage.name));
    let mut lines = vec![cut(&title, WIDTH_MAX)];
    if tasks > 0 {
        lines.push(format!(
            "  from {} to {}; {}",
            duration(analysed.start as f64),
            duration(analysed.end as f64),
            limit(analysed)
        ));
    }
    if !stage.operators.is_empty() {
        lines.extend(operators(stage));
    }
    if !analysed.usage.is_empty() {
        lines.extend(usage_table(profile, &analysed.usage).lines(2, WIDTH_MAX));
    }
    lines.extend(task_lines(stage, analysed));
    lines
}

fn limit(analysed: &StageAnalysis) -> String {
    match analysed.limit {
        None => "no resource was used".to_owned(),
        Some(limit) => format!("limit: {}, {}", limit.name(), duration(analysed.ideal.of(limit))),
    }
}

fn operators(stage: &StageProfile) -> Vec<String> {
    let mut table = Table::new(&["operator", "rows", "bytes", "cpu"]);
    for operator in &stage.operators {
        table.row(vec![
            format!("{}{}", "  ".repeat(operator.depth), operator.name),
            operator.rows.map_or("-".to_owned(), count),
            or_dash(operator.bytes, |value| bytes(value as f64)),
            duration(operator.cpu as f64),
        ]);
    }
    table.lines(2, WIDTH_MAX)
}

pub(super) fn usage_table(profile: &Profile, usages: &[UsageAnalysis]) -> Table {
    let mut table = Table::new(&[
        "resource",
        "monotasks",
        "service",
        "queue",
        "rows",
        "bytes",
        "bytes/s",
        "ideal",
        "used",
    ]);
    for usage in usages {
        table.row(vec![
            usage_name(profile, usage),
            count(usage.monotasks),
            duration(usage.service as f64),
            duration(usage.queue as f64),
            or_dash(usage.rows, count),
            or_dash(usage.bytes, |value| bytes(value as f64)),
            usage.bytes_per_second.map_or("-".to_owned(), bytes),
            duration(usage.ideal),
            percent(usage.utilisation),
        ]);
    }
    table
}

fn usage_name(profile: &Profile, usage: &UsageAnalysis) -> String {
    let resource = resource_name(profile, usage.resource);
    match usage.kind {
        Some(kind) => format!("{resource}: {}", kind_name(kind)),
        None => resource,
    }
}

/// A resource, a disk with its name.
pub fn resource_name(profile: &Profile, resource: Resource) -> String {
    match resource {
        Resource::Cpu => "cpu".to_owned(),
        Resource::Network => "network".to_owned(),
        Resource::Disk(disk) => match profile.machine.disks.get(disk) {
            Some(device) => format!("disk {}", device.name),
            None => format!("disk {disk}"),
        },
    }
}

/// A kind of monotask as a word.
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "read",
        Kind::Decode => "decode",
        Kind::Compute => "compute",
        Kind::Partition => "partition",
        Kind::Encode => "encode",
        Kind::Write => "write",
        Kind::Reread => "reread",
        Kind::Fetch => "fetch",
        Kind::Log => "log",
    }
}

/// How long the tasks took, what they waited for, and those that took much longer than the rest.
fn task_lines(stage: &StageProfile, analysed: &StageAnalysis) -> Vec<String> {
    let Some(skew) = &analysed.skew else {
        return vec![];
    };
    let mut table = Table::new(&[
        "tasks",
        "median",
        "largest",
        "rows out",
        "waits:",
        "disk",
        "network",
        "input",
        "output",
        "suspended",
    ]);
    let rows: u64 = stage.tasks.iter().map(|task| task.rows).sum();
    let wait = |time: Nanoseconds| or_dash(time, |time| duration(time as f64));
    table.row(vec![
        count(stage.tasks.len() as u64),
        duration(skew.median as f64),
        duration(skew.largest as f64),
        count(rows),
        String::new(),
        wait(analysed.blocked.disk),
        wait(analysed.blocked.network),
        wait(analysed.blocked.input),
        wait(analysed.blocked.output),
        match analysed.pauses {
            0 => "-".to_owned(),
            pauses => format!("{} in {pauses}", duration(analysed.suspended as f64)),
        },
    ]);
    let mut lines = table.lines(2, WIDTH_MAX);
    for straggler in skew.stragglers.iter().take(STRAGGLERS_MAX) {
        lines.push(format!(
            "  straggler: partition {} took {:.1} times the median: {}",
            straggler.partition,
            straggler.factor,
            straggler.cause.text()
        ));
    }
    if skew.idle > 0 {
        lines.push(format!(
            "  {} of these {} had almost no work",
            skew.idle,
            plural("task", stage.tasks.len() as u64)
        ));
    }
    let untold = skew.stragglers.len().saturating_sub(STRAGGLERS_MAX);
    if untold > 0 {
        lines.push(format!("  and {untold} more"));
    }
    lines
}

fn run_lines(profile: &Profile, analysis: &Analysis) -> Vec<String> {
    let machine = &profile.machine;
    let cores = machine.cores;
    let mut parts = vec![format!("{cores} {}", plural("core", cores as u64))];
    parts.extend(machine.disks.iter().map(|device| {
        let speed = (device.bytes_per_second).map_or(String::new(), |speed| format!("{}/s, ", bytes(speed)));
        format!("disk {} ({speed}{} in flight)", device.name, device.concurrency)
    }));
    let mut lines = vec![cut(
        &format!(
            "Run: {} after {} of planning; {}",
            duration(profile.end as f64),
            duration(profile.planning as f64),
            parts.join(", ")
        ),
        WIDTH_MAX,
    )];
    lines.extend(stolen(profile.stolen_share()).map(|line| format!("  {line}")));
    lines.extend(chosen(profile));
    lines.extend(memory(profile.machine.memory).map(|line| format!("  {line}")));
    if !analysis.resources.is_empty() {
        lines.extend(usage_table(profile, &analysis.resources).lines(2, WIDTH_MAX));
    }
    lines.push(format!("  {}", modelled(&analysis.modelled, profile.end)));
    let without = &analysis.without_blocking;
    for (what, elapsed) in [
        ("without waiting for the disk", without.disk),
        ("without waiting for the network", without.network),
        ("without suspensions", without.suspension),
    ] {
        if let Some(elapsed) = elapsed {
            let change = change(elapsed, analysis.elapsed);
            lines.push(format!("  {what}: {} ({change})", duration(elapsed as f64)));
        }
    }
    lines
}

/// That the machine's host gave a share of the time to others, if it matters.
pub(super) fn stolen(share: f64) -> Option<String> {
    (share >= STOLEN_SHARE_MIN).then(|| {
        format!(
            "the host gave {} of the cores' time to other machines (steal time), so times are longer",
            percent(share)
        )
    })
}

/// What was held in memory, and what was spilled.
pub(super) fn memory(used: Option<MemoryUse>) -> Option<String> {
    let used = used.filter(|used| used.needed() > 0)?;
    let held = bytes(used.held as f64);
    Some(match used.spilled {
        0 => format!("memory: {held} at most, nothing was spilled: more would not change it"),
        spilled => format!(
            "memory: {held} at most, {} spilled: with {} nothing would be",
            bytes(spilled as f64),
            bytes(used.needed() as f64)
        ),
    })
}

/// What the schedulers have chosen by themselves, and from what.
fn chosen(profile: &Profile) -> Vec<String> {
    let mut lines = vec![];
    if profile.machine.tasks_in_flight > 0 {
        let most = profile.machine.tasks_in_flight;
        lines.push(format!(
            "  at most {most} tasks of a stage that reads run at once"
        ));
    }
    for device in profile
        .machine
        .disks
        .iter()
        .filter(|device| !device.measured.is_empty())
    {
        let measured = device.measured.iter();
        let rates: Vec<String> = measured
            .map(|(requests, rate)| format!("{}/s with {requests}", bytes(*rate)))
            .collect();
        let line = format!(
            "  disk {} reads and writes {}: {} requests at once were chosen",
            device.name,
            rates.join(", "),
            device.concurrency
        );
        lines.push(cut(&line, WIDTH_MAX));
    }
    lines
}

/// A model next to what was measured.
pub(super) fn modelled(model: &Model, measured: Nanoseconds) -> String {
    let limits = model.limits.iter();
    let parts: Vec<String> = limits
        .map(|(limit, time)| format!("{} {}", limit_phrase(*limit), duration(*time)))
        .collect();
    if parts.is_empty() {
        return "modelled: no resource was used".to_owned();
    }
    let share = match measured {
        0 => 1.0,
        measured => model.total / measured as f64,
    };
    format!(
        "modelled {} of {} ({}): {}",
        duration(model.total),
        duration(measured as f64),
        percent(share),
        parts.join(", ")
    )
}

fn limit_phrase(limit: Limit) -> &'static str {
    match limit {
        Limit::OneTask => "one task at a time",
        other => other.name(),
    }
}

fn what_if_lines(profile: &Profile, analysis: &Analysis) -> Vec<String> {
    let measured = (analysis.modelled.total, analysis.elapsed);
    what_if_table("what if", profile.machine.cores, measured, &analysis.what_ifs)
}

/// Predictions next to what was modelled and measured.
pub(super) fn what_if_table(
    title: &str,
    cores: usize,
    (modelled, measured): (f64, Nanoseconds),
    what_ifs: &[Prediction],
) -> Vec<String> {
    let mut table = Table::new(&[title, "modelled", "predicted", "change"]);
    table.row(vec![
        format!("as it is ({cores} {})", plural("core", cores as u64)),
        duration(modelled),
        duration(measured as f64),
        "-".to_owned(),
    ]);
    for line in what_ifs {
        table.row(vec![
            line.scenario.to_string(),
            duration(line.modelled),
            duration(line.elapsed as f64),
            change(line.elapsed, measured),
        ]);
    }
    table.lines(0, WIDTH_MAX)
}

/// Next to what was measured: `-34 %`.
fn change(elapsed: Nanoseconds, measured: Nanoseconds) -> String {
    if measured == 0 {
        return "-".to_owned();
    }
    match ((elapsed as f64 / measured as f64 - 1.0) * 100.0).round() {
        0.0 => "none".to_owned(),
        percent => format!("{percent:+.0} %"),
    }
}

fn or_dash(value: u64, show: impl Fn(u64) -> String) -> String {
    if value == 0 { "-".to_owned() } else { show(value) }
}

fn plural(word: &str, count: u64) -> String {
    if count == 1 {
        word.to_owned()
    } else {
        format!("{word}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyse;
    use crate::fixtures::{MS, compute, machine, profile, stage, task, two_stages};
    use crate::scenario::{Scenario, Speed};

    fn shown(profile: &Profile, asked: Option<Scenario>) -> String {
        let lines = text(profile, &analyse(profile, asked));
        for line in &lines {
            assert!(line.chars().count() <= WIDTH_MAX, "{line}");
        }
        lines.join("\n")
    }

    #[test]
    fn a_query_of_two_stages() {
        let asked = Scenario {
            cores: Some(8),
            disk: Speed::Times(2.0),
            input_in_memory: false,
            ..Scenario::default()
        };
        insta::assert_snapshot!(shown(&two_stages(), Some(asked)));
    }

    #[test]
    fn a_query_in_memory() {
        let tasks = (0..8)
            .map(|partition| {
                let mut task = task(partition, 0, (10 + partition as u64) * MS, vec![compute(9 * MS)]);
                task.rows = 1_000;
                if partition > 3 {
                    task.end = (60 + partition as u64) * MS;
                    task.usage = vec![compute(58 * MS)];
                }
                task
            })
            .collect();
        let mut scan = stage(0, &[], tasks);
        scan.name = format!("scan {}", "a_table_with_a_long_name ".repeat(6));
        insta::assert_snapshot!(shown(&profile(machine(4, vec![]), 70 * MS, vec![scan]), None));
    }

    #[test]
    fn a_query_without_work() {
        insta::assert_snapshot!(shown(&profile(machine(1, vec![]), MS, vec![]), None));
    }
}
