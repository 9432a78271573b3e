// A chart over uPlot: lines over time, or over whatever a result has.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { marks, value as written } from "../format";
import { colour, isDark, series } from "../theme";
import { LETTER, acrossRange, nameTexts, timeInFull, timeMarks, timeTexts, upRange } from "./axis";

export interface Line {
  label: string;
  values: (number | null)[];
}

export interface ChartProps {
  /** Seconds since 1970 if `time`, else any numbers; ascending. */
  x: number[];
  lines: Line[];
  time?: boolean;
  height?: number;
  /** What the values are: stands above them. */
  unit: string;
  /** How a value is written, if it is more than a number of that unit. */
  format?(value: number): string;
  /** The axis goes up to this at least, so that next to nothing does not look like much. */
  top?: number;
  /** The axis need not begin at zero, where all values are far from it. */
  free?: boolean;
  /** Times are those of the server, not of the clock on the wall. */
  utc?: boolean;
  /** Each line on top of those before it. */
  stacked?: boolean;
  bars?: boolean;
  /** Names at the places 0, 1, 2.. in place of numbers. */
  names?: string[];
  label: string;
}

/** The line above a chart: what is drawn, and the value that one points at (pixels). */
const READING = 18;
/** Marks of time for which there is room; of what is measured once in a while none within a second. */
function marksAcross(width: number, span: number, utc: boolean): number {
  const room = (width - 60) / (utc && span < 10 ? 105 : 85);
  return utc ? room : Math.min(room, Math.max(1, span));
}

/** A place across, as it is read. */
function across(props: ChartProps, x: number): string {
  if (props.names) return props.names[x] ?? "";
  return props.time ? timeInFull(x, props.utc ?? false) : written(x);
}

/** The values at one place, as they are read. */
function reading(props: ChartProps, at: number): string {
  const format = props.format ?? written;
  const values = props.lines.map(({ label, values }) => {
    const value = values[at];
    return `${props.lines.length > 1 ? `${label} ` : ""}${value == null ? "–" : format(value)}`;
  });
  return `${across(props, props.x[at] ?? 0)}: ${values.join(", ")}`;
}

function stacked(lines: Line[]): (number | null)[][] {
  const sums: number[] = [];
  return lines.map((line) => line.values.map((value, at) => (sums[at] = (sums[at] ?? 0) + (value ?? 0))));
}

function options(props: ChartProps, width: number, height: number, point: (at: number | undefined) => void): uPlot.Options {
  const [ink, grid] = [colour("ink-soft"), colour("line")];
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "11px system-ui" };
  const utc = props.utc ?? false;
  const up = (values: number[]) => (props.format ? values.map(props.format) : marks(values));
  // The last mark is as wide as its text.
  const isShort = utc && props.time && (props.x[props.x.length - 1] ?? 0) - (props.x[0] ?? 0) < 10;
  const right = isShort ? 50 : 32;
  const names = props.names && nameTexts(props.names, width - 60);
  return {
    width,
    height,
    padding: [null, names ? null : right, null, names ? Math.max(0, names.left - 42) : null],
    hooks: { setCursor: [(plot) => point(plot.cursor.idx ?? undefined)] },
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    legend: { show: props.lines.length > 1, live: false },
    scales: {
      x: { time: false, range: names ? () => [-0.6, names.texts.length - 0.4] : (plot) => acrossRange(plot.data[0], props.time ?? false) },
      y: { range: (_, low, high) => upRange(low, high, props.top ?? 0, (props.free ?? false) && !props.bars) },
    },
    axes: [
      names
        ? { ...axis, size: names.below, rotate: names.aslant ? 45 : 0, grid: { show: false }, splits: () => names.texts.map((_, at) => at), values: () => names.texts }
        : props.time
          ? {
              ...axis,
              size: utc ? 42 : 30,
              splits: (plot, _, low, high) => timeMarks(low, high, marksAcross(plot.width, high - low, utc), utc),
              values: (_, ticks) => timeTexts(ticks, utc, utc),
            }
          : { ...axis, size: 30, space: (_, __, low, high) => 18 + LETTER * Math.max(...marks([low, low + (high - low) / 10, high]).map((text) => text.length)), values: (_, ticks) => marks(ticks) },
      { ...axis, space: 26, size: (_, values) => 16 + LETTER * Math.max(4, ...(values ?? []).map((value) => value.length)), values: (_, ticks) => up(ticks) },
    ],
    series: [
      {},
      ...props.lines.map((line, at): uPlot.Series => {
        const stroke = colour(series(at));
        return {
          label: line.label,
          stroke,
          width: 1.5,
          fill: props.bars || props.stacked ? `${stroke}${props.stacked ? "40" : "cc"}` : undefined,
          points: { show: props.x.length < 40 && !props.bars },
          paths: props.bars ? uPlot.paths.bars?.({ size: [0.7, 60] }) : undefined,
        };
      }),
    ],
    bands: props.stacked ? props.lines.slice(1).map((_, at) => ({ series: [at + 2, at + 1] as [number, number] })) : undefined,
  };
}

/** A chart over time, or its room while there is nothing to draw yet, and why. */
export function TimeChart({ empty = "Measuring…", ...props }: ChartProps & { empty?: string }) {
  if (props.x.length > 1) return <Chart {...props} time />;
  return (
    <p class="quiet" style={{ height: `${props.height ?? 160}px` }}>
      {empty}
    </p>
  );
}

export function Chart(props: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const [pointed, point] = useState<number | undefined>();
  const [width, widen] = useState(0);
  const height = (props.height ?? 160) - READING;
  const dark = isDark.value;
  // What a plot is made for; when it is another one, the plot is made anew.
  const shape = JSON.stringify([props.lines.map((line) => line.label), props.bars, props.stacked, props.names, props.time, props.utc, props.free, dark, height, width]);
  const data = [props.x, ...(props.stacked ? stacked(props.lines) : props.lines.map((line) => line.values))] as uPlot.AlignedData;
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const legend = props.lines.length > 1 ? 26 : 0;
    const made = new uPlot(options(props, Math.max(120, element.clientWidth), height - legend, point), data, element);
    plot.current = made;
    const observer = new ResizeObserver(() => {
      const width = Math.max(120, element.clientWidth);
      // Names stand otherwise where there is more room, or less.
      if (props.names && width !== made.width) widen(width);
      else made.setSize({ width, height: height - legend });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data));
  const last = props.x.length - 1;
  const shown = pointed !== undefined && pointed <= last ? pointed : undefined;
  const text = last < 0 ? "nothing yet" : reading(props, last);
  return (
    <div>
      <p class="chart-reading">
        <span>{props.unit}</span>
        {shown !== undefined && <b>{reading(props, shown)}</b>}
      </p>
      <div class="chart" ref={box} role="img" aria-label={`${props.label} (${props.unit}), at last ${text}`} style={{ minHeight: `${height}px` }} />
    </div>
  );
}
