// What if: sliders for the machine. The model answers from what was measured; nothing runs again.
import { useEffect, useState } from "preact/hooks";
import { document as explained, isConnection } from "../api";
import { bytes, change, duration } from "../format";
import { Fault, Table } from "../parts/panel";
import { TERMS } from "../terms";
import { scenarioText, type HeadRoom, type Machine, type Prediction, type Run, type ViewRun } from "./profile";
import type { Uses } from "./usage";

const COUNTS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];
const DISKS = [1, 2, 3, 4, 6, 8];
const SPEEDS = ["x0.25", "x0.5", "x1", "x2", "x4", "x8", "infinite"];

export interface Wish {
  cores: number;
  disks: number;
  disk: string;
  network: string;
  /** Bytes; 0: as it is. */
  memory: number;
  inMemory: boolean;
}

/** The machine as it is. */
export function asItIs(cores: number): Wish {
  return { cores, disks: 1, disk: "x1", network: "x1", memory: 0, inMemory: false };
}

/** A wish as the option of EXPLAIN; empty: nothing is different. */
export function whatIf(wish: Wish, cores: number): string {
  const parts = [
    ...(wish.cores === cores ? [] : [`cores = ${wish.cores}`]),
    ...(wish.disks === 1 ? [] : [`disks = ${wish.disks}`]),
    ...(wish.disk === "x1" ? [] : [`disk = '${wish.disk}'`]),
    ...(wish.network === "x1" ? [] : [`network = '${wish.network}'`]),
    ...(wish.memory === 0 ? [] : [`memory = '${wish.memory}B'`]),
    ...(wish.inMemory ? ["input = 'memory'"] : []),
  ];
  return parts.length === 0 ? "" : `WHAT IF (${parts.join(", ")}), `;
}

/** The sizes of memory about which the model can be asked; the first is as it was. */
export function memorySizes(used: Machine["memory"]): number[] {
  const needed = used ? used.held + used.spilled : 0;
  return needed === 0 ? [0] : used?.spilled ? [0, needed, needed * 2, needed * 4] : [0, needed * 2, needed * 4, needed * 8];
}

/** What was held in memory, and what other sizes would change. */
function memoryText(used: Machine["memory"], isView: boolean): string {
  if (!used || used.held + used.spilled === 0) return "Nothing that it held in memory was counted.";
  const held = isView ? `The state of its pipeline takes ${bytes(used.held)} in memory` : `It held ${bytes(used.held)} in memory at most`;
  if (used.spilled === 0) return `${held}, and spilled nothing: more would not change it, and with less it was not measured.`;
  return `${held}, and ${isView ? `${bytes(used.spilled)} of it are on` : `spilled ${bytes(used.spilled)} to`} disk: with ${bytes(used.held + used.spilled)} these reads and writes would not be there. What it would do in between was not measured.`;
}

function speedText(speed: string): string {
  return speed === "infinite" ? "infinitely fast" : speed === "x1" ? "as it is" : `${speed.slice(1)} times as fast`;
}

function Slider(props: { name: string; tip: string; values: readonly (string | number)[]; value: string | number; text: string; off?: string; onChange(value: string | number): void }) {
  return (
    <label class={`slider ${props.off ? "off" : ""}`} data-tip={props.off ?? props.tip} tabIndex={props.off ? 0 : undefined}>
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

/** The sliders alone. What cannot change anything is off, and says why. */
function Sliders(props: { wish: Wish; subject: Subject; onChange(wish: Wish): void }) {
  const { wish, subject } = props;
  const { machine, uses } = subject;
  const counts = [...new Set([...COUNTS, machine.cores])].sort((one, other) => one - other);
  const sizes = memorySizes(machine.memory);
  const set = (part: Partial<Wish>) => props.onChange({ ...wish, ...part });
  const noDisk = uses.disk ? undefined : uses.log ? "Its epochs used no disk: the log is written before them." : "No disk was used.";
  return (
    <div class="sliders">
      <Slider name="cores" tip="Cores that the machine would have." values={counts} value={wish.cores} text={`${wish.cores}`} onChange={(cores) => set({ cores: Number(cores) })} />
      <Slider name="disks" tip="Disks among which the data would be spread." values={DISKS} value={wish.disks} text={`${wish.disks}`} off={noDisk} onChange={(disks) => set({ disks: Number(disks) })} />
      <Slider name="disk speed" tip="How fast each disk would be, against those that were used." values={SPEEDS} value={wish.disk} text={speedText(wish.disk)} off={noDisk} onChange={(disk) => set({ disk: String(disk) })} />
      <Slider
        name="network"
        tip="How fast the network would be, against the one that was used."
        values={SPEEDS}
        value={wish.network}
        text={speedText(wish.network)}
        off={machine.network ? undefined : "All workers are in one process: nothing crosses a network."}
        onChange={(network) => set({ network: String(network) })}
      />
      <Slider
        name="memory"
        tip="Memory that it could hold, before something has to go to disk."
        values={sizes}
        value={wish.memory}
        text={wish.memory === 0 ? "as it is" : bytes(wish.memory)}
        off={sizes.length > 1 ? undefined : "It held nothing in memory that is counted."}
        onChange={(memory) => set({ memory: Number(memory) })}
      />
      <p class="quiet" data-tip={subject.isView ? TERMS.stateBytes : "The most that it held at once."} tabIndex={0}>
        {memoryText(machine.memory, subject.isView)}
      </p>
      {uses.input && (
        <label class="check">
          <input type="checkbox" checked={wish.inMemory} onChange={(event) => set({ inMemory: event.currentTarget.checked })} />
          the input is in memory already
        </label>
      )}
    </div>
  );
}

/** How long the last slider must rest before the model is asked (milliseconds). */
const REST_MS = 150;

/** What the model is asked about: a query's run, or the epochs of a view. */
export interface Subject {
  /** Under which number it is kept. */
  id: number | undefined;
  machine: Machine;
  uses: Uses;
  /** What was measured, and the time of a perfect schedule, in nanoseconds. */
  measured: number;
  modelled: number;
  usual: Prediction[];
  tips: { measured: string };
  /** The epochs of a view. */
  isView: boolean;
}

/** What the model answers: the prediction, and of a view the rate that it could sustain. */
export interface Answer {
  prediction: Prediction | undefined;
  headRoom: HeadRoom | undefined;
}

/** Reads it out of the document of either. */
function answerOf(found: Run | ViewRun): Answer {
  if ("profile" in found) return { prediction: found.analysis.what_ifs[0], headRoom: undefined };
  return { prediction: found.analysis.epochs?.what_ifs[0], headRoom: found.analysis.what_if?.[1] };
}

export function WhatIf({ subject, onAnswer }: { subject: Subject; onAnswer?(answer: Answer | undefined, text: string): void }) {
  const { machine, measured } = subject;
  const [wish, setWish] = useState(asItIs(machine.cores));
  const [answer, setAnswer] = useState<Prediction>();
  const [error, setError] = useState<string>();
  const option = whatIf(wish, machine.cores);
  const answered = (found: Answer | undefined) => {
    setAnswer(found?.prediction);
    onAnswer?.(found, found?.prediction ? scenarioText(found.prediction.scenario) : "");
  };
  useEffect(() => setWish(asItIs(machine.cores)), [subject.id]);
  useEffect(() => {
    setError(undefined);
    if (option === "" || subject.id === undefined) return answered(undefined);
    const abort = new AbortController();
    const timer = setTimeout(() => {
      explained<Run | ViewRun>(`EXPLAIN ANALYZE (${option}FORMAT JSON) PROFILE ${subject.id}`, abort.signal)
        .then((found) => answered(answerOf(found)))
        .catch((failure: Error) => !abort.signal.aborted && !isConnection(failure) && setError(failure.message));
    }, REST_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [option, subject.id]);
  const longest = Math.max(measured, answer?.elapsed ?? 0, subject.modelled, 1);
  return (
    <div class="what-if">
      <Sliders wish={wish} subject={subject} onChange={setWish} />
      <Fault message={error} />
      <div class="bars" role="group" aria-label="measured and predicted">
        <BarLine name="measured" tip={subject.tips.measured} value={measured} most={longest} tone="measured" />
        <BarLine name="perfect schedule" tip={TERMS.modelled} value={subject.modelled} most={longest} tone="modelled" />
        <BarLine
          name={answer ? "predicted" : "predicted: move a slider"}
          tip={TERMS.predicted}
          value={answer?.elapsed}
          most={longest}
          tone="predicted"
          aside={answer && measured > 0 ? change(answer.elapsed / measured - 1) : ""}
        />
      </div>
      <Table
        label="usual changes"
        rows={subject.usual}
        empty=""
        columns={[
          { head: "what if", tip: "What would be different.", cell: (row) => scenarioText(row.scenario) },
          { head: "perfect", number: true, tip: TERMS.modelled, cell: (row) => duration(row.modelled / 1e9) },
          { head: "predicted", number: true, tip: TERMS.predicted, cell: (row) => duration(row.elapsed / 1e9) },
          { head: "change", number: true, tip: "Against what was measured.", cell: (row) => (measured > 0 ? change(row.elapsed / measured - 1) : "") },
        ]}
      />
    </div>
  );
}

function BarLine(props: { name: string; tip: string; value: number | undefined; most: number; tone: string; aside?: string }) {
  return (
    <div class="bar-line" data-tip={props.tip} tabIndex={0}>
      <span>{props.name}</span>
      <div class="bar-track">{props.value !== undefined && <div class={`bar ${props.tone}`} style={{ width: `${Math.max(0.5, (props.value / props.most) * 100)}%` }} />}</div>
      <span class="number">
        {props.value === undefined ? "–" : duration(props.value / 1e9)} {props.aside}
      </span>
    </div>
  );
}
