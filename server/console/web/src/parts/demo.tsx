// The demo's data, wherever there is nothing to look at yet; and its replay, with its end.
import { useEffect, useState } from "preact/hooks";
import { select } from "../api";
import { count, short } from "../format";
import { FLIGHTS, replay, replayError, startReplay, stopReplay } from "../sample";
import { Fault } from "./panel";

export function DemoButton() {
  return (
    <button disabled={replay.value !== undefined} onClick={() => void startReplay()}>
      Load the demo: {count(FLIGHTS)} flights
    </button>
  );
}

/** Where a page has nothing to show because the server has no relations: what leads to some. */
export function DemoOffer() {
  const [isEmpty, setEmpty] = useState(false);
  useEffect(() => {
    select<{ n: number }>("SELECT count(*) AS n FROM mr_catalog.relations WHERE database = current_database()")
      .then(([row]) => setEmpty(row?.n === 0))
      .catch(() => {});
  }, []);
  if (!isEmpty) return null;
  return (
    <div class="demo-offer">
      <p class="quiet">This server has no streams, tables or views yet.</p>
      <p class="actions">
        <DemoButton />
      </p>
      <ReplayBar />
    </div>
  );
}

/** How far the replay is. `rows`: of one that was ended before its end, which can go on. */
export function ReplayBar({ rows }: { rows?: number }) {
  const [isHidden, hide] = useState(false);
  const now = replay.value;
  if (now) {
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
  return (
    <>
      <Fault message={replayError.value || undefined} />
      {rows !== undefined && !isHidden && (
        <div class="replay">
          <span>
            {count(rows)} of the demo's {count(FLIGHTS)} flights were replayed.
          </span>
          <span class="grow" />
          <button onClick={() => void startReplay()}>Go on</button>
          <button onClick={() => hide(true)}>Not now</button>
        </div>
      )}
    </>
  );
}
