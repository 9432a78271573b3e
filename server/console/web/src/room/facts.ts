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

const QUESTIONS: Record<Exclude<keyof Facts, "at">, string> = {
  workers: "SELECT id, address, state, cores, partitions, tasks_waiting, busy_share, state_bytes FROM mr_catalog.workers",
  cpu: "SELECT class, monotasks, busy_us, queue_p50_us, queue_p99_us, tasks_waiting, tasks_paused FROM mr_catalog.cpu",
  disks: "SELECT disk, kind, monotasks, service_us, queue_us, bytes FROM mr_catalog.disks",
  memory: "SELECT holder, name, bytes, on_disk_bytes FROM mr_catalog.memory",
  batches: "SELECT pipeline, epoch, sources, views, group_size, scheduling_us, execution_us, workers, writes_waiting FROM mr_catalog.batches",
  jobs: "SELECT id, view, state, rows_done, rows_total, percent, elapsed::text AS elapsed, time_left::text AS time_left, error FROM mr_catalog.jobs",
  paused: "SELECT query, stage, worker, class, pauses, paused_ms, held_bytes FROM mr_catalog.tasks WHERE state = 'paused'",
  checkpoints: "SELECT id, pipeline, epoch, state, bytes_written, bytes_total, written_ms, taken_at, error FROM mr_catalog.checkpoints",
  waiting: "SELECT view, stage, reason, waits_for, tasks_waiting, waiting_us, source FROM mr_catalog.flow WHERE tasks_waiting > 0",
  feeds: "SELECT pipeline, rows, bytes, rows_max, writes_waiting FROM mr_catalog.feeds",
  late: "SELECT relation, late_rows, future_rows, kept_in FROM mr_catalog.late_rows",
  troubles: "SELECT kind AS what, name, error FROM mr_catalog.relations WHERE error IS NOT NULL",
};

/** The last minutes, for as long as the page is open. */
export const history = new History();

/** What changes slowly is asked for in one request of so many. */
const SLOW: ReadonlySet<string> = new Set(["batches", "checkpoints", "late", "troubles"]);
const SLOW_EVERY = 3;

let turn = 0;
let last: Partial<Facts> = {};

/** Asks for all of it; of what changes slowly it may be the last answer. */
export async function askFacts(signal: AbortSignal): Promise<Facts> {
  const isWhole = turn % SLOW_EVERY === 0;
  const names = (Object.keys(QUESTIONS) as (keyof typeof QUESTIONS)[]).filter((name) => isWhole || !SLOW.has(name));
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
