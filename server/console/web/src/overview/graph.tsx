// The graph: what feeds what. Nodes are buttons; arrows lead along the edges.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { bytes, plural, short } from "../format";
import { Icon } from "../parts/icon";
import { Sparkline } from "../parts/sparkline";
import { cellText } from "../text";
import { TERMS } from "../terms";
import { NODE_HEIGHT, NODE_WIDTH, SOURCE_HEIGHT, SOURCE_WIDTH, edgeKey, layout, type Direction } from "./layout";
import { facts, history, rateText, type Edge, type Fact, type Node, type Overview } from "./model";

/** Smaller than this nobody can read it: then it is scrolled, unless one wants to see all of it. */
const SCALE_MIN = 0.9;
const SCALE_LEAST = 0.08;
const SCALE_MOST = 1.5;
const ZOOM = 1.25;
/** How much of the window's height all of it takes: the rest is for what stands above. */
const WHOLE_SHARE = 0.55;

export function Graph(props: { overview: Overview; selected: string | undefined; onSelect(key: string, isKey: boolean): void }) {
  const { nodes, edges } = props.overview;
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  /** What was chosen; else as much as can be read is seen. */
  const [chosen, choose] = useState<number | "all" | undefined>();
  // Before anything is drawn: what it is laid out for is not to change then.
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    setWidth(element.clientWidth);
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const direction: Direction = width > 0 && width < 640 ? "TB" : "LR";
  const shape = `${direction} ${nodes.map((node) => node.key).join()} ${edges.map(edgeKey).join()}`;
  // What has room at the smallest size at which it can be read; in steps, so that it is not laid out anew for each pixel.
  const room = Math.floor(width / SCALE_MIN / 100) * 100;
  const found = useMemo(() => layout(nodes, edges, direction, room), [shape, room]);
  const readable = width === 0 ? 1 : Math.max(SCALE_MIN, Math.min(1, width / found.width));
  const isLarge = width > 0 && (found.width * readable > width + 1 || found.height * readable > innerHeight);
  const all = Math.max(SCALE_LEAST, Math.min(1, width / found.width, (innerHeight * WHOLE_SHARE) / found.height));
  const scale = chosen === "all" ? all : (chosen ?? readable);
  useEffect(() => {
    if (props.selected) reveal(box.current, props.selected);
  }, [props.selected, shape, width > 0]);
  const walk = (event: KeyboardEvent, from: string) => {
    const to = neighbour(event.key, from, props.overview, direction, found.places);
    if (!to) return;
    event.preventDefault();
    box.current?.querySelector<HTMLElement>(`[data-key="${to}"]`)?.focus();
  };
  return (
    <>
      {(isLarge || chosen !== undefined) && (
        <p class="zoom">
          <button class="small" aria-pressed={chosen === "all"} onClick={() => choose("all")}>
            All of it
          </button>
          <button class="small" aria-pressed={chosen === undefined} onClick={() => choose(undefined)}>
            To read
          </button>
          <button class="small" aria-label="Smaller" onClick={() => choose(Math.max(SCALE_LEAST, scale / ZOOM))}>
            −
          </button>
          <button class="small" aria-label="Larger" onClick={() => choose(Math.min(SCALE_MOST, scale * ZOOM))}>
            +
          </button>
          {found.width * scale > width + 1 && <span class="quiet">It goes on at the side: scroll it.</span>}
        </p>
      )}
      <div class="graph" ref={box}>
        <div class="graph-size" style={{ width: `${found.width * scale}px`, height: `${found.height * scale}px` }}>
          <div
            class="graph-inner"
            style={{ width: `${found.width}px`, height: `${found.height}px`, transform: scale === 1 ? "none" : `scale(${scale})` }}
          >
            <Edges edges={edges} paths={found.paths} width={found.width} height={found.height} selected={props.selected} />
            {nodes.map((node) => (
              <NodeCard
                key={node.key}
                node={node}
                place={found.places.get(node.key) ?? { x: 0, y: 0 }}
                isSelected={props.selected === node.key}
                onSelect={(isKey) => props.onSelect(node.kind === "source" ? `r${node.id}` : node.key, isKey)}
                onKey={(event) => walk(event, node.key)}
              />
            ))}
          </div>
        </div>
      </div>
    </>
  );
}

/** Brings a node into view, unless it is. */
function reveal(box: HTMLElement | null, key: string): void {
  // What opens beside it takes room first.
  requestAnimationFrame(() => {
    const node = box?.querySelector(`[data-key="${CSS.escape(key)}"]`);
    if (!box || !node) return;
    const [place, frame] = [node.getBoundingClientRect(), box.getBoundingClientRect()];
    const detail = document.querySelector(".detail")?.getBoundingClientRect();
    const bottom = detail && detail.left < place.left + place.width / 2 ? Math.min(innerHeight, detail.top) : innerHeight;
    const isSeen = place.left >= frame.left && place.right <= frame.right && place.top >= TOP && place.bottom <= bottom;
    if (!isSeen) node.scrollIntoView({ block: bottom < innerHeight ? "start" : "center", inline: "center" });
  });
}

/** The height of what stays above the page when it is scrolled. */
const TOP = 60;

/** What lies in the direction of an arrow key. */
function neighbour(
  key: string,
  from: string,
  { nodes, edges }: Overview,
  direction: Direction,
  places: Map<string, { x: number; y: number }>,
): string | undefined {
  const [ahead, back] = direction === "LR" ? ["ArrowRight", "ArrowLeft"] : ["ArrowDown", "ArrowUp"];
  if (key === ahead) return edges.find((edge) => edge.from === from)?.to;
  if (key === back) return edges.find((edge) => edge.to === from)?.from;
  const across = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[key];
  if (across === undefined) return undefined;
  const order = nodes
    .map((node) => ({ key: node.key, place: places.get(node.key) ?? { x: 0, y: 0 } }))
    .sort((one, other) =>
      direction === "LR" ? one.place.x - other.place.x || one.place.y - other.place.y : one.place.y - other.place.y || one.place.x - other.place.x,
    );
  return order[order.findIndex((entry) => entry.key === from) + across]?.key;
}

/** With more edges than this they are faint, but for those of the node that is shown. */
const EDGES_FAINT = 60;

function Edges(props: { edges: Edge[]; paths: Map<string, { path: string; x: number; y: number }>; width: number; height: number; selected: string | undefined }) {
  return (
    <svg class={`edges ${props.edges.length > EDGES_FAINT ? "faint" : ""}`} width={props.width} height={props.height} aria-hidden="true">
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" orient="auto" markerUnits="userSpaceOnUse">
          <path d="M0,0.500 L8,4 L0,7.500 z" />
        </marker>
      </defs>
      {props.edges.map((edge) => {
        const place = props.paths.get(edgeKey(edge));
        if (!place) return null;
        const flow = edge.rate ?? 0;
        return (
          <g key={edgeKey(edge)} class={`edge ${flow > 0 ? "flowing" : ""} ${edge.from === props.selected || edge.to === props.selected ? "chosen" : ""}`}>
            <path d={place.path} style={{ strokeWidth: `${1.2 + Math.min(3, Math.log10(1 + flow) * 0.6)}px` }} marker-end="url(#arrow)" />
            {(flow > 0 || edge.what) && (
              <text x={place.x} y={place.y - 6} data-tip={edge.what ? `Only the ${edge.what} flow here: rows a second.` : "Rows a second that flow here."}>
                {edge.what ? `${edge.what} ` : ""}
                {flow > 0 && `${short(Math.round(flow))}/s`}
              </text>
            )}
          </g>
        );
      })}
    </svg>
  );
}

interface CardProps {
  node: Node;
  place: { x: number; y: number };
  isSelected: boolean;
  onSelect(isKey: boolean): void;
  onKey(event: KeyboardEvent): void;
}

const KIND_SHORT: Record<string, string> = { "external table": "files" };

/** What all the numbers at a node mean, for whoever comes to it with the keyboard. */
function meaning(node: Node, words: Fact[]): string {
  const lines = words.map(({ text, tip }) => `${text}: ${tip}`);
  if (node.rate !== undefined && node.kind !== "source") lines.unshift(`${rateText(node)}: ${TERMS.rate}`);
  return [node.label, ...lines].join("\n");
}

function Facts({ words }: { words: Fact[] }) {
  return (
    <span class="node-facts">
      {words.map(({ text, tip }) => (
        <span key={tip} data-tip={tip}>
          {text}
        </span>
      ))}
    </span>
  );
}

function NodeCard({ node, place, isSelected, onSelect, onKey }: CardProps) {
  const limit = (node.watched?.analysis?.head_room ?? node.useful?.analysis?.head_room)?.limit;
  const words = facts(node);
  const kind = KIND_SHORT[node.kind] ?? node.kind;
  const shared = {
    "data-key-tip": meaning(node, words),
    "data-key": node.key,
    "data-name": node.name,
    "data-rows": node.rows ?? undefined,
    "aria-pressed": isSelected,
    // A click of the keyboard has no place.
    onClick: (event: MouseEvent) => onSelect(event.detail === 0),
    onKeyDown: onKey,
  };
  if (node.kind === "source") {
    return (
      <button {...shared} class={`node source ${node.status}`} style={{ left: `${place.x}px`, top: `${place.y}px`, width: `${SOURCE_WIDTH}px`, height: `${SOURCE_HEIGHT}px` }}>
        <span class="node-name">
          <Icon name="source" />
          <span class="sr">{kind} </span>
          <b>{node.label}</b>
        </span>
        <Facts words={words} />
      </button>
    );
  }
  return (
    <button
      {...shared}
      class={`node ${node.status} limit-${node.status === "idle" ? "none" : (limit ?? "none")} ${isSelected ? "selected" : ""} kind-${node.kind.replace(" ", "-")}`}
      style={{ left: `${place.x}px`, top: `${place.y}px`, width: `${NODE_WIDTH}px`, height: `${NODE_HEIGHT}px` }}
    >
      <span class="node-name">
        <Icon name={node.kind} />
        <span class="sr">{kind} </span>
        <b title={node.label}>{cellText(node.label)}</b>
        {node.status !== "ok" && node.status !== "idle" && <span class={`badge ${node.status}`} data-tip={node.why}>{node.status === "errors" && node.errors ? plural(node.errors, "error") : node.status}</span>}
      </span>
      <span class="node-rate">
        <span data-tip={TERMS.rate}>{rateText(node)}</span>
        {node.kind !== "view" && <Sparkline series={history.of(`${node.id}.rate`)}  />}
      </span>
      <Facts words={words} />
      <span class="node-facts">
        {node.rows != null && <span data-tip={TERMS.rows}>{short(node.rows)} {node.rows === 1 ? "row" : "rows"}</span>}
        {node.bytes > 0 && <span data-tip={TERMS.bytes}>{bytes(node.bytes)}</span>}
      </span>
    </button>
  );
}
