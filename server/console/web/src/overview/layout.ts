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

export function layout(nodes: Node[], edges: Edge[], direction: Direction): Layout {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: direction, nodesep: 22, ranksep: direction === "LR" ? 84 : 54, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) {
    const isSource = node.kind === "source";
    graph.setNode(node.key, { width: isSource ? SOURCE_WIDTH : NODE_WIDTH, height: isSource ? SOURCE_HEIGHT : NODE_HEIGHT });
  }
  for (const edge of edges) graph.setEdge(edge.from, edge.to);
  dagre.layout(graph);
  const places = new Map<string, { x: number; y: number }>();
  for (const node of nodes) {
    const { x, y, width, height } = graph.node(node.key) as Box;
    places.set(node.key, { x: x - width / 2, y: y - height / 2 });
  }
  const paths: Layout["paths"] = new Map();
  for (const edge of edges) {
    const { points } = graph.edge(edge.from, edge.to) as { points: Point[] };
    const [from, to] = [graph.node(edge.from) as Box, graph.node(edge.to) as Box];
    const ends = direction === "LR" ? [{ x: from.x + from.width / 2, y: from.y }, { x: to.x - to.width / 2, y: to.y }] : [{ x: from.x, y: from.y + from.height / 2 }, { x: to.x, y: to.y - to.height / 2 }];
    // The first and the last point lie on the nodes, those between make room for other nodes.
    const between = points.length > 3 ? points.slice(1, -1) : [];
    const all = [ends[0], ...between, ends[1]] as Point[];
    const [one, other] = [all[all.length - 2], all[all.length - 1]] as [Point, Point];
    paths.set(edgeKey(edge), { path: curve(all, direction), x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 });
  }
  const size = graph.graph() as { width?: number; height?: number };
  return { width: Math.ceil(size.width ?? 0), height: Math.ceil(size.height ?? 0), places, paths };
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
