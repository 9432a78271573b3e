// A running view over some seconds: how busy each stage is, how fresh the view, and what rate it could take.
import { useEffect, useState } from "preact/hooks";
import { bytes, count, duration, percent, plural, rate } from "../format";
import { Panel, Table } from "../parts/panel";
import { Metric } from "../parts/tip";
import { TERMS } from "../terms";
import { series } from "../theme";
import type { HeadRoom, Profile, ViewRun } from "./profile";
import { Monotasks, UsageTable, usesOf } from "./usage";
import { WhatIf } from "./whatif";

/** How much of the end of what was watched is drawn (nanoseconds). */
const DRAWN = 1e9;

export function ViewTime({ run }: { run: ViewRun }) {
  const { view, analysis } = run;
  const now = analysis.rows_per_second;
  const [asked, setAsked] = useState<{ text: string; headRoom: HeadRoom }>();
  useEffect(() => setAsked(undefined), [run]);
  const trace = view.trace?.run;
  const epochs = analysis.epochs;
  const rates = [
    { name: "now", value: now, tone: "measured", tip: "Rows that arrived a second while it was watched." },
    ...(analysis.head_room ? [{ name: "could take", value: analysis.head_room.rows_per_second, tone: "modelled", tip: TERMS.headRoom }] : []),
    ...(asked ? [{ name: asked.text, value: asked.headRoom.rows_per_second, tone: "predicted", tip: "The same with the change that the sliders say." }] : []),
  ];
  const most = Math.max(...rates.map((entry) => entry.value), 1);
  const names = new Map(view.stages.map((stage) => [stage.id, stage.name]));
  return (
    <>
      <p class="verdict large">{analysis.verdict}</p>
      <dl class="metrics">
        <Metric label="rows in" tip="Rows that arrived a second at the inputs of its pipeline.">
          {rate(now)}
        </Metric>
        <Metric label="epochs" tip="Epochs that were committed a second.">
          {rate(analysis.epochs_per_second, "epochs")}
        </Metric>
        <Metric label="fresh in, median" tip={TERMS.freshness}>
          {duration(analysis.freshness ? analysis.freshness.p50 / 1e9 : undefined)}
        </Metric>
        <Metric label="fresh in, 99 %" tip="The same time, which 99 of 100 epochs do not exceed.">
          {duration(analysis.freshness ? analysis.freshness.p99 / 1e9 : undefined)}
        </Metric>
        <Metric label="cores, this view" tip="Share of all cores that its tasks took.">
          {percent(analysis.view_cpu)}
        </Metric>
        <Metric label="cores, pipeline" tip="The same of all views of its pipeline.">
          {percent(analysis.pipeline_cpu)}
        </Metric>
        <Metric label="cores, outside" tip="What is no task: taking rows in, the log, the protocols.">
          {percent(analysis.outside_cpu)}
        </Metric>
        <Metric label="coordination" tip={TERMS.coordination}>
          {percent(analysis.coordination_share)}
        </Metric>
        <Metric label="rows" tip={TERMS.rows}>
          {count(view.rows)}
        </Metric>
        <Metric label="state" tip={TERMS.stateBytes}>
          {bytes(view.state_bytes)}
        </Metric>
        {(view.in_flight_bytes ?? 0) > 0 && (
          <Metric label="on their way" tip={TERMS.inFlight}>
            {bytes(view.in_flight_bytes)}
          </Metric>
        )}
      </dl>
      {trace && <LastEpochs run={trace} />}
      {trace && epochs && epochs.epochs > 0 && (
        <Panel title="What if: an epoch" tip="The same model as for a query, asked of each epoch with rows that was seen whole; the means are shown." wide>
          <p class="quiet" data-tip="Epochs of which both the beginning and the end were seen." tabIndex={0}>
            The mean of {plural(epochs.epochs, "epoch")} with rows, each from its cut to its end.
          </p>
          <WhatIf
            subject={{
              id: run.id,
              machine: trace.machine,
              uses: usesOf(epochs.stages),
              measured: epochs.elapsed,
              modelled: epochs.modelled.total,
              usual: epochs.what_ifs,
              tips: { measured: "Measured: from the cut of an epoch to the end of its last task." },
              isView: true,
            }}
            onAnswer={(answer, text) => setAsked(answer?.headRoom && text ? { text, headRoom: answer.headRoom } : undefined)}
          />
        </Panel>
      )}
      <Panel title="Where the time of its stages goes" tip="Each stage over the time for which it was watched. The mark is its busiest partition, whose epochs run one after the other: it cannot be busier than 100 %." wide>
        <div class="stage-bars">
          {analysis.stages
            .slice()
            .reverse()
            .map((stage) => (
              <div key={stage.id} class="stage-bar" data-tip={`cpu ${percent(stage.cpu)} of all cores; busiest partition ${stage.busiest} at ${percent(stage.busiest_share)}`} tabIndex={0}>
                <span class="stage-bar-name">
                  <b>{stage.id}</b> {names.get(stage.id) ?? ""}
                </span>
                <div class="bar-track">
                  <div class={`bar ${series(stage.id)}`} style={{ width: `${Math.min(100, Math.max(0.5, stage.cpu * 100))}%` }} />
                  <i class="mark" style={{ left: `${Math.min(100, stage.busiest_share * 100)}%` }} />
                </div>
                <span class="number">{percent(stage.cpu)}</span>
              </div>
            ))}
        </div>
        <Table
          label="stages"
          rows={analysis.stages.slice().reverse()}
          empty=""
          columns={[
            { head: "stage", tip: TERMS.stage, cell: (row) => `${row.id}: ${names.get(row.id) ?? ""}` },
            { head: "tasks", number: true, tip: "Tasks that ran while it was watched: one for each partition and epoch.", cell: (row) => count(row.sums.tasks) },
            { head: "rows in", number: true, tip: "Rows that its tasks took.", cell: (row) => count(row.sums.rows_in) },
            { head: "rows out", number: true, tip: "Rows that its tasks put out.", cell: (row) => count(row.sums.rows_out) },
            { head: "busy", number: true, tip: TERMS.tasksBusy, cell: (row) => duration(row.sums.busy / 1e9) },
            { head: "queue", number: true, tip: TERMS.queued, cell: (row) => duration(row.sums.queue / 1e9) },
            { head: "busiest partition", number: true, tip: "The partition whose tasks ran longest, and the share of the time in which they did. Near 100 %: it is the limit.", cell: (row) => `${row.busiest} at ${percent(row.busiest_share)}` },
          ]}
        />
      </Panel>
      <Panel title="Head-room" tip={TERMS.headRoom} wide>
        {analysis.head_room ? (
          <div class="bars">
            {rates.map((entry) => (
              <div key={entry.name} class="bar-line" data-tip={entry.tip} tabIndex={0}>
                <span>{entry.name}</span>
                <div class="bar-track">
                  <div class={`bar ${entry.tone}`} style={{ width: `${Math.max(0.5, (entry.value / most) * 100)}%` }} />
                </div>
                <span class="number">{rate(entry.value)}</span>
              </div>
            ))}
          </div>
        ) : (
          <p class="quiet">No rows were committed while it was watched.</p>
        )}
        {asked && <p class="quiet">With {asked.text}, the limit is then {LIMITS[asked.headRoom.limit] ?? asked.headRoom.limit}.</p>}
        {view.log && (
          <p class="quiet" data-tip="What is written is durable when its group is in the log." tabIndex={0}>
            The log on disk {view.log.disk} was written in {plural(view.log.groups, "group")}, {bytes(view.log.bytes)}, {duration(view.log.service / view.log.groups / 1e9)} each.
          </p>
        )}
      </Panel>
      {trace && epochs && <UsageTable profile={trace} stages={trace.stages.map((stage, at) => ({ id: stage.id, usage: epochs.stages[at] ?? [] }))} />}
    </>
  );
}

/** What limits a rate, as words. */
const LIMITS: Record<string, string> = { cpu: "the cores", one_task: "one partition", disk: "the disk", network: "the network" };

/** The monotasks of the last epochs, of all that was watched or of its last second. */
function LastEpochs({ run }: { run: Profile }) {
  const [all, setAll] = useState(false);
  const from = all ? 0 : Math.max(0, run.end - DRAWN);
  const shown = window(run, from);
  const drawn = shown.stages.reduce((sum, stage) => sum + stage.tasks.reduce((tasks, task) => tasks + task.monotasks.length, 0), 0);
  const summed = run.stages.some((stage) => stage.tasks.some((task) => task.monotasks.length === 0));
  const note = `${plural(drawn, "monotask")} of the last ${duration(shown.end / 1e9)}.${summed ? " Tasks that began before it was watched, and the first of very many, are not drawn; the sums below have them." : " The sums below are of all that was watched."}`;
  const aside = run.end > DRAWN && <button onClick={() => setAll(!all)}>{all ? "Only its last second" : `All ${duration(run.end / 1e9)} of it`}</button>;
  return drawn > 0 ? (
    <Monotasks profile={shown} note={note} aside={aside} />
  ) : (
    <Panel title="Monotasks by resource" aside={aside} wide>
      <p class="quiet">Nothing ran in the last {duration(shown.end / 1e9)} of it.</p>
    </Panel>
  );
}

/** A run from a moment on. */
function window(run: Profile, from: number): Profile {
  const stages = run.stages.map((stage) => ({
    ...stage,
    tasks: stage.tasks
      .map((task) => ({
        ...task,
        monotasks: task.monotasks
          .filter((monotask) => monotask.started_at >= from)
          .map((monotask) => ({ ...monotask, queued_at: monotask.queued_at - from, started_at: monotask.started_at - from })),
      }))
      .filter((task) => task.monotasks.length > 0),
  }));
  return { ...run, end: run.end - from, stages };
}
