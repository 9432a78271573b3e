// A chart over uPlot: lines over time, or over whatever a result has.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { marks, value as written } from "../format";
import { colour, isDark } from "../theme";

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
  /** Times are those of the server, not of the clock on the wall. */
  utc?: boolean;
  /** Each line on top of those before it. */
  stacked?: boolean;
  bars?: boolean;
  /** Names at the places 0, 1, 2.. in place of numbers. */
  names?: string[];
  label: string;
}

const COLOURS = 8;
/** The line above a chart: what is drawn, and the value that one points at (pixels). */
const READING = 18;
/** Between two marks of a time axis. */
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 604800, 2592000, 31536000];

/** A time of an axis: of the day, or the day where it begins. */
function clock(seconds: number, utc: boolean | undefined): string {
  const at = new Date(seconds * 1000);
  const time = at.toLocaleTimeString("en-GB", utc ? { timeZone: "UTC" } : {});
  return time === "00:00:00" ? at.toLocaleDateString("sv-SE", utc ? { timeZone: "UTC" } : {}) : time;
}

/** A place across, as it is read. */
function across(props: ChartProps, x: number): string {
  if (props.names) return props.names[x] ?? "";
  if (!props.time) return written(x);
  const at = new Date(x * 1000);
  return at.toLocaleString("sv-SE", props.utc ? { timeZone: "UTC" } : {});
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
  const names = props.names;
  return {
    width,
    height,
    tzDate: props.utc ? (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : undefined,
    hooks: { setCursor: [(plot) => point(plot.cursor.idx ?? undefined)] },
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    legend: { show: props.lines.length > 1, live: false },
    scales: {
      x: { time: props.time ?? false, range: names ? () => [-0.6, names.length - 0.4] : undefined },
      y: { range: (_, low, high) => range(low, high, props.top) },
    },
    axes: [
      names
        ? { ...axis, size: 30, splits: () => names.map((_, at) => at), values: () => names.map(shorten(width / Math.max(1, names.length))) }
        : props.time
          ? { ...axis, size: 30, space: 80, incrs: SECONDS, values: (_, ticks) => ticks.map((tick) => clock(tick, props.utc)) }
          : { ...axis, size: 30, values: (_, ticks) => marks(ticks) },
      { ...axis, space: 26, size: (_, values) => 16 + 6.5 * Math.max(4, ...(values ?? []).map((value) => value.length)), values: (_, ticks) => (props.format ? ticks.map(props.format) : marks(ticks)) },
    ],
    series: [
      { label: props.time ? "time" : "x" },
      ...props.lines.map((line, at): uPlot.Series => {
        const stroke = colour(`series-${(at % COLOURS) + 1}`);
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

/** From where to where the values go: with nothing between, they have room above them. */
function range(low: number | null, high: number | null, top = 0): [number, number] {
  const [from, to] = [Math.min(0, low ?? 0), Math.max(top, high ?? 0)];
  return from === to ? [0, 1] : [from * 1.08, to * 1.08];
}

function shorten(pixels: number): (name: string) => string {
  const letters = Math.max(2, Math.floor(pixels / 7));
  return (name) => (name.length > letters ? `${name.slice(0, letters - 1)}…` : name);
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
  const height = (props.height ?? 160) - READING;
  const dark = isDark.value;
  // What a plot is made for; when it is another one, the plot is made anew.
  const shape = JSON.stringify([props.lines.map((line) => line.label), props.bars, props.stacked, props.names, props.time, props.utc, dark, height]);
  const data = [props.x, ...(props.stacked ? stacked(props.lines) : props.lines.map((line) => line.values))] as uPlot.AlignedData;
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const legend = props.lines.length > 1 ? 26 : 0;
    const made = new uPlot(options(props, Math.max(120, element.clientWidth), height - legend, point), data, element);
    plot.current = made;
    const observer = new ResizeObserver(() => {
      made.setSize({ width: Math.max(120, element.clientWidth), height: height - legend });
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
