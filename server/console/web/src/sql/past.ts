// What was run before, remembered by this browser. Statements with secrets in them are not.
import { signal } from "@preact/signals";

export interface Past {
  sql: string;
  at: number;
  ms: number;
  failed: boolean;
}

const KEY = "millrace.history";
const MAX = 100;
const SECRET = /\b(password|secret|token)\b/i;

function remembered(): Past[] {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "[]") as Past[];
  } catch {
    return [];
  }
}

/** The newest first. */
export const past = signal<Past[]>(remembered());

function keep(list: Past[]): void {
  past.value = list;
  try {
    localStorage.setItem(KEY, JSON.stringify(list));
  } catch {
    // It is kept while the page is open.
  }
}

export function remember(entry: Past): void {
  if (SECRET.test(entry.sql) || entry.sql.trim() === "") return;
  keep([entry, ...past.value.filter((other) => other.sql !== entry.sql)].slice(0, MAX));
}

export function forgetAll(): void {
  keep([]);
}
