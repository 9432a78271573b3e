// Texts of others as they are shown: nothing in them moves what stands beside them, and none is too long to be drawn.
import { count } from "./format";

/** Characters of a value that are drawn. */
const SHOWN_MAX = 400;

const SIGNS: Record<string, string> = { "\n": "↵", "\r": "␍", "\t": "⇥", "\0": "␀" };

/** What has no shape of its own, and what turns the direction of writing: as a sign. */
export function visible(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, (sign) => SIGNS[sign] ?? `‹U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}

/** The beginning of a long text, with its length. */
export function shortened(text: string, most = SHOWN_MAX): string {
  return text.length <= most ? text : `${text.slice(0, most)}… (${count(text.length)} characters)`;
}

/** A value on one line. */
export function cellText(text: string): string {
  return visible(shortened(text));
}
