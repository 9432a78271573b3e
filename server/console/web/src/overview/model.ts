// What the overview knows: the relations with their rates, what feeds what, and what holds each view back.
import { selectAll } from "../api";
import { duration, instant, rate } from "../format";
import { qualified } from "../names";
import { History } from "../poll";
import { TERMS } from "../terms";
import { judge } from "./judge";

/** A row of `mr_catalog.relations`. */
export interface Relation {
  id: number;
  database: string;
  schema: string;
  name: string;
  kind: string;
  connector: string | null;
  state: string | null;
  pipeline: number | null;
  epoch: number | null;
  /** Since its oldest epoch was cut that is not committed. */
  epoch_age_us: number | null;
  rows: number | null;
  changes: number | null;
  rows_waiting: number | null;
  bytes: number;
  on_disk_bytes: number;
  busy_us: number | null;
  freshness_us: number | null;
  freshness_target_us: number | null;
  freshness_met: number | null;
  watermark: string | null;
  late_rows: number | null;
  lag_seconds: number | null;
  error: string | null;
}

/** What EXPLAIN ANALYZE says of a running view. */
export interface Watched {
  relation: number;
  name: string;
  failure?: string;
  analysis: {
    rows_per_second: number;
    freshness: { p50: number; p99: number } | null;
    view_cpu: number;
    head_room: { rows_per_second: number; limit: string; is_fitted: boolean } | null;
    verdict: string;
  } | null;
}

/** Errors: some rows were left out or are NULL, and everything goes on. */
export type Status = "ok" | "idle" | "filling" | "behind" | "failed" | "errors";

/** How far a view is that is being filled. */
export interface Job {
  view: string;
  percent: number;
  rows_done: number;
  rows_total: number;
}

/** A relation with what its counters have grown by in a second, and what else is known of it. */
export interface Measured extends Relation {
  rate: number | undefined;
  /** Whether it has something to do: rows come to it, it works, or it puts something out. Not all that work puts something out. */
  isActive: boolean;
  cores: number | undefined;
  /** For how long its epoch has been under way, if that is long enough to be seen (seconds). */
  underWay: number | undefined;
  /** For how long rows have waited for it while no epoch has changed it and none is under way (seconds). */
  standsFor: number;
  /** For how long a sink keeps rows by its own options (seconds). */
  holdsSeconds: number;
  job: Job | undefined;
  /** Expressions that failed. */
  errors: number | undefined;
  /** What its tasks wait for. */
  waitsFor: string | undefined;
}

/** A node of the graph. */
export interface Node extends Measured {
  key: string;
  /** Its name, with its schema where that is needed to tell it from others. */
  label: string;
  status: Status;
  /** Why it is not well. */
  why: string | undefined;
  watched: Watched | undefined;
  /** The last one that saw rows. */
  useful: Watched | undefined;
}

export interface Edge {
  from: string;
  to: string;
  rate: number | undefined;
  /** Which rows, if not all. */
  what?: string;
}

export interface Overview {
  nodes: Node[];
  edges: Edge[];
}

/** A row of `mr_catalog.dependencies`. */
export interface Dependency {
  relation: number;
  reads: number;
  what: string;
}

/** Whole, and asked for each second: to choose columns and rows takes the server a third of the time more. */
const RELATIONS = "SELECT * FROM mr_catalog.relations";
const DEPENDENCIES = "SELECT relation, reads, what FROM mr_catalog.dependencies";
const DATABASE = "SELECT current_database() AS name";
/** What is asked only when there is something to ask about. */
const MORE = {
  jobs: "SELECT view, percent, rows_done, rows_total FROM mr_catalog.jobs",
  errors: "SELECT relation, expression_errors FROM mr_catalog.views WHERE expression_errors > 0",
  flow: "SELECT relation, waits_for FROM mr_catalog.flow WHERE tasks_waiting > 0 AND waits_for IS NOT NULL",
};

/** The last minutes, for as long as the page is open. */
export const history = new History();

/** An epoch that is younger is as all are (seconds). */
const AGE_SEEN = 1;
/** How old the epochs under way were at the last look, by pipeline (seconds). */
let ages = new Map<number, number>();
/** Of views for which as many rows wait or more, and that nothing happens to: how many, what had changed of each, and since when that is
 * so (seconds). */
let standing = new Map<number, { waiting: number; changes: number; since: number }>();
let known = "";
let database = "";
let dependencies: Dependency[] = [];
/** What the last answer gave a reason to ask. */
let wanted: (keyof typeof MORE)[] = [];
/** What a sink to files keeps rows for if its options do not say it (seconds). */
const HOLDS_FILES = 10;
/** Seconds by the id of a sink. */
const holds = new Map<number, number>();

/** Asks how everything is, and notes it. What feeds what is asked for only when there is something new. */
export async function askRelations(signal: AbortSignal): Promise<Measured[]> {
  const more = wanted;
  const answers = await selectAll([RELATIONS, ...more.map((name) => MORE[name])], signal);
  let rows = answers[0] as unknown as Relation[];
  const ids = rows.map((row) => row.id).join();
  if (ids !== known) {
    const news = await selectAll([DEPENDENCIES, RELATIONS, DATABASE], signal);
    dependencies = news[0] as unknown as typeof dependencies;
    rows = news[1] as unknown as Relation[];
    database = String(news[2]?.[0]?.name);
    known = rows.map((row) => row.id).join();
  }
  const at = Date.now() / 1000;
  const shown = rows.filter((row) => row.database === database);
  const underWay = new Map<number, number>();
  for (const { pipeline, epoch_age_us } of shown) {
    if (pipeline !== null && (epoch_age_us ?? 0) >= AGE_SEEN * 1e6) underWay.set(pipeline, (epoch_age_us ?? 0) / 1e6);
  }
  const of = <T,>(name: keyof typeof MORE) => (answers[1 + more.indexOf(name)] ?? []) as T[];
  const jobs = more.includes("jobs") ? of<Job>("jobs") : [];
  const errors = more.includes("errors") ? of<{ relation: number; expression_errors: number }>("errors") : [];
  const flow = more.includes("flow") ? of<{ relation: number; waits_for: string }>("flow") : [];
  wanted = [];
  if (shown.some((row) => row.state === "filling")) wanted.push("jobs");
  if (shown.some((row) => row.error)) wanted.push("errors");
  await askHolds(shown, signal);
  const before = ages;
  ages = underWay;
  const stood = standing;
  standing = new Map();
  for (const row of shown) {
    const waiting = row.rows_waiting ?? 0;
    if (waiting === 0 || (row.pipeline !== null && underWay.has(row.pipeline))) continue;
    const last = stood.get(row.id);
    const changes = row.changes ?? 0;
    const stands = last?.changes === changes && waiting >= last.waiting;
    standing.set(row.id, { waiting, changes, since: stands ? last.since : at });
  }
  // Rows wait at any moment where some come: what for is of interest where that takes long.
  const isLate = (row: Relation) => (row.rows_waiting ?? 0) > 0 && ((row.freshness_us ?? 0) > AGE_SEEN * 1e6 || at - (standing.get(row.id)?.since ?? at) > AGE_SEEN);
  if (underWay.size > 0 || shown.some(isLate)) wanted.push("flow");
  const rates = new Map(shown.map((row) => [row.id, history.count(`${row.id}.rate`, at, row.changes)]));
  return shown.map((row): Measured => {
    const now = row.pipeline === null ? undefined : underWay.get(row.pipeline);
    const rate = rates.get(row.id);
    const busy = history.count(`${row.id}.busy`, at, row.busy_us);
    const isActive = (rate ?? 0) > 0 || (busy ?? 0) > 0 || takesRows(row.id, dependencies, rates);
    if (row.freshness_us != null && isActive) history.note(`${row.id}.freshness`, at, row.freshness_us / 1e6);
    return {
      ...row,
      rate,
      isActive,
      // The work of an epoch is counted when it is committed: it was done in all of its time.
      cores: busy === undefined || now ? undefined : busy / 1e6 / (1 + (before.get(row.pipeline ?? 0) ?? 0)),
      underWay: now,
      standsFor: at - (standing.get(row.id)?.since ?? at),
      holdsSeconds: holds.get(row.id) ?? 0,
      job: jobs.find((job) => job.view === row.name || job.view === `${row.schema}.${row.name}`),
      errors: errors.find((entry) => entry.relation === row.id)?.expression_errors,
      waitsFor: flow.find((entry) => entry.relation === row.id)?.waits_for,
    };
  });
}

/** Whether rows come to a relation: from what it reads, or through views that are not stored and have no rate of their own. */
export function takesRows(id: number, edges: Dependency[], rates: Map<number, number | undefined>): boolean {
  const seen = new Set([id]);
  for (const reader of seen) {
    for (const { relation, reads, what } of edges) {
      if (relation !== reader || what !== "rows" || !rates.has(reads)) continue;
      const rate = rates.get(reads);
      if ((rate ?? 0) > 0) return true;
      if (rate === undefined) seen.add(reads);
    }
  }
  return false;
}

/** Asks once for how long sinks with something to deliver keep it by their own options. */
async function askHolds(rows: Relation[], signal: AbortSignal): Promise<void> {
  const asked = rows.filter((row) => row.kind === "sink" && (row.lag_seconds ?? 0) > 1 && !holds.has(row.id));
  for (const row of asked) {
    const usual = row.connector === "file" || row.connector === "delta" ? HOLDS_FILES : 0;
    holds.set(row.id, usual);
    const [answer] = await selectAll([`SHOW CREATE SINK ${qualified(row)}`], signal).catch(() => [[]]);
    const seconds = /\brollover_seconds\s*=\s*'?(\d+)/i.exec(String(answer?.[0]?.create_sql))?.[1];
    holds.set(row.id, Number(seconds ?? usual));
  }
}

/** Puts together what was answered. */
export function overview(rows: Measured[], watched: Map<number, Watched>, useful: Map<number, Watched>): Overview {
  const nodes: Node[] = [];
  const rates = new Map<number, number | undefined>();
  const times = new Map<string, number>();
  for (const { name } of rows) times.set(name, (times.get(name) ?? 0) + 1);
  for (const row of rows) {
    rates.set(row.id, row.rate);
    const label = row.schema !== "public" || (times.get(row.name) ?? 0) > 1 ? `${row.schema}.${row.name}` : row.name;
    const node: Node = { ...row, key: `r${row.id}`, label, status: "ok", why: undefined, watched: watched.get(row.id), useful: useful.get(row.id) };
    judge(node);
    nodes.push(node);
  }
  markReaders(nodes);
  const edges: Edge[] = dependencies
    .filter((edge) => rates.has(edge.relation) && rates.has(edge.reads))
    .map((edge) => {
      const isAll = edge.what === "rows";
      return { from: `r${edge.reads}`, to: `r${edge.relation}`, rate: rates.get(isAll ? edge.reads : edge.relation), what: isAll ? undefined : edge.what };
    });
  for (const node of nodes.slice()) {
    if (node.kind === "stream" && node.connector) {
      nodes.push({ ...node, key: `c${node.id}`, kind: "source", name: node.connector, label: node.connector, schema: "public" });
      edges.push({ from: `c${node.id}`, to: node.key, rate: node.rate });
    }
  }
  return { nodes, edges };
}

/** What reads something that has failed gets nothing new either. */
function markReaders(nodes: Node[]): void {
  const found = new Map(nodes.map((node) => [node.id, node]));
  const failed = nodes.filter((node) => node.status === "failed");
  for (const cause of failed) {
    const ids = [cause.id];
    for (const id of ids) {
      for (const edge of dependencies) {
        const reader = edge.reads === id && edge.what === "rows" ? found.get(edge.relation) : undefined;
        if (!reader || reader.status === "failed" || ids.includes(reader.id)) continue;
        ids.push(reader.id);
        reader.status = "behind";
        reader.why = `it reads ${cause.label}, which has failed: nothing new comes from there`;
      }
    }
  }
}

/** How fresh a view is, in seconds: at least as old as the epoch that is under way. Nothing is said of one that gets no rows any more. */
export function freshness(node: Node): number | undefined {
  const isCut = node.status === "behind" && !node.underWay && node.rows_waiting === 0;
  if (node.freshness_us === null || node.status === "filling" || node.status === "failed" || isCut) return undefined;
  return Math.max(node.freshness_us / 1e6, node.underWay ?? 0);
}

/** A few words at a node, and what they mean. */
export interface Fact {
  text: string;
  tip: string;
}

/** What stands at a node, in the order of its weight. */
export function facts(node: Node): Fact[] {
  const found: Fact[] = [];
  if (node.kind === "source") {
    if (node.lag_seconds != null) found.push({ text: `${duration(node.lag_seconds)} behind`, tip: TERMS.lag });
    if (node.state) found.push({ text: node.state, tip: "Whether rows are read from it." });
    return found;
  }
  const fresh = freshness(node);
  if (fresh !== undefined) found.push({ text: `fresh in ${duration(fresh)}`, tip: TERMS.freshness });
  const mark = instant(node.watermark);
  if (mark !== undefined) found.push({ text: `watermark ${duration(Math.max(0, (Date.now() - mark) / 1000))} ago`, tip: TERMS.watermark });
  if (node.kind === "sink") found.push({ text: `${duration(node.lag_seconds)} behind`, tip: TERMS.lag });
  return found;
}

/** The rate of a node as it is written there. */
export function rateText(node: Node): string {
  if (node.kind === "view") return "not stored";
  if (node.changes === null && node.status !== "filling") return "";
  return node.rate === undefined ? "…" : rate(node.rate);
}
