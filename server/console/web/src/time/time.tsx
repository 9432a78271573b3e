// Where the time goes: of a query, of one that was analysed before, or of a view that runs.
import { useEffect, useRef, useState } from "preact/hooks";
import { connection, select } from "../api";
import { duration } from "../format";
import { qualified } from "../names";
import { DemoOffer } from "../parts/demo";
import { Icon } from "../parts/icon";
import { Empty, Panel } from "../parts/panel";
import { handedTime } from "../route";
import { Editor, EditorKeys, type EditorHandle } from "../sql/editor";
import { ErrorText } from "../sql/results";
import { Stopwatch } from "../sql/sql";
import { cellText } from "../text";
import { QueryTime } from "./query";
import { ViewTime } from "./view";
import { analyse, asking, editorText, error, keepText, marks, recall, rounds, shown, watch } from "./work";

interface Kept {
  id: number;
  query: string;
  elapsed_ms: number;
  verdict: string;
}

const PROFILES = "SELECT id, query, elapsed_ms, verdict FROM mr_catalog.profiles ORDER BY id DESC";
const VIEWS =
  "SELECT schema, name FROM mr_catalog.relations WHERE kind = 'materialized view' AND database = current_database() ORDER BY 1, 2";

const TRY = "SELECT i % 10 AS k, count(*), avg(i) FROM generate_series(1, 1000000) AS g(i) GROUP BY 1 ORDER BY 2 DESC";

export function TimePage() {
  const [profiles, setProfiles] = useState<Kept[]>([]);
  const [views, setViews] = useState<string[]>([]);
  const [view, setView] = useState("");
  const editor = useRef<EditorHandle | undefined>(undefined);
  const now = asking.value;
  const answer = shown.value;
  const isThere = connection.value === "ok";
  // After a restart the server knows other profiles than before.
  useEffect(() => {
    if (isThere) select<Kept>(PROFILES).then(setProfiles).catch(() => {});
  }, [rounds.value, isThere]);
  useEffect(() => {
    if (!isThere) return;
    select<{ schema: string; name: string }>(VIEWS)
      .then((rows) => {
        const names = rows.map(qualified);
        setViews(names);
        setView((chosen) => (names.includes(chosen) ? chosen : (names[0] ?? "")));
      })
      .catch(() => {});
  }, [isThere]);
  useEffect(() => editor.current?.mark(marks.value), [marks.value]);
  const tryIt = (query: string) => {
    editor.current?.set(query);
    void analyse(query);
  };
  useEffect(() => {
    const handed = handedTime.value;
    if (!handed) return;
    handedTime.value = undefined;
    if (handed.view) {
      setView(handed.view);
      void watch(handed.view);
    } else if (handed.query) {
      tryIt(handed.query);
    }
  }, [handedTime.value]);

  return (
    <div class="time">
      <div class="time-choice">
        <Panel title="A query">
          <div class="editor-box low">
            <Editor
              start={editorText()}
              label="query to analyse"
              hint="SELECT …"
              onRun={() => void analyse(editor.current?.text() ?? "")}
              onChange={keepText}
              handle={(handle) => (editor.current = handle)}
            />
          </div>
          <p class="actions">
            {now ? (
              <button class="main danger run" onClick={now.cancel}>
                <Icon name="stop" /> Cancel
              </button>
            ) : (
              <button class="main run" onClick={() => void analyse(editor.current?.text() ?? "")}>
                <Icon name="play" /> Run and analyse
              </button>
            )}
            {now && <Stopwatch begun={now.begun} />}
            <EditorKeys />
          </p>
        </Panel>
        <Panel title="A view, while it runs">
          {views.length === 0 ? (
            <p class="quiet view-none">There is no materialized view yet.</p>
          ) : (
              <p class="actions">
                <select value={view} aria-label="view" onChange={(event) => setView(event.currentTarget.value)}>
                  {views.map((name) => (
                    <option key={name}>{name}</option>
                  ))}
                </select>
                <button disabled={now !== undefined} onClick={() => void watch(view)}>
                  <Icon name="live" /> Watch for 3 s
                </button>
              </p>
          )}
        </Panel>
        <Panel title="Analysed before">
          {profiles.length === 0 && <p class="quiet">No query was analysed since the server started.</p>}
          <ul class="profiles">
            {profiles.slice(0, 8).map((profile) => (
              <li key={profile.id}>
                <button
                  class="plain"
                  disabled={now !== undefined}
                  onClick={() => void recall(profile.id, profile.query)}
                >
                  <code>{cellText(profile.query)}</code>
                  <span class="quiet">
                    {duration(profile.elapsed_ms / 1e3)}: {profile.verdict}
                  </span>
                </button>
              </li>
            ))}
          </ul>
        </Panel>
      </div>
      <div class="time-answer" aria-live="polite">
        {error.value && <ErrorText error={error.value} />}
        {now && <p class="quiet">{now.what}…</p>}
        {answer && (
          <p class="about">
            {"query" in answer ? "The query" : "The view"} <code>{cellText(answer.of)}</code>
          </p>
        )}
        {answer && ("query" in answer ? <QueryTime run={answer.query} /> : <ViewTime run={answer.view} />)}
        {!answer && !now && !error.value && (
          <Empty title="Where did the time go?">
            <p>Run a query here: each piece of its work shows as a bar on the resource that it used, and the model says what would make it faster.</p>
            <p class="actions">
              <button onClick={() => tryIt(TRY)}>Try it with a million made-up rows</button>
            </p>
            <DemoOffer />
          </Empty>
        )}
      </div>
    </div>
  );
}
