// What a followed relation holds now, by its changes. An update stays where the row was.
import type { Change } from "../api";
import type { Cell, Result } from "../result";

/** Rows that are kept; then the oldest go. */
const KEPT_MAX = 10_000;

interface Entry {
  cells: Cell[];
  changedAt: number;
}

/** See the file. */
export class LiveRows {
  /** Rows that there are, kept or not. */
  total = 0;
  changes = 0;
  epoch: number | undefined;
  private entries = new Map<number, Entry>();
  private places = new Map<string, number[]>();
  private next = 0;
  private freed: number[] = [];

  /** `columns`: where the server told them before a row came. */
  constructor(public columns: Result["columns"] = []) {}

  apply(changes: Change[], now: number): void {
    for (const change of changes) {
      if (change.progress) this.epoch = change.progress.epoch;
      if (!change.row || !change.op) continue;
      this.epoch = change.epoch;
      this.changes++;
      if (this.columns.length === 0) this.columns = guessed(change.row);
      const cells = this.columns.map((column) => text(change.row?.[column.name]));
      const key = JSON.stringify(cells);
      if (change.op === "delete" || change.op === "update_delete") this.remove(key, change.op === "update_delete");
      else this.add(key, cells, change.op === "update_insert", now);
    }
  }

  private add(key: string, cells: Cell[], isUpdate: boolean, now: number): void {
    this.total++;
    const place = (isUpdate ? this.freed.shift() : undefined) ?? this.next++;
    this.entries.set(place, { cells, changedAt: now });
    const places = this.places.get(key);
    if (places) places.push(place);
    else this.places.set(key, [place]);
    if (this.entries.size > KEPT_MAX) {
      const [oldest] = this.entries.keys();
      const gone = oldest === undefined ? undefined : this.entries.get(oldest);
      if (oldest !== undefined && gone) this.forget(JSON.stringify(gone.cells), oldest);
    }
  }

  private remove(key: string, isUpdate: boolean): void {
    this.total--;
    const place = this.places.get(key)?.at(-1);
    if (place === undefined) return;
    this.forget(key, place, isUpdate);
    if (isUpdate) this.freed.push(place);
  }

  private forget(key: string, place: number, staysInPlace = false): void {
    const places = this.places.get(key)?.filter((other) => other !== place) ?? [];
    if (places.length === 0) this.places.delete(key);
    else this.places.set(key, places);
    // A row that only changes stays in the order of the map.
    if (!staysInPlace) this.entries.delete(place);
  }

  /** Whatever was taken away without a successor is gone. */
  private settle(): void {
    for (const place of this.freed.splice(0)) this.entries.delete(place);
  }

  /** The first rows, in the order in which they came. */
  inOrder(most: number): Cell[][] {
    this.settle();
    const found: Cell[][] = [];
    for (const { cells } of this.entries.values()) {
      if (found.length >= most) break;
      found.push(cells);
    }
    return found;
  }

  /** The rows as they are shown: the newest first, whatever it is that is followed; an update does not make a row new. */
  shown(): { rows: Cell[][]; changedAt: number[] } {
    this.settle();
    const entries = [...this.entries.values()].reverse();
    return { rows: entries.map((entry) => entry.cells), changedAt: entries.map((entry) => entry.changedAt) };
  }
}

function text(value: unknown): Cell {
  if (value === null || value === undefined) return null;
  return typeof value === "string" ? value : typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Names and types as far as a row tells. */
function guessed(row: Record<string, unknown>): Result["columns"] {
  return Object.entries(row).map(([name, value]) => {
    const isTime = typeof value === "string" && /^\d{4}-\d\d-\d\d[ T]\d\d:\d\d/.test(value);
    return { name, type: typeof value === "number" ? "numeric" : isTime ? "timestamptz" : "text" };
  });
}
