// How a relation is, and why if it is not well.
import { cellText } from "../text";
import { duration, plural, short } from "../format";
import type { Node } from "./model";

/** Behind the clock, or the view's target, by more than this, something is wrong with a pipeline (seconds). */
const FRESHNESS_MAX = 2;
const LAG_MAX = 10;

/** Statuses with which something has to be done. */
export function isTrouble(node: Node): boolean {
  return node.status === "behind" || node.status === "failed";
}

/** What EXPLAIN ANALYZE says of a view: the last time that it saw rows, while the view is behind. */
export function verdictOf(node: Node): string | undefined {
  return (node.status === "behind" ? node.useful : node.watched)?.analysis?.verdict;
}

export function judge(node: Node): void {
  [node.status, node.why] = judged(node);
}

function judged(node: Node): [Node["status"], string | undefined] {
  const isView = node.kind === "materialized view";
  if (node.state === "failed" || node.state === "failing") return ["failed", cellText(node.error ?? "it has failed")];
  if (isView && node.state !== null && node.state !== "running") return ["filling", fillingText(node)];
  if ((node.lag_seconds ?? 0) > LAG_MAX + node.holdsSeconds) {
    return ["behind", `${duration(node.lag_seconds)} behind${node.error ? `: ${cellText(node.error)}` : ""}`];
  }
  const late = isView ? lateText(node) : undefined;
  if (late !== undefined) return ["behind", [late, waitText(node), node.useful?.analysis?.verdict].filter((text) => text !== undefined).join("; ")];
  if (node.error) return ["errors", errorsText(node)];
  return [node.isActive ? "ok" : "idle", undefined];
}

/** Why a view is behind: its epoch takes long, or more comes than it can take. */
function lateText(node: Node): string | undefined {
  const fresh = (node.freshness_us ?? 0) / 1e6;
  const most = FRESHNESS_MAX + (node.freshness_target_us ?? 0) / 1e6;
  const analysis = node.watched?.analysis;
  const isOver = analysis?.head_room != null && analysis.head_room.rows_per_second <= analysis.rows_per_second;
  if ((node.underWay ?? 0) > most) return `its epoch has been under way for ${duration(Math.round(node.underWay ?? 0))}`;
  const waiting = node.rows_waiting ?? 0;
  if (node.standsFor > most) return `${waiting === 1 ? "1 row waits" : `${short(waiting)} rows wait`}, and no epoch has changed it for ${duration(Math.round(node.standsFor))}`;
  if (waiting > 0 && (fresh > most || isOver)) return `${waiting === 1 ? "1 row waits for its" : `${short(waiting)} rows wait for their`} epoch; the last ones took ${duration(fresh)}`;
  return undefined;
}

/** What its tasks wait for. */
function waitText(node: Node): string | undefined {
  return node.waitsFor && `its tasks wait for room: ${node.waitsFor}`;
}

function fillingText(node: Node): string {
  const { job } = node;
  if (job) return `it is being filled with what was there before it: ${job.percent.toFixed(0)} %, ${short(job.rows_done)} of ${short(job.rows_total)} rows`;
  return `${node.state}: ${short(node.rows_waiting ?? 0)} rows that were there before it are still to be read`;
}

function errorsText(node: Node): string {
  const times = node.errors === undefined ? "" : `${plural(node.errors, "error")}; the last one: `;
  return `${times}${cellText(node.error ?? "")}`;
}
