// A chart of rows: what stands on the axes is guessed, and can be chosen.
import { useMemo, useState } from "preact/hooks";
import { Chart } from "../parts/chart";
import type { Cell, Result } from "../result";
import { BARS_MAX, ROW_NUMBER, guess, isNumber, points } from "./points";

export function ResultChart(props: { columns: Result["columns"]; rows: readonly Cell[][]; height: number }) {
  const first = useMemo(() => guess(props.columns), [props.columns]);
  const [chosen, choose] = useState<[number, number] | undefined>();
  const [x, y] = chosen ?? first ?? [0, 0];
  if (!first) return <p class="quiet">There is no column of numbers to draw.</p>;
  const plot = points(props.columns, props.rows, x, y);
  const name = props.columns[y]?.name ?? "";
  const shown = plot.names ? props.rows.slice(0, BARS_MAX) : props.rows;
  const left = shown.filter((row) => row[y] != null).length - plot.y.filter((value) => value !== null).length;
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
            <option value={ROW_NUMBER}>number of the row</option>
          </select>
        </label>
        <NumberColumn columns={props.columns} value={y} onChange={(at) => choose([x, at])} />
        {left > 0 && <span class="quiet">{left === 1 ? "1 value is no number that can be drawn" : `${left} values are no numbers that can be drawn`}</span>}
        {plot.names && props.rows.length > BARS_MAX && <span class="quiet">the first {BARS_MAX} rows</span>}
      </p>
      <Chart
        label={`${name} by ${props.columns[x]?.name ?? "row"}`}
        x={plot.x}
        lines={[{ label: name, values: plot.y }]}
        time={plot.time}
        names={plot.names}
        bars={plot.names !== undefined}
        unit={name}
        height={props.height}
        free
        utc
      />
    </div>
  );
}

/** Chooses the column that is drawn. */
export function NumberColumn(props: { columns: Result["columns"]; value: number; onChange(at: number): void }) {
  return (
    <label>
      up{" "}
      <select value={props.value} onChange={(event) => props.onChange(Number(event.currentTarget.value))}>
        {props.columns.map((column, at) => isNumber(column.type) && (
          <option key={at} value={at}>
            {column.name}
          </option>
        ))}
      </select>
    </label>
  );
}
