// The SQL page: a text, what it answers, what was run before, and a relation that is followed.
import { useEffect, useRef, useState } from "preact/hooks";
import { Unreachable, runStatements, type Running } from "../api";
import { ago, duration } from "../format";
import { Icon } from "../parts/icon";
import type { Result } from "../result";
import { handedSql } from "../route";
import { askNames, names } from "./catalog";
import { statements, type Piece } from "./dialect";
import { Editor, type EditorHandle } from "./editor";
import { Live } from "./live";
import { forgetAll, past, remember } from "./past";
import { Results } from "./results";

/** What stays while another page is shown. */
const kept: { text: string; results: Result[]; ran: string } = { text: "", results: [], ran: "" };

/** What changes names that the editor completes. */
const CHANGES_NAMES = /\b(create|drop|alter)\b/i;

export function SqlPage() {
  const [results, setResults] = useState<Result[]>(kept.results);
  const [running, setRunning] = useState<Running>();
  const [live, setLive] = useState<string>();
  const [message, setMessage] = useState("");
  const [showsPast, setShowsPast] = useState(false);
  const editor = useRef<EditorHandle | undefined>(undefined);
  useEffect(() => {
    askNames().catch(() => {});
  }, []);
  useEffect(() => {
    const handed = handedSql.value;
    if (!handed) return;
    handedSql.value = undefined;
    editor.current?.set(handed.sql);
    editor.current?.mark([]);
    if (handed.live) setLive(handed.sql);
    else setLive(undefined);
    editor.current?.focus();
  }, [handedSql.value]);

  const show = (list: Result[]) => {
    kept.results = list;
    setResults(list);
  };
  const run = async () => {
    const handle = editor.current;
    if (!handle || running) return;
    const { text, from } = handle.chosen();
    const pieces = statements(text);
    if (pieces.length === 0) return;
    if (/^\s*subscribe\b/i.test(text)) return setLive(text.replace(/;\s*$/, ""));
    kept.ran = text;
    handle.mark([]);
    setMessage("");
    setLive(undefined);
    show([]);
    const begun = performance.now();
    const started = runStatements(pieces.map((piece) => piece.text), show);
    setRunning(started);
    let failed = true;
    try {
      const all = await started.results;
      show(all);
      // The first that fails is the last that was run.
      const error = all.at(-1)?.error;
      const piece = pieces[all.length - 1];
      failed = error !== undefined;
      if (piece && error?.position !== undefined) handle.mark([place(piece, from, error.position, error.message)]);
    } catch (error) {
      setMessage(error instanceof Unreachable ? "The server did not answer." : error instanceof Error ? error.message : String(error));
    }
    setRunning(undefined);
    remember({ sql: text, at: Date.now(), ms: performance.now() - begun, failed });
    if (CHANGES_NAMES.test(text)) askNames().catch(() => {});
  };
  const followIt = () => {
    const text = editor.current?.chosen().text.trim().replace(/;\s*$/, "") ?? "";
    if (text !== "") setLive(text);
  };
  return (
    <div class="sql">
      <div class="sql-main">
        <div class="editor-box">
          <Editor
            start={kept.text}
            label="SQL"
            hint="SELECT …   Ctrl-Enter runs, Ctrl-Space completes"
            schema={names.value}
            onRun={() => void run()}
            onChange={(text) => (kept.text = text)}
            handle={(handle) => (editor.current = handle)}
          />
        </div>
        <p class="actions">
          {running ? (
            <button class="main danger" onClick={running.cancel}>
              <Icon name="stop" /> Cancel
            </button>
          ) : (
            <button class="main" onClick={() => void run()}>
              <Icon name="play" /> Run
            </button>
          )}
          <button onClick={followIt} data-tip="The name of a view, a table or a stream, or a SELECT: its rows are shown as they change.">
            <Icon name="live" /> Follow live
          </button>
          <button aria-expanded={showsPast} onClick={() => setShowsPast(!showsPast)}>
            <Icon name="clock" /> History
          </button>
          {running && <Stopwatch />}
        </p>
        {showsPast && <PastList onChoose={(sql) => (editor.current?.set(sql), editor.current?.focus(), setShowsPast(false))} />}
        {message && (
          <p class="fault" role="alert">
            {message}
          </p>
        )}
        {live !== undefined ? (
          <Live key={live} query={live} onEnd={() => setLive(undefined)} />
        ) : (
          <Results results={results} isRunning={running !== undefined} sql={kept.ran} />
        )}
      </div>
    </div>
  );
}

/** The word at a position of the server, which counts characters from 1, as places of the editor. */
function place(piece: Piece, from: number, position: number, message: string): { from: number; to: number; message: string } {
  const before = [...piece.text].slice(0, position - 1).join("").length;
  const word = /^("[^"]*"|'[^']*'|[\p{L}\p{N}_$]+|.)/su.exec(piece.text.slice(before))?.[0] ?? "";
  const start = from + piece.from + before;
  return { from: word === "" ? Math.max(0, start - 1) : start, to: start + word.length, message };
}

function Stopwatch() {
  const [begun] = useState(performance.now());
  const [now, setNow] = useState(begun);
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), 100);
    return () => clearInterval(timer);
  }, []);
  return <span class="quiet">{duration((now - begun) / 1000)}</span>;
}

function PastList({ onChoose }: { onChoose(sql: string): void }) {
  if (past.value.length === 0) return <p class="quiet">Nothing was run yet.</p>;
  return (
    <div class="past">
      <ul>
        {past.value.map((entry) => (
          <li key={entry.at}>
            <button class="plain" onClick={() => onChoose(entry.sql)}>
              <code>{entry.sql}</code>
              <span class="quiet">
                {entry.failed ? "failed, " : ""}
                {duration(entry.ms / 1000)}, {ago(new Date(entry.at).toISOString())}
              </span>
            </button>
          </li>
        ))}
      </ul>
      <button class="small" onClick={forgetAll}>
        Forget all
      </button>
    </div>
  );
}
