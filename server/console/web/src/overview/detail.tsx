// One relation: what is counted of it, its last minutes, its definition, some of its rows, and where its time goes.
import { useEffect, useRef, useState } from "preact/hooks";
import { WITHOUT_WAITING, connection, isConnection, lines, runStatements, select } from "../api";
import { bytes, cores, count, duration, instant, percent, rate, short } from "../format";
import { qualified } from "../names";
import { TimeChart } from "../parts/chart";
import { Grid } from "../parts/grid";
import { Icon } from "../parts/icon";
import { Fault } from "../parts/panel";
import { Metric } from "../parts/tip";
import type { Result } from "../result";
import { openSql, openTime } from "../route";
import { TERMS } from "../terms";
import { cellText } from "../text";
import { verdictOf } from "./judge";
import { freshness, history, type Node } from "./model";

const SAMPLE_ROWS = 20;

/** What can be read with SELECT, and what can be followed. */
const READ = new Set(["stream", "table", "materialized view", "view", "external table"]);
const FOLLOWED = new Set(["stream", "table", "materialized view", "subscription"]);

export function Detail({ node, takesFocus, onClose }: { node: Node; takesFocus: boolean; onClose(): void }) {
  const name = qualified(node);
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    if (takesFocus) box.current?.focus({ preventScroll: true });
  }, [node.key]);
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => event.key === "Escape" && onClose();
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [onClose]);
  // While it is filled it is there for nobody but the server.
  const isReadable = READ.has(node.kind) && node.status !== "filling" && node.state !== "failed";
  const verdict = verdictOf(node);
  const fresh = freshness(node);
  const isView = node.kind === "materialized view";
  const isSink = node.kind === "sink";
  const mark = instant(node.watermark);
  const head = (node.watched?.analysis?.head_room ? node.watched : node.useful)?.analysis?.head_room;
  return (
    <aside class="detail" ref={box} tabIndex={-1} aria-label={`${node.kind} ${node.name}`}>
      <header>
        <h2>
          <Icon name={node.kind} /> {cellText(node.label)}
        </h2>
        <button class="plain" onClick={onClose} aria-label="Close">
          <Icon name="close" />
        </button>
      </header>
      <p class="quiet">
        {node.kind}
        {node.connector && node.connector !== node.kind ? `, ${node.connector}` : ""}
        {node.state ? `, ${node.state}` : ""}
      </p>
      {node.why && <p class={`why ${node.status}`}>{node.why}</p>}
      {node.job && <progress class="fill" value={node.job.percent} max={100} aria-label={`how far ${node.label} is filled`} />}
      {isView && verdict && !node.why?.includes(verdict) && <p class="verdict">{verdict}</p>}
      <dl class="metrics">
        {node.changes !== null && (
          <Metric label={isSink ? "delivered" : "changes"} tip={TERMS.rate}>
            {rate(node.rate)}
          </Metric>
        )}
        {node.rows != null && (
          <Metric label="rows" tip={TERMS.rows}>
            {count(node.rows)}
          </Metric>
        )}
        {fresh !== undefined && (
          <Metric label="fresh in" tip={TERMS.freshness}>
            {duration(fresh)}
          </Metric>
        )}
        {node.freshness_target_us != null && (
          <Metric label={`within ${duration(node.freshness_target_us / 1e6)}`} tip={TERMS.freshnessTarget}>
            {node.freshness_met === null ? "-" : percent(node.freshness_met)}
          </Metric>
        )}
        {node.bytes > 0 && (
          <Metric label="memory" tip={TERMS.bytes}>
            {bytes(node.bytes)}
          </Metric>
        )}
        {node.on_disk_bytes > 0 && (
          <Metric label="on disk" tip={TERMS.onDisk}>
            {bytes(node.on_disk_bytes)}
          </Metric>
        )}
        {node.cores !== undefined && (
          <Metric label="cores" tip={TERMS.busy}>
            {cores(node.cores)}
          </Metric>
        )}
        {mark !== undefined && (
          <Metric label="watermark" tip={TERMS.watermark}>
            {duration(Math.max(0, (Date.now() - mark) / 1000))} ago
          </Metric>
        )}
        {(node.late_rows ?? 0) > 0 && (
          <Metric label="late rows" tip={TERMS.late} tone="warn">
            {count(node.late_rows)}
          </Metric>
        )}
        {node.lag_seconds != null && (
          <Metric label="behind" tip={TERMS.lag}>
            {duration(node.lag_seconds)}
          </Metric>
        )}
        {node.rows_waiting != null && (
          <Metric label="waiting" tip={isSink ? TERMS.undelivered : node.status === "filling" ? TERMS.unread : TERMS.waiting}>
            {short(node.rows_waiting)} {node.rows_waiting === 1 ? "row" : "rows"}
          </Metric>
        )}
        {node.pipeline != null && (
          <Metric label="pipeline" tip={TERMS.pipeline}>
            {node.pipeline}
          </Metric>
        )}
        {node.epoch != null && (
          <Metric label="epoch" tip={TERMS.epoch}>
            {count(node.epoch)}
          </Metric>
        )}
        {head && (
          <Metric label="head-room" tip={`${TERMS.headRoom} Now: ${head.limit.replace("_", " ")}.`}>
            {rate(head.rows_per_second)}
          </Metric>
        )}
      </dl>
      <Minutes node={node} />
      {node.status !== "filling" && (
        <>
          <p class="actions">
            {isReadable && <button onClick={() => openSql(`SELECT * FROM ${name} LIMIT 100;`)}>Query it</button>}
            {FOLLOWED.has(node.kind) && node.state !== "failed" && <button onClick={() => openSql(name, true)}>Follow it live</button>}
            {isView && node.state === "running" && <button onClick={() => openTime(name)}>Where its time goes</button>}
          </p>
          {isReadable && <Sample key={`rows ${node.key}`} name={name} />}
          <Definition key={`sql ${node.key}`} kind={node.kind} name={name} />
          {isView && node.state === "running" && <Explained key={`time ${node.key}`} name={name} />}
        </>
      )}
    </aside>
  );
}

function Minutes({ node }: { node: Node }) {
  const changes = history.of(`${node.id}.rate`);
  const fresh = history.of(`${node.id}.freshness`);
  if (node.kind === "view" || node.changes === null) return null;
  return (
    <>
      <h3 data-tip={TERMS.rate}>Rows a second, the last minutes</h3>
      <TimeChart label={`changes of ${node.name}`} x={changes.at} lines={[{ label: "rows/s", values: changes.values }]} height={120} unit="rows/s" />
      {node.kind === "materialized view" && (
        <>
          <h3 data-tip={TERMS.freshness}>Freshness, while rows came</h3>
          <TimeChart label={`freshness of ${node.name}`} x={fresh.at} lines={[{ label: "freshness", values: fresh.values }]} height={110} unit="from arrival to commit" empty="No rows came while one looked." format={duration} />
        </>
      )}
    </>
  );
}

function Sample({ name }: { name: string }) {
  const [result, setResult] = useState<Result | undefined>();
  const [round, setRound] = useState(0);
  const isThere = connection.value === "ok";
  useEffect(() => {
    if (!isThere) return;
    let isOld = false;
    const running = runStatements([WITHOUT_WAITING, `SELECT * FROM ${name} LIMIT ${SAMPLE_ROWS}`], true, () => {});
    setResult(undefined);
    running.results
      .then((results) => !isOld && setResult(results.at(-1)))
      .catch(() => {});
    return () => {
      isOld = true;
      running.leave();
    };
  }, [name, round, isThere]);
  return (
    <details open>
      <summary>Some rows</summary>
      <Fault message={result?.error?.message} />
      {!result && <p class="quiet sample-wait">{isThere ? "Reading…" : "The server is away."}</p>}
      {result && !result.error && result.rows.length === 0 && <p class="quiet">No rows.</p>}
      {result && result.rows.length > 0 && <Grid label={`rows of ${name}`} columns={result.columns} rows={result.rows} height={240} />}
      <p class="actions">
        <button onClick={() => setRound(round + 1)}>Read again</button>
      </p>
    </details>
  );
}

function Definition({ kind, name }: { kind: string; name: string }) {
  const [sql, setSql] = useState<string>();
  const [error, setError] = useState<string>();
  const isThere = connection.value === "ok";
  useEffect(() => {
    if (!isThere) return;
    setError(undefined);
    select<{ create_sql: string }>(`SHOW CREATE ${kind.toUpperCase()} ${name}`)
      .then(([row]) => setSql(row?.create_sql))
      .catch((failure: Error) => !isConnection(failure) && setError(failure.message));
  }, [kind, name, isThere]);
  return (
    <details open>
      <summary>Definition</summary>
      <Fault message={error} />
      {sql && (
        <pre class="code" tabIndex={0}>
          {sql}
        </pre>
      )}
    </details>
  );
}

/** EXPLAIN ANALYZE of the running view, for some seconds, when it is asked for. */
function Explained({ name }: { name: string }) {
  const [text, setText] = useState<string[]>();
  const [isWatching, setWatching] = useState(false);
  const [error, setError] = useState<string>();
  const watch = async () => {
    setWatching(true);
    setError(undefined);
    try {
      setText(await lines(`EXPLAIN ANALYZE (DURATION '3s') MATERIALIZED VIEW ${name}`));
    } catch (failure) {
      if (!isConnection(failure)) setError((failure as Error).message);
    }
    setWatching(false);
  };
  return (
    <details open>
      <summary>EXPLAIN ANALYZE</summary>
      <Fault message={error} />
      {text && (
        <pre class="code" tabIndex={0}>
          {text.join("\n")}
        </pre>
      )}
      <p class="actions">
        <button onClick={() => void watch()} disabled={isWatching}>
          {isWatching ? "Watching for 3 s…" : "Watch it for 3 s"}
        </button>
      </p>
    </details>
  );
}
