// PostgreSQL's SQL with our words, for colours, completion, and the ends of statements.
import { PostgreSQL, SQLDialect } from "@codemirror/lang-sql";

/** Words of ours that PostgreSQL has not. */
const WORDS =
  "stream source sink materialized watermark subscribe snapshot progress emit changes tumble hop session cumulate retention " +
  "connector duration predict profile jobs batches backpressure suspended watermarks workers processlist streams sources sinks reducer";

export const dialect = SQLDialect.define({ ...PostgreSQL.spec, keywords: `${PostgreSQL.spec.keywords} ${WORDS}` });

export interface Piece {
  text: string;
  /** Where it begins. */
  from: number;
}

/** Where a statement begins, behind spaces and comments. */
export function beginning(text: string): number {
  return /^(?:\s+|--[^\n]*|\/\*[^]*?\*\/)*/.exec(text)?.[0].length ?? 0;
}

/** The first word of a statement, in upper case. */
export function firstWord(text: string): string {
  return /^[a-z]*/i.exec(text.slice(beginning(text)))?.[0].toUpperCase() ?? "";
}

/** Whether a statement only reads, so that nothing is lost when its rows are not read to the end. */
export function onlyReads(text: string): boolean {
  return ["SELECT", "VALUES", "TABLE", "SHOW", "WITH"].includes(firstWord(text)) && !/\b(insert|update|delete|merge|into)\b/i.test(text);
}

/** The statements of a text, each without its semicolon. Run one by one, each sees what those before it wrote; as one text they would be one transaction. */
export function statements(text: string): Piece[] {
  const found: Piece[] = [];
  const cursor = dialect.language.parser.parse(text).cursor();
  if (!cursor.firstChild()) return found;
  do {
    if (cursor.name !== "Statement") continue;
    const piece = text.slice(cursor.from, cursor.to).replace(/[;\s]+$/, "");
    if (piece !== "") found.push({ text: piece, from: cursor.from });
  } while (cursor.nextSibling());
  return found;
}
