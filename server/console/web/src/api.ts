// How the page talks to the server: the same HTTP as any other client. Who one is, is kept here and nowhere else: in memory.
import { signal } from "@preact/signals";
import { ResultReader, type Result, type SqlError } from "./result";

/** What the server says of itself: it answers, it does not (yet), or it wants to know who asks. */
export type Connection = "ok" | "starting" | "away" | "login";

/** How the last request went. */
export const connection = signal<Connection>("ok");
/** Why, if it did not. */
export const connectionDetail = signal("");
/** Whoever logged in; `undefined`: nobody had to. */
export const user = signal<string | undefined>(undefined);

let authorization: string | undefined;

/** An error as SQL has it. */
export class QueryError extends Error {
  constructor(readonly error: SqlError) {
    super(error.message);
  }
}

/** The server did not answer, or not as it does. */
export class Unreachable extends Error {}

function headers(more: Record<string, string>): Record<string, string> {
  return authorization ? { ...more, Authorization: authorization } : more;
}

/** Sends a request; what it means for the connection is noted. */
export async function request(
  path: string,
  init: { method?: string; headers?: Record<string, string>; body?: string; signal?: AbortSignal },
): Promise<Response> {
  let response: Response;
  try {
    // Without credentials a browser asks nobody for a password by itself.
    response = await fetch(path, { ...init, headers: headers(init.headers ?? {}), credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    connection.value = "away";
    connectionDetail.value = "";
    throw new Unreachable("the server does not answer");
  }
  if (response.status === 401) {
    connection.value = "login";
  } else if (response.status === 503) {
    const body: { error?: SqlError } = await response.clone().json().catch(() => ({}));
    connection.value = "starting";
    connectionDetail.value = body.error?.message ?? "";
  } else {
    connection.value = "ok";
  }
  return response;
}

/** Whether a failure is one of the connection, which is shown at one place for all. */
export function isConnection(error: unknown): boolean {
  return error instanceof Unreachable;
}

const JSON_HEADERS = { "Content-Type": "application/json", Accept: "application/json" };

interface JsonResult {
  col_names?: string[];
  rows?: unknown[][];
  error?: SqlError;
}

/** Runs statements that the page needs, all in one request; the rows of each as objects. Large integers lose digits. */
export async function selectAll(queries: string[], signal?: AbortSignal): Promise<Record<string, unknown>[][]> {
  const body = JSON.stringify({ queries: queries.map((query) => ({ query })) });
  const response = await request("/api/sql", { method: "POST", headers: JSON_HEADERS, body, signal });
  const answer: { results?: JsonResult[]; error?: SqlError } = await response.json().catch(() => {
    throw new Unreachable("the answer is no JSON");
  });
  if (response.status === 401 || response.status === 503) throw new Unreachable("not now");
  if (answer.error) throw new QueryError(answer.error);
  return (answer.results ?? []).map((result) => {
    if (result.error) throw new QueryError(result.error);
    const names = result.col_names ?? [];
    return (result.rows ?? []).map((row) => Object.fromEntries(names.map((name, at) => [name, row[at]])));
  });
}

/** The rows of one statement. */
export async function select<T>(query: string, signal?: AbortSignal): Promise<T[]> {
  const [rows] = await selectAll([query], signal);
  return (rows ?? []) as T[];
}

/** Runs a statement for its effect. */
export async function run(query: string): Promise<void> {
  await selectAll([query]);
}

/** The one document of EXPLAIN (FORMAT JSON). */
export async function document<T>(query: string, signal?: AbortSignal): Promise<T> {
  const rows = await select<Record<string, string>>(query, signal);
  const text = rows[0] && Object.values(rows[0])[0];
  return JSON.parse(text ?? "null") as T;
}

/** The lines of an explanation. */
export async function lines(query: string, signal?: AbortSignal): Promise<string[]> {
  const rows = await select<Record<string, string>>(query, signal);
  return rows.map((row) => Object.values(row)[0] ?? "");
}

/** Statements of a user, whose results come while they run. */
export interface Running {
  id: string;
  results: Promise<Result[]>;
  cancel(): void;
}

/** Rows of a result that are kept; what is more is for a file. */
export const ROWS_MAX = 100_000;

/** Runs statements of a user, one after the other until one fails. `changed` is called as results grow. */
export function runStatements(statements: string[], changed: (results: Result[]) => void): Running {
  const id = crypto.randomUUID ? crypto.randomUUID() : `console-${Date.now()}-${Math.random()}`;
  const abort = new AbortController();
  const results = (async () => {
    const reader = new ResultReader(ROWS_MAX);
    const response = await request("/api/sql", {
      method: "POST",
      headers: { ...JSON_HEADERS, "X-Query-Id": id },
      body: JSON.stringify({ queries: statements.map((query) => ({ query })) }),
      signal: abort.signal,
    });
    if (response.status === 401) throw new Unreachable("log in first");
    const body = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    let drawn = 0;
    while (body) {
      const { done, value } = await body.read();
      if (done) break;
      reader.push(value);
      if (reader.isFull) {
        abort.abort();
        break;
      }
      if (performance.now() - drawn > 100) {
        drawn = performance.now();
        changed(reader.snapshot());
      }
    }
    reader.finish();
    return reader.snapshot();
  })();
  return { id, results, cancel: () => void cancelQuery(id).catch(() => abort.abort()) };
}

/** Cancels a statement by its id. */
async function cancelQuery(id: string): Promise<void> {
  await request(`/api/queries/${encodeURIComponent(id)}`, { method: "DELETE" });
}

/** A change of a relation that is followed. */
export interface Change {
  epoch?: number;
  op?: "insert" | "delete" | "update_delete" | "update_insert";
  row?: Record<string, unknown>;
  progress?: { epoch: number };
  heartbeat?: object;
  error?: SqlError;
}

/** Integers that are too long for a number stay texts, where the browser tells what was written. */
function exact(_: string, value: unknown, context?: { source?: string }): unknown {
  return typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) ? (context?.source ?? value) : value;
}

/** Follows a relation until the signal ends it; `batch` gets what came together. */
export async function follow(query: string, signal: AbortSignal, batch: (changes: Change[]) => void): Promise<void> {
  const response = await request("/api/subscribe", {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/x-ndjson" },
    body: JSON.stringify({ query, heartbeat: "15s" }),
    signal,
  });
  if (!response.ok || !response.body) {
    const answer: { error?: SqlError } = await response.json().catch(() => ({}));
    throw answer.error ? new QueryError(answer.error) : new Unreachable("no answer");
  }
  const body = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await body.read().catch((error: unknown) => {
      if (signal.aborted) return { done: true, value: undefined };
      connection.value = "away";
      throw error instanceof Error ? new Unreachable(error.message) : error;
    });
    if (done || value === undefined) break;
    const texts = (rest + value).split("\n");
    rest = texts.pop() ?? "";
    const changes = texts.filter((text) => text !== "").map((text) => JSON.parse(text, exact) as Change);
    const failed = changes.find((change) => change.error)?.error;
    if (failed) throw new QueryError(failed);
    if (changes.length > 0) batch(changes);
  }
}

/** Sends rows to a stream or table. */
export async function ingest(relation: string, type: string, body: string): Promise<void> {
  const path = `/api/ingest/${encodeURIComponent(relation)}`;
  const response = await request(path, { method: "POST", headers: { "Content-Type": type }, body });
  if (!response.ok) {
    const answer: { error?: SqlError } = await response.json().catch(() => ({}));
    throw answer.error ? new QueryError(answer.error) : new Unreachable("no answer");
  }
}

function base64(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

/** Shows who one is; false if the server does not accept it. With a name it is a password, without one a token. */
export async function logIn(name: string, secret: string): Promise<boolean> {
  const before = authorization;
  authorization = name === "" ? `Bearer ${secret}` : `Basic ${base64(`${name}:${secret}`)}`;
  try {
    const [who] = await select<{ who: string }>("SELECT current_user AS who");
    user.value = who?.who ?? name;
    return true;
  } catch (error) {
    authorization = before;
    if (error instanceof Unreachable && connection.value === "login") return false;
    throw error;
  }
}

/** Forgets who one was, and everything that was shown: both are in the memory of the page only. */
export function logOut(): void {
  location.reload();
}
