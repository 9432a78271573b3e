// The documents of EXPLAIN ANALYZE (FORMAT JSON): docs/performance-clarity.md. Times are nanoseconds.

import { bytes } from "../format";

export type Resource = "cpu" | "network" | { disk: number };

export interface Monotask {
  resource: Resource;
  kind: string;
  queued_at: number;
  started_at: number;
  service: number;
  bytes: number;
  rows: number;
}

export interface Task {
  worker: number;
  partition: number;
  start: number;
  end: number;
  suspended: number;
  rows: number;
  monotasks: Monotask[];
}

export interface Stage {
  id: number;
  name: string;
  depends_on: number[];
  tasks: Task[];
}

export interface Device {
  name: string;
  concurrency: number;
}

export interface Machine {
  cores: number;
  disks: Device[];
  network: Device | null;
  /** The most that was held at once, and what was on disk because there was no more, in bytes. */
  memory?: { held: number; spilled: number };
}

export interface Profile {
  planning: number;
  end: number;
  machine: Machine;
  stages: Stage[];
}

export type Speed = { times: number } | "infinite";

export interface Scenario {
  cores?: number;
  disks?: number;
  disk: Speed;
  network: Speed;
  memory?: number;
  input_in_memory: boolean;
}

/** What a change would bring, in nanoseconds. */
export interface Prediction {
  scenario: Scenario;
  modelled: number;
  elapsed: number;
}

export interface Usage {
  resource: Resource;
  kind?: string;
  monotasks: number;
  service: number;
  queue: number;
  bytes: number;
  rows: number;
  utilisation: number;
}

export interface Analysis {
  elapsed: number;
  modelled: { total: number; limits: [string, number][] };
  resources: Usage[];
  stages: { id: number; start: number; end: number; limit: string | null; usage: Usage[]; suspended: number }[];
  what_ifs: Prediction[];
  verdict: string;
}

export interface Run {
  id?: number;
  profile: Profile;
  analysis: Analysis;
}

/** The highest rate that a view could sustain, and what is the limit then. */
export interface HeadRoom {
  rows_per_second: number;
  limit: string;
  is_fitted: boolean;
}

export interface ViewRun {
  id?: number;
  view: {
    view: string;
    watched: number;
    cores: number;
    epochs: number;
    group_size: number;
    stages: { id: number; name: string }[];
    samples: { rows: number; busy: number; waited: number; elapsed: number }[];
    rows: number;
    state_bytes: number;
    in_flight_bytes?: number;
    log: { disk: string; groups: number; bytes: number; queue: number; service: number } | null;
    /** What the schedulers saw of its pipeline meanwhile, as one run. */
    trace?: { run: Profile };
  };
  analysis: {
    rows_per_second: number;
    epochs_per_second: number;
    coordination_share: number;
    freshness: { p50: number; p99: number } | null;
    view_cpu: number;
    pipeline_cpu: number;
    outside_cpu: number;
    stages: { id: number; sums: { tasks: number; rows_in: number; rows_out: number; busy: number; queue: number }; cpu: number; busiest: number; busiest_share: number }[];
    head_room: HeadRoom | null;
    what_if: [Scenario, HeadRoom] | null;
    epochs?: {
      epochs: number;
      elapsed: number;
      modelled: { total: number; limits: [string, number][] };
      what_ifs: Prediction[];
      resources: Usage[];
      stages: Usage[][];
    };
    verdict: string;
  };
}

/** What a resource is called. */
export function resourceName(resource: Resource, machine: Machine): string {
  if (typeof resource === "string") return resource;
  return `disk ${machine.disks[resource.disk]?.name ?? resource.disk}`;
}

/** A change as it is written in WHAT IF, and shown. */
export function scenarioText(scenario: Scenario): string {
  const speed = (name: string, value: Speed) => (value === "infinite" ? [`${name} infinitely fast`] : value.times === 1 ? [] : [`${name} × ${value.times}`]);
  const parts = [
    ...(scenario.cores === undefined ? [] : [`${scenario.cores} ${scenario.cores === 1 ? "core" : "cores"}`]),
    ...(scenario.disks === undefined ? [] : [`${scenario.disks} disks`]),
    ...speed("disk", scenario.disk),
    ...speed("network", scenario.network),
    ...(scenario.memory === undefined ? [] : [`${bytes(scenario.memory)} of memory`]),
    ...(scenario.input_in_memory ? ["input in memory"] : []),
  ];
  return parts.length === 0 ? "as it is" : parts.join(", ");
}
