// For how long the epoch of a pipeline that is under way has been. The server tells of epochs when they are committed; until then one sees
// that rows were written, or that its views grow, while its epoch stays the same.
import type { Relation } from "./model";

/** An epoch under way. */
export interface UnderWay {
  seconds: number;
  /** It was under way already when one began to look. */
  isLonger: boolean;
}

interface Seen {
  epoch: number;
  /** Changes of its inputs, and bytes of its views. */
  written: number;
  bytes: number;
  /** How often in a row its views have grown while nothing was committed. */
  growths: number;
  since: number | undefined;
  isLonger: boolean;
}

/** So often a view has to grow in a row until that counts as work: what is tidied up takes less. */
const GROWTHS = 3;

/** What was seen of the pipelines so far. */
export class Epochs {
  private seen = new Map<number, Seen>();

  /** Notes how the relations are at a time (in seconds), and answers which pipelines have an epoch under way. */
  note(rows: Relation[], at: number): Map<number, UnderWay> {
    const now = new Map<number, Seen>();
    const running = new Set(rows.filter((row) => row.kind === "materialized view" && row.state === "running").map((row) => row.pipeline));
    for (const row of rows) {
      if (row.pipeline === null || row.epoch === null || !running.has(row.pipeline)) continue;
      const seen = now.get(row.pipeline) ?? { epoch: row.epoch, written: 0, bytes: 0, growths: 0, since: undefined, isLonger: false };
      seen.epoch = Math.max(seen.epoch, row.epoch);
      if (row.kind === "stream" || row.kind === "table") seen.written += row.changes ?? 0;
      else seen.bytes += row.bytes;
      now.set(row.pipeline, seen);
    }
    const found = new Map<number, UnderWay>();
    for (const [pipeline, seen] of now) {
      const before = this.seen.get(pipeline);
      if (before && before.epoch === seen.epoch) goOn(seen, before, at);
      if (seen.since !== undefined) found.set(pipeline, { seconds: at - seen.since, isLonger: seen.isLonger });
    }
    this.seen = now;
    return found;
  }
}

/** What is known of an epoch that was not committed since the last look. */
function goOn(seen: Seen, before: Seen, at: number): void {
  seen.since = before.since;
  seen.isLonger = before.isLonger;
  seen.growths = seen.bytes > before.bytes ? before.growths + 1 : 0;
  if (seen.since !== undefined) return;
  if (seen.written > before.written) {
    seen.since = at;
  } else if (seen.growths >= GROWTHS) {
    seen.since = at;
    seen.isLonger = true;
  }
}
