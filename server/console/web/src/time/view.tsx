// A running view over some seconds: how busy each stage is, how fresh the view, and what rate it could take.
import { bytes, count, duration, percent, rate, short } from "../format";
import { Panel, Table } from "../parts/panel";
import { Metric } from "../parts/tip";
import { TERMS } from "../terms";
import { scenarioText, type ViewRun } from "./profile";

export function ViewTime({ run }: { run: ViewRun }) {
  const { view, analysis } = run;
  const now = analysis.rows_per_second;
  const rates = [
    { name: "now", value: now, tone: "measured" },
    ...(analysis.head_room ? [{ name: "could take", value: analysis.head_room.rows_per_second, tone: "modelled" }] : []),
    ...(analysis.what_if ? [{ name: scenarioText(analysis.what_if[0]), value: analysis.what_if[1].rows_per_second, tone: "predicted" }] : []),
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
          {short(analysis.epochs_per_second)} /s
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
        <Metric label="state" tip={TERMS.bytes}>
          {bytes(view.state_bytes)}
        </Metric>
      </dl>
      <Panel title="Where the time of its stages goes" tip="Each stage over the time for which it was watched. The mark is its busiest partition, whose epochs run one after the other: it cannot be busier than 100 %." wide>
        <div class="stage-bars">
          {analysis.stages
            .slice()
            .reverse()
            .map((stage) => (
              <div key={stage.id} class="stage-bar">
                <span class="stage-bar-name">
                  <b>{stage.id}</b> {names.get(stage.id) ?? ""}
                </span>
                <div class="bar-track" data-tip={`cpu ${percent(stage.cpu)} of all cores; busiest partition ${stage.busiest} at ${percent(stage.busiest_share)}`}>
                  <div class={`bar series-${(stage.id % 8) + 1}`} style={{ width: `${Math.min(100, Math.max(0.5, stage.cpu * 100))}%` }} />
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
            { head: "stage", cell: (row) => `${row.id}: ${names.get(row.id) ?? ""}` },
            { head: "tasks", number: true, cell: (row) => count(row.sums.tasks) },
            { head: "rows in", number: true, cell: (row) => count(row.sums.rows_in) },
            { head: "rows out", number: true, cell: (row) => count(row.sums.rows_out) },
            { head: "busy", number: true, tip: "Time in which its tasks ran.", cell: (row) => duration(row.sums.busy / 1e9) },
            { head: "queue", number: true, tip: TERMS.queued, cell: (row) => duration(row.sums.queue / 1e9) },
            { head: "busiest partition", number: true, cell: (row) => `${row.busiest} at ${percent(row.busiest_share)}` },
          ]}
        />
      </Panel>
      <Panel title="Head-room" tip={TERMS.headRoom} wide>
        {analysis.head_room ? (
          <div class="bars">
            {rates.map((entry) => (
              <div key={entry.name} class="bar-line">
                <span>{entry.name}</span>
                <div class="bar-track">
                  <div class={`bar ${entry.tone}`} style={{ width: `${Math.max(0.5, (entry.value / most) * 100)}%` }} />
                </div>
                <span class="number">{rate(entry.value)}</span>
              </div>
            ))}
          </div>
        ) : (
          <p class="quiet">No rows came while it was watched.</p>
        )}
        {view.log && (
          <p class="quiet">
            The log on disk {view.log.disk} was written in {count(view.log.groups)} groups, {bytes(view.log.bytes)}, {duration(view.log.service / view.log.groups / 1e9)} each.
          </p>
        )}
      </Panel>
    </>
  );
}
