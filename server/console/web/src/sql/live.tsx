// A relation that is followed: its rows as they change, as a table, as bars, or each over time.
import { useEffect, useRef, useState } from "preact/hooks";
import { QueryError, Unreachable, follow } from "../api";
import { count, rate, short } from "../format";
import { Chart, type Line } from "../parts/chart";
import { Grid } from "../parts/grid";
import { Icon } from "../parts/icon";
import type { SqlError } from "../result";
import { LiveRows } from "./liverows";
import { ResultChart, guess } from "./plot";
import { ErrorText } from "./results";

/** Between two drawings, and how long a change is marked (milliseconds). */
const DRAW_MS = 200;
const FLASH_MS = 1200;
/** Lines over time, and how far back they go. */
const LINES_MAX = 8;
const SECONDS_MAX = 180;
const RETRY_MS = 1000;

type Shape = "rows" | "bars" | "time";

interface Track {
  at: number[];
  lines: Map<string, (number | null)[]>;
}

export function Live(props: { query: string; onEnd(): void }) {
  const [, setDrawn] = useState(0);
  const [shape, setShape] = useState<Shape>("rows");
  const [error, setError] = useState<SqlError>();
  const [isAway, setAway] = useState(false);
  const rows = useRef(new LiveRows());
  const track = useRef<Track>({ at: [], lines: new Map() });
  const speed = useRef({ at: 0, changes: 0, rate: 0 });
  useEffect(() => {
    const abort = new AbortController();
    let draw: ReturnType<typeof setTimeout> | undefined;
    const changed = () => {
      draw ??= setTimeout(() => {
        draw = undefined;
        setDrawn((number) => number + 1);
      }, DRAW_MS);
    };
    // Nothing is followed while nobody looks.
    let watching = new AbortController();
    const seen = () => document.visibilityState !== "visible" && watching.abort();
    document.addEventListener("visibilitychange", seen);
    const loop = async () => {
      while (!abort.signal.aborted) {
        await untilVisible(abort.signal);
        watching = new AbortController();
        // What is shown stays until there is something new.
        let fresh: LiveRows | undefined;
        try {
          await follow(props.query, AbortSignal.any([abort.signal, watching.signal]), (changes) => {
            setAway(false);
            if (!fresh) rows.current = fresh = new LiveRows();
            fresh.apply(changes, performance.now());
            changed();
          });
          // The server ended it, as it does when it stops.
          setAway(!watching.signal.aborted);
        } catch (failure) {
          if (abort.signal.aborted) return;
          if (watching.signal.aborted) continue;
          if (failure instanceof QueryError && !isAwayCode(failure.error.code)) return setError(failure.error);
          if (!(failure instanceof Unreachable) && !(failure instanceof QueryError)) return setError({ message: String(failure) });
          setAway(true);
        }
        await new Promise((done) => setTimeout(done, RETRY_MS));
      }
    };
    void loop();
    // Once a second: the speed, a point on each line, and the end of what was marked.
    const second = setInterval(() => {
      const now = performance.now();
      const before = speed.current;
      const seconds = (now - before.at) / 1000;
      const changes = rows.current.changes;
      speed.current = { at: now, changes, rate: before.at === 0 ? 0 : Math.max(0, changes - before.changes) / seconds };
      note(track.current, rows.current);
      if (document.visibilityState === "visible") changed();
    }, 1000);
    return () => {
      abort.abort();
      document.removeEventListener("visibilitychange", seen);
      clearTimeout(draw);
      clearInterval(second);
    };
  }, [props.query]);

  const now = rows.current;
  const { rows: shown, changedAt } = now.shown();
  const since = performance.now() - FLASH_MS;
  const lines: Line[] = [...track.current.lines].map(([label, values]) => ({ label, values }));
  return (
    <section class="result live" aria-label="live result">
      <header>
        <span class="tag live-tag">
          <Icon name="live" /> live
        </span>
        <span class="quiet" data-rows={now.total}>
          {count(now.total)} rows, {count(now.changes)} changes, {rate(speed.current.rate, "changes")}
          {now.epoch !== undefined ? `, epoch ${count(now.epoch)}` : ""}
        </span>
        {isAway && <span class="why behind">the server is away; following again</span>}
        {now.total > shown.length && <span class="quiet">the newest {count(shown.length)} are kept</span>}
        <span class="grow" />
        {(["rows", "bars", "time"] as const).map((name) => (
          <button key={name} class="small" aria-pressed={shape === name} onClick={() => setShape(name)}>
            {name === "rows" ? "Rows" : name === "bars" ? "Chart" : "Over time"}
          </button>
        ))}
        <button class="small" onClick={props.onEnd}>
          <Icon name="stop" /> Stop
        </button>
      </header>
      {error && <ErrorText error={error} />}
      {!error && now.columns.length === 0 && <p class="quiet">No rows yet. What comes shows here.</p>}
      {now.columns.length > 0 && shape === "rows" && (
        <Grid label="rows that change" columns={now.columns} rows={shown} height={480} mark={(at) => ((changedAt[at] ?? 0) > since ? "flash" : "")} />
      )}
      {now.columns.length > 0 && shape === "bars" && <ResultChart columns={now.columns} rows={shown} height={360} />}
      {shape === "time" &&
        (lines.length === 0 ? (
          <p class="quiet">There is no column of numbers to draw, or nothing was seen for a second yet.</p>
        ) : (
          <Chart label="values over time" x={track.current.at} lines={lines} time height={360} format={short} />
        ))}
    </section>
  );
}

/** The server stops, or starts. */
function isAwayCode(code: string | undefined): boolean {
  return code?.startsWith("57P") ?? false;
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

/** Adds a point to the line of each of the first rows: a number, called by the row's name. */
function note(track: Track, rows: LiveRows): void {
  const columns = guess(rows.columns);
  if (!columns) return;
  const [x, y] = columns;
  track.at.push(Date.now() / 1000);
  const values = new Map<string, number | null>();
  for (const row of rows.shown().rows.slice(0, LINES_MAX)) {
    const cell = row[y];
    values.set(x === y ? (rows.columns[y]?.name ?? "value") : (row[x] ?? "NULL"), cell == null ? null : Number(cell));
  }
  for (const label of values.keys()) {
    if (!track.lines.has(label) && track.lines.size < LINES_MAX) track.lines.set(label, track.at.slice(1).map(() => null));
  }
  for (const [label, line] of track.lines) line.push(values.get(label) ?? null);
  while (track.at.length > SECONDS_MAX) {
    track.at.shift();
    for (const line of track.lines.values()) line.shift();
  }
}
