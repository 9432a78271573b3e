// The demo's data, from the page: declares what the demo declares, loads its tables and replays its flights, as any client would.
import { signal } from "@preact/signals";
import { QueryError, ingest, run } from "./api";

interface Description {
  relations: string[];
  tables: { table: string; file: string }[];
  views: { name: string; create: string; show: string }[];
  stream: string;
  rows: string;
}

export interface Replay {
  what: string;
  sent: number;
  total: number;
}

/** Flights a second, and batches a second. */
const RATE = 1000;
const BATCHES_A_SECOND = 4;

/** The replay, while there is one. */
export const replay = signal<Replay | undefined>(undefined);
/** Why the last one ended before its end. */
export const replayError = signal("");

let isStopping = false;

/** Asks a replay to end after its batch. */
export function stopReplay(): void {
  isStopping = true;
}

async function text(file: string): Promise<string> {
  const response = await fetch(`/console/${file}`, { credentials: "omit" });
  if (!response.ok) throw new Error(`${file} could not be loaded`);
  return response.text();
}

/** Makes something; that it is there already is no failure. */
async function declare(statement: string): Promise<boolean> {
  try {
    await run(statement);
    return true;
  } catch (error) {
    if (error instanceof QueryError && error.error.code === "42P07") return false;
    throw error;
  }
}

/** See the file. */
export async function startReplay(): Promise<void> {
  if (replay.value) return;
  isStopping = false;
  replayError.value = "";
  const say = (what: string, sent = 0, total = 0) => (replay.value = { what, sent, total });
  try {
    say("Creating a stream, three tables and four views");
    const description = JSON.parse(await text("flights.json")) as Description;
    const isNew: boolean[] = [];
    for (const statement of description.relations) isNew.push(await declare(statement));
    for (const view of description.views) await declare(view.create);
    for (const [at, { table, file }] of description.tables.entries()) {
      // The first relation is the stream.
      if (!isNew[at + 1]) continue;
      say(`Loading ${table}`);
      await ingest(table, "text/csv", withoutNa(await text(file)));
    }
    const lines = (await text(description.rows)).trimEnd().split("\n");
    const size = RATE / BATCHES_A_SECOND;
    for (let sent = 0; sent < lines.length && !isStopping; sent += size) {
      const begun = performance.now();
      await ingest(description.stream, "application/x-ndjson", lines.slice(sent, sent + size).join("\n"));
      say("Replaying flights", Math.min(lines.length, sent + size), lines.length);
      await new Promise((done) => setTimeout(done, Math.max(0, 1000 / BATCHES_A_SECOND - (performance.now() - begun))));
    }
  } catch (error) {
    replayError.value = error instanceof Error ? error.message : String(error);
  }
  replay.value = undefined;
}

/** The files have `NA` where there is nothing. */
function withoutNa(csv: string): string {
  return csv.replace(/(^|,)NA(?=,|$)/gm, "$1");
}
