// Asking again and again, only while somebody looks. And what becomes of counters: rates, and the last minutes.
import { useEffect, useRef, useState } from "preact/hooks";
import { connection, isConnection } from "./api";

export interface Polled<T> {
  value: T | undefined;
  /** Why there is nothing new, if it is not the connection. */
  error: string | undefined;
  /** Asks at once. */
  again(): void;
}

/** Asks every so many milliseconds while the page is visible. A question waits for the answer to the one before. `everyMs` may depend on
 * that answer. */
export function usePoll<T>(ask: (signal: AbortSignal) => Promise<T>, everyMs: number | (() => number), inputs: unknown[] = []): Polled<T> {
  const [state, setState] = useState<{ value?: T; error?: string }>({});
  const wake = useRef<() => void>(() => {});
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isAsking = false;
    const step = async () => {
      clearTimeout(timer);
      if (isAsking || abort.signal.aborted || document.visibilityState !== "visible") return;
      if (connection.value === "login") {
        timer = setTimeout(step, 500);
        return;
      }
      isAsking = true;
      try {
        const value = await ask(abort.signal);
        if (!abort.signal.aborted) setState({ value });
      } catch (error) {
        if (!abort.signal.aborted && !isConnection(error)) {
          setState((before) => ({ ...before, error: error instanceof Error ? error.message : String(error) }));
        }
      }
      isAsking = false;
      if (!abort.signal.aborted) timer = setTimeout(step, typeof everyMs === "number" ? everyMs : everyMs());
    };
    wake.current = () => void step();
    const seen = () => void step();
    document.addEventListener("visibilitychange", seen);
    void step();
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, inputs);
  return { value: state.value, error: state.error, again: () => wake.current() };
}

/** Values over time, of one thing; the oldest goes first. */
export interface Series {
  at: number[];
  /** `null`: it was not known, as after a restart of the server. */
  values: (number | null)[];
}

/** Samples that are kept: ten minutes at one a second. */
const SAMPLES_MAX = 600;

/** The last minutes of many things, by name. Counters become rates. */
export class History {
  private readonly counters = new Map<string, { at: number; value: number }>();
  private readonly series = new Map<string, Series>();

  /** Notes a value at a time (in seconds). */
  note(name: string, at: number, value: number | null): void {
    let series = this.series.get(name);
    if (!series) this.series.set(name, (series = { at: [], values: [] }));
    series.at.push(at);
    series.values.push(value);
    if (series.at.length > SAMPLES_MAX) {
      series.at.shift();
      series.values.shift();
    }
  }

  /** Notes a counter; answers what it grows by in a second since the last time, unless the server has started anew. */
  count(name: string, at: number, value: number | null | undefined): number | undefined {
    if (value == null) return undefined;
    const before = this.counters.get(name);
    this.counters.set(name, { at, value });
    if (!before || at <= before.at) return undefined;
    if (value < before.value) {
      this.note(name, at, null);
      return undefined;
    }
    const rate = (value - before.value) / (at - before.at);
    this.note(name, at, rate);
    return rate;
  }

  /** As of now: another one each time, by which whoever draws it knows that it has to. */
  of(name: string): Series {
    const { at, values } = this.series.get(name) ?? { at: [], values: [] };
    return { at, values };
  }
}
