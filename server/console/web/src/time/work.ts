// The work of the page Time: what is analysed now, and what was answered last. It goes on while another page is shown.
import { signal } from "@preact/signals";
import { NotLoggedIn, QueryError, Unreachable, cancelQuery, document as explained, forgetForOthers, newId } from "../api";
import type { SqlError } from "../result";
import { statements } from "../sql/dialect";
import { KeptText } from "../sql/kept";
import { markOf, type Mark } from "../sql/place";
import type { Run, ViewRun } from "./profile";

/** An answer, and what it is about. */
export type Shown = { of: string; query: Run } | { of: string; view: ViewRun };

/** What is asked now. */
export interface Asking {
  what: string;
  begun: number;
  cancel(): void;
}

export const shown = signal<Shown | undefined>(undefined);
export const asking = signal<Asking | undefined>(undefined);
export const error = signal<SqlError | undefined>(undefined);
export const marks = signal<Mark[]>([]);
/** Another number when there may be another profile in the server. */
export const rounds = signal(0);

const text = new KeptText("millrace.query");

/** What stands in the editor. */
export function editorText(): string {
  return text.text;
}

/** What stands in the editor now: nothing of it is underlined any more. */
export function keepText(changed: string): void {
  text.set(changed);
  marks.value = [];
}

async function ask<T>(what: string, question: string, done: (found: T) => Shown, failed?: (error: SqlError) => void): Promise<void> {
  if (asking.value) {
    error.value = { message: "Something is still being analysed: wait for it, or cancel it." };
    return;
  }
  const id = newId();
  const mine: Asking = { what, begun: performance.now(), cancel: () => void cancelQuery(id).catch(() => {}) };
  asking.value = mine;
  error.value = undefined;
  marks.value = [];
  try {
    const found = await explained<T>(question, undefined, id);
    if (asking.value === mine) shown.value = done(found);
  } catch (failure) {
    if (asking.value === mine) {
      error.value = failure instanceof QueryError ? failure.error : { message: failureText(failure) };
      failed?.(error.value);
    }
  }
  if (asking.value === mine) asking.value = undefined;
  rounds.value++;
}

function failureText(failure: unknown): string {
  if (failure instanceof NotLoggedIn) return failure.message;
  return failure instanceof Unreachable ? "The server did not answer." : String(failure);
}

const ANALYSE = "EXPLAIN ANALYZE (FORMAT JSON) ";

/** Runs the one query of a text, and analyses it. */
export async function analyse(written: string): Promise<void> {
  const pieces = statements(written);
  const [query] = pieces;
  if (!query || pieces.length > 1) {
    error.value = { message: query ? "Only one query can be analysed at a time: remove the others." : "There is no query: write one, such as SELECT count(*) FROM a relation." };
    return;
  }
  await ask<Run>("Running it", ANALYSE + query.text, (run) => ({ of: query.text, query: run }), (failure) => {
    const { position } = failure;
    if (position !== undefined && position <= ANALYSE.length) return;
    const found = markOf(query.text, query.from, position === undefined ? failure : { ...failure, position: position - ANALYSE.length });
    if (found) marks.value = [found];
  });
}

/** Watches a view while it runs. */
export async function watch(name: string): Promise<void> {
  await ask<ViewRun>("Watching it for 3 s", `EXPLAIN ANALYZE (DURATION '3s', FORMAT JSON) MATERIALIZED VIEW ${name}`, (run) => ({ of: name, view: run }));
}

/** Shows a run that was analysed before. */
export async function recall(id: number, query: string): Promise<void> {
  await ask<Run>("Asking the model", `${ANALYSE}PROFILE ${id}`, (run) => ({ of: query, query: run }));
}

forgetForOthers(() => {
  asking.value?.cancel();
  asking.value = undefined;
  shown.value = error.value = undefined;
  keepText("");
});
