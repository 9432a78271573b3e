// A relation that is followed, as a table, as bars, or its rows over time.
import { useState } from "preact/hooks";
import { count, plural, rate } from "../format";
import { Chart } from "../parts/chart";
import { Grid } from "../parts/grid";
import { Icon } from "../parts/icon";
import { cellText } from "../text";
import type { Following } from "./following";
import { NumberColumn, ResultChart } from "./plot";
import { guess } from "./points";
import { ErrorText } from "./results";

/** How long a change is marked (milliseconds). */
const FLASH_MS = 1200;

type Shape = "rows" | "bars" | "time";

const SHAPES: Record<Shape, string> = { rows: "Rows", bars: "Chart", time: "Over time" };

export function Live({ following, onEnd }: { following: Following; onEnd(): void }) {
  // Read, so that it is drawn again when there is something new.
  void following.drawn.value;
  const [shape, setShape] = useState<Shape>("rows");
  const { rows: now, error } = following;
  const { rows: shown, changedAt } = now.shown();
  const since = performance.now() - FLASH_MS;
  const isSeen = !error && now.columns.length > 0;
  const wasFollowed = now.columns.length > 0;
  return (
    <section class="result live" aria-label="live result">
      <header>
        <span class={`tag ${error ? "failed" : "live-tag"}`}>
          {error ? wasFollowed ? "ended" : "not followed" : <><Icon name="live" /> live</>}
        </span>
        <code class="asked">{cellText(following.query)}</code>
        {wasFollowed && (
          <span class="quiet" data-rows={now.total}>
            {plural(now.total, "row")}, {plural(now.changes, "change")}
            {error ? " until then" : `, ${rate(following.rate, "changes")}`}
            {now.epoch !== undefined ? `, epoch ${count(now.epoch)}` : ""}
          </span>
        )}
        {following.isAway && !error && <span class="why behind">{following.isLocked ? "it goes on after a login" : "the server is away; following again"}</span>}
        {now.total > shown.length && <span class="quiet">the newest {count(shown.length)} are kept</span>}
        <span class="grow" />
        {!error && (Object.keys(SHAPES) as Shape[]).map((name) => (
          <button key={name} class="small" aria-pressed={shape === name} onClick={() => setShape(name)}>
            {SHAPES[name]}
          </button>
        ))}
        <button class="small" onClick={onEnd}>
          <Icon name={error ? "close" : "stop"} /> {error ? "Close" : "Stop"}
        </button>
      </header>
      {error && <ErrorText error={error} />}
      {isSeen && now.total === 0 && <p class="quiet">{now.changes === 0 ? "No rows yet. What comes shows here." : "No rows any more. What comes shows here."}</p>}
      {isSeen && shape === "rows" && (
        <Grid label="rows that change" columns={now.columns} rows={shown} height={480} mark={(at) => ((changedAt[at] ?? 0) > since ? "flash" : "")} />
      )}
      {isSeen && shape === "bars" && <ResultChart columns={now.columns} rows={shown} height={360} />}
      {isSeen && shape === "time" && <OverTime following={following} />}
    </section>
  );
}

function OverTime({ following }: { following: Following }) {
  void following.drawn.value;
  const { rows, track } = following;
  const [chosen, choose] = useState<number | undefined>();
  const column = chosen ?? guess(rows.columns)?.[1];
  if (column === undefined) return <p class="quiet">There is no column of numbers to draw.</p>;
  const { x, lines } = track.of(column);
  const unit = rows.columns[column]?.name ?? "";
  return (
    <div class="plot">
      <p class="choices">
        <NumberColumn columns={rows.columns} value={column} onChange={choose} />
        {rows.total > lines.length && <span class="quiet">{lines.length} of {plural(rows.total, "row")}</span>}
      </p>
      {x.length === 0 ? <p class="quiet">Nothing was seen for a second yet.</p> : <Chart label="values over time" x={x} lines={lines} time free unit={unit} height={360} />}
    </div>
  );
}
