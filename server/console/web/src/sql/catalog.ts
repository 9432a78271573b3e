// The names that the editor completes: every relation with its columns.
import type { SQLNamespace } from "@codemirror/lang-sql";
import { signal } from "@preact/signals";
import { select } from "../api";

/** By schema and relation. */
export const names = signal<SQLNamespace>({});

const COLUMNS =
  "SELECT table_schema AS s, table_name AS t, column_name AS c FROM information_schema.columns " +
  "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2, ordinal_position";

/** Asks for them again. */
export async function askNames(): Promise<void> {
  const found: Record<string, Record<string, string[]>> = { public: {} };
  for (const { s, t, c } of await select<{ s: string; t: string; c: string }>(COLUMNS)) {
    ((found[s] ??= {})[t] ??= []).push(c);
  }
  names.value = found;
}
