// A table of any length: only the rows that are seen are there.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Cell } from "../result";
import { cellText, shortened } from "../text";

const ROW_HEIGHT = 26;
/** Rows beyond the edges, so that scrolling shows no gaps. */
const SPARE = 8;
const CHARACTER = 7.6;
/** Characters of a value that are shown beside it when one points at it. */
const TITLE_MAX = 2000;

export interface GridProps {
  columns: { name: string; type: string }[];
  rows: readonly Cell[][];
  label: string;
  /** Highest, in pixels; then it scrolls. */
  height?: number;
  /** Marks a row: its class. */
  mark?(row: number): string;
}

const NUMBERS = new Set(["int2", "int4", "int8", "float4", "float8", "numeric", "oid"]);

function widths(props: GridProps): number[] {
  const seen = props.rows.slice(0, 200);
  return props.columns.map((column, at) => {
    const longest = seen.reduce((most, row) => Math.max(most, row[at]?.length ?? 4), column.name.length + 1);
    return Math.round(Math.min(420, Math.max(56, longest * CHARACTER + 24)));
  });
}

export function Grid(props: GridProps) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ first: 0, count: 40 });
  const height = props.height ?? 420;
  const measured = useMemo(() => widths(props), [props.columns, Math.min(props.rows.length, 200)]);
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
                  title={value != null && value.length * CHARACTER > (measured[at] ?? 0) ? shortened(value, TITLE_MAX) : undefined}
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
