// A run of a query: the verdict, the timeline, what each stage used, and what would make it faster.
import { duration, percent } from "../format";
import { Panel } from "../parts/panel";
import { Metric } from "../parts/tip";
import { TERMS } from "../terms";
import { resourceName, type Run } from "./profile";
import { Monotasks, UsageTable, usesOf } from "./usage";
import { WhatIf } from "./whatif";

export function QueryTime({ run }: { run: Run }) {
  const { profile, analysis } = run;
  const subject = {
    id: run.id,
    machine: profile.machine,
    uses: usesOf(analysis.stages.map((stage) => stage.usage)),
    measured: analysis.elapsed,
    modelled: analysis.modelled.total,
    usual: analysis.what_ifs,
    tips: { measured: TERMS.elapsed },
    isView: false,
  };
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
      <Monotasks profile={profile} />
      <Panel title="What if" wide>
        <WhatIf subject={subject} />
      </Panel>
      <UsageTable profile={profile} stages={analysis.stages} />
    </>
  );
}
