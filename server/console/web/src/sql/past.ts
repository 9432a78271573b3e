// What was run before, remembered by this browser for all its tabs, until one logs out. Texts with secrets in them are not.
import { effect, signal } from "@preact/signals";
import { forgetForOthers, isMine, user } from "../api";

export interface Past {
  sql: string;
  at: number;
  ms: number;
  failed: boolean;
}

const KEY = "millrace.history";
const MAX = 100;
const SECRET = /pass(word|wd|phrase)|secret|token|credential|api_?key|access_?key|private_?key|authorization|bearer|millrace_[a-z0-9]|scram-|\bmd5[0-9a-f]{32}|:\/\/[^\s/]*:[^\s/]*@/i;

/** Whether a text may have a secret in it: then it is kept nowhere. */
export function hasSecret(text: string): boolean {
  return SECRET.test(text);
}

/** What is kept, by whatever tab of the one who is here. */
function kept(): Past[] {
  try {
    if (!isMine(localStorage)) return [];
    const list: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(list) ? (list as Past[]) : [];
  } catch {
    return [];
  }
}

/** The newest first. */
export const past = signal<Past[]>([]);
effect(() => {
  // Whoever comes sees what is theirs.
  void user.value;
  past.value = kept();
});
addEventListener("storage", (event) => {
  if (event.key === KEY || event.key === null) past.value = kept();
});

function keep(list: Past[]): void {
  past.value = list;
  try {
    // Another tab may be somebody else's by now.
    if (!isMine(localStorage)) return;
    localStorage.setItem(KEY, JSON.stringify(list));
  } catch {
    // It is kept while the page is open.
  }
}

export function remember(entry: Past): void {
  if (hasSecret(entry.sql) || entry.sql.trim() === "") return;
  const others = [...kept(), ...past.value].filter((other, at, all) => other.sql !== entry.sql && all.findIndex((same) => same.sql === other.sql) === at);
  keep([entry, ...others.sort((one, other) => other.at - one.at)].slice(0, MAX));
}

export function forgetAll(): void {
  keep([]);
}

forgetForOthers(forgetAll);
