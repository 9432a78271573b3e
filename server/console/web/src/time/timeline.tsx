// A run as a picture: each resource a band, each monotask a bar in the colour of its stage.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { bytes, duration, plural } from "../format";
import { colour, isDark, series } from "../theme";
import { groups, taskGroups, type Bar, type Group } from "./lanes";
import type { Profile } from "./profile";

const LANE = 15;
const GAP = 18;
const AXIS = 22;
/** A bar is never thinner than this. */
const BAR_MIN = 1;

interface Place {
  bar: Bar;
  x: number;
  y: number;
  width: number;
}

/** The class and colour of a stage. */
export function stageColour(stage: number): string {
  return colour(series(stage));
}

function heightOf(all: Group[]): number {
  return AXIS + all.reduce((sum, group) => sum + GAP + group.lanes.length * LANE + 6, 0);
}

export function Timeline({ profile }: { profile: Profile }) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const places = useRef<Place[]>([]);
  const [width, setWidth] = useState(0);
  const [pointed, point] = useState<{ place: Place; left: number } | undefined>();
  const all = useMemo(() => {
    const found = groups(profile);
    return found.length > 0 ? found : taskGroups(profile);
  }, [profile]);
  const height = heightOf(all);
  const dark = isDark.value;
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const element = canvas.current;
    if (element && width > 0) places.current = draw(element, all, profile, width, height);
  }, [all, width, height, dark]);
  const find = (event: MouseEvent) => {
    const { offsetX: x, offsetY: y } = event;
    const place = places.current.findLast((place) => y >= place.y && y < place.y + LANE && x >= place.x - 1 && x <= place.x + place.width + 1);
    point(place && { place, left: Math.min(x, width - 260) });
  };
  const total = all.reduce((sum, group) => sum + group.lanes.reduce((bars, lane) => bars + lane.length, 0), 0);
  return (
    <div class="timeline" ref={box}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`${plural(total, "piece")} of work on ${all.map((group) => group.name).join(", ")} in ${duration(profile.end / 1e9)}; the table below has their sums`}
        style={{ width: "100%", height: `${height}px` }}
        onMouseMove={find}
        onMouseLeave={() => point(undefined)}
      />
      {pointed && <BarTip place={pointed.place} left={pointed.left} />}
    </div>
  );
}

function BarTip({ place: { bar, y }, left }: { place: Place; left: number }) {
  const { monotask } = bar;
  return (
    <div class="bar-tip" style={{ left: `${Math.max(0, left)}px`, top: `${y + LANE + 4}px` }}>
      <b>
        stage {bar.stage}, partition {bar.partition}: {monotask.kind}
      </b>
      <div>
        at {duration(monotask.started_at / 1e9)} for {duration(monotask.service / 1e9)}
      </div>
      <div>waited {duration((monotask.started_at - monotask.queued_at) / 1e9)}</div>
      {monotask.rows > 0 && (
        <div>
          {plural(monotask.rows, "row")}, {bytes(monotask.bytes)}
        </div>
      )}
    </div>
  );
}

function draw(canvas: HTMLCanvasElement, all: Group[], profile: Profile, width: number, height: number): Place[] {
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  if (!pen) return [];
  pen.scale(scale, scale);
  pen.clearRect(0, 0, width, height);
  const [ink, line] = [colour("ink-soft"), colour("line")];
  const end = Math.max(1, profile.end);
  const at = (time: number) => (time / end) * (width - 2) + 1;
  pen.font = "11px system-ui";
  pen.textBaseline = "middle";
  const steps = Math.max(2, Math.floor(width / 130));
  for (let step = 0; step <= steps; step++) {
    const x = at((end * step) / steps);
    pen.strokeStyle = line;
    pen.beginPath();
    pen.moveTo(x, AXIS - 4);
    pen.lineTo(x, height);
    pen.stroke();
    pen.fillStyle = ink;
    pen.textAlign = step === 0 ? "left" : step === steps ? "right" : "center";
    pen.fillText(duration((end * step) / steps / 1e9), x, AXIS / 2);
  }
  const places: Place[] = [];
  let y = AXIS;
  pen.textAlign = "left";
  for (const group of all) {
    pen.fillStyle = ink;
    const lanes = group.lanes.length;
    pen.fillText(`${group.name}${lanes > 1 ? `, ${lanes} at once` : ""}`, 2, y + GAP / 2);
    y += GAP;
    for (const lane of group.lanes) {
      for (const bar of lane) {
        const x = at(bar.monotask.started_at);
        const size = Math.max(BAR_MIN, at(bar.monotask.started_at + bar.monotask.service) - x);
        pen.fillStyle = stageColour(bar.stage);
        pen.fillRect(x, y + 1, size > 3 ? size - 0.5 : size, LANE - 2);
        places.push({ bar, x, y, width: size });
      }
      y += LANE;
    }
    y += 6;
  }
  return places;
}
