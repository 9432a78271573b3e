// A piece of a page with a heading; a short table inside of one; and what is shown where there is nothing yet.
import type { ComponentChildren } from "preact";

export function Panel(props: { title: string; tip?: string; aside?: ComponentChildren; wide?: boolean; children: ComponentChildren }) {
  return (
    <section class={`panel ${props.wide ? "wide" : ""}`}>
      <header>
        <h2 data-tip={props.tip} tabIndex={props.tip ? 0 : undefined}>
          {props.title}
        </h2>
        {props.aside}
      </header>
      {props.children}
    </section>
  );
}

export interface Column<T> {
  head: string;
  /** What it means: shown at the head and at each value. */
  tip: string;
  number?: boolean;
  cell(row: T): ComponentChildren;
}

/** With more columns, each row is a block of its own where the page is narrow. */
const BESIDE_MAX = 4;

/** A table of a few rows. The roles are those of its elements, which lose them where they are drawn as blocks. */
export function Table<T>(props: { label: string; columns: Column<T>[]; rows: T[]; empty: string; mark?(row: T): string }) {
  if (props.rows.length === 0) return <p class="quiet">{props.empty}</p>;
  return (
    <div class="table-box" tabIndex={0} role="group" aria-label={props.label}>
      <table role="table" class={props.columns.length > BESIDE_MAX ? "folds" : ""}>
        <thead role="rowgroup">
          <tr role="row">
            {props.columns.map((column) => (
              <th key={column.head} role="columnheader" scope="col" class={column.number ? "number" : ""} data-tip={column.tip} tabIndex={0}>
                {column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {props.rows.map((row, at) => (
            <tr key={at} role="row" class={props.mark?.(row) ?? ""}>
              {props.columns.map((column) => (
                <td key={column.head} role="cell" data-head={column.head} class={column.number ? "number" : ""}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Where there is nothing yet: the first thing to do. */
export function Empty(props: { title: string; children: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{props.title}</h2>
      {props.children}
    </div>
  );
}

/** What went wrong, where it did. */
export function Fault({ message }: { message: string | undefined }) {
  return message ? (
    <p class="fault" role="alert">
      {message}
    </p>
  ) : null;
}
