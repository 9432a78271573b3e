// A relation that is followed: its rows as they change, whatever page is shown, until it is ended. Nothing is followed while nobody looks
// at the console at all.
import { signal } from "@preact/signals";
import { NotLoggedIn, QueryError, Unreachable, connection, follow } from "../api";
import type { SqlError } from "../result";
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
  /** The server wants a login, and goes on with it then. */
  isLocked = false;
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
    let fresh: LiveRows | undefined;
    await follow(this.query, signal, (changes) => {
      this.setAway(false);
      const columns = changes.find((change) => change.columns)?.columns;
      if (columns || !fresh) {
        this.rows = fresh = new LiveRows(columns);
        this.before = { at: 0, changes: 0 };
      }
      fresh.apply(changes, performance.now());
      this.changed();
    });
  }

  /** Whether it goes by: the server stops, or starts, or wants a login. */
  private isPassing(failure: unknown): boolean {
    this.isLocked = failure instanceof NotLoggedIn;
    const isAway = failure instanceof Unreachable || (failure instanceof QueryError && (failure.error.code?.startsWith("57P") ?? false));
    if (isAway) this.setAway(true);
    return isAway;
  }

  private fail(failure: unknown): void {
    this.error = failure instanceof QueryError ? failure.error : { message: String(failure) };
    this.failed(this.error);
    this.end();
    this.drawn.value++;
  }
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
