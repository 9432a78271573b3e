// The overview: the graph as it is, who is behind and why, and one relation in detail.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { document as explained } from "../api";
import { bytes, duration, rate } from "../format";
import { DemoButton, ReplayBar } from "../parts/demo";
import { Empty, Fault } from "../parts/panel";
import { Metric } from "../parts/tip";
import { usePoll } from "../poll";
import { go, openSql, route } from "../route";
import { replayedSoFar } from "../sample";
import { TERMS } from "../terms";
import { Detail } from "./detail";
import { Graph } from "./graph";
import { isTrouble } from "./judge";
import { askRelations, freshness, overview, type Measured, type Node, type Overview, type Watched } from "./model";

const EVERY_MS = 1000;
/** With more relations than this it is asked less often: each of them costs the server its part of an answer. */
const RELATIONS_A_SECOND = 50;
const EVERY_MS_MAX = 4000;
/** For how long the views are watched each time. Not at all while nothing comes. */
const WATCHED = "EXPLAIN ANALYZE (DURATION '2s', FORMAT JSON) MATERIALIZED VIEWS";
/** What would limit a view changes seldom; while one is in trouble it is asked for more often. */
const PAUSE_MS = 8000;
const PAUSE_IN_TROUBLE_MS = 1000;
/** With more nodes than this one looks for them by name. */
const FIND_FROM = 12;

interface Seen {
  watched: Map<number, Watched>;
  /** Of each view the last that saw rows. */
  useful: Map<number, Watched>;
}

/** What holds each view back, asked again and again while rows come. */
function useWatched(isBusy: boolean, isInTrouble: { current: boolean }): Seen {
  const polled = usePoll(
    async (signal) => {
      if (!isBusy) return undefined;
      const found = await explained<{ views: Watched[] }>(WATCHED, signal);
      return new Map(found.views.map((view) => [view.relation, view]));
    },
    () => (!isBusy ? 3_600_000 : isInTrouble.current ? PAUSE_IN_TROUBLE_MS : PAUSE_MS),
    [isBusy],
  );
  const last = useRef<Seen>({ watched: new Map(), useful: new Map() });
  if (polled.value && polled.value !== last.current.watched) {
    const useful = new Map(last.current.useful);
    for (const [id, view] of polled.value) if (view.analysis?.head_room) useful.set(id, view);
    last.current = { watched: polled.value, useful };
  }
  return last.current;
}

export function OverviewPage() {
  const asked = useRef(0);
  const polled = usePoll<Measured[]>(
    async (signal) => {
      const rows = await askRelations(signal);
      asked.current = rows.length;
      return rows;
    },
    () => Math.min(EVERY_MS_MAX, EVERY_MS * Math.max(1, asked.current / RELATIONS_A_SECOND)),
  );
  const [isBusy, setBusy] = useState(false);
  const isInTrouble = useRef(false);
  const watched = useWatched(isBusy, isInTrouble);
  const seen = useMemo(() => (polled.value ? overview(polled.value, watched.watched, watched.useful) : undefined), [polled.value, watched]);
  const views = seen?.nodes.filter((node) => node.kind === "materialized view") ?? [];
  isInTrouble.current = seen?.nodes.some(isTrouble) ?? false;
  const busy = views.length > 0 && (seen?.nodes.some((node) => (node.rate ?? 0) > 0 || node.underWay) ?? false);
  // It takes a while of quiet until nobody looks any more.
  const quiet = useRef(0);
  useEffect(() => {
    quiet.current = busy ? 0 : quiet.current + 1;
    if (busy !== isBusy && (busy || quiet.current > 5)) setBusy(busy);
  }, [seen]);

  const selectedKey = route.value.of;
  const selected = seen?.nodes.find((node) => node.key === selectedKey);
  /** Whether it was chosen with the keyboard, which then goes on in the detail. */
  const byKey = useRef(false);
  const select = (key: string, isKey: boolean) => {
    byKey.current = isKey;
    go("overview", key);
  };
  const close = () => {
    if (selectedKey) document.querySelector<HTMLElement>(`[data-key="${CSS.escape(selectedKey)}"]`)?.focus({ preventScroll: true });
    go("overview");
  };
  if (!seen) return <Fault message={polled.error} />;
  if (seen.nodes.length === 0) return <Nothing />;
  return (
    <div class={`overview ${selected ? "with-detail" : ""}`}>
      <div class="overview-main">
        <Fault message={polled.error} />
        <Summary overview={seen} />
        <Troubles nodes={seen.nodes} />
        <ReplayBar rows={replayedSoFar(seen.nodes)} />
        {seen.nodes.length > FIND_FROM && <Find nodes={seen.nodes} />}
        <Graph overview={seen} selected={selectedKey} onSelect={select} />
        <Legend />
      </div>
      {selected && <Detail node={selected} takesFocus={byKey.current} onClose={close} />}
    </div>
  );
}

function Summary({ overview: { nodes } }: { overview: Overview }) {
  const of = (kind: string) => nodes.filter((node) => node.kind === kind);
  const views = of("materialized view");
  const written = [...of("stream"), ...of("table")].reduce((sum, node) => sum + (node.rate ?? 0), 0);
  const fresh = views.map(freshness).filter((value) => value !== undefined);
  const worst = nodes.filter((node) => node.kind !== "source" && isTrouble(node)).length;
  const memory = nodes.filter((node) => node.kind !== "source").reduce((sum, node) => sum + node.bytes, 0);
  return (
    <dl class="metrics summary">
      <Metric label="streams, tables" tip="What rows are written to.">
        {of("stream").length}, {of("table").length}
      </Metric>
      <Metric label="views" tip="Queries whose answers are kept right while rows come.">
        {views.length}
      </Metric>
      <Metric label="rows in" tip="Rows written a second to all streams and tables.">
        {rate(written)}
      </Metric>
      <Metric label="slowest freshness" tip={TERMS.freshness}>
        {fresh.length > 0 ? duration(Math.max(...fresh)) : "–"}
      </Metric>
      <Metric label="memory" tip="Memory that all of them hold: their rows, their operators' state, and rows on their way.">
        {memory > 0 ? bytes(memory) : "–"}
      </Metric>
      <Metric label="in trouble" tip="Relations that are behind or have failed." tone={worst > 0 ? "warn" : "good"}>
        {worst === 0 ? "none" : worst}
      </Metric>
    </dl>
  );
}

/** Who is behind, with the sentence that says why. */
function Troubles({ nodes }: { nodes: Node[] }) {
  const found = nodes.filter((node) => node.kind !== "source" && (isTrouble(node) || node.status === "filling"));
  if (found.length === 0) return <p class="quiet troubles-none">Nothing is behind, has failed or is being filled.</p>;
  return (
    <ul class="troubles" aria-label="What is behind">
      {found.slice(0, 6).map((node) => (
        <li key={node.key} class={node.status}>
          <button class="plain" onClick={() => go("overview", node.key)}>
            <span class={`badge ${node.status}`}>{node.status}</span> <b>{node.label}</b> <span>{node.why}</span>
          </button>
        </li>
      ))}
      {found.length > 6 && <li class="quiet">and {found.length - 6} more</li>}
    </ul>
  );
}

function Legend() {
  const entries = [
    ["limit-cpu", "the cores"],
    ["limit-one_task", "one partition"],
    ["limit-disk", "the disk"],
    ["limit-network", "the network"],
  ];
  return (
    <p class="legend" data-tip={TERMS.limit}>
      What would limit a view first:
      {entries.map(([name, text]) => (
        <span key={name}>
          <i class={name} /> {text}
        </span>
      ))}
    </p>
  );
}

/** Leads to a relation by its name, or by a part of it; Enter leads to the next one. */
function Find({ nodes }: { nodes: Node[] }) {
  const [text, setText] = useState("");
  const part = text.trim().toLowerCase();
  const found = part === "" ? [] : matches(nodes, part);
  const show = (list: Node[], from: number) => {
    const next = list[from % Math.max(1, list.length)];
    if (next) go("overview", next.key);
  };
  const current = found.findIndex((node) => node.key === route.value.of);
  return (
    <p class="find">
      <input
        type="search"
        list="relations"
        placeholder="Find a relation"
        aria-label="Find a relation"
        value={text}
        onInput={(event) => {
          const typed = event.currentTarget.value;
          setText(typed);
          if (typed.trim() !== "") show(matches(nodes, typed.trim().toLowerCase()), 0);
        }}
        onKeyDown={(event) => event.key === "Enter" && show(found, current + 1)}
      />
      <datalist id="relations">
        {nodes.filter((node) => node.kind !== "source").map((node) => (
          <option key={node.key} value={node.label} />
        ))}
      </datalist>
      <span class="quiet" role="status">
        {part === "" ? "" : found.length === 0 ? "No relation is called so." : `${current + 1} of ${found.length}`}
      </span>
    </p>
  );
}

/** The relations with a text in their names: those that are called so first, then those that begin with it. */
function matches(nodes: Node[], part: string): Node[] {
  const rank = (node: Node) => {
    const names = [node.name.toLowerCase(), node.label.toLowerCase()];
    if (names.includes(part)) return 0;
    return names.some((name) => name.startsWith(part)) ? 1 : names.some((name) => name.includes(part)) ? 2 : 3;
  };
  const found = nodes.filter((node) => node.kind !== "source" && rank(node) < 3);
  return found.sort((one, other) => rank(one) - rank(other) || one.label.localeCompare(other.label));
}

function Nothing() {
  return (
    <Empty title="Nothing is here yet">
      <p>Declare a stream, then a view over it; what you write shows here, and in the view, at once.</p>
      <pre class="code" tabIndex={0}>
        {FIRST}
      </pre>
      <p class="actions">
        <button class="main" onClick={() => openSql(FIRST)}>
          Try it in SQL
        </button>
        <DemoButton />
      </p>
      <ReplayBar />
    </Empty>
  );
}

const FIRST = `CREATE STREAM orders (customer INT, amount INT);
CREATE MATERIALIZED VIEW revenue AS
  SELECT customer, count(*) AS orders, sum(amount) AS total
  FROM orders GROUP BY customer;
INSERT INTO orders VALUES (1, 40), (2, 25), (1, 10);
SELECT * FROM revenue;`;
