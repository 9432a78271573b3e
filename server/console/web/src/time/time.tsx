// Where the time goes: of a query, of one that was analysed before, or of a view that runs.
import { useEffect, useRef, useState } from "preact/hooks";
import { document as explained, isConnection, select } from "../api";
import { duration } from "../format";
import { qualified } from "../names";
import { Icon } from "../parts/icon";
import { Empty, Fault, Panel } from "../parts/panel";
import { handedTime } from "../route";
import { names } from "../sql/catalog";
import { statements } from "../sql/dialect";
import { Editor, type EditorHandle } from "../sql/editor";
import type { Run, ViewRun } from "./profile";
import { QueryTime } from "./query";
import { ViewTime } from "./view";

interface Kept {
  id: number;
  query: string;
  elapsed_ms: number;
  verdict: string;
}

const PROFILES = "SELECT id, query, elapsed_ms, verdict FROM mr_catalog.profiles ORDER BY id DESC";
const VIEWS =
  "SELECT schema, name FROM mr_catalog.relations WHERE kind = 'materialized view' AND database = current_database() ORDER BY 1, 2";

type Shown = { query: Run } | { view: ViewRun };

/** What stays while another page is shown. */
const kept: { text: string; shown: Shown | undefined } = { text: "", shown: undefined };

export function TimePage() {
  const [shown, setShown] = useState<Shown | undefined>(kept.shown);
  const [working, setWorking] = useState("");
  const [error, setError] = useState<string>();
  const [profiles, setProfiles] = useState<Kept[]>([]);
  const [views, setViews] = useState<string[]>([]);
  const [view, setView] = useState("");
  const editor = useRef<EditorHandle | undefined>(undefined);

  const look = () => {
    select<Kept>(PROFILES).then(setProfiles).catch(() => {});
  };
  const ask = async (what: string, question: () => Promise<Shown>) => {
    setWorking(what);
    setError(undefined);
    try {
      const found = await question();
      kept.shown = found;
      setShown(found);
      look();
    } catch (failure) {
      if (!isConnection(failure)) setError((failure as Error).message);
    }
    setWorking("");
  };
  const analyse = (text: string) => {
    const pieces = statements(text);
    const [query] = pieces;
    if (!query || pieces.length > 1) {
      setError(query ? "Only one query can be analysed at a time: remove the others." : "There is no query: write one, such as SELECT count(*) FROM a relation.");
      return;
    }
    return ask("Running it", async () => ({ query: await explained<Run>(`EXPLAIN ANALYZE (FORMAT JSON) ${query.text}`) }));
  };
  const watch = (name: string) =>
    ask("Watching it for 3 s", async () => ({ view: await explained<ViewRun>(`EXPLAIN ANALYZE (DURATION '3s', FORMAT JSON) MATERIALIZED VIEW ${name}`) }));
  useEffect(() => {
    look();
    select<{ schema: string; name: string }>(VIEWS)
      .then((rows) => {
        setViews(rows.map(qualified));
        setView((chosen) => chosen || (rows[0] ? qualified(rows[0]) : ""));
      })
      .catch(() => {});
  }, []);
  useEffect(() => {
    const handed = handedTime.value;
    if (!handed) return;
    handedTime.value = undefined;
    if (handed.view) {
      setView(handed.view);
      void watch(handed.view);
    } else if (handed.query) {
      kept.text = handed.query;
      editor.current?.set(handed.query);
      void analyse(handed.query);
    }
  }, [handedTime.value]);

  return (
    <div class="time">
      <div class="time-choice">
        <Panel title="A query">
          <div class="editor-box low">
            <Editor
              start={kept.text}
              label="query to analyse"
              hint="SELECT …"
              schema={names.value}
              onRun={() => void analyse(editor.current?.text() ?? "")}
              onChange={(text) => (kept.text = text)}
              handle={(handle) => (editor.current = handle)}
            />
          </div>
          <p class="actions">
            <button class="main" disabled={working !== ""} onClick={() => void analyse(editor.current?.text() ?? "")}>
              <Icon name="play" /> Run and analyse
            </button>
          </p>
        </Panel>
        <Panel title="A view, while it runs">
          {views.length === 0 ? (
            <p class="quiet">There is no materialized view yet.</p>
          ) : (
              <p class="actions">
                <select value={view} aria-label="view" onChange={(event) => setView(event.currentTarget.value)}>
                  {views.map((name) => (
                    <option key={name}>{name}</option>
                  ))}
                </select>
                <button disabled={working !== ""} onClick={() => void watch(view)}>
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
                  disabled={working !== ""}
                  onClick={() => void ask("Asking the model", async () => ({ query: await explained<Run>(`EXPLAIN ANALYZE (FORMAT JSON) PROFILE ${profile.id}`) }))}
                >
                  <code>{profile.query}</code>
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
        <Fault message={error} />
        {working !== "" && <p class="quiet">{working}…</p>}
        {shown && ("query" in shown ? <QueryTime run={shown.query} /> : <ViewTime run={shown.view} />)}
        {!shown && working === "" && !error && (
          <Empty title="Where did the time go?">
            <p>Run a query here: each piece of its work shows as a bar on the resource that it used, and the model says what would make it faster.</p>
            <p class="actions">
              <button onClick={() => void analyse("SELECT i % 10 AS k, count(*), avg(i) FROM generate_series(1, 1000000) AS g(i) GROUP BY 1 ORDER BY 2 DESC")}>
                Try it with a million made-up rows
              </button>
            </p>
          </Empty>
        )}
      </div>
    </div>
  );
}
