// What the overview knows: the relations with their rates, what feeds what, and what holds each view back.
import { selectAll } from "../api";
import { duration, instant, rate, short } from "../format";
import { History } from "../poll";

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
  rows: number | null;
  changes: number | null;
  rows_waiting: number | null;
  bytes: number;
  on_disk_bytes: number;
  busy_us: number | null;
  freshness_us: number | null;
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

export type Status = "ok" | "idle" | "filling" | "behind" | "failed";

/** A relation with what its counters have grown by in a second. */
export interface Measured extends Relation {
  rate: number | undefined;
  cores: number | undefined;
}

/** A node of the graph. */
export interface Node extends Measured {
  key: string;
  status: Status;
  /** Why it is not well. */
  why: string | undefined;
  watched: Watched | undefined;
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

/** Behind the clock by more than this, something is wrong with a pipeline (seconds). */
const FRESHNESS_MAX = 2;
const LAG_MAX = 10;

/** Whole, and asked for each second: to choose columns and rows takes the server a third of the time more. */
const RELATIONS = "SELECT * FROM mr_catalog.relations";
const DEPENDENCIES = "SELECT relation, reads, what FROM mr_catalog.dependencies";
const DATABASE = "SELECT current_database() AS name";

/** The last minutes, for as long as the page is open. */
export const history = new History();

let known = "";
let database = "";
let dependencies: { relation: number; reads: number; what: string }[] = [];

/** Asks how everything is, and notes it. What feeds what is asked for only when there is something new. */
export async function askRelations(signal: AbortSignal): Promise<Measured[]> {
  let [rows] = (await selectAll([RELATIONS], signal)) as unknown as [Relation[]];
  const ids = rows.map((row) => row.id).join();
  if (ids !== known) {
    const answers = await selectAll([DEPENDENCIES, RELATIONS, DATABASE], signal);
    dependencies = answers[0] as unknown as typeof dependencies;
    rows = answers[1] as unknown as Relation[];
    database = String(answers[2]?.[0]?.name);
    known = rows.map((row) => row.id).join();
  }
  const at = Date.now() / 1000;
  return rows.filter((row) => row.database === database).map((row) => measured(row, at));
}

function measured(row: Relation, at: number): Measured {
  const rate = history.count(`${row.id}.rate`, at, row.changes);
  const busy = history.count(`${row.id}.busy`, at, row.busy_us);
  if (row.freshness_us != null && (rate ?? 0) > 0) history.note(`${row.id}.freshness`, at, row.freshness_us / 1e6);
  return { ...row, rate, cores: busy === undefined ? undefined : busy / 1e6 };
}

/** Puts together what was answered. */
export function overview(rows: Measured[], watched: Map<number, Watched>): Overview {
  const nodes: Node[] = [];
  const rates = new Map<number, number | undefined>();
  for (const row of rows) {
    rates.set(row.id, row.rate);
    const node: Node = { ...row, key: `r${row.id}`, status: "ok", why: undefined, watched: watched.get(row.id) };
    judge(node);
    nodes.push(node);
  }
  const edges: Edge[] = dependencies
    .filter((edge) => rates.has(edge.relation) && rates.has(edge.reads))
    .map((edge) => {
      const isAll = edge.what === "rows";
      return { from: `r${edge.reads}`, to: `r${edge.relation}`, rate: rates.get(isAll ? edge.reads : edge.relation), what: isAll ? undefined : edge.what };
    });
  for (const node of nodes.slice()) {
    if (node.kind === "stream" && node.connector) {
      nodes.push({ ...node, key: `c${node.id}`, kind: "source", name: node.connector, schema: "public" });
      edges.push({ from: `c${node.id}`, to: node.key, rate: node.rate });
    }
  }
  return { nodes, edges };
}

/** How a node is, and why if it is not well. */
function judge(node: Node): void {
  const verdict = node.watched?.analysis?.verdict;
  const waiting = node.rows_waiting ?? 0;
  const head = node.watched?.analysis?.head_room;
  const isOver = head != null && head.rows_per_second <= (node.watched?.analysis?.rows_per_second ?? 0);
  if (node.state === "failed" || node.state === "failing") {
    node.status = "failed";
    node.why = node.error ?? "it has failed";
  } else if (node.kind === "materialized view" && node.state !== null && node.state !== "running") {
    node.status = "filling";
    node.why = `${node.state}: ${short(waiting)} rows that were there before it are still to be read`;
  } else if ((node.lag_seconds ?? 0) > LAG_MAX) {
    node.status = "behind";
    node.why = `${duration(node.lag_seconds)} behind${node.error ? `: ${node.error}` : ""}`;
  } else if (node.kind === "materialized view" && waiting > 0 && ((node.freshness_us ?? 0) / 1e6 > FRESHNESS_MAX || isOver)) {
    node.status = "behind";
    node.why = verdict ?? `${short(waiting)} rows wait for their epoch; the last ones took ${duration((node.freshness_us ?? 0) / 1e6)}`;
  } else if (node.error) {
    node.status = "behind";
    node.why = node.error;
  } else if (!node.rate) {
    node.status = "idle";
  }
}

/** What stands at a node, in the order of its weight: a few words each. */
export function facts(node: Node): string[] {
  const found: string[] = [];
  if (node.kind === "source") {
    if (node.lag_seconds != null) found.push(`${duration(node.lag_seconds)} behind`);
    if (node.state) found.push(node.state);
    return found;
  }
  if (node.freshness_us != null && node.status !== "filling") found.push(`fresh in ${duration(node.freshness_us / 1e6)}`);
  const mark = instant(node.watermark);
  if (mark !== undefined) found.push(`watermark ${duration(Math.max(0, (Date.now() - mark) / 1000))} ago`);
  if (node.kind === "sink") found.push(`${duration(node.lag_seconds)} behind`);
  return found;
}

/** The rate of a node as it is written there. */
export function rateText(node: Node): string {
  if (node.kind === "view") return "not stored";
  return node.rate === undefined ? "…" : rate(node.rate);
}
