// Monotasks in rows: each resource has as many as ran on it at the same time.
import { resourceName, type Monotask, type Profile } from "./profile";

export interface Bar {
  stage: number;
  partition: number;
  worker: number;
  monotask: Monotask;
}

export interface Group {
  name: string;
  lanes: Bar[][];
}

/** The groups from above to below: cores, disks, the network. */
export function groups(profile: Profile): Group[] {
  const found = new Map<string, Bar[]>();
  for (const stage of profile.stages) {
    for (const task of stage.tasks) {
      for (const monotask of task.monotasks) {
        const name = resourceName(monotask.resource, profile.machine);
        const bars = found.get(name) ?? [];
        bars.push({ stage: stage.id, partition: task.partition, worker: task.worker, monotask });
        found.set(name, bars);
      }
    }
  }
  return [...found].map(([name, bars]) => ({ name, lanes: packed(bars) }));
}

/** Each bar in the first lane that is free when it begins. */
function packed(bars: Bar[]): Bar[][] {
  bars.sort((one, other) => one.monotask.started_at - other.monotask.started_at);
  const lanes: Bar[][] = [];
  const ends: number[] = [];
  for (const bar of bars) {
    const { started_at, service } = bar.monotask;
    const free = ends.findIndex((end) => end <= started_at);
    const lane = free >= 0 ? free : lanes.length;
    (lanes[lane] ??= []).push(bar);
    ends[lane] = started_at + service;
  }
  return lanes;
}

/** The same by tasks, for a run of which the monotasks were too many to keep. */
export function taskGroups(profile: Profile): Group[] {
  return profile.stages.map((stage) => ({
    name: `stage ${stage.id}`,
    lanes: packed(
      stage.tasks.map((task) => ({
        stage: stage.id,
        partition: task.partition,
        worker: task.worker,
        monotask: { resource: "cpu", kind: "task", queued_at: task.start, started_at: task.start, service: task.end - task.start, bytes: 0, rows: task.rows },
      })),
    ),
  }));
}
