// The results of what was run: one below the other, each as rows or as a chart.
import { useEffect, useState } from "preact/hooks";
import { ROWS_MAX } from "../api";
import { duration, plural } from "../format";
import { Grid } from "../parts/grid";
import { Icon } from "../parts/icon";
import type { Result, SqlError } from "../result";
import { openTime } from "../route";
import { cellText, shortened } from "../text";
import { csv, download } from "./csv";
import { firstWord } from "./dialect";
import { ResultChart } from "./plot";

export function Results(props: { results: Result[]; isRunning: boolean; sql: string }) {
  const { results } = props;
  if (results.length === 0) {
    if (props.isRunning) return <Waiting />;
    return <p class="quiet results-none">Results show here. Ctrl-Enter runs the text, or what is selected of it.</p>;
  }
  return (
    <div class="results" aria-live="polite">
      {results.map((result, at) =>
        result.fate === "not run" ? (
          <NotRun key={at} result={result} />
        ) : (
          <OneResult key={at} result={result} isOnly={results.length === 1} number={at + 1} sql={props.sql} isRunning={props.isRunning} />
        ),
      )}
      {props.isRunning && <p class="quiet">Running…</p>}
    </div>
  );
}

/** After so long one may want to know why nothing comes (milliseconds). */
const LONG_MS = 4000;

/** Nothing has come yet. */
function Waiting() {
  const [isLong, setLong] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLong(true), LONG_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <p class="quiet results-none">
      Running…
      {isLong && (
        <>
          {" "}
          What reads a pipeline waits for the epoch that is under way there, which may take long where it is behind. With <code>SET read_consistency = 'snapshot';</code> before it, it reads what is committed.
        </>
      )}
    </p>
  );
}

/** A statement behind one that failed. */
function NotRun({ result }: { result: Result }) {
  return (
    <p class="result not-run">
      <span class="tag">not run</span> <code>{cellText(result.statement ?? "")}</code>
    </p>
  );
}

/** How many rows are kept of a result, and why not all. */
function Cut({ result, isRunning }: { result: Result; isRunning: boolean }) {
  const kept = result.rows.length;
  const rest = isRunning && !result.isDone ? "the others are read to the end, but not kept" : "the others were not kept";
  return <span class="why behind">{kept === ROWS_MAX ? `the first ${plural(kept, "row")}; ${rest}` : `the first ${plural(kept, "row")}, which are very long; ${rest}`}</span>;
}

function OneResult(props: { result: Result; isOnly: boolean; number: number; sql: string; isRunning: boolean }) {
  const { result } = props;
  const [asChart, setChart] = useState(false);
  const hasRows = result.columns.length > 0;
  const height = props.isOnly ? 520 : 280;
  return (
    <section class="result" aria-label={`result ${props.number}`}>
      <header>
        <span class={`tag ${result.error ? "failed" : ""}`}>{result.error ? "ERROR" : (result.tag ?? `${plural(result.rows.length, "row")}${result.isDone ? "" : "…"}`)}</span>
        {result.fate === "rolled back" && <span class="why behind">rolled back</span>}
        {result.elapsedMs != null && <span class="quiet">{duration(result.elapsedMs / 1000)}</span>}
        {result.isCut && <Cut result={result} isRunning={props.isRunning} />}
        <span class="grow" />
        {hasRows && (
          <>
            <button class="small" aria-pressed={!asChart} onClick={() => setChart(false)}>
              Rows
            </button>
            <button class="small" aria-pressed={asChart} onClick={() => setChart(true)}>
              Chart
            </button>
            <button class="small" onClick={() => download("result.csv", csv(result))}>
              <Icon name="down" /> CSV
            </button>
          </>
        )}
        {hasRows && props.isOnly && ["SELECT", "WITH", "VALUES", "TABLE"].includes(firstWord(props.sql)) && (
          <button class="small" onClick={() => openTime(undefined, props.sql)} data-tip="Runs it again with EXPLAIN ANALYZE.">
            <Icon name="clock" /> Where the time goes
          </button>
        )}
      </header>
      {result.notices.map((notice, at) => (
        <p key={at} class="notice">
          {notice.severity}: {notice.message}
        </p>
      ))}
      {hasRows && (asChart ? <ResultChart columns={result.columns} rows={result.rows} height={Math.min(height, 360)} /> : <Grid label={`rows of result ${props.number}`} columns={result.columns} rows={result.rows} height={height} />)}
      {result.error && <ErrorText error={result.error} />}
    </section>
  );
}

/** Characters of a message that are shown. */
const MESSAGE_MAX = 4000;

export function ErrorText({ error }: { error: SqlError }) {
  return (
    <div class="error" role="alert">
      <b>{shortened(error.message, MESSAGE_MAX)}</b>
      {error.code && <span class="quiet"> SQLSTATE {error.code}</span>}
      {error.detail && <p>{error.detail}</p>}
      {error.hint && <p>Hint: {error.hint}</p>}
      {error.context && <p class="quiet">{error.context}</p>}
    </div>
  );
}
