// A relation that is followed: its rows as they change, whatever page is shown, until it is ended. Nothing is followed while nobody looks
// at the console at all.
import { signal } from "@preact/signals";
import { NotLoggedIn, QueryError, Unreachable, columnsOf, connection, follow } from "../api";
import type { SqlError } from "../result";
import { beginning, firstWord } from "./dialect";
import { LiveRows } from "./liverows";
import { Track } from "./track";

/** Between two drawings (milliseconds). */
const DRAW_MS = 200;
const RETRY_MS = 1000;

/** See the file. */
export class Following {
  /** Another number when there is something new to draw. */
  readonly drawn = signal(0);
  readonly track = new Track();
  rows = new LiveRows();
  error: SqlError | undefined;
  isAway = false;
  /** Changes a second. */
  rate = 0;
  private readonly abort = new AbortController();
  private drawing: ReturnType<typeof setTimeout> | undefined;
  private readonly clock: ReturnType<typeof setInterval>;
  private before = { at: 0, changes: 0 };

  /** `failed` is told what is wrong with the query, with its position in it. */
  constructor(
    readonly query: string,
    private readonly failed: (error: SqlError) => void,
  ) {
    // Once a second: the speed, a point on each line, and the end of what was marked.
    this.clock = setInterval(() => this.second(), 1000);
    void this.loop();
  }

  end(): void {
    this.abort.abort();
    clearTimeout(this.drawing);
    clearInterval(this.clock);
  }

  private changed(): void {
    this.drawing ??= setTimeout(() => {
      this.drawing = undefined;
      this.drawn.value++;
    }, DRAW_MS);
  }

  private second(): void {
    const now = performance.now();
    const { changes } = this.rows;
    const { before } = this;
    this.rate = before.at === 0 ? 0 : (Math.max(0, changes - before.changes) / (now - before.at)) * 1000;
    this.before = { at: now, changes };
    this.track.note(Date.now() / 1000, this.rows);
    if (document.visibilityState === "visible") this.changed();
  }

  private setAway(isAway: boolean): void {
    if (this.isAway === isAway) return;
    this.isAway = isAway;
    this.changed();
  }

  private async loop(): Promise<void> {
    const ended = this.abort.signal;
    while (!ended.aborted) {
      await untilVisible(ended);
      if (ended.aborted) return;
      const watching = new AbortController();
      const seen = () => document.visibilityState !== "visible" && watching.abort();
      document.addEventListener("visibilitychange", seen);
      try {
        await this.once(AbortSignal.any([ended, watching.signal]));
        // The server ended it, as it does when it stops.
        this.setAway(!watching.signal.aborted);
      } catch (failure) {
        if (ended.aborted) return;
        if (!watching.signal.aborted && !this.isPassing(failure)) return this.fail(failure);
      } finally {
        document.removeEventListener("visibilitychange", seen);
      }
      await new Promise((done) => setTimeout(done, RETRY_MS));
    }
  }

  /** Follows it until the connection ends. What is shown stays until there is something new. */
  private async once(signal: AbortSignal): Promise<void> {
    if (connection.value === "login") throw new NotLoggedIn();
    const columns = await this.columns();
    if (this.rows.columns.length === 0 && columns.length > 0) {
      this.rows = new LiveRows(columns);
      this.changed();
    }
    let fresh: LiveRows | undefined;
    await follow(this.query, signal, (changes) => {
      this.setAway(false);
      if (!fresh) {
        this.rows = fresh = new LiveRows(columns);
        this.before = { at: 0, changes: 0 };
      }
      fresh.apply(changes, performance.now());
      this.changed();
    });
  }

  /** The types of its columns, as the server has them; of what cannot be selected from they are not known before there is a row. */
  private async columns(): Promise<{ name: string; type: string }[]> {
    const { text, from, offset } = asSelect(this.query);
    try {
      return await columnsOf(text);
    } catch (failure) {
      if (!(failure instanceof QueryError)) throw failure;
      const { position } = failure.error;
      this.fault = { ...failure.error, position: position === undefined ? undefined : Math.max(1, position - from + offset) };
      return [];
    }
  }

  /** What the server said of the query as a SELECT. It counts if it cannot be followed either. */
  private fault: SqlError | undefined;

  /** Whether it goes by: the server stops, or starts, or wants a login. */
  private isPassing(failure: unknown): boolean {
    const isAway = failure instanceof Unreachable || (failure instanceof QueryError && (failure.error.code?.startsWith("57P") ?? false));
    if (isAway) this.setAway(true);
    return isAway;
  }

  private fail(failure: unknown): void {
    const error = failure instanceof QueryError ? failure.error : { message: String(failure) };
    this.error = this.fault && this.fault.code === error.code ? this.fault : error;
    this.failed(this.error);
    this.end();
    this.drawn.value++;
  }
}

/** A query whose columns are those of what is followed: `from` characters were put before what stands `offset` behind its beginning. */
function asSelect(query: string): { text: string; from: number; offset: number } {
  let rest = query;
  if (firstWord(rest) === "SUBSCRIBE") rest = rest.replace(/^\s*subscribe\s+(to\s+)?/i, "");
  rest = rest.slice(beginning(rest));
  const offset = query.length - rest.length;
  const inner = /^\(([^]*)\)[^)]*$/.exec(rest)?.[1];
  const isQuery = inner !== undefined || ["SELECT", "WITH", "VALUES"].includes(firstWord(rest));
  if (isQuery) {
    const head = "SELECT * FROM (";
    return { text: `${head}${inner ?? rest}\n) AS followed LIMIT 0`, from: head.length, offset: offset + (inner === undefined ? 0 : 1) };
  }
  const name = /^("([^"]|"")*"|[^\s"(;])+/.exec(rest)?.[0] ?? rest;
  const head = "SELECT * FROM ";
  return { text: `${head}${name} LIMIT 0`, from: head.length, offset };
}

/** Until the page is looked at, or the signal ends the waiting. */
function untilVisible(signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const look = () => {
      if (document.visibilityState !== "visible" && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      done();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
    look();
  });
}
