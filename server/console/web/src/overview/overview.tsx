// The overview: the graph as it is, who is behind and why, and one relation in detail.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { document as explained, isConnection } from "../api";
import { bytes, duration, rate, short } from "../format";
import { Empty, Fault } from "../parts/panel";
import { Metric } from "../parts/tip";
import { usePoll } from "../poll";
import { go, openSql, route } from "../route";
import { replay, replayError, startReplay, stopReplay } from "../sample";
import { TERMS } from "../terms";
import { Detail } from "./detail";
import { Graph } from "./graph";
import { askRelations, overview, type Measured, type Node, type Overview, type Watched } from "./model";

const EVERY_MS = 1000;
/** For how long the views are watched each time. Not at all while nothing comes. */
const WATCHED = "EXPLAIN ANALYZE (DURATION '2s', FORMAT JSON) MATERIALIZED VIEWS";
const PAUSE_MS = 1000;
/** With more nodes than this one looks for them by name. */
const FIND_FROM = 12;

/** What holds each view back, asked again and again while rows come. */
function useWatched(isBusy: boolean): Map<number, Watched> {
  const polled = usePoll(
    async (signal) => {
      if (!isBusy) return undefined;
      const found = await explained<{ views: Watched[] }>(WATCHED, signal);
      return new Map(found.views.map((view) => [view.relation, view]));
    },
    isBusy ? PAUSE_MS : 3_600_000,
    [isBusy],
  );
  const last = useRef(new Map<number, Watched>());
  if (polled.value) last.current = polled.value;
  return last.current;
}

export function OverviewPage() {
  const polled = usePoll<Measured[]>(askRelations, EVERY_MS);
  const [isBusy, setBusy] = useState(false);
  const watched = useWatched(isBusy);
  const seen = useMemo(() => (polled.value ? overview(polled.value, watched) : undefined), [polled.value, watched]);
  const views = seen?.nodes.filter((node) => node.kind === "materialized view") ?? [];
  const busy = views.length > 0 && (seen?.nodes.some((node) => (node.rate ?? 0) > 0) ?? false);
  // It takes a while of quiet until nobody looks any more.
  const quiet = useRef(0);
  useEffect(() => {
    quiet.current = busy ? 0 : quiet.current + 1;
    if (busy !== isBusy && (busy || quiet.current > 5)) setBusy(busy);
  }, [seen]);

  const selectedKey = route.value.of;
  const selected = seen?.nodes.find((node) => node.key === selectedKey);
  if (!seen) return <Fault message={polled.error} />;
  if (seen.nodes.length === 0) return <Nothing />;
  return (
    <div class={`overview ${selected ? "with-detail" : ""}`}>
      <div class="overview-main">
        <Fault message={polled.error} />
        <Summary overview={seen} />
        <Troubles nodes={seen.nodes} />
        <ReplayBar />
        {seen.nodes.length > FIND_FROM && <Find nodes={seen.nodes} />}
        <Graph overview={seen} selected={selectedKey} onSelect={(key) => go("overview", key)} />
        <Legend />
      </div>
      {selected && <Detail node={selected} onClose={() => go("overview")} />}
    </div>
  );
}

function Summary({ overview: { nodes } }: { overview: Overview }) {
  const of = (kind: string) => nodes.filter((node) => node.kind === kind);
  const views = of("materialized view");
  const written = [...of("stream"), ...of("table")].reduce((sum, node) => sum + (node.rate ?? 0), 0);
  const fresh = views.map((view) => view.freshness_us).filter((value) => value != null);
  const worst = nodes.filter((node) => node.status === "behind" || node.status === "failed").length;
  const memory = nodes.filter((node) => node.kind !== "source").reduce((sum, node) => sum + node.bytes, 0);
  return (
    <dl class="metrics summary">
      <Metric label="streams, tables" tip="What rows are written to.">
        {of("stream").length}, {of("table").length}
      </Metric>
      <Metric label="materialized views" tip="Queries whose answers are kept right while rows come.">
        {views.length}
      </Metric>
      <Metric label="rows in" tip="Rows written a second to all streams and tables.">
        {rate(written)}
      </Metric>
      <Metric label="slowest freshness" tip={TERMS.freshness}>
        {fresh.length > 0 ? duration(Math.max(...fresh) / 1e6) : "–"}
      </Metric>
      <Metric label="state" tip={TERMS.bytes}>
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
  const found = nodes.filter((node) => node.kind !== "source" && (node.status === "behind" || node.status === "failed" || node.status === "filling"));
  if (found.length === 0) return null;
  return (
    <ul class="troubles" aria-label="What is behind">
      {found.slice(0, 6).map((node) => (
        <li key={node.key} class={node.status}>
          <button class="plain" onClick={() => go("overview", node.key)}>
            <span class={`badge ${node.status}`}>{node.status}</span> <b>{node.name}</b> <span>{node.why}</span>
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

/** Leads to a relation by its name. */
function Find({ nodes }: { nodes: Node[] }) {
  const find = (name: string) => {
    const found = nodes.find((node) => node.name === name && node.kind !== "source");
    if (!found) return;
    go("overview", found.key);
    document.querySelector(`[data-key="${found.key}"]`)?.scrollIntoView({ block: "center", inline: "center" });
  };
  return (
    <p class="find">
      <input type="search" list="relations" placeholder="Find a relation" aria-label="Find a relation" onInput={(event) => find(event.currentTarget.value)} />
      <datalist id="relations">
        {nodes.filter((node) => node.kind !== "source").map((node) => (
          <option key={node.key} value={node.name} />
        ))}
      </datalist>
    </p>
  );
}

/** How far the demo's replay is, with its end. */
export function ReplayBar() {
  const now = replay.value;
  if (!now) return <Fault message={replayError.value || undefined} />;
  return (
    <div class="replay" role="status">
      <span>
        {now.what}
        {now.total > 0 ? `: ${short(now.sent)} of ${short(now.total)}` : "…"}
      </span>
      <progress value={now.total > 0 ? now.sent : undefined} max={now.total || 1} aria-label="progress of the replay" />
      <button onClick={stopReplay}>Stop</button>
    </div>
  );
}

function Nothing() {
  const [isStarting, setStarting] = useState(false);
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
        <button
          disabled={isStarting || replay.value !== undefined}
          onClick={() => {
            setStarting(true);
            startReplay().catch((error: unknown) => !isConnection(error) && setStarting(false));
          }}
        >
          Load the demo: 27,004 flights
        </button>
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
