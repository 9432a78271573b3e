// The columns and values of a chart, as far as they can be told from a result.
import { instant } from "../format";
import type { Cell, Result } from "../result";
import { cellText } from "../text";

const NUMBERS = new Set(["int2", "int4", "int8", "float4", "float8", "numeric"]);
const TIMES = new Set(["timestamp", "timestamptz", "date"]);
/** Bars that are drawn. */
export const BARS_MAX = 60;

interface Plot {
  x: number[];
  y: (number | null)[];
  names?: string[];
  time: boolean;
}

/** Whether a type is one of numbers. */
export function isNumber(type: string): boolean {
  return NUMBERS.has(type);
}

/** Whether values of a type are neither numbers nor times, so that something can be called by them. */
export function isName(type: string): boolean {
  return !NUMBERS.has(type) && !TIMES.has(type);
}

/** A value that can be drawn: not NaN, and not infinite. */
export function number(cell: Cell | undefined): number | null {
  const value = cell == null || cell === "" ? NaN : Number(cell);
  return Number.isFinite(value) ? value : null;
}

/** Seconds since 1970 of a date or a time; without a zone it is UTC. */
function seconds(cell: Cell | undefined, type: string): number {
  const text = cell != null && type !== "date" && !/([+-]\d\d(:?\d\d)?|Z)$/.test(cell.slice(11)) ? `${cell}+00` : cell;
  // A Date has milliseconds, and a time six digits.
  const digits = /\.\d{3}(\d{1,3})/.exec(cell ?? "")?.[1]?.padEnd(3, "0") ?? "0";
  return (instant(text) ?? NaN) / 1000 + Number(digits) / 1e6;
}

/** In place of a column across: the number of the row, from 1. */
export const ROW_NUMBER = -1;

/** The points of two columns: over time, over numbers, or a bar for each name. */
export function points(columns: Result["columns"], rows: readonly Cell[][], xAt: number, yAt: number): Plot {
  if (xAt === ROW_NUMBER) return { x: rows.map((_, at) => at + 1), y: rows.map((row) => number(row[yAt])), time: false };
  const type = columns[xAt]?.type ?? "";
  if (TIMES.has(type) || NUMBERS.has(type)) {
    const time = TIMES.has(type);
    const all = rows
      .map((row): [number, number | null] => {
        const x = time ? seconds(row[xAt], type) : (number(row[xAt]) ?? NaN);
        return [x, number(row[yAt])];
      })
      .filter(([x]) => Number.isFinite(x))
      .sort(([one], [other]) => one - other);
    return { x: all.map(([x]) => x), y: all.map(([, y]) => y), time };
  }
  const shown = rows.slice(0, BARS_MAX);
  return { x: shown.map((_, at) => at), y: shown.map((row) => number(row[yAt])), names: shown.map((row) => cellText(row[xAt] ?? "NULL")), time: false };
}

/** Which columns a chart has first: x and y. `undefined`: there is no number to draw. */
export function guess(columns: Result["columns"]): [number, number] | undefined {
  const isValue = columns.map((column) => NUMBERS.has(column.type));
  const time = columns.findIndex((column) => TIMES.has(column.type));
  const text = columns.findIndex((column) => isName(column.type));
  const x = time >= 0 ? time : text >= 0 ? text : isValue.filter(Boolean).length > 1 ? isValue.indexOf(true) : ROW_NUMBER;
  // A number before a name or a time is a key, more often than a value.
  const behind = isValue.indexOf(true, x + 1);
  const y = behind >= 0 ? behind : isValue.indexOf(true);
  return y >= 0 ? [x, y] : undefined;
}
