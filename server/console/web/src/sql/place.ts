// Where in the editor an error of the server is.
import type { SqlError } from "../result";

/** A place in the editor, and what is wrong there. */
export interface Mark {
  from: number;
  to: number;
  message: string;
}

/** A name with what it is qualified by, a text, or a sign. */
const WORD = /^((?:"(?:[^"]|"")*"|[\p{L}_][\p{L}\p{N}_$]*)(?:\.(?:"(?:[^"]|"")*"|[\p{L}_][\p{L}\p{N}_$]*))*|'(?:[^']|'')*'|[\p{L}\p{N}_$]+|.)/su;

/** The word at a position of the server, which counts characters from 1, in a text that begins somewhere in the editor. */
export function mark(text: string, from: number, position: number, message: string): Mark {
  let before = [...text].slice(0, Math.max(0, position - 1)).join("").length;
  // Of a quoted name its first letter is told: the quotes belong to it.
  if (text[before - 1] === '"' && WORD.exec(text.slice(before - 1))?.[0]?.endsWith('"')) before--;
  const word = WORD.exec(text.slice(before))?.[0] ?? "";
  const start = from + before;
  return { from: word === "" ? Math.max(0, start - 1) : start, to: start + word.length, message };
}

/** The same for an error; one without a position may tell a value, which is where it is written, if that is one place. */
export function markOf(text: string, from: number, error: SqlError): Mark | undefined {
  if (error.position !== undefined) return mark(text, from, error.position, error.message);
  const value = error.code?.startsWith("22") ? /: "([^]*)"$/.exec(error.message)?.[1] : undefined;
  if (value === undefined) return undefined;
  const literal = `'${value.replaceAll("'", "''")}'`;
  const at = text.indexOf(literal);
  if (at < 0 || at !== text.lastIndexOf(literal)) return undefined;
  return { from: from + at, to: from + at + literal.length, message: error.message };
}
