// Numbers as people read them: three digits and a unit.

const dash = "–";

function digits(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

function scaled(value: number, units: [number, string][], smallest: string): string {
  const unit = units.find(([size]) => Math.abs(value) >= size * 0.9995);
  return unit ? `${digits(value / unit[0])} ${unit[1]}` : `${digits(value)} ${smallest}`;
}

/** A time, given in seconds: `1.84 ms`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return dash;
  if (seconds >= 120) {
    const whole = Math.round(seconds);
    const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
    return days > 0 ? `${days} d ${hours} h` : hours > 0 ? `${hours} h ${minutes} min` : `${minutes} min ${whole % 60} s`;
  }
  if (seconds === 0) return "0 s";
  if (Math.abs(seconds) < 1e-6) return `${(seconds * 1e9).toFixed(0)} ns`;
  return scaled(seconds, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]], "s");
}

/** Bytes: `286 MB`; a megabyte is a million bytes. */
export function bytes(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return dash;
  if (Math.abs(value) < 1000) return `${Math.round(value)} B`;
  return scaled(value, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]], "B");
}

/** A count in few letters: `12.3 k`. */
export function short(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return dash;
  if (Math.abs(value) < 1000) return Number.isInteger(value) ? String(value) : digits(value);
  return scaled(value, [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]], "");
}

/** How many there are of something: `1 row`, `6,001,215 rows`. */
export function plural(value: number, what: string): string {
  return `${count(value)} ${what}${value === 1 ? "" : "s"}`;
}

/** Digits behind the point that a step of 1, 2, 2.5 or 5 times a power of ten has. */
function decimals(step: number): number {
  const places = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  const whole = step * 10 ** places;
  return Math.abs(whole - Math.round(whole)) > 1e-6 * whole ? places + 1 : places;
}

/** The marks of an axis, with as many digits as tell them apart. */
export function marks(values: number[]): string[] {
  const step = Math.abs((values[1] ?? 0) - (values[0] ?? 0));
  const most = Math.max(...values.map(Math.abs), 0);
  if (step === 0 || (step >= 0.001 && most < 1000)) {
    const places = step === 0 ? 2 : decimals(step);
    return values.map((value) => (Number.isInteger(value) ? String(value) : value.toFixed(places)));
  }
  if (most < 1e15 && most >= 1000) {
    const [size, unit] = ([[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]] as const).find(([size]) => most >= size) ?? [1, ""];
    const places = decimals(step / size);
    // With so many digits behind the point they are read more easily as they are.
    if (places > 3 && step >= 1 && most < 1e12) return values.map((value) => value.toLocaleString("en-US"));
    return values.map((value) => (value === 0 ? "0" : `${(value / size).toFixed(Math.min(6, places))}${unit}`));
  }
  return values.map((value) => (value === 0 ? "0" : value.toExponential(1)));
}

/** A value of a chart: a small or a very large one keeps its digits. */
export function value(number: number): string {
  const size = Math.abs(number);
  if (Number.isInteger(number) && size < 1e15) return number.toLocaleString("en-US");
  return size !== 0 && (size < 0.01 || size >= 1e15) ? number.toExponential(2) : String(Number(number.toPrecision(6)));
}

/** A count in full: `6,001,215`. */
export function count(value: number | null | undefined): string {
  return value == null || !Number.isFinite(value) ? dash : Math.round(value).toLocaleString("en-US");
}

/** Something a second: `12.3 k rows/s`. */
export function rate(value: number | null | undefined, what = "rows"): string {
  return value == null || !Number.isFinite(value) ? dash : `${short(Math.round(value * 10) / 10)} ${what}/s`;
}

/** A share of one: `71 %`. */
export function percent(share: number | null | undefined): string {
  if (share == null || !Number.isFinite(share)) return dash;
  const value = share * 100;
  return value > 0 && value < 0.5 ? "< 1 %" : `${value.toFixed(0)} %`;
}

/** By how much of what it was something changes: `+7 %`. */
export function change(share: number): string {
  const value = Math.round(share * 100);
  return `${value > 0 ? "+" : ""}${value === 0 ? 0 : value} %`;
}

/** Cores in use: `0.35`, `0.004`. */
export function cores(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return dash;
  if (value === 0) return "0";
  return value < 0.001 ? "< 0.001" : value.toFixed(value < 0.1 ? 3 : 2);
}

/** How long ago a time of the server was: `3.20 s ago`. */
export function ago(time: string | null | undefined): string {
  const at = instant(time);
  return at === undefined ? dash : `${duration(Math.max(0, (Date.now() - at) / 1000))} ago`;
}

/** Milliseconds since 1970 of a time as the server writes it, `2026-01-01 00:00:00.5+00`. */
export function instant(time: string | null | undefined): number | undefined {
  if (!time) return undefined;
  const iso = time.replace(" ", "T").replace(/(T.*[+-]\d\d)$/, "$1:00");
  const at = Date.parse(iso);
  return Number.isNaN(at) ? undefined : at;
}

/** Seconds of an interval as the server writes it: `1 day 02:03:04.5`. */
export function intervalSeconds(interval: string | null | undefined): number | undefined {
  if (!interval) return undefined;
  const days = /(-?\d+) days?/.exec(interval);
  const clock = /(-?)(\d+):(\d\d):(\d\d(?:\.\d+)?)/.exec(interval);
  let seconds = days ? Number(days[1]) * 86400 : 0;
  if (clock) seconds += (clock[1] ? -1 : 1) * (Number(clock[2]) * 3600 + Number(clock[3]) * 60 + Number(clock[4]));
  return seconds;
}
