// What the editor completes besides keywords: the columns of the relations that the statement reads, relations, and functions.
import type { Completion, CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import { syntaxTree } from "@codemirror/language";
import { quoted } from "../names";
import { names, type Names, type Relation } from "./catalog";
import { statements } from "./dialect";

/** A name that may be quoted. */
const NAME = String.raw`(?:"(?:[^"]|"")*"|[\p{L}_][\p{L}\p{N}_$]*)`;
const READS = new RegExp(String.raw`\b(?:from|join|into|update|table|to|on|,)\s+\(?\s*(?:tumble|hop|cumulate|session)?\s*\(?\s*(${NAME}(?:\.${NAME})?)(?:\s+(?:as\s+)?(${NAME}))?`, "giu");
const BEFORE = new RegExp(String.raw`((?:${NAME}\.)*)("?[\p{L}\p{N}_$]*)$`, "u");
const PART = new RegExp(NAME, "gu");
/** Words behind a relation that are not its other name. */
const NO_ALIAS = /^(where|join|on|inner|left|right|full|cross|group|order|having|limit|union|set|values|select|using|natural|window|emit|with|as|for|offset|except|intersect|returning|lateral)$/i;

function plain(name: string): string {
  return name.startsWith('"') ? name.slice(1, -1).replaceAll('""', '"') : name.toLowerCase();
}

/** The relations that a statement names, each by what it is called there. */
export function relationsOf(statement: string, all: Relation[]): Map<string, Relation> {
  const found = new Map<string, Relation>();
  for (const [, name, alias] of statement.matchAll(READS)) {
    const parts = [...(name ?? "").matchAll(PART)].map(([part]) => plain(part));
    const last = parts.at(-1);
    const schema = parts.length > 1 ? parts[0] : "public";
    const relation = all.find((one) => one.name === last && one.schema === schema);
    if (!relation) continue;
    found.set(alias && !NO_ALIAS.test(alias) ? plain(alias) : relation.name, relation);
  }
  return found;
}

/** What can stand behind `prefix` (names with dots behind them) in a statement. */
export function options(statement: string, prefix: string[], { relations, functions }: Names): Completion[] {
  const read = relationsOf(statement, relations);
  const column = (name: string, relation: Relation): Completion => ({ label: name, apply: quoted(name), detail: relation.name, type: "property", boost: 2 });
  const table = (relation: Relation): Completion => ({ label: relation.name, apply: quoted(relation.name), detail: relation.schema === "public" ? "" : relation.schema, type: "type", boost: 1 });
  const [first, second] = prefix;
  if (first !== undefined && second !== undefined) {
    const relation = relations.find((one) => one.schema === first && one.name === second);
    return relation ? relation.columns.map((name) => column(name, relation)) : [];
  }
  if (first !== undefined) {
    const relation = read.get(first) ?? relations.find((one) => one.schema === "public" && one.name === first);
    return [...(relation ? relation.columns.map((name) => column(name, relation)) : []), ...relations.filter((one) => one.schema === first).map(table)];
  }
  const schemas = [...new Set(relations.map(({ schema }) => schema))].filter((schema) => schema !== "public");
  return [
    ...[...read.values()].flatMap((relation) => relation.columns.map((name) => column(name, relation))),
    ...[...read.keys()].filter((name) => !relations.some((one) => one.name === name)).map((label): Completion => ({ label, apply: quoted(label), type: "type", boost: 1 })),
    ...relations.filter(({ schema }) => schema === "public").map(table),
    ...schemas.map((label): Completion => ({ label, apply: quoted(label), detail: "schema", type: "namespace" })),
    ...functions.map((label): Completion => ({ label, apply: `${label}(`, detail: "function", type: "function", boost: -1 })),
  ];
}

/** See the file. */
export function completeNames(context: CompletionContext): CompletionResult | null {
  if (["String", "LineComment", "BlockComment"].includes(syntaxTree(context.state).resolveInner(context.pos, -1).name)) return null;
  const text = context.state.doc.toString();
  const piece = statements(text).findLast((one) => one.from <= context.pos);
  const statement = piece && context.pos <= piece.from + piece.text.length + 1 ? piece.text : "";
  const before = BEFORE.exec(context.state.sliceDoc(Math.max(0, context.pos - 200), context.pos));
  const [prefix, typed] = [before?.[1] ?? "", before?.[2] ?? ""];
  if (typed === "" && prefix === "" && !context.explicit) return null;
  const found = options(statement, [...prefix.matchAll(PART)].map(([part]) => plain(part)), names());
  // A quote that was begun is part of what is replaced.
  const isQuoted = typed.startsWith('"');
  const shown = isQuoted ? found.map((one) => ({ ...one, label: `"${one.label}"`, apply: `"${one.label.replaceAll('"', '""')}"` })) : found;
  return { from: context.pos - typed.length, options: shown, validFor: /^"?[\p{L}\p{N}_$]*$/u };
}
