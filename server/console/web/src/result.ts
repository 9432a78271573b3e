// Reads the JSON of /api/sql piece by piece, so that rows are there before the last one has come, and as they were sent: a number
// stays the text that it is, whatever its length.

/** A value: its text, or `null`. */
export type Cell = string | null;

export interface SqlError {
  message: string;
  code?: string;
  detail?: string;
  hint?: string;
  /** Characters from the beginning of the text, the first being 1. */
  position?: number;
  context?: string;
}

export interface Notice {
  severity: string;
  code: string;
  message: string;
}

export interface Result {
  columns: { name: string; type: string }[];
  rows: Cell[][];
  tag?: string;
  notices: Notice[];
  elapsedMs?: number;
  error?: SqlError;
  /** There were more rows than are kept. */
  isCut: boolean;
  isDone: boolean;
  /** What became of its statement, if it is not what the tag says. */
  fate?: "not run" | "rolled back";
  /** The statement, where there is nothing else by which to know it. */
  statement?: string;
}

interface Outline {
  col_names?: string[];
  col_types?: string[];
  tag?: string;
  notices?: Notice[];
  stats?: { elapsed_ms: number };
  error?: SqlError;
}

/** How deep the rows of a result lie: `{"results":[{"rows":[[`. */
const RESULT = 3;
const ROW = 5;

/** See the file. */
export class ResultReader {
  readonly results: Result[] = [];
  private depth = 0;
  private inText = false;
  private escaped = false;
  /** What was said of the current result, without its rows. */
  private outline = "";
  /** The current row. */
  private row = "";
  private inRow = false;
  private whole = "";
  private characters = 0;

  /** `rowsMax`: rows that are kept of each result; `charactersMax`: characters of all rows. The others are read, and forgotten. */
  constructor(
    private readonly rowsMax: number,
    private readonly charactersMax = Infinity,
  ) {}

  /** Whether rows of the result that is read now are forgotten. */
  get isCutting(): boolean {
    return this.current?.isCut ?? false;
  }

  push(text: string): void {
    if (this.results.length === 0 && this.whole.length < 65536) this.whole += text;
    let from = 0;
    for (let at = 0; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (this.inText) {
        if (this.escaped) this.escaped = false;
        else if (code === 92) this.escaped = true;
        else if (code === 34) this.inText = false;
        continue;
      }
      switch (code) {
        case 34:
          this.inText = true;
          break;
        case 91: // [
        case 123: // {
          this.depth++;
          if (this.depth === RESULT && code === 123) {
            this.outline = "";
            from = at;
          } else if (this.depth === ROW && code === 91) {
            this.outline += text.slice(from, at);
            const result = this.begin();
            if (this.isFull) result.isCut = true;
            this.inRow = true;
            from = at;
          }
          break;
        case 93: // ]
        case 125: // }
          this.depth--;
          if (this.inRow && this.depth === ROW - 1) {
            if (!this.isCutting) this.addRow(this.row + text.slice(from, at + 1));
            // Of the commas between rows nothing is left.
            this.outline = this.outline.replace(/,$/, "");
            this.row = "";
            this.inRow = false;
            from = at + 1;
          } else if (this.depth === RESULT - 1 && code === 125) {
            this.outline += text.slice(from, at + 1);
            this.end();
            from = at + 1;
          }
      }
    }
    const rest = text.slice(from);
    if (this.inRow) this.row += this.isCutting ? "" : rest;
    else if (this.depth >= RESULT) this.outline += rest;
  }

  /** The results so far. They stay as they are, while more comes: what is drawn is told apart by its identity. */
  snapshot(): Result[] {
    return this.results.map((result) => ({ ...result, rows: result.rows.slice() }));
  }

  /** The results, when nothing more comes. */
  finish(): Result[] {
    const last = this.current;
    if (last) {
      last.isDone = true;
      if (!last.isCut) last.error = { message: "the connection ended before the result did" };
    }
    if (this.results.length === 0) {
      // A request that was refused before it began.
      const answer = JSON.parse(this.whole || "{}") as { error?: SqlError };
      if (answer.error) this.results.push({ ...empty(), error: answer.error, isDone: true });
    }
    return this.results;
  }

  private current: Result | undefined;

  /** The first row of a result comes: its columns are known. */
  private begin(): Result {
    if (this.current) return this.current;
    const head = JSON.parse(`${this.outline}]}`) as Outline;
    this.current = empty();
    this.current.columns = columns(head);
    this.results.push(this.current);
    return this.current;
  }

  private get isFull(): boolean {
    return (this.current?.rows.length ?? 0) >= this.rowsMax || this.characters >= this.charactersMax;
  }

  private addRow(text: string): void {
    this.characters += text.length;
    this.current?.rows.push(cells(text));
  }

  private end(): void {
    const outline = JSON.parse(this.outline.replace(/\[,+\]/, "[]")) as Outline;
    const result = this.current ?? empty();
    if (!this.current) this.results.push(result);
    result.columns = columns(outline);
    result.tag = outline.tag;
    result.notices = outline.notices ?? [];
    result.elapsedMs = outline.stats?.elapsed_ms;
    result.error = outline.error;
    result.isDone = true;
    this.current = undefined;
  }
}

/** A result of which nothing is known yet. */
export function empty(): Result {
  return { columns: [], rows: [], notices: [], isCut: false, isDone: false };
}

function columns(outline: Outline): Result["columns"] {
  const types = outline.col_types ?? [];
  return (outline.col_names ?? []).map((name, at) => ({ name, type: types[at] ?? "" }));
}

/** The values of a row, `[1,"a",null,{"k":2}]`: texts without their quotes, everything else as it is written. */
export function cells(row: string): Cell[] {
  const found: Cell[] = [];
  let from = 1;
  let depth = 0;
  let inText = false;
  for (let at = 1; at < row.length; at++) {
    const code = row.charCodeAt(at);
    if (inText) {
      if (code === 92) at++;
      else if (code === 34) inText = false;
      continue;
    }
    if (code === 34) inText = true;
    else if (code === 91 || code === 123) depth++;
    else if (depth > 0 && (code === 93 || code === 125)) depth--;
    else if (depth === 0 && (code === 44 || code === 93)) {
      if (at > from) found.push(cell(row.slice(from, at)));
      from = at + 1;
    }
  }
  return found;
}

function cell(text: string): Cell {
  if (text === "null") return null;
  return text.startsWith('"') ? (JSON.parse(text) as string) : text;
}
