// What the machine room asks for, all of it in one request, and what it remembers of the last minutes.
import { selectAll } from "../api";
import { History } from "../poll";

export interface Worker {
  id: number;
  address: string;
  state: string;
  cores: number;
  partitions: number;
  tasks_waiting: number;
  busy_share: number;
  state_bytes: number;
}

export interface CpuClass {
  class: string;
  monotasks: number;
  busy_us: number;
  queue_p50_us: number;
  queue_p99_us: number;
  tasks_waiting: number;
  tasks_paused: number;
}

export interface Disk {
  disk: string;
  kind: string;
  monotasks: number;
  service_us: number;
  queue_us: number;
  bytes: number;
}

export interface MemoryHolder {
  holder: string;
  name: string | null;
  bytes: number;
  on_disk_bytes: number;
}

export interface Batch {
  pipeline: number;
  epoch: number;
  sources: number;
  views: number;
  group_size: number;
  scheduling_us: number | null;
  execution_us: number | null;
  workers: number;
  writes_waiting: number;
  epoch_age_us: number | null;
}

export interface Job {
  id: number;
  view: string;
  state: string;
  rows_done: number;
  rows_total: number;
  percent: number;
  elapsed: string;
  time_left: string | null;
  error: string | null;
}

export interface Paused {
  query: number | null;
  stage: number | null;
  worker: number;
  class: string;
  pauses: number;
  paused_ms: number;
  held_bytes: number;
}

export interface Checkpoint {
  id: number;
  pipeline: number;
  epoch: number;
  state: string;
  bytes_written: number;
  bytes_total: number;
  written_ms: number;
  taken_at: string | null;
  error: string | null;
}

export interface Waiting {
  view: string;
  stage: number | null;
  reason: string;
  waits_for: string | null;
  tasks_waiting: number;
  waiting_us: number;
  source: string | null;
}

export interface Feed {
  pipeline: number;
  rows: number;
  bytes: number;
  rows_max: number;
  writes_waiting: number;
}

export interface Late {
  relation: string;
  late_rows: number;
  future_rows: number;
  kept_in: string | null;
}

export interface Trouble {
  what: string;
  name: string;
  error: string;
}

export interface Facts {
  at: number;
  workers: Worker[];
  cpu: CpuClass[];
  disks: Disk[];
  memory: MemoryHolder[];
  batches: Batch[];
  jobs: Job[];
  paused: Paused[];
  checkpoints: Checkpoint[];
  waiting: Waiting[];
  feeds: Feed[];
  late: Late[];
  troubles: Trouble[];
}

/** Whole where most of it is shown: to choose columns takes the server longer than to send the others. */
const QUESTIONS: Record<Exclude<keyof Facts, "at">, string> = {
  workers: "SELECT * FROM mr_catalog.workers",
  cpu: "SELECT * FROM mr_catalog.cpu",
  disks: "SELECT * FROM mr_catalog.disks",
  memory: "SELECT * FROM mr_catalog.memory",
  batches: "SELECT * FROM mr_catalog.batches",
  jobs: "SELECT id, view, state, rows_done, rows_total, percent, elapsed::text AS elapsed, time_left::text AS time_left, error FROM mr_catalog.jobs",
  paused: "SELECT query, stage, worker, class, pauses, paused_ms, held_bytes FROM mr_catalog.tasks WHERE state = 'paused'",
  checkpoints: "SELECT * FROM mr_catalog.checkpoints",
  waiting: "SELECT view, stage, reason, waits_for, tasks_waiting, waiting_us, source FROM mr_catalog.flow WHERE tasks_waiting > 0",
  feeds: "SELECT * FROM mr_catalog.feeds",
  late: "SELECT * FROM mr_catalog.late_rows",
  troubles: "SELECT kind AS what, name, error FROM mr_catalog.relations WHERE error IS NOT NULL",
};

/** The last minutes, for as long as the page is open. */
export const history = new History();

/** What changes slowly is asked for in one request of so many; what is not named, in each. */
const EVERY: Partial<Record<keyof typeof QUESTIONS, number>> = { workers: 2, memory: 2, batches: 2, jobs: 4, paused: 4, waiting: 4, checkpoints: 4, late: 4, troubles: 4 };

/** What is worth more than that, by the last answer. */
const IS_URGENT: Partial<Record<keyof typeof QUESTIONS, (facts: Partial<Facts>) => boolean>> = {
  jobs: ({ jobs }) => jobs?.some((job) => job.error === null) ?? false,
  paused: ({ cpu, paused }) => (cpu?.some((row) => row.tasks_paused > 0) ?? false) || (paused?.length ?? 0) > 0,
  waiting: ({ feeds, waiting }) => (feeds?.some((feed) => feed.writes_waiting > 0 || feed.rows > 0) ?? false) || (waiting?.length ?? 0) > 0,
};

let turn = 0;
let last: Partial<Facts> = {};

/** Begins anew: the next request asks for all of it. */
export function askAll(): void {
  turn = 0;
}

/** Asks for all of it; of what changes slowly it may be the last answer. */
export async function askFacts(signal: AbortSignal): Promise<Facts> {
  const names = (Object.keys(QUESTIONS) as (keyof typeof QUESTIONS)[]).filter((name) => turn % (EVERY[name] ?? 1) === 0 || IS_URGENT[name]?.(last));
  const answers = await selectAll(names.map((name) => QUESTIONS[name]), signal);
  const found = Object.fromEntries(names.map((name, at) => [name, answers[at] ?? []]));
  const facts = { ...last, ...found, at: Date.now() / 1000 } as Facts;
  last = facts;
  turn++;
  note(facts);
  return facts;
}

function note({ at, cpu, disks, batches, memory, feeds }: Facts): void {
  for (const row of cpu) history.count(`cpu ${row.class}`, at, row.busy_us / 1e6);
  const sum = (kinds: string[], of: (disk: Disk) => number) => disks.filter((disk) => kinds.includes(disk.kind)).reduce((all, disk) => all + of(disk), 0);
  for (const [name, kinds] of DISK_KINDS) {
    history.count(`disk ${name}`, at, sum(kinds, (disk) => disk.bytes));
    history.count(`service ${name}`, at, sum(kinds, (disk) => disk.service_us) / 1e6);
  }
  for (const row of memory) if (row.holder === "process") history.note(`memory ${row.name}`, at, row.bytes);
  history.note("paused", at, cpu.reduce((all, row) => all + row.tasks_paused, 0));
  history.note("group size", at, Math.max(0, ...batches.map((batch) => batch.group_size)));
  history.note("rows waiting", at, feeds.reduce((all, feed) => all + feed.rows, 0));
}

/** Kinds of work of a disk as they are drawn. */
export const DISK_KINDS: [string, string[]][] = [
  ["log", ["log"]],
  ["reads", ["read", "reread"]],
  ["writes", ["write"]],
];
