// The SQL page: a text, what it answers, what was run before, and a relation that is followed.
import { useEffect, useRef, useState } from "preact/hooks";
import { ago, duration } from "../format";
import { DemoOffer } from "../parts/demo";
import { Icon } from "../parts/icon";
import { handedSql } from "../route";
import { cellText } from "../text";
import { Editor, EditorKeys, type EditorHandle } from "./editor";
import { Live } from "./live";
import { forgetAll, past } from "./past";
import { Results } from "./results";
import { editorText, endFollowing, follow, following, job, keepText, marks, message, ran, results, run } from "./work";

export function SqlPage() {
  const [showsPast, setShowsPast] = useState(false);
  const editor = useRef<EditorHandle | undefined>(undefined);
  useEffect(() => {
    const handed = handedSql.value;
    if (!handed) return;
    handedSql.value = undefined;
    editor.current?.set(handed.sql);
    if (handed.live) follow(handed.sql, 0);
    editor.current?.focus();
  }, [handedSql.value]);
  useEffect(() => editor.current?.mark(marks.value), [marks.value]);

  const runIt = () => {
    const chosen = editor.current?.chosen();
    if (chosen) void run(chosen.text, chosen.from);
  };
  const followIt = () => {
    const chosen = editor.current?.chosen();
    if (chosen) follow(chosen.text, chosen.from);
  };
  const now = job.value;
  const live = following.value;
  return (
    <div class="sql">
      <div class="sql-main">
        <div class="editor-box">
          <Editor
            start={editorText()}
            label="SQL"
            hint="SELECT …"
            onRun={runIt}
            onChange={keepText}
            handle={(handle) => (editor.current = handle)}
          />
        </div>
        <p class="actions">
          {now ? (
            <button class="main danger run" onClick={now.running.cancel}>
              <Icon name="stop" /> Cancel
            </button>
          ) : (
            <button class="main run" onClick={runIt}>
              <Icon name="play" /> Run
            </button>
          )}
          <button onClick={followIt} data-tip="The name of a view, a table or a stream, or a SELECT: its rows are shown as they change.">
            <Icon name="live" /> Follow live
          </button>
          <button aria-expanded={showsPast} onClick={() => setShowsPast(!showsPast)}>
            <Icon name="clock" /> History
          </button>
          {now && <Stopwatch begun={now.begun} />}
          <EditorKeys />
        </p>
        {showsPast && <PastList onChoose={(sql) => (editor.current?.set(sql), editor.current?.focus(), setShowsPast(false))} />}
        {message.value && (
          <p class="fault" role="alert">
            {message.value}
          </p>
        )}
        {live ? <Live key={live.query} following={live} onEnd={endFollowing} /> : <Results results={results.value} isRunning={now !== undefined} sql={ran.value} />}
        {!live && results.value.length === 0 && !now && <DemoOffer />}
      </div>
    </div>
  );
}

/** For how long something has been running. */
export function Stopwatch({ begun }: { begun: number }) {
  const [now, setNow] = useState(performance.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), 100);
    return () => clearInterval(timer);
  }, []);
  return <span class="quiet">{duration(Math.max(0, now - begun) / 1000)}</span>;
}

function PastList({ onChoose }: { onChoose(sql: string): void }) {
  if (past.value.length === 0) return <p class="quiet">Nothing was run yet.</p>;
  return (
    <div class="past">
      <ul>
        {past.value.map((entry) => (
          <li key={entry.at}>
            <button class="plain" onClick={() => onChoose(entry.sql)}>
              <code>{cellText(entry.sql)}</code>
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
