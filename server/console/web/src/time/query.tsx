// A run of a query: the verdict, the timeline, what each stage used, and what would make it faster.
import { bytes, count, duration, percent } from "../format";
import { Panel, Table } from "../parts/panel";
import { Metric } from "../parts/tip";
import { TERMS } from "../terms";
import { resourceName, type Run, type Usage } from "./profile";
import { Timeline } from "./timeline";
import { WhatIf } from "./whatif";

export function QueryTime({ run }: { run: Run }) {
  const { profile, analysis } = run;
  const rows = analysis.stages
    .flatMap((stage) => stage.usage.map((usage) => ({ ...usage, stage: stage.id })))
    .sort((one, other) => other.stage - one.stage);
  const stageName = new Map(profile.stages.map((stage) => [stage.id, stage.name]));
  const hasMonotasks = profile.stages.some((stage) => stage.tasks.some((task) => task.monotasks.length > 0));
  return (
    <>
      <p class="verdict large">{analysis.verdict}</p>
      <dl class="metrics">
        <Metric label="measured" tip={TERMS.elapsed}>
          {duration(analysis.elapsed / 1e9)}
        </Metric>
        <Metric label="of it planning" tip="Parsing, binding and planning, before the run began.">
          {duration(profile.planning / 1e9)}
        </Metric>
        <Metric label="perfect schedule" tip={TERMS.modelled}>
          {duration(analysis.modelled.total / 1e9)}
        </Metric>
        {analysis.resources.map((usage) => (
          <Metric key={resourceName(usage.resource, profile.machine)} label={`${resourceName(usage.resource, profile.machine)} used`} tip={TERMS.utilisation}>
            {percent(usage.utilisation)}
          </Metric>
        ))}
      </dl>
      <Panel title={hasMonotasks ? "Monotasks by resource" : "Tasks by stage"} tip="Every piece of work uses one resource at a time. A bar is one such piece; its colour is its stage." wide>
        <Timeline profile={profile} />
        <ul class="stage-legend">
          {profile.stages.map((stage) => (
            <li key={stage.id}>
              <i class={`series-${(stage.id % 8) + 1}`} /> <b>stage {stage.id}</b> {stage.name}
            </li>
          ))}
        </ul>
      </Panel>
      <Panel title="What if" wide>
        <WhatIf run={run} />
      </Panel>
      <Panel title="What each stage used" wide>
        <Table<Usage & { stage: number }>
          label="use of resources by stage"
          rows={rows}
          empty="Nothing was used."
          columns={[
            { head: "stage", cell: (row) => `${row.stage}: ${stageName.get(row.stage) ?? ""}` },
            { head: "resource", cell: (row) => `${resourceName(row.resource, profile.machine)}: ${row.kind ?? ""}` },
            { head: "monotasks", number: true, cell: (row) => count(row.monotasks) },
            { head: "service", number: true, tip: TERMS.service, cell: (row) => duration(row.service / 1e9) },
            { head: "queue", number: true, tip: TERMS.queued, cell: (row) => duration(row.queue / 1e9) },
            { head: "rows", number: true, cell: (row) => count(row.rows) },
            { head: "bytes", number: true, cell: (row) => bytes(row.bytes) },
            { head: "used", number: true, tip: TERMS.utilisation, cell: (row) => percent(row.utilisation) },
          ]}
        />
      </Panel>
    </>
  );
}
