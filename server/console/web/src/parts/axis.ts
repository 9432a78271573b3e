// The marks of a chart's axes: where they stand, what is written there, and the room that it needs. Nothing here draws.

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;
/** From one mark of time to the next: seconds, then months. */
const PARTS = [-6, -5, -4, -3, -2, -1].flatMap((places) => [1, 2, 5].map((times) => Number(`${times}e${places}`)));
const SECONDS = [...PARTS, 1, 2, 5, 10, 15, 30, MINUTE, 120, 300, 600, 900, 1800, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY];
const MONTHS = [1, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 2400, 6000, 12000];
const MONTH = 30.44 * DAY;
/** The first Monday after 1970 began, from which weeks are counted. */
const MONDAY = 4 * DAY;

/** How far apart marks of time are: `[seconds, 0]`, or `[0, months]`. */
type Step = readonly [seconds: number, months: number];

/** The smallest step of which no more than `most` fit into a span of seconds. */
function timeStep(span: number, most: number): Step {
  const seconds = SECONDS.find((step) => span / step <= most);
  if (seconds !== undefined) return [seconds, 0];
  return [0, MONTHS.find((step) => span / (step * MONTH) <= most) ?? 12 * 10 ** Math.ceil(Math.log10(span / (12 * MONTH * most)))];
}

/** Seconds by which the clock on the wall is ahead of UTC. */
function ahead(seconds: number, utc: boolean): number {
  return utc ? 0 : -60 * new Date(seconds * 1000).getTimezoneOffset();
}

/** Places of marks between two times, at whole steps of the calendar. */
export function timeMarks(low: number, high: number, most: number, utc: boolean): number[] {
  const [seconds, months] = timeStep(high - low, Math.max(1, most));
  const found: number[] = [];
  if (seconds > 0) {
    const origin = (seconds === 7 * DAY ? MONDAY : 0) - ahead(low, utc);
    for (let at = Math.ceil((low - origin) / seconds - 1e-6); origin + at * seconds <= high; at++) found.push(origin + at * seconds);
    return found;
  }
  const first = new Date((low + ahead(low, utc)) * 1000);
  const month = 12 * first.getUTCFullYear() + first.getUTCMonth();
  for (let at = Math.floor(month / months) * months; ; at += months) {
    const day = new Date(0);
    day.setUTCFullYear(Math.floor(at / 12), at % 12, 1);
    const place = day.getTime() / 1000 - ahead(day.getTime() / 1000, utc);
    if (!(place <= high)) return found;
    if (place >= low) found.push(place);
  }
}

/** What is written at marks of time: no finer than they are apart; the day stands below where another one begins. */
export function timeTexts(marks: number[], utc: boolean, withDay: boolean): string[] {
  const step = marks.length > 1 ? Math.abs(marks[1]! - marks[0]!) : DAY;
  let day = "";
  return marks.map((mark) => {
    const text = calendar(mark, utc);
    const date = text.slice(0, -13);
    if (step >= 360 * DAY) return date.slice(0, -6);
    if (step >= 27 * DAY) return date.slice(0, -3);
    if (step >= DAY && text.slice(-12, -4) === "00:00:00") return date;
    const time = step < 1 ? text.slice(-12, -4) + fraction(mark, step) : text.slice(-12, step < MINUTE ? -4 : -7);
    if (!withDay) return time;
    const isNew = date !== day;
    day = date;
    return isNew ? `${time}\n${date}` : time;
  });
}

/** `2026-01-31 10:00:00.000`. */
function calendar(seconds: number, utc: boolean): string {
  // A mark at a whole second is the double next to it.
  const at = new Date(Math.floor((seconds + ahead(seconds, utc)) * 1000 + 0.5));
  return at.toISOString().replace("T", " ").replace("Z", "");
}

function fraction(seconds: number, step: number): string {
  const places = Math.min(6, Math.ceil(-Math.log10(step) - 1e-9));
  return (seconds - Math.floor(seconds + 0.5 * 10 ** -places)).toFixed(places).replace(/^-?0/, "");
}

/** A time in full, with as many digits of its second as it has. */
export function timeInFull(seconds: number, utc: boolean): string {
  const text = calendar(Math.floor(seconds + 5e-7), utc).slice(0, -4);
  const rest = fraction(seconds, 1e-6).replace(/\.?0+$/, "");
  return text + rest;
}

/** From where to where an axis goes across these places: a single one has some room on both sides. */
export function acrossRange(places: ArrayLike<number>, time: boolean): [number, number] {
  const [low, high] = [places[0] ?? 0, places[places.length - 1] ?? 1];
  if (low !== high) return [low, high];
  const room = time ? (low % DAY === 0 ? DAY : MINUTE) : 1;
  return [low - room, high + room];
}

/** From where to where it goes up. It begins at zero, unless it need not and all values are far from it. */
export function upRange(low: number | null, high: number | null, top: number, isFree: boolean): [number, number] {
  const [least, most] = [low ?? 0, high ?? 0];
  const spread = most - least;
  if (isFree && spread > 0 && spread < 0.2 * Math.min(Math.abs(least), Math.abs(most)) && least > 0 === most > 0) {
    return [least - 0.08 * spread, most + 0.08 * spread];
  }
  const [from, to] = [Math.min(0, least), Math.max(top, most)];
  return from === to ? [0, 1] : [from * 1.08, to * 1.08];
}

/** Pixels of a letter of an axis. */
export const LETTER = 6.5;
/** Letters of a name that is written aslant, and pixels from one to the next. */
const ASLANT_MAX = 20;
const ASLANT_APART = 15;

/** How the names below bars are written: as they are, or aslant, and as many of them as there is room for. */
export interface Names {
  texts: string[];
  aslant: boolean;
  /** Pixels that they need below the axis, and left of the first bar. */
  below: number;
  left: number;
}

export function nameTexts(names: string[], width: number): Names {
  const apart = width / Math.max(1, names.length);
  const fits = Math.floor(apart / LETTER) - 1;
  if (names.every((name) => name.length <= fits) || names.length * 16 * LETTER < width) {
    return { texts: names.map((name) => shorten(name, Math.max(2, fits))), aslant: false, below: 30, left: 0 };
  }
  const every = Math.ceil(ASLANT_APART / apart);
  const texts = names.map((name, at) => (at % every === 0 ? shorten(name, ASLANT_MAX) : ""));
  // At 45 degrees as far down as to the left.
  const long = Math.max(...texts.map((text, at) => text.length * LETTER * 0.71 - at * apart));
  return { texts, aslant: true, below: 20 + Math.max(...texts.map((text) => text.length)) * LETTER * 0.71, left: Math.max(0, long) };
}

/** A text of so many letters at most; of a longer one the beginning and the end. */
export function shorten(text: string, letters: number): string {
  if (text.length <= letters) return text;
  const end = Math.floor((letters - 1) / 2);
  return `${text.slice(0, letters - 1 - end)}…${end > 0 ? text.slice(-end) : ""}`;
}
