// What a run used of each resource: its monotasks as a picture with its legend, and their sums by stage.
import type { ComponentChildren } from "preact";
import { bytes, count, duration, percent } from "../format";
import { Panel, Table } from "../parts/panel";
import { TERMS } from "../terms";
import { series } from "../theme";
import { resourceName, type Profile, type Usage } from "./profile";
import { Timeline } from "./timeline";

const BARS = "Every piece of work uses one resource at a time. A bar is one such piece; its colour is its stage.";

/** The timeline of a run. `note`: what else is to be known; `aside`: what stands beside the heading. */
export function Monotasks({ profile, note, aside }: { profile: Profile; note?: string; aside?: ComponentChildren }) {
  const hasMonotasks = profile.stages.some((stage) => stage.tasks.some((task) => task.monotasks.length > 0));
  const used = profile.stages.filter((stage) => stage.tasks.length > 0);
  return (
    <Panel title={hasMonotasks ? "Monotasks by resource" : "Tasks by stage"} tip={BARS} aside={aside} wide>
      <Timeline profile={profile} />
      {note && (
        <p class="quiet" data-tip={BARS} tabIndex={0}>
          {note}
        </p>
      )}
      <ul class="stage-legend">
        {used.map((stage) => (
          <li key={stage.id} data-tip={TERMS.stage} tabIndex={0}>
            <i class={series(stage.id)} /> <b>stage {stage.id}</b> {stage.name}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** The sums behind it, a row for each stage, resource and kind. */
export function UsageTable({ profile, stages }: { profile: Profile; stages: { id: number; usage: Usage[] }[] }) {
  const rows = stages.flatMap((stage) => stage.usage.map((usage) => ({ ...usage, stage: stage.id }))).sort((one, other) => other.stage - one.stage);
  const names = new Map(profile.stages.map((stage) => [stage.id, stage.name]));
  return (
    <Panel title="What each stage used" wide>
      <Table<Usage & { stage: number }>
        label="use of resources by stage"
        rows={rows}
        empty="Nothing was used."
        columns={[
          { head: "stage", tip: TERMS.stage, cell: (row) => `${row.stage}: ${names.get(row.stage) ?? ""}` },
          { head: "resource", tip: "What it used, and for what kind of work.", cell: (row) => `${resourceName(row.resource, profile.machine)}: ${row.kind ?? ""}` },
          { head: "monotasks", number: true, tip: "Pieces of work, each of which used this resource only.", cell: (row) => count(row.monotasks) },
          { head: "service", number: true, tip: TERMS.service, cell: (row) => duration(row.service / 1e9) },
          { head: "queue", number: true, tip: TERMS.queued, cell: (row) => duration(row.queue / 1e9) },
          { head: "rows", number: true, tip: "Rows that these pieces of work put out.", cell: (row) => count(row.rows) },
          { head: "bytes", number: true, tip: "Bytes of these rows, or that were read and written.", cell: (row) => bytes(row.bytes) },
          { head: "used", number: true, tip: TERMS.utilisation, cell: (row) => percent(row.utilisation) },
        ]}
      />
    </Panel>
  );
}

/** What was used of what the model can change: a disk, the query's input. The log of a view is written before its epochs. */
export interface Uses {
  disk: boolean;
  input: boolean;
  log: boolean;
}

export function usesOf(stages: Usage[][]): Uses {
  const usages = stages.flat();
  return {
    disk: usages.some((usage) => typeof usage.resource === "object" && usage.kind !== "log"),
    input: usages.some((usage) => usage.kind === "read" || usage.kind === "decode"),
    log: usages.some((usage) => usage.kind === "log"),
  };
}
