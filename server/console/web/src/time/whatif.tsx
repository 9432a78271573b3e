// What if: sliders for the machine. The model answers from what was measured; nothing runs again.
import { useEffect, useState } from "preact/hooks";
import { document as explained, isConnection } from "../api";
import { change, duration } from "../format";
import { Fault, Table } from "../parts/panel";
import { TERMS } from "../terms";
import { scenarioText, type Run } from "./profile";

const COUNTS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];
const DISKS = [1, 2, 3, 4, 6, 8];
const SPEEDS = ["x0.25", "x0.5", "x1", "x2", "x4", "x8", "infinite"];

export interface Wish {
  cores: number;
  disks: number;
  disk: string;
  network: string;
  inMemory: boolean;
}

/** The machine as it is. */
export function asItIs(cores: number): Wish {
  return { cores, disks: 1, disk: "x1", network: "x1", inMemory: false };
}

/** A wish as the option of EXPLAIN; empty: nothing is different. */
export function whatIf(wish: Wish, cores: number): string {
  const parts = [
    ...(wish.cores === cores ? [] : [`cores = ${wish.cores}`]),
    ...(wish.disks === 1 ? [] : [`disks = ${wish.disks}`]),
    ...(wish.disk === "x1" ? [] : [`disk = '${wish.disk}'`]),
    ...(wish.network === "x1" ? [] : [`network = '${wish.network}'`]),
    ...(wish.inMemory ? ["input = 'memory'"] : []),
  ];
  return parts.length === 0 ? "" : `WHAT IF (${parts.join(", ")}), `;
}

function speedText(speed: string): string {
  return speed === "infinite" ? "infinitely fast" : speed === "x1" ? "as it is" : `${speed.slice(1)} times as fast`;
}

function Slider(props: { name: string; values: readonly (string | number)[]; value: string | number; text: string; off?: string; onChange(value: string | number): void }) {
  return (
    <label class={`slider ${props.off ? "off" : ""}`} data-tip={props.off}>
      <span>{props.name}</span>
      <input
        type="range"
        min={0}
        max={props.values.length - 1}
        value={Math.max(0, props.values.indexOf(props.value))}
        disabled={props.off !== undefined}
        aria-valuetext={props.text}
        onInput={(event) => props.onChange(props.values[Number(event.currentTarget.value)] ?? props.value)}
      />
      <output>{props.text}</output>
    </label>
  );
}

/** The sliders alone. */
export function Sliders(props: { wish: Wish; cores: number; hasNetwork: boolean; disks?: boolean; onChange(wish: Wish): void }) {
  const { wish } = props;
  const counts = [...new Set([...COUNTS, props.cores])].sort((one, other) => one - other);
  const set = (part: Partial<Wish>) => props.onChange({ ...wish, ...part });
  return (
    <div class="sliders">
      <Slider name="cores" values={counts} value={wish.cores} text={`${wish.cores}`} onChange={(cores) => set({ cores: Number(cores) })} />
      {props.disks !== false && (
        <>
          <Slider name="disks" values={DISKS} value={wish.disks} text={`${wish.disks}`} onChange={(disks) => set({ disks: Number(disks) })} />
          <Slider name="disk speed" values={SPEEDS} value={wish.disk} text={speedText(wish.disk)} onChange={(disk) => set({ disk: String(disk) })} />
          <Slider
            name="network"
            values={SPEEDS}
            value={wish.network}
            text={speedText(wish.network)}
            off={props.hasNetwork ? undefined : "All workers are in one process: nothing crosses a network."}
            onChange={(network) => set({ network: String(network) })}
          />
          <label class="check">
            <input type="checkbox" checked={wish.inMemory} onChange={(event) => set({ inMemory: event.currentTarget.checked })} />
            the input is in memory already
          </label>
        </>
      )}
    </div>
  );
}

/** How long the last slider must rest before the model is asked (milliseconds). */
const REST_MS = 150;

export function WhatIf({ run }: { run: Run }) {
  const { profile, analysis } = run;
  const [wish, setWish] = useState(asItIs(profile.machine.cores));
  const [answer, setAnswer] = useState<{ text: string; elapsed: number; modelled: number }>();
  const [error, setError] = useState<string>();
  const option = whatIf(wish, profile.machine.cores);
  useEffect(() => setWish(asItIs(profile.machine.cores)), [run]);
  useEffect(() => {
    setError(undefined);
    if (option === "" || run.id === undefined) return setAnswer(undefined);
    const abort = new AbortController();
    const timer = setTimeout(() => {
      explained<Run>(`EXPLAIN ANALYZE (${option}FORMAT JSON) PROFILE ${run.id}`, abort.signal)
        .then((found) => {
          const first = found.analysis.what_ifs[0];
          if (first) setAnswer({ text: scenarioText(first.scenario), elapsed: first.elapsed, modelled: first.modelled });
        })
        .catch((failure: Error) => !abort.signal.aborted && !isConnection(failure) && setError(failure.message));
    }, REST_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [option, run]);
  const longest = Math.max(analysis.elapsed, answer?.elapsed ?? 0, analysis.modelled.total);
  return (
    <div class="what-if">
      <Sliders wish={wish} cores={profile.machine.cores} hasNetwork={profile.machine.network !== null} onChange={setWish} />
      <Fault message={error} />
      <div class="bars" role="group" aria-label="measured and predicted">
        <BarLine name="measured" tip={TERMS.elapsed} value={analysis.elapsed} most={longest} tone="measured" />
        <BarLine name="perfect schedule" tip={TERMS.modelled} value={analysis.modelled.total} most={longest} tone="modelled" />
        <BarLine
          name={answer ? "predicted" : "predicted: move a slider"}
          tip={TERMS.predicted}
          value={answer?.elapsed ?? analysis.elapsed}
          most={longest}
          tone={answer ? "predicted" : "none"}
          aside={answer ? change(answer.elapsed / analysis.elapsed - 1) : ""}
        />
      </div>
      <Table
        label="usual changes"
        rows={analysis.what_ifs}
        empty=""
        columns={[
          { head: "what if", cell: (row) => scenarioText(row.scenario) },
          { head: "perfect", number: true, tip: TERMS.modelled, cell: (row) => duration(row.modelled / 1e9) },
          { head: "predicted", number: true, tip: TERMS.predicted, cell: (row) => duration(row.elapsed / 1e9) },
          { head: "change", number: true, cell: (row) => change(row.elapsed / analysis.elapsed - 1) },
        ]}
      />
    </div>
  );
}

function BarLine(props: { name: string; tip: string; value: number; most: number; tone: string; aside?: string }) {
  return (
    <div class="bar-line">
      <span data-tip={props.tip}>{props.name}</span>
      <div class="bar-track">
        <div class={`bar ${props.tone}`} style={{ width: `${Math.max(0.5, (props.value / props.most) * 100)}%` }} />
      </div>
      <span class="number">
        {duration(props.value / 1e9)} {props.aside}
      </span>
    </div>
  );
}
