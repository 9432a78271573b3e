// A chart over uPlot: lines over time, or over whatever a result has.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
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
  /** How a value is written, with its unit. */
  format(value: number): string;
  /** Each line on top of those before it. */
  stacked?: boolean;
  bars?: boolean;
  /** Names at the places 0, 1, 2.. in place of numbers. */
  names?: string[];
  label: string;
}

const COLOURS = 8;
/** Between two marks of a time axis. */
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 604800, 2592000, 31536000];

/** A time of an axis: of the day, or the day where it begins. */
function clock(seconds: number): string {
  const at = new Date(seconds * 1000);
  const time = at.toLocaleTimeString("en-GB");
  return time === "00:00:00" ? at.toISOString().slice(0, 10) : time;
}

function stacked(lines: Line[]): (number | null)[][] {
  const sums: number[] = [];
  return lines.map((line) => line.values.map((value, at) => (sums[at] = (sums[at] ?? 0) + (value ?? 0))));
}

function options(props: ChartProps, width: number, height: number): uPlot.Options {
  const [ink, grid] = [colour("ink-soft"), colour("line")];
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "11px system-ui" };
  const names = props.names;
  return {
    width,
    height,
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    legend: { show: props.lines.length > 1, live: false },
    scales: {
      x: { time: props.time ?? false, range: names ? () => [-0.6, names.length - 0.4] : undefined },
      y: { range: (_, low, high) => [Math.min(0, low), high <= 0 && low >= 0 ? 1 : high * 1.08] },
    },
    axes: [
      names
        ? { ...axis, size: 30, splits: () => names.map((_, at) => at), values: () => names.map(shorten(width / Math.max(1, names.length))) }
        : props.time
          ? { ...axis, size: 30, space: 80, incrs: SECONDS, values: (_, ticks) => ticks.map(clock) }
          : { ...axis, size: 30 },
      { ...axis, space: 26, size: (_, values) => 16 + 6.5 * Math.max(4, ...(values ?? []).map((value) => value.length)), values: (_, ticks) => ticks.map((tick) => props.format(tick)) },
    ],
    series: [
      { label: props.time ? "time" : "x", value: names ? (_, at) => names[at] ?? "" : undefined },
      ...props.lines.map((line, at): uPlot.Series => {
        const stroke = colour(`series-${(at % COLOURS) + 1}`);
        return {
          label: line.label,
          stroke,
          width: 1.5,
          fill: props.bars || props.stacked ? `${stroke}${props.stacked ? "40" : "cc"}` : undefined,
          points: { show: props.x.length < 40 && !props.bars },
          paths: props.bars ? uPlot.paths.bars?.({ size: [0.7, 60] }) : undefined,
          value: (_, value) => (value == null ? "–" : props.format(value)),
        };
      }),
    ],
    bands: props.stacked ? props.lines.slice(1).map((_, at) => ({ series: [at + 2, at + 1] as [number, number] })) : undefined,
  };
}

function shorten(pixels: number): (name: string) => string {
  const letters = Math.max(2, Math.floor(pixels / 7));
  return (name) => (name.length > letters ? `${name.slice(0, letters - 1)}…` : name);
}

export function Chart(props: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const height = props.height ?? 160;
  const dark = isDark.value;
  // What a plot is made for; when it is another one, the plot is made anew.
  const shape = JSON.stringify([props.lines.map((line) => line.label), props.bars, props.stacked, props.names, props.time, dark, height]);
  const data = [props.x, ...(props.stacked ? stacked(props.lines) : props.lines.map((line) => line.values))] as uPlot.AlignedData;
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const legend = props.lines.length > 1 ? 26 : 0;
    const made = new uPlot(options(props, Math.max(120, element.clientWidth), height - legend), data, element);
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
  const last = props.lines.map((line) => `${line.label} ${lastOf(line.values, props.format)}`).join(", ");
  return <div class="chart" ref={box} role="img" aria-label={`${props.label}: ${last}`} style={{ minHeight: `${height}px` }} />;
}

function lastOf(values: (number | null)[], format: (value: number) => string): string {
  const last = values.at(-1);
  return last == null ? "–" : format(last);
}
