// One relation: what is counted of it, its last minutes, its definition, some of its rows, and where its time goes.
import { useEffect, useState } from "preact/hooks";
import { isConnection, lines, runStatements, select } from "../api";
import { bytes, cores, count, duration, instant, rate, short } from "../format";
import { qualified } from "../names";
import { Chart } from "../parts/chart";
import { Grid } from "../parts/grid";
import { Icon } from "../parts/icon";
import { Fault } from "../parts/panel";
import { Metric } from "../parts/tip";
import type { Result } from "../result";
import { openSql, openTime } from "../route";
import { TERMS } from "../terms";
import { history, type Node } from "./model";

const SAMPLE_ROWS = 20;

export function Detail({ node, onClose }: { node: Node; onClose(): void }) {
  const name = qualified(node);
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => event.key === "Escape" && onClose();
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  const isView = node.kind === "materialized view";
  const isSink = node.kind === "sink";
  const mark = instant(node.watermark);
  const head = node.watched?.analysis?.head_room;
  return (
    <aside class="detail" aria-label={`${node.kind} ${node.name}`}>
      <header>
        <h2>
          <Icon name={node.kind} /> {node.name}
        </h2>
        <button class="plain" onClick={onClose} aria-label="Close">
          <Icon name="close" />
        </button>
      </header>
      <p class="quiet">
        {node.kind}
        {node.connector ? `, ${node.connector}` : ""}
        {node.state ? `, ${node.state}` : ""}
      </p>
      {node.why && <p class={`why ${node.status}`}>{node.why}</p>}
      {isView && node.watched?.analysis && <p class="verdict">{node.watched.analysis.verdict}</p>}
      <dl class="metrics">
        {node.kind !== "view" && (
          <Metric label={isSink ? "delivered" : "changes"} tip={TERMS.rate}>
            {rate(node.rate)}
          </Metric>
        )}
        {node.rows != null && (
          <Metric label="rows" tip={TERMS.rows}>
            {count(node.rows)}
          </Metric>
        )}
        {node.freshness_us != null && (
          <Metric label="fresh in" tip={TERMS.freshness}>
            {duration(node.freshness_us / 1e6)}
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
          <Metric label="waiting" tip={TERMS.waiting}>
            {short(node.rows_waiting)} rows
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
      {!isSink && (
        <p class="actions">
          <button onClick={() => openSql(`SELECT * FROM ${name} LIMIT 100;`)}>Query it</button>
          {node.kind !== "view" && node.kind !== "external table" && (
            <button onClick={() => openSql(name, true)}>Follow it live</button>
          )}
          {isView && <button onClick={() => openTime(name)}>Where its time goes</button>}
        </p>
      )}
      {!isSink && <Sample key={`rows ${node.key}`} name={name} />}
      <Definition key={`sql ${node.key}`} kind={node.kind} name={name} />
      {isView && <Explained key={`time ${node.key}`} name={name} />}
    </aside>
  );
}

function Minutes({ node }: { node: Node }) {
  const changes = history.of(`${node.id}.rate`);
  const fresh = history.of(`${node.id}.freshness`);
  if (node.kind === "view" || changes.at.length < 2) return null;
  return (
    <>
      <h3 data-tip={TERMS.rate}>Rows a second, the last minutes</h3>
      <Chart label={`changes of ${node.name}`} x={changes.at} lines={[{ label: "rows/s", values: changes.values }]} time height={120} format={short} />
      {fresh.at.length > 1 && (
        <>
          <h3 data-tip={TERMS.freshness}>Freshness</h3>
          <Chart label={`freshness of ${node.name}`} x={fresh.at} lines={[{ label: "freshness", values: fresh.values }]} time height={110} format={duration} />
        </>
      )}
    </>
  );
}

function Sample({ name }: { name: string }) {
  const [result, setResult] = useState<Result | undefined>();
  const [round, setRound] = useState(0);
  useEffect(() => {
    const running = runStatements([`SELECT * FROM ${name} LIMIT ${SAMPLE_ROWS}`], () => {});
    running.results.then(([first]) => setResult(first)).catch(() => {});
  }, [name, round]);
  return (
    <details open>
      <summary>Some rows</summary>
      <Fault message={result?.error?.message} />
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
  useEffect(() => {
    select<{ create_sql: string }>(`SHOW CREATE ${kind.toUpperCase()} ${name}`)
      .then(([row]) => setSql(row?.create_sql))
      .catch((failure: Error) => !isConnection(failure) && setError(failure.message));
  }, [kind, name]);
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
