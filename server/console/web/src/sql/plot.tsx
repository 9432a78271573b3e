// A chart of rows: what stands on the axes is guessed, and can be chosen.
import { useMemo, useState } from "preact/hooks";
import { instant, short } from "../format";
import { Chart } from "../parts/chart";
import type { Cell, Result } from "../result";

const NUMBERS = new Set(["int2", "int4", "int8", "float4", "float8", "numeric"]);
const TIMES = new Set(["timestamp", "timestamptz", "date"]);
const BARS_MAX = 60;

interface Plot {
  x: number[];
  y: (number | null)[];
  names?: string[];
  time: boolean;
}

function number(cell: Cell | undefined): number | null {
  return cell == null || cell === "" ? null : Number(cell);
}

/** The points of two columns: over time, over numbers, or a bar for each name. */
export function points(columns: Result["columns"], rows: readonly Cell[][], xAt: number, yAt: number): Plot {
  const type = columns[xAt]?.type ?? "";
  if (TIMES.has(type) || NUMBERS.has(type)) {
    const time = TIMES.has(type);
    const all = rows
      .map((row): [number, number | null] => {
        const cell = row[xAt];
        const x = time ? (instant(cell?.includes("+") || type === "date" ? cell : `${cell}+00`) ?? NaN) / 1000 : (number(cell) ?? NaN);
        return [x, number(row[yAt])];
      })
      .filter(([x]) => Number.isFinite(x))
      .sort(([one], [other]) => one - other);
    return { x: all.map(([x]) => x), y: all.map(([, y]) => y), time };
  }
  const shown = rows.slice(0, BARS_MAX);
  return { x: shown.map((_, at) => at), y: shown.map((row) => number(row[yAt])), names: shown.map((row) => row[xAt] ?? "NULL"), time: false };
}

/** Which columns a chart has first: x and y. `undefined`: there is no number to draw. */
export function guess(columns: Result["columns"]): [number, number] | undefined {
  const time = columns.findIndex((column) => TIMES.has(column.type));
  const text = columns.findIndex((column) => !NUMBERS.has(column.type) && !TIMES.has(column.type));
  const x = time >= 0 ? time : text >= 0 ? text : 0;
  const y = columns.findIndex((column, at) => at !== x && NUMBERS.has(column.type));
  if (y >= 0) return [x, y];
  return columns.length === 1 && NUMBERS.has(columns[0]?.type ?? "") ? [0, 0] : undefined;
}

export function ResultChart(props: { columns: Result["columns"]; rows: readonly Cell[][]; height: number }) {
  const first = useMemo(() => guess(props.columns), [props.columns]);
  const [chosen, choose] = useState<[number, number] | undefined>();
  const [x, y] = chosen ?? first ?? [0, 0];
  if (!first) return <p class="quiet">There is no column of numbers to draw.</p>;
  const plot = points(props.columns, props.rows, x, y);
  const name = props.columns[y]?.name ?? "";
  return (
    <div class="plot">
      <p class="choices">
        <label>
          across{" "}
          <select value={x} onChange={(event) => choose([Number(event.currentTarget.value), y])}>
            {props.columns.map((column, at) => (
              <option key={at} value={at}>
                {column.name}
              </option>
            ))}
          </select>
        </label>
        <label>
          up{" "}
          <select value={y} onChange={(event) => choose([x, Number(event.currentTarget.value)])}>
            {props.columns.map((column, at) => NUMBERS.has(column.type) && (
              <option key={at} value={at}>
                {column.name}
              </option>
            ))}
          </select>
        </label>
        {plot.names && props.rows.length > BARS_MAX && <span class="quiet">the first {BARS_MAX} rows</span>}
      </p>
      <Chart
        label={name}
        x={plot.x}
        lines={[{ label: name, values: plot.y }]}
        time={plot.time}
        names={plot.names}
        bars={plot.names !== undefined}
        height={props.height}
        format={short}
      />
    </div>
  );
}
