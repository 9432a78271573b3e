// The names that the editor completes: relations with their columns, and functions.
import { select } from "../api";

export interface Relation {
  schema: string;
  name: string;
  columns: string[];
}

export interface Names {
  relations: Relation[];
  functions: string[];
}

/** As they were when they were asked for last. */
let known: Names = { relations: [], functions: [] };

const COLUMNS =
  "SELECT n.nspname AS schema, c.relname AS name, a.attname AS column FROM pg_catalog.pg_attribute a " +
  "JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace " +
  "WHERE a.attnum > 0 AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') ORDER BY 1, 2, a.attnum";
const FUNCTIONS = "SHOW FUNCTIONS";

export function names(): Names {
  return known;
}

/** Asks for them again. */
export async function askNames(): Promise<void> {
  const relations = new Map<string, Relation>();
  for (const { schema, name, column } of await select<{ schema: string; name: string; column: string }>(COLUMNS)) {
    const key = JSON.stringify([schema, name]);
    const relation = relations.get(key) ?? { schema, name, columns: [] };
    relation.columns.push(column);
    relations.set(key, relation);
  }
  known = { ...known, relations: [...relations.values()] };
  if (known.functions.length === 0) {
    known = { ...known, functions: (await select<{ name: string }>(FUNCTIONS)).map(({ name }) => name) };
  }
}
