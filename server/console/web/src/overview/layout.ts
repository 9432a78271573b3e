// Where nodes lie and edges run: dagre, asked only when there is another graph.
import dagre from "@dagrejs/dagre";
import type { Edge, Node } from "./model";

export const NODE_WIDTH = 224;
export const NODE_HEIGHT = 112;

export const SOURCE_WIDTH = 140;
export const SOURCE_HEIGHT = 56;

export interface Layout {
  width: number;
  height: number;
  places: Map<string, { x: number; y: number }>;
  /** A path of SVG for each edge, and its middle. */
  paths: Map<string, { path: string; x: number; y: number }>;
}

interface Point {
  x: number;
  y: number;
}

interface Box extends Point {
  width: number;
  height: number;
}

export type Direction = "LR" | "TB";

/** The name of an edge. */
export function edgeKey(edge: Edge): string {
  return `${edge.from}>${edge.to}`;
}

/** Between nodes of a rank, and between parts of the graph. */
const GAP = 22;
const MARGIN = 12;
/** More nodes of one rank than this are laid in several columns (or, from top to bottom, rows), or the graph would be all height. */
const RANK_MAX: Record<Direction, number> = { LR: 12, TB: 6 };
/** How much wider than high such a block is. */
const BLOCK = 1.6;

/** Lays out the graph for so many pixels of width: what is connected by itself, one part beside the other and one row below the other. */
export function layout(nodes: Node[], edges: Edge[], direction: Direction, room: number): Layout {
  const parts = connected(nodes, edges).map((part) => arranged(part.nodes, part.edges, direction, room));
  const most = Math.max(room, ...parts.map((part) => part.width + 2 * MARGIN));
  const all: Layout = { width: 0, height: 0, places: new Map(), paths: new Map() };
  let [x, y, rowHeight] = [MARGIN, MARGIN, 0];
  for (const part of parts) {
    if (x > MARGIN && x + part.width + MARGIN > most) [x, y, rowHeight] = [MARGIN, y + rowHeight + GAP, 0];
    for (const [key, place] of part.places) all.places.set(key, { x: x + place.x, y: y + place.y });
    for (const [key, line] of part.lines) {
      const points = line.map((point) => ({ x: x + point.x, y: y + point.y }));
      const [one, other] = points.slice(-2) as [Point, Point];
      all.paths.set(key, { path: curve(points, direction), x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 });
    }
    rowHeight = Math.max(rowHeight, part.height);
    all.width = Math.max(all.width, x + part.width + MARGIN);
    all.height = Math.max(all.height, y + part.height + MARGIN);
    x += part.width + 2 * GAP;
  }
  return { ...all, width: Math.ceil(all.width), height: Math.ceil(all.height) };
}

/** The parts of the graph between which there is no edge, in the order of their first nodes. */
function connected(nodes: Node[], edges: Edge[]): { nodes: Node[]; edges: Edge[] }[] {
  const of = new Map<string, string>(nodes.map((node) => [node.key, node.key]));
  const first = (key: string): string => {
    let at = key;
    for (let next = of.get(at); next !== undefined && next !== at; next = of.get(at)) at = next;
    of.set(key, at);
    return at;
  };
  for (const edge of edges) of.set(first(edge.to), first(edge.from));
  const parts = new Map<string, { nodes: Node[]; edges: Edge[] }>();
  for (const node of nodes) {
    const part = parts.get(first(node.key)) ?? { nodes: [], edges: [] };
    part.nodes.push(node);
    parts.set(first(node.key), part);
  }
  for (const edge of edges) parts.get(first(edge.from))?.edges.push(edge);
  return [...parts.values()];
}

/** A part that is laid out, from 0 on. */
interface Part {
  width: number;
  height: number;
  places: Map<string, Point>;
  lines: Map<string, Point[]>;
}

function arranged(nodes: Node[], edges: Edge[], direction: Direction, room: number): Part {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: direction, nodesep: GAP, ranksep: direction === "LR" ? 84 : 54 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) {
    const isSource = node.kind === "source";
    graph.setNode(node.key, { width: isSource ? SOURCE_WIDTH : NODE_WIDTH, height: isSource ? SOURCE_HEIGHT : NODE_HEIGHT });
  }
  for (const edge of edges) graph.setEdge(edge.from, edge.to);
  dagre.layout(graph);
  const boxes = new Map(nodes.map((node) => [node.key, graph.node(node.key) as Box]));
  const isFolded = fold([...boxes.values()], direction, room);
  const lines: Part["lines"] = new Map();
  for (const edge of edges) {
    const { points } = graph.edge(edge.from, edge.to) as { points: Point[] };
    const [from, to] = [boxes.get(edge.from) as Box, boxes.get(edge.to) as Box];
    const ends = direction === "LR" ? [{ x: from.x + from.width / 2, y: from.y }, { x: to.x - to.width / 2, y: to.y }] : [{ x: from.x, y: from.y + from.height / 2 }, { x: to.x, y: to.y - to.height / 2 }];
    // The first and the last point lie on the nodes, those between make room for other nodes.
    const between = points.length > 3 && !isFolded ? points.slice(1, -1) : [];
    lines.set(edgeKey(edge), [ends[0], ...between, ends[1]] as Point[]);
  }
  const places: Part["places"] = new Map();
  for (const [key, box] of boxes) places.set(key, { x: box.x - box.width / 2, y: box.y - box.height / 2 });
  const most = (of: (box: Box) => number) => Math.max(0, ...[...boxes.values()].map(of));
  return { width: most((box) => box.x + box.width / 2), height: most((box) => box.y + box.height / 2), places, lines };
}

/** Lays ranks of very many nodes in blocks; what comes behind such a rank makes room for it. Whether there was one. */
function fold(boxes: Box[], direction: Direction, room: number): boolean {
  const isAcross = direction === "LR";
  const ranks = new Map<number, Box[]>();
  for (const box of boxes) {
    const at = Math.round(isAcross ? box.x : box.y);
    ranks.set(at, [...(ranks.get(at) ?? []), box]);
  }
  if (![...ranks.values()].some((rank) => rank.length > RANK_MAX[direction])) return false;
  // From above to below, or from left to right, all ranks are as long as the longest one is then.
  const columns = (count: number) => (isAcross ? Math.ceil(Math.sqrt((count * BLOCK * NODE_HEIGHT) / NODE_WIDTH)) : Math.max(1, Math.floor(room / (NODE_WIDTH + GAP))));
  let shift = 0;
  for (const [, rank] of [...ranks].sort(([one], [other]) => one - other)) {
    const isLong = rank.length > RANK_MAX[direction];
    const wide = isLong ? columns(rank.length) : isAcross ? 1 : rank.length;
    const high = Math.ceil(rank.length / wide);
    for (const [at, box] of rank.entries()) {
      // In the order in which they were made, column by column or row by row.
      const [column, row] = isAcross ? [Math.floor(at / high), at % high] : [at % wide, Math.floor(at / wide)];
      if (isAcross) [box.x, box.y] = [box.x + shift + column * (NODE_WIDTH + GAP), NODE_HEIGHT / 2 + row * (NODE_HEIGHT + GAP)];
      else [box.x, box.y] = [NODE_WIDTH / 2 + column * (NODE_WIDTH + GAP), box.y + shift + row * (NODE_HEIGHT + GAP)];
    }
    if (isLong) shift += isAcross ? (wide - 1) * (NODE_WIDTH + GAP) : (high - 1) * (NODE_HEIGHT + GAP);
  }
  return true;
}

/** A smooth line through points, which leaves and reaches each in the direction of the graph. */
function curve(points: Point[], direction: Direction): string {
  return points
    .map((point, at) => {
      const before = points[at - 1];
      if (!before) return `M${point.x},${point.y}`;
      const bend = (direction === "LR" ? point.x - before.x : point.y - before.y) / 2;
      return direction === "LR"
        ? `C${before.x + bend},${before.y} ${point.x - bend},${point.y} ${point.x},${point.y}`
        : `C${before.x},${before.y + bend} ${point.x},${point.y - bend} ${point.x},${point.y}`;
    })
    .join("");
}
