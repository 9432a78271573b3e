// The demo's data, from the page: declares what the demo declares, loads its tables and replays its flights, as any client would.
import { signal } from "@preact/signals";
import { QueryError, Unreachable, ingest, newId, run, select } from "./api";

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
/** Between two attempts to reach a server that is away (milliseconds). */
const RETRY_MS = 1000;

const ROWS = "SELECT name, rows FROM mr_catalog.relations WHERE schema = 'public' AND database = current_database()";

/** The replay, while there is one. */
export const replay = signal<Replay | undefined>(undefined);
/** Why the last one ended before its end. */
export const replayError = signal("");

let isStopping = false;

/** The relations of the demo, and its rows. */
const RELATIONS = { flights: "stream", airlines: "table", airports: "table", planes: "table" };
export const FLIGHTS = 27_004;

/** How many flights were replayed, where the demo's relations are, and not all of them. */
export function replayedSoFar(
  relations: { name: string; schema: string; kind: string; rows: number | null; rate: number | undefined }[],
): number | undefined {
  const found = Object.entries(RELATIONS).map(([name, kind]) => relations.find((one) => one.name === name && one.schema === "public" && one.kind === kind));
  const rows = found[0]?.rows;
  // While flights come in, somebody else is at it; at the first look that is not known.
  const comeIn = found[0]?.rate === undefined || found[0].rate > 0;
  return found.every((one) => one !== undefined) && rows != null && rows < FLIGHTS && !comeIn ? rows : undefined;
}

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
async function declare(statement: string): Promise<void> {
  try {
    await run(statement);
  } catch (error) {
    if (!(error instanceof QueryError && error.error.code === "42P07")) throw error;
  }
}

async function send(stream: string, lines: string[]): Promise<void> {
  // What was sent when the server went away is sent again, and is there once.
  const key = newId();
  for (;;) {
    try {
      return await ingest(stream, "application/x-ndjson", lines.join("\n"), key);
    } catch (error) {
      if (!(error instanceof Unreachable) || isStopping) throw error;
    }
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
}

/** Declares, loads and replays what is not there yet: one that was ended before its end goes on where it was. */
export async function startReplay(): Promise<void> {
  if (replay.value) return;
  isStopping = false;
  replayError.value = "";
  const say = (what: string, sent = 0, total = 0) => (replay.value = { what, sent, total });
  try {
    say("Creating a stream, three tables and four views");
    const description = JSON.parse(await text("flights.json")) as Description;
    for (const statement of description.relations) await declare(statement);
    for (const view of description.views) await declare(view.create);
    const rows = new Map((await select<{ name: string; rows: number }>(ROWS)).map((relation) => [relation.name, relation.rows]));
    for (const { table, file } of description.tables) {
      if (rows.get(table)) continue;
      say(`Loading ${table}`);
      await ingest(table, "text/csv", withoutNa(await text(file)));
    }
    const lines = (await text(description.rows)).trimEnd().split("\n");
    const size = RATE / BATCHES_A_SECOND;
    for (let sent = rows.get(description.stream) ?? 0; sent < lines.length && !isStopping; sent += size) {
      const begun = performance.now();
      await send(description.stream, lines.slice(sent, sent + size));
      say("Replaying flights", Math.min(lines.length, sent + size), lines.length);
      await new Promise((done) => setTimeout(done, Math.max(0, 1000 / BATCHES_A_SECOND - (performance.now() - begun))));
    }
  } catch (error) {
    if (!isStopping) replayError.value = error instanceof Error ? error.message : String(error);
  }
  replay.value = undefined;
}

/** The files have `NA` where there is nothing. */
function withoutNa(csv: string): string {
  return csv.replace(/(^|,)NA(?=,|$)/gm, "$1");
}
