//! A run in the trace event format of Chrome, which Perfetto opens: a process for each resource, a row for each of its slots,
//! a slice for each monotask. (Trace Event Format, "JSON Array Format" and "Complete Events".)
//!
//! Where monotasks are not listed, a slice stands for a whole task, in a process of its own.

use std::collections::BTreeMap;

use serde::Serialize;

use super::text::kind_name;
use crate::profile::{Nanoseconds, Profile, Resource, StageProfile, TaskProfile};

/// The process of tasks whose monotasks are not listed.
const TASKS_PROCESS: u32 = 1;

/// The whole trace.
#[derive(Debug, Serialize)]
pub struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
    #[serde(rename = "displayTimeUnit")]
    display_time_unit: &'static str,
}

/// A slice (`X`), or the name of a process (`M`).
#[derive(Debug, Serialize)]
struct Event {
    name: String,
    ph: &'static str,
    pid: u32,
    tid: usize,
    /// Microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: BTreeMap<&'static str, serde_json::Value>,
}

struct Slice {
    process: u32,
    name: String,
    start: Nanoseconds,
    length: Nanoseconds,
    args: BTreeMap<&'static str, serde_json::Value>,
}

pub fn trace(profile: &Profile) -> Trace {
    let mut slices: Vec<Slice> = profile
        .stages
        .iter()
        .flat_map(|stage| stage.tasks.iter().flat_map(move |task| slices_of(stage, task)))
        .collect();
    slices.sort_by_key(|slice| (slice.process, slice.start));
    let mut events: Vec<Event> = vec![];
    // For each process, until when each of its rows is taken.
    let mut rows: BTreeMap<u32, Vec<Nanoseconds>> = BTreeMap::new();
    for slice in slices {
        let taken = rows.entry(slice.process).or_default();
        let row = match taken.iter().position(|until| *until <= slice.start) {
            Some(row) => row,
            None => {
                taken.push(0);
                taken.len() - 1
            }
        };
        taken[row] = slice.start + slice.length;
        events.push(Event {
            name: slice.name,
            ph: "X",
            pid: slice.process,
            tid: row,
            ts: Some(slice.start as f64 / 1e3),
            dur: Some(slice.length as f64 / 1e3),
            args: slice.args,
        });
    }
    let names = rows.keys().map(|process| Event {
        name: "process_name".to_owned(),
        ph: "M",
        pid: *process,
        tid: 0,
        ts: None,
        dur: None,
        args: BTreeMap::from([("name", process_name(profile, *process).into())]),
    });
    Trace {
        events: names.collect::<Vec<_>>().into_iter().chain(events).collect(),
        display_time_unit: "ms",
    }
}

fn slices_of(stage: &StageProfile, task: &TaskProfile) -> Vec<Slice> {
    let args = |bytes: u64, rows: u64| {
        let mut args: BTreeMap<&'static str, serde_json::Value> = BTreeMap::from([
            ("stage", stage.id.into()),
            ("partition", task.partition.into()),
            ("bytes", bytes.into()),
            ("rows", rows.into()),
        ]);
        args.insert("operators", stage.name.clone().into());
        args
    };
    if task.monotasks.is_empty() {
        return vec![Slice {
            process: TASKS_PROCESS,
            name: format!("stage {} / {}", stage.id, task.partition),
            start: task.start,
            length: task.end.saturating_sub(task.start),
            args: args(task.bytes, task.rows),
        }];
    }
    task.monotasks
        .iter()
        .map(|monotask| {
            let mut args = args(monotask.bytes, monotask.rows);
            let queued = monotask.started_at.saturating_sub(monotask.queued_at);
            args.insert("queued_us", (queued as f64 / 1e3).into());
            Slice {
                process: process_of(monotask.resource),
                name: format!("{} {} / {}", kind_name(monotask.kind), stage.id, task.partition),
                start: monotask.started_at,
                length: monotask.service,
                args,
            }
        })
        .collect()
}

fn process_of(resource: Resource) -> u32 {
    match resource {
        Resource::Cpu => TASKS_PROCESS + 1,
        Resource::Network => TASKS_PROCESS + 2,
        Resource::Disk(disk) => TASKS_PROCESS + 3 + disk as u32,
    }
}

fn process_name(profile: &Profile, process: u32) -> String {
    match process - TASKS_PROCESS {
        0 => "tasks".to_owned(),
        1 => "cpu".to_owned(),
        2 => "network".to_owned(),
        disk => {
            let disk = disk as usize - 3;
            match profile.machine.disks.get(disk) {
                Some(device) => format!("disk {}", device.name),
                None => format!("disk {disk}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{MS, machine, monotask, profile, stage, task, two_stages};
    use crate::profile::Kind;

    fn slices(profile: &Profile) -> Vec<(u64, u64, f64, f64, String)> {
        let shown = serde_json::to_value(trace(profile)).unwrap();
        let events = shown["traceEvents"].as_array().unwrap();
        events
            .iter()
            .filter(|event| event["ph"] == "X")
            .map(|event| {
                (
                    event["pid"].as_u64().unwrap(),
                    event["tid"].as_u64().unwrap(),
                    event["ts"].as_f64().unwrap(),
                    event["dur"].as_f64().unwrap(),
                    event["name"].as_str().unwrap().to_owned(),
                )
            })
            .collect()
    }

    #[test]
    fn a_resource_has_as_many_rows_as_it_did_things_at_once() {
        let mut scan = task(0, 0, 4 * MS, vec![]);
        scan.monotasks = vec![
            monotask(Resource::Disk(0), Kind::Read, 0, 2 * MS),
            monotask(Resource::Disk(0), Kind::Read, MS, 2 * MS),
            monotask(Resource::Disk(0), Kind::Read, 2 * MS, MS),
            monotask(Resource::Cpu, Kind::Decode, 2 * MS, MS),
        ];
        let run = profile(machine(1, vec![]), 4 * MS, vec![stage(7, &[], vec![scan])]);
        assert_eq!(
            slices(&run),
            [
                (2, 0, 2_000.0, 1_000.0, "decode 7 / 0".to_owned()),
                (4, 0, 0.0, 2_000.0, "read 7 / 0".to_owned()),
                (4, 1, 1_000.0, 2_000.0, "read 7 / 0".to_owned()),
                (4, 0, 2_000.0, 1_000.0, "read 7 / 0".to_owned()),
            ]
        );
    }

    #[test]
    fn tasks_stand_for_monotasks_that_are_not_listed() {
        let run = two_stages();
        let found = slices(&run);
        assert_eq!(found.len(), 3);
        assert!(found.iter().all(|slice| slice.0 == u64::from(TASKS_PROCESS)));
        let shown = serde_json::to_value(trace(&run)).unwrap();
        assert_eq!(shown["traceEvents"][0]["args"]["name"], "tasks");
    }
}
