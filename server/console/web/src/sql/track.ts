// Some rows of a followed relation over the last minutes, a sample a second.
import type { Line } from "../parts/chart";
import type { Cell, Result } from "../result";
import { cellText } from "../text";
import type { LiveRows } from "./liverows";
import { isName, number } from "./points";

/** Lines, and how far back they go. */
const LINES_MAX = 8;
const SECONDS_MAX = 180;

/** What rows are called over time: by their values that are neither numbers nor times, else by the first one; whoever has the same name, by a number as well. */
export function rowNames(columns: Result["columns"], rows: readonly Cell[][]): string[] {
  const texts = columns.flatMap((column, at) => (isName(column.type) ? [at] : []));
  const named = texts.length > 0 ? texts : columns.length > 1 ? [0] : [];
  const seen = new Map<string, number>();
  return rows.map((row) => {
    const name = named.length === 0 ? (columns[0]?.name ?? "value") : cellText(named.map((at) => row[at] ?? "NULL").join(", "));
    const times = (seen.get(name) ?? 0) + 1;
    seen.set(name, times);
    return times === 1 ? name : `${name} (${times})`;
  });
}

/** See the file. */
export class Track {
  private readonly at: number[] = [];
  private readonly lines = new Map<string, (Cell[] | undefined)[]>();

  /** Adds a sample of each row that is on a line. */
  note(at: number, rows: LiveRows): void {
    const all = rows.inOrder(2000);
    if (this.at.length === 0 && all.length === 0) return;
    this.at.push(at);
    const names = rowNames(rows.columns, all);
    const found = new Map(names.map((name, place) => [name, all[place]]));
    for (const name of names) {
      if (this.lines.size >= LINES_MAX) break;
      if (!this.lines.has(name)) this.lines.set(name, this.at.slice(1).map(() => undefined));
    }
    for (const [name, line] of this.lines) line.push(found.get(name));
    if (this.at.length <= SECONDS_MAX) return;
    this.at.shift();
    for (const [name, line] of this.lines) {
      line.shift();
      // Its place is for another.
      if (line.every((cells) => cells === undefined)) this.lines.delete(name);
    }
  }

  /** The values of a column. */
  of(column: number): { x: number[]; lines: Line[] } {
    const lines = [...this.lines].map(([label, line]) => ({ label, values: line.map((cells) => number(cells?.[column])) }));
    return { x: this.at.slice(), lines };
  }
}
