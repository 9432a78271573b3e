// A table of any length: only the rows that are seen are there.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Cell } from "../result";
import { cellText, shortened } from "../text";

const ROW_HEIGHT = 26;
/** Rows beyond the edges, so that scrolling shows no gaps. */
const SPARE = 8;
/** A character, until one was measured. */
const CHARACTER = 7.6;
/** Room beside the text of a cell. */
const PADDING = 24;
const WIDTH_MIN = 56;
/** A text that needs more is cut; a number is not. */
const TEXT_MAX = 420;
/** Characters of a value that are drawn, with what is said of the others. */
const LETTERS_MAX = 430;
/** Characters of a value that are shown beside it when one points at it. */
const TITLE_MAX = 2000;

export interface GridProps {
  columns: { name: string; type: string }[];
  rows: readonly Cell[][];
  label: string;
  /** Highest, in pixels; then it scrolls. */
  height?: number;
  /** Marks a row of those that change: its class. */
  mark?(row: number): string;
}

const NUMBERS = new Set(["int2", "int4", "int8", "float4", "float8", "numeric", "oid"]);

/** The longest values of each column so far: columns become wider as rows come, and stay so, or they would jump. */
interface Longest {
  columns: GridProps["columns"];
  letters: number[];
  /** Rows that were looked at, and the last of them. */
  seen: number;
  last: readonly Cell[] | undefined;
}

/** `before`: what was found the last time. Where rows only come behind others, those that were looked at are not looked at again. */
export function longest(before: Longest | undefined, columns: GridProps["columns"], rows: readonly Cell[][], onlyGrows: boolean): Longest {
  const isSame = before !== undefined && before.columns.length === columns.length && before.columns.every(({ name, type }, at) => name === columns[at]?.name && type === columns[at]?.type);
  const letters = isSame ? before.letters.slice() : columns.map((column) => column.name.length + 1);
  const from = isSame && onlyGrows && before.seen > 0 && rows[before.seen - 1] === before.last ? before.seen : 0;
  for (let at = from; at < rows.length; at++) {
    const row = rows[at] as Cell[];
    for (let column = 0; column < letters.length; column++) {
      const length = row[column]?.length ?? 4;
      if (length > (letters[column] as number)) letters[column] = length;
    }
  }
  return { columns, letters, seen: rows.length, last: rows.at(-1) };
}

/** How wide a character is in an element. */
function characterWidth(element: HTMLElement): number {
  const pen = document.createElement("canvas").getContext("2d");
  if (!pen) return CHARACTER;
  pen.font = getComputedStyle(element).font;
  return pen.measureText("0000000000").width / 10 || CHARACTER;
}

export function Grid(props: GridProps) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ first: 0, count: 40 });
  const height = props.height ?? 420;
  const [character, setCharacter] = useState(CHARACTER);
  const found = useRef<Longest | undefined>(undefined);
  const measured = useMemo(() => {
    found.current = longest(found.current, props.columns, props.rows, props.mark === undefined);
    return props.columns.map((column, at) => {
      const wanted = Math.max(WIDTH_MIN, Math.min(LETTERS_MAX, found.current?.letters[at] ?? 0) * character + PADDING);
      return Math.ceil(NUMBERS.has(column.type) ? wanted : Math.min(TEXT_MAX, wanted));
    });
  }, [props.columns, props.rows, character]);
  useEffect(() => {
    if (box.current) setCharacter(characterWidth(box.current));
  }, []);
  const look = () => {
    const element = box.current;
    if (!element) return;
    const first = Math.max(0, Math.floor(element.scrollTop / ROW_HEIGHT) - SPARE);
    const count = Math.ceil(element.clientHeight / ROW_HEIGHT) + 2 * SPARE;
    setView((before) => (before.first === first && before.count === count ? before : { first, count }));
  };
  useEffect(look, [props.rows.length]);
  const last = Math.min(props.rows.length, view.first + view.count);
  const shown = props.rows.slice(Math.min(view.first, last), last);
  const first = Math.min(view.first, last);
  const total = measured.reduce((sum, width) => sum + width, 0);
  const body = props.rows.length * ROW_HEIGHT;
  return (
    <div
      class="grid"
      ref={box}
      onScroll={look}
      tabIndex={0}
      role="table"
      aria-label={props.label}
      aria-rowcount={props.rows.length + 1}
      aria-colcount={props.columns.length}
      style={{ height: `${Math.min(height, body + ROW_HEIGHT + 14)}px` }}
    >
      <div style={{ minWidth: `${total}px`, height: `${body + ROW_HEIGHT}px` }} role="rowgroup">
        <div class="grid-head" role="row" aria-rowindex={1} style={{ width: `${total}px` }}>
          {props.columns.map((column, at) => (
            <div
              key={at}
              role="columnheader"
              class={NUMBERS.has(column.type) ? "number" : ""}
              style={{ width: `${measured[at]}px` }}
              data-tip={column.type}
            >
              {cellText(column.name)}
            </div>
          ))}
        </div>
        <div style={{ height: `${first * ROW_HEIGHT}px` }} role="presentation" />
        {shown.map((row, offset) => (
          <div
            key={first + offset}
            class={`grid-row ${props.mark?.(first + offset) ?? ""}`}
            role="row"
            aria-rowindex={first + offset + 2}
            style={{ width: `${total}px` }}
          >
            {props.columns.map((column, at) => {
              const value = row[at];
              return (
                <div
                  key={at}
                  role="cell"
                  class={value == null ? "null" : NUMBERS.has(column.type) ? "number" : ""}
                  style={{ width: `${measured[at]}px` }}
                  title={value != null && value.length * character + PADDING > (measured[at] ?? 0) ? shortened(value, TITLE_MAX) : undefined}
                >
                  {value == null ? "NULL" : cellText(value)}
                </div>
              );
            })}
          </div>
        ))}
      </div>
    </div>
  );
}
