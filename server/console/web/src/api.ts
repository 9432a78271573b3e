// How the page talks to the server: the same HTTP as any other client. Who one is, is kept here and nowhere else: in memory.
import { signal } from "@preact/signals";
import { ResultReader, type Result, type SqlError } from "./result";

/** What the server says of itself: nothing so far, it answers, it does not (yet), or it wants to know who asks. */
export type Connection = "unknown" | "ok" | "starting" | "away" | "login";

/** How the last request went. */
export const connection = signal<Connection>("unknown");
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

/** The server wants to know who asks: what was sent was not done. */
export class NotLoggedIn extends Unreachable {
  constructor() {
    super("The server wants a login, and did not run this: log in, then run it again.");
  }
}

/** What is called when the one who is there now is not the one who was there before. */
const forgetting: (() => void)[] = [];

/** Has something forgotten for somebody else. */
export function forgetForOthers(forget: () => void): void {
  forgetting.push(forget);
}

/** Where the browser keeps whose texts and history it has. */
const OWNER = "millrace.owner";

/** Whether what a storage of the browser keeps is of the one who is here. Nobody has to log in: it is of nobody. */
export function isMine(storage: Storage): boolean {
  return (storage.getItem(OWNER) ?? "") === (user.value ?? "");
}

/** Whether it is known who is here. */
let isClaimed = false;

/** Somebody is here; `undefined`: nobody had to log in. What was shown to somebody else, or kept of them, is forgotten. */
function comes(who: string | undefined): void {
  isClaimed = true;
  let isOther = user.value !== undefined && user.value !== who;
  try {
    for (const storage of [localStorage, sessionStorage]) {
      const owner = storage.getItem(OWNER) ?? "";
      isOther ||= owner !== "" && owner !== (who ?? "");
      if (who === undefined) storage.removeItem(OWNER);
      else storage.setItem(OWNER, who);
    }
  } catch {
    // This browser keeps nothing.
  }
  user.value = who;
  if (isOther) for (const forget of forgetting) forget();
}

function headers(more: Record<string, string>): Record<string, string> {
  return authorization ? { ...more, Authorization: authorization } : more;
}

interface Sent {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
  signal?: AbortSignal;
}

/** The first request: the others wait for what it says of the server. */
let first: Promise<unknown> | undefined;

/**
 * Sends a request; what it means for the connection is noted. Where the server wants a login nothing is sent but that: it would be
 * refused, and the server would have to take it for somebody who guesses.
 */
export async function request(path: string, init: Sent): Promise<Response> {
  while (connection.value === "unknown" && first) await first;
  if (connection.value === "login") throw new NotLoggedIn();
  const answer = send(path, init);
  if (connection.value !== "unknown") return answer;
  const isAnswered = () => (first = undefined);
  first = answer.then(isAnswered, isAnswered);
  return answer;
}

/** Sends it, whatever is known of the connection. */
async function send(path: string, init: Sent): Promise<Response> {
  const sent = authorization;
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
    // It may be the answer to what was asked before somebody logged in.
    if (sent === authorization) connection.value = "login";
  } else if (response.status === 503) {
    const body: { error?: SqlError } = await response.clone().json().catch(() => ({}));
    connection.value = "starting";
    connectionDetail.value = body.error?.message ?? "";
  } else {
    if (!isClaimed && sent === undefined) comes(undefined);
    // Of a login it is told when it is known who that is.
    if (isClaimed) connection.value = "ok";
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
  col_types?: string[];
  rows?: unknown[][];
  error?: SqlError;
}

/** Asks with statements, all in one request. `id`: by which they can be cancelled. */
async function results(queries: string[], signal?: AbortSignal, id?: string, ask = request): Promise<JsonResult[]> {
  const body = JSON.stringify({ queries: queries.map((query) => ({ query })) });
  const headers = id === undefined ? JSON_HEADERS : { ...JSON_HEADERS, "X-Query-Id": id };
  const response = await ask("/api/sql", { method: "POST", headers, body, signal });
  const answer: { results?: JsonResult[]; error?: SqlError } = await response.json().catch(() => {
    throw new Unreachable("the answer is no JSON");
  });
  if (response.status === 401) throw new NotLoggedIn();
  if (response.status === 503) throw new Unreachable("not now");
  if (answer.error) throw new QueryError(answer.error);
  for (const result of answer.results ?? []) if (result.error) throw new QueryError(result.error);
  return answer.results ?? [];
}

/** Runs statements that the page needs; the rows of each as objects. Large integers lose digits. */
export async function selectAll(queries: string[], signal?: AbortSignal, id?: string): Promise<Record<string, unknown>[][]> {
  return (await results(queries, signal, id)).map((result) => {
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
export async function document<T>(query: string, signal?: AbortSignal, id?: string): Promise<T> {
  const [rows] = await selectAll([query], signal, id);
  const text = rows?.[0] && (Object.values(rows[0])[0] as string);
  return JSON.parse(text ?? "null") as T;
}

/** Has the statements behind it, in the same request, read what is committed: they do not wait for the epoch that is under way. */
export const WITHOUT_WAITING = "SET read_consistency = 'snapshot'";

/** The lines of an explanation. */
export async function lines(query: string, signal?: AbortSignal): Promise<string[]> {
  const rows = await select<Record<string, string>>(query, signal);
  return rows.map((row) => Object.values(row)[0] ?? "");
}

/** Statements of a user, whose results come while they run. */
export interface Running {
  id: string;
  results: Promise<Result[]>;
  /** Ends them, and their results say so. */
  cancel(): void;
  /** Nobody waits for them any more: the server ends what a client has left. */
  leave(): void;
}

/** Rows of a result that are kept, and characters of all of them; what is more is for a file. */
export const ROWS_MAX = 100_000;
const CHARACTERS_MAX = 200_000_000;

/** A name for a request, by which it can be cancelled. */
export function newId(): string {
  return crypto.randomUUID ? crypto.randomUUID() : `console-${Date.now()}-${Math.random()}`;
}

/**
 * Runs statements of a user, one after the other until one fails. `changed` is called as results grow. Rows beyond those that are
 * kept are read and forgotten, so that the statement ends as it would, and those after it run; `mayEndEarly` says that nothing is
 * lost if the last statement does not end.
 */
export function runStatements(statements: string[], mayEndEarly: boolean, changed: (results: Result[]) => void): Running {
  const id = newId();
  const abort = new AbortController();
  const results = (async () => {
    const reader = new ResultReader(ROWS_MAX, CHARACTERS_MAX);
    const response = await request("/api/sql", {
      method: "POST",
      headers: { ...JSON_HEADERS, "X-Query-Id": id },
      // JSON's null is another value than NULL, and a JSON text another than its letters.
      body: JSON.stringify({ queries: statements.map((query) => ({ query })), json: "text" }),
      signal: abort.signal,
    });
    if (response.status === 401) throw new NotLoggedIn();
    const body = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    let drawn = 0;
    while (body) {
      const { done, value } = await body.read();
      if (done) break;
      reader.push(value);
      if (mayEndEarly && reader.isCutting && reader.results.length === statements.length) {
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
  return { id, results, cancel: () => void cancelQuery(id).catch(() => abort.abort()), leave: () => abort.abort() };
}

/** Cancels a statement by its id. */
export async function cancelQuery(id: string): Promise<void> {
  await request(`/api/queries/${encodeURIComponent(id)}`, { method: "DELETE" });
}

/** A change of a relation that is followed. */
export interface Change {
  epoch?: number;
  op?: "insert" | "delete" | "update_delete" | "update_insert";
  row?: Record<string, unknown>;
  columns?: { name: string; type: string }[];
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
    body: JSON.stringify({ query, heartbeat: "15s", columns: true }),
    signal,
  });
  if (response.status === 401) throw new NotLoggedIn();
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

/** Sends rows to a stream or table. With a key they are written once, however often they are sent. */
export async function ingest(relation: string, type: string, body: string, key?: string): Promise<void> {
  const path = `/api/ingest/${encodeURIComponent(relation)}`;
  const headers: Record<string, string> = key === undefined ? { "Content-Type": type } : { "Content-Type": type, "Idempotency-Key": key };
  const response = await request(path, { method: "POST", headers, body });
  if (response.status === 401) throw new NotLoggedIn();
  if (response.status === 503) throw new Unreachable("not now");
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
  // A header takes no other characters, and no token has them.
  if (name === "" && !/^[\x21-\x7e]+$/.test(secret)) return false;
  const before = authorization;
  authorization = name === "" ? `Bearer ${secret}` : `Basic ${base64(`${name}:${secret}`)}`;
  try {
    const [who] = await results(["SELECT current_user"], undefined, undefined, send);
    const now = String(who?.rows?.[0]?.[0] ?? name);
    comes(now);
    connection.value = "ok";
    return true;
  } catch (error) {
    authorization = before;
    if (error instanceof Unreachable && connection.value === "login") return false;
    throw error;
  }
}

/** Forgets who one was, and everything that was shown or kept for them. */
export function logOut(): void {
  comes(undefined);
  location.reload();
}
