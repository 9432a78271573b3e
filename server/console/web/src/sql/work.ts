// The work of the SQL page: its text, what runs, what was answered, and what is followed. It goes on while another page is shown.
import { signal } from "@preact/signals";
import { NotLoggedIn, forgetForOthers, runStatements, type Running } from "../api";
import type { Result } from "../result";
import { askNames } from "./catalog";
import { beginning, firstWord, onlyReads, statements, type Piece } from "./dialect";
import { withFates } from "./fates";
import { Following } from "./following";
import { KeptText } from "./kept";
import { remember } from "./past";
import { markOf, type Mark } from "./place";

/** What is run now. */
export interface Job {
  running: Running;
  begun: number;
}

export const results = signal<Result[]>([]);
export const job = signal<Job | undefined>(undefined);
export const following = signal<Following | undefined>(undefined);
/** What there is to say beside the results. */
export const message = signal("");
/** What is underlined, until the text changes. */
export const marks = signal<Mark[]>([]);
/** The text whose results are shown. */
export const ran = signal("");

const text = new KeptText("millrace.text");

/** What stands in the editor. */
export function editorText(): string {
  return text.text;
}

/** What stands in the editor now: nothing of it is underlined any more. */
export function keepText(changed: string): void {
  text.set(changed);
  marks.value = [];
}

/** What changes names that the editor completes. */
const CHANGES_NAMES = /\b(create|drop|alter)\b/i;

/** Runs a text; `from`: where it begins in the editor. */
export async function run(chosen: string, from: number): Promise<void> {
  if (job.value) {
    message.value = "A statement is still running: wait for it, or cancel it.";
    return;
  }
  const pieces = statements(chosen);
  const [only] = pieces;
  if (!only) {
    message.value = "There is nothing to run: write a statement.";
    return;
  }
  if (pieces.length === 1 && firstWord(only.text) === "SUBSCRIBE") return follow(only.text, from + only.from);
  const texts = pieces.map((piece) => piece.text);
  endFollowing();
  ran.value = chosen;
  message.value = "";
  marks.value = [];
  results.value = [];
  const begun = performance.now();
  const running = runStatements(texts, onlyReads(texts.at(-1) ?? "") && !texts.some(opensTransaction), (list) => isNow() && (results.value = list));
  const mine: Job = { running, begun };
  const isNow = () => job.value === mine;
  job.value = mine;
  let failed = true;
  try {
    const all = await running.results;
    if (!isNow()) return;
    results.value = withFates(all, texts);
    failed = underline(all, pieces, from);
    if (results.value.some((result) => result.fate === "rolled back" && !failed)) {
      message.value = "The transaction was open at the end, and was rolled back: what is run together is a session of its own, so run COMMIT with it.";
    }
  } catch (error) {
    if (!isNow()) return;
    message.value = error instanceof NotLoggedIn ? error.message : `The server did not answer, or not to the end: it is not known what became of what was run.`;
  }
  job.value = undefined;
  remember({ sql: chosen, at: Date.now(), ms: performance.now() - begun, failed });
  if (CHANGES_NAMES.test(chosen)) askNames().catch(() => {});
}

function opensTransaction(statement: string): boolean {
  return ["BEGIN", "START"].includes(firstWord(statement));
}

/** Underlines the error, if there is one: the first that fails is the last that was run. */
function underline(all: Result[], pieces: Piece[], from: number): boolean {
  const error = all.at(-1)?.error;
  const piece = pieces[all.length - 1];
  const found = piece && error && markOf(piece.text, from + piece.from, error);
  if (found) marks.value = [found];
  return error !== undefined;
}

/** Follows a relation or a query; `from`: where its text begins in the editor, if it stands there. */
export function follow(query: string, from: number | undefined): void {
  const skipped = beginning(query);
  const trimmed = query.slice(skipped).replace(/[;\s]+$/, "");
  message.value = notFollowed(trimmed);
  if (message.value !== "") return;
  endFollowing();
  marks.value = [];
  const made = new Following(trimmed, (error) => {
    const found = from === undefined || following.value !== made ? undefined : markOf(trimmed, from + skipped, error);
    if (found) marks.value = [found];
  });
  following.value = made;
}

const FOLLOWED = "the name of a view, a table or a stream, or a SELECT";

/** Why a text cannot be followed, as far as it tells; empty: it may be. */
function notFollowed(text: string): string {
  if (text === "") return `There is nothing to follow: write ${FOLLOWED}.`;
  if (statements(text).length > 1) return "Only one can be followed at a time: select it, or remove the others.";
  // A relation may be called like the first word of a statement.
  const isStatement = /^(insert|update|delete|merge|create|drop|alter|truncate|show|explain|begin|commit|rollback|set|reset|grant|revoke|copy|call|checkpoint|cancel|analyze|comment)\s/i.test(text);
  return isStatement ? `A statement can be run, and not followed: write ${FOLLOWED}.` : "";
}

export function endFollowing(): void {
  following.value?.end();
  following.value = undefined;
}

forgetForOthers(() => {
  endFollowing();
  job.value?.running.cancel();
  job.value = undefined;
  results.value = [];
  ran.value = message.value = "";
  keepText("");
});
